//! clone3. The one place where a process is made.
#![allow(unsafe_code)]

use super::child::Plan;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};

/// linux/sched.h: all handlers become default in the child. Ignored signals stay ignored; the child resets those itself.
const CLONE_CLEAR_SIGHAND: u64 = 0x1_0000_0000;
/// linux/sched.h: the child begins its life in the cgroup of `clone_args.cgroup`.
const CLONE_INTO_CGROUP: u64 = 0x2_0000_0000;

/// Makes a process in `cgroup` (or in our own) that carries out `plan`. Returns its number and its pidfd.
pub(super) fn fork_into(cgroup: Option<BorrowedFd<'_>>, plan: &Plan<'_>) -> io::Result<(u32, OwnedFd)> {
    // A signal that arrives between clone and exec would run the daemon's handlers in the child, and write to pipes they
    // share. So none arrives: blocked here, unblocked by the child after the handlers are gone.
    let _blocked = SignalsBlocked::new();
    // SAFETY: in the child (0) only Plan::run is called, which makes system calls on memory prepared before and never
    // returns: no allocation, no lock, no destructor of the copied process runs.
    match unsafe { clone3(cgroup) }? {
        Forked::Child => plan.run(),
        Forked::Parent(pid, pidfd) => Ok((pid, pidfd)),
    }
}

/// Makes a process in `cgroup` that exits at once, and waits for it.
pub(super) fn fork_and_exit(cgroup: BorrowedFd<'_>) -> io::Result<()> {
    let _blocked = SignalsBlocked::new();
    // SAFETY: the child calls nothing but _exit.
    match unsafe { clone3(Some(cgroup)) }? {
        // SAFETY: _exit ends the process without running anything of the copied one.
        Forked::Child => unsafe { libc::_exit(0) },
        Forked::Parent(pid, _) => loop {
            // SAFETY: a null status pointer is allowed.
            let rc = unsafe { libc::waitpid(pid as libc::pid_t, std::ptr::null_mut(), 0) };
            if rc >= 0 {
                return Ok(());
            }
            let error = io::Error::last_os_error();
            if error.kind() != io::ErrorKind::Interrupted {
                return Err(error);
            }
        },
    }
}

enum Forked {
    Child,
    Parent(u32, OwnedFd),
}

/// As fork(2), with a pidfd and a cgroup.
///
/// # Safety
/// In the child, only async-signal-safe calls may follow, and it must not return to the caller's callers: other threads'
/// locks are held there for ever.
unsafe fn clone3(cgroup: Option<BorrowedFd<'_>>) -> io::Result<Forked> {
    let mut pidfd: RawFd = -1;
    // SAFETY: clone_args is plain integers; zero means "not used" for each of them.
    let mut args: libc::clone_args = unsafe { std::mem::zeroed() };
    args.flags = libc::CLONE_PIDFD as u64 | CLONE_CLEAR_SIGHAND;
    args.pidfd = &raw mut pidfd as u64;
    args.exit_signal = libc::SIGCHLD as u64;
    if let Some(cgroup) = cgroup {
        args.flags |= CLONE_INTO_CGROUP;
        args.cgroup = cgroup.as_raw_fd() as u64;
    }
    // SAFETY: `args` and `pidfd` are valid for the call. Without CLONE_VM and with no stack given, the child goes on here
    // on its own copy of this stack, as after fork.
    let rc = unsafe { libc::syscall(libc::SYS_clone3, &raw mut args, size_of::<libc::clone_args>()) };
    match rc {
        0 => Ok(Forked::Child),
        // SAFETY: clone3 succeeded with CLONE_PIDFD, so `pidfd` is a fresh descriptor that nobody else knows.
        pid if pid > 0 => Ok(Forked::Parent(pid as u32, unsafe { OwnedFd::from_raw_fd(pidfd) })),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Every signal is blocked in this thread until the drop.
struct SignalsBlocked {
    before: u64,
}

impl SignalsBlocked {
    fn new() -> SignalsBlocked {
        let mut before = 0u64;
        set_mask(&u64::MAX, &raw mut before);
        SignalsBlocked { before }
    }
}

impl Drop for SignalsBlocked {
    fn drop(&mut self) {
        set_mask(&self.before, std::ptr::null_mut());
    }
}

/// The raw call, because libc's refuses to block the two signals it keeps for itself, and one of them can arrive as well.
fn set_mask(mask: &u64, before: *mut u64) {
    // SAFETY: the kernel reads 8 bytes at `mask` and writes 8 at `before` unless it is null; both hold a u64. It cannot
    // fail with these arguments.
    unsafe { libc::syscall(libc::SYS_rt_sigprocmask, libc::SIG_SETMASK, mask, before, size_of::<u64>()) };
}
