# A leader that ignores TERM, with a child that it traces, stops, and never lets go.
import ctypes, os, signal, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
child = os.fork()
if child == 0:
    ctypes.CDLL(None).ptrace(0, 0, None, None)
    os.kill(os.getpid(), signal.SIGSTOP)
    time.sleep(100000)
os.waitpid(child, os.WUNTRACED)
with open("traced.tmp", "w") as out:
    out.write(str(child))
os.rename("traced.tmp", "traced")
time.sleep(100000)
