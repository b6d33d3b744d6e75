# vfork.py PROGRAM [CGROUP]: moves itself to the cgroup if one is given, ignores TERM, and starts the program by vfork, so that
# it waits in the kernel for as long as the program hangs in exec.
import os, signal, sys
signal.signal(signal.SIGTERM, signal.SIG_IGN)
if len(sys.argv) > 2:
    with open(sys.argv[2] + "/cgroup.procs", "w") as procs:
        procs.write(str(os.getpid()))
with open("vfork.tmp", "w") as out:
    out.write(str(os.getpid()))
os.rename("vfork.tmp", "vfork")
os.posix_spawn(sys.argv[1], [sys.argv[1], "100000"], os.environ)
signal.pause()
