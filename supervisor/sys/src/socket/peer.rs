//! Who is at the other end of a connected unix socket.
#![allow(unsafe_code)]

use crate::process::{self, PidFd};
use nix::sys::socket::{getsockopt, sockopt::PeerCredentials};
use std::io;
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd, RawFd};

/// asm-generic/socket.h, Linux 6.5; libc has no name for it everywhere.
const SO_PEERPIDFD: libc::c_int = 77;

/// The process that called connect (or listen, seen from the client). It may have handed the descriptor on since.
#[derive(Debug)]
pub struct Peer {
    /// Process id then.
    pub pid: u32,
    /// Effective user then.
    pub uid: u32,
    /// Effective group then.
    pub gid: u32,
    /// The process, where the kernel tells (6.5 and newer), else opened by its number, which for a short-lived peer could be
    /// another process by now. `None`: gone.
    pub pidfd: Option<PidFd>,
    /// Its cgroup2 path now ("/a/b"), read while `pidfd` was held. `None`: gone, or no cgroup2.
    pub cgroup: Option<String>,
}

impl Peer {
    /// Asks the kernel.
    pub fn of(socket: &impl AsFd) -> io::Result<Peer> {
        let credentials = getsockopt(&socket.as_fd(), PeerCredentials)?;
        let pid = u32::try_from(credentials.pid()).unwrap_or(0);
        let pidfd = match peer_pidfd(socket) {
            Ok(pidfd) => Some(pidfd),
            // The peer was waited for before we asked.
            Err(e) if process::is_gone(&e) || e.raw_os_error() == Some(libc::EINVAL) => None,
            Err(_) => PidFd::open(pid)?,
        };
        let cgroup = pidfd.as_ref().and_then(|held| {
            let path = process::cgroup(pid).ok().flatten();
            path.filter(|_| held.exists().unwrap_or(false))
        });
        Ok(Peer { pid, uid: credentials.uid(), gid: credentials.gid(), pidfd, cgroup })
    }
}

fn peer_pidfd(socket: &impl AsFd) -> io::Result<PidFd> {
    let mut fd: RawFd = -1;
    let mut len = size_of::<RawFd>() as libc::socklen_t;
    let socket = socket.as_fd().as_raw_fd();
    // SAFETY: the kernel writes at most `len` bytes at `fd`, and `len` is its size.
    let rc = unsafe { libc::getsockopt(socket, libc::SOL_SOCKET, SO_PEERPIDFD, (&raw mut fd).cast(), &raw mut len) };
    if rc < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the call succeeded, so `fd` is a fresh descriptor (close-on-exec) that nobody else knows.
    Ok(PidFd::from_owned(unsafe { OwnedFd::from_raw_fd(fd) }))
}
