# careless.py PROGRAM ARGUMENT...: becomes the program after it did what careless starters do: every signal blocked, some
# ignored, a mask that lets everybody write, descriptors without close-on-exec, another OOM score, odd limits.
import os, resource, signal, sys
signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
for number in (signal.SIGPIPE, signal.SIGCHLD, signal.SIGHUP, signal.SIGUSR1, signal.SIGINT):
    signal.signal(number, signal.SIG_IGN)
os.umask(0)
for _ in range(20):
    read, write = os.pipe()
    os.set_inheritable(read, True)
    os.set_inheritable(write, True)
with open("/proc/self/oom_score_adj", "w") as score:
    score.write("137")
resource.setrlimit(resource.RLIMIT_CORE, (4096, 4096))
os.execvp(sys.argv[1], sys.argv[1:])
