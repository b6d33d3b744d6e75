//! A file descriptor that names one process for ever (law L5).
#![allow(unsafe_code)]

use super::{Stat, is_gone};
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};

/// One process. Readable (POLLIN) once the process has ended, so it can be waited for in an event loop.
#[derive(Debug)]
pub struct PidFd(OwnedFd);

/// What became of a signal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sent {
    /// The kernel took it. A zombie takes signals too.
    Delivered,
    /// The process is gone and was waited for.
    Gone,
}

impl PidFd {
    /// Opens whatever process has this number now. `None`: nobody has. Compare what /proc says after this call with what
    /// is expected before any signal is sent; [`PidFd::open_same`] does.
    pub fn open(pid: u32) -> io::Result<Option<PidFd>> {
        let Ok(pid) = libc::pid_t::try_from(pid) else { return Ok(None) };
        if pid == 0 {
            return Ok(None);
        }
        // SAFETY: takes two integers and touches no memory of ours.
        let fd = unsafe { libc::syscall(libc::SYS_pidfd_open, pid, 0) };
        if fd < 0 {
            let error = io::Error::last_os_error();
            // EINVAL: the number is a thread's, not a process's.
            let nobody = is_gone(&error) || error.raw_os_error() == Some(libc::EINVAL);
            return if nobody { Ok(None) } else { Err(error) };
        }
        // SAFETY: the kernel has just returned this descriptor (close-on-exec) and nobody else knows it.
        Ok(Some(PidFd(unsafe { OwnedFd::from_raw_fd(fd as RawFd) })))
    }

    /// Opens the process only if it is the one that started then. `None`: gone, or the number is another process's.
    pub fn open_same(pid: u32, start_time: u64) -> io::Result<Option<PidFd>> {
        let Some(pidfd) = PidFd::open(pid)? else { return Ok(None) };
        match Stat::of(pid) {
            Ok(stat) if stat.start_time == start_time && pidfd.exists()? => Ok(Some(pidfd)),
            Ok(_) => Ok(None),
            Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(e) => Err(e),
        }
    }

    /// Sends a signal to exactly this process. Errors: EPERM (another user's process), EINVAL (no such signal).
    pub fn send(&self, signal: i32) -> io::Result<Sent> {
        // SAFETY: the descriptor is open while self lives; a null siginfo is allowed and means "as kill(2)".
        let rc = unsafe {
            libc::syscall(
                libc::SYS_pidfd_send_signal,
                self.0.as_raw_fd(),
                signal,
                std::ptr::null::<libc::siginfo_t>(),
                0,
            )
        };
        if rc == 0 {
            return Ok(Sent::Delivered);
        }
        match io::Error::last_os_error() {
            e if e.raw_os_error() == Some(libc::ESRCH) => Ok(Sent::Gone),
            e => Err(e),
        }
    }

    /// True while the process has not been waited for, zombies included: until then its number is its own.
    pub fn exists(&self) -> io::Result<bool> {
        match self.send(0) {
            Ok(sent) => Ok(sent == Sent::Delivered),
            // Another user's process: it is there, we may not signal it.
            Err(e) if e.raw_os_error() == Some(libc::EPERM) => Ok(true),
            Err(e) => Err(e),
        }
    }

    pub(crate) fn from_owned(fd: OwnedFd) -> PidFd {
        PidFd(fd)
    }
}

impl AsFd for PidFd {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

impl AsRawFd for PidFd {
    fn as_raw_fd(&self) -> RawFd {
        self.0.as_raw_fd()
    }
}

impl From<PidFd> for OwnedFd {
    fn from(pidfd: PidFd) -> OwnedFd {
        pidfd.0
    }
}
