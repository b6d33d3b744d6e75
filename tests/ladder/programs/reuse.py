# reuse.py NUMBER: makes a process with exactly this number as soon as it is free (clone3 with set_tid, which root may), in a
# session of its own, says "there", and waits for its end.
import ctypes, errno, os, sys, time
number = ctypes.c_int32(int(sys.argv[1]))
libc = ctypes.CDLL(None, use_errno=True)
# struct clone_args: flags, pidfd, child_tid, parent_tid, exit_signal, stack, stack_size, tls, set_tid, set_tid_size, cgroup
args = (ctypes.c_uint64 * 11)(0, 0, 0, 0, 17, 0, 0, 0, ctypes.addressof(number), 1, 0)
deadline = time.monotonic() + 100
while True:
    pid = libc.syscall(ctypes.c_long(435), ctypes.byref(args), ctypes.c_size_t(ctypes.sizeof(args)))
    if pid == 0:
        os.setsid()
        os.execv("/bin/sleep", ["sleep", "100000"])
    if pid > 0:
        break
    if ctypes.get_errno() != errno.EEXIST or time.monotonic() > deadline:
        print(os.strerror(ctypes.get_errno()), flush=True)
        sys.exit(3)
    time.sleep(0.002)
print("there", flush=True)
os.waitpid(pid, 0)
