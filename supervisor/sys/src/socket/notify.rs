//! The receiving end of NOTIFY_SOCKET (sd_notify(3)). Whoever can write to it may send anything: every byte is hostile, and
//! who sent it is what the kernel says, never what the text says.
#![allow(unsafe_code)]

use super::{SocketError, bind_new};
use crate::process;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::path::Path;

/// Longest datagram that is read, in bytes; systemd's own limit.
pub const MAX_DATAGRAM: usize = 4096;
/// SCM_MAX_FD: more descriptors the kernel sends in no message.
const MAX_FDS: usize = 253;

/// A bound datagram socket with credentials on every message. Non-blocking, close-on-exec.
#[derive(Debug)]
pub struct NotifySocket {
    fd: OwnedFd,
}

/// One message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Datagram {
    /// Who sent it. `None`: not even the kernel knows; do not believe it.
    pub sender: Option<Sender>,
    /// KEY=VALUE lines in their order. Empty when the message was cut or is no such text.
    pub fields: Vec<(String, String)>,
    /// It was longer than [`MAX_DATAGRAM`], so nothing of it is used.
    pub truncated: bool,
}

/// A sender as the kernel checked it: an ordinary account can only send its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sender {
    /// Process id; 0 when it lives in a pid namespace that we cannot see.
    pub pid: u32,
    /// User.
    pub uid: u32,
    /// Group.
    pub gid: u32,
}

impl Sender {
    /// Its cgroup2 path now. `None`: it has ended, or there is no cgroup2.
    pub fn cgroup(&self) -> Option<String> {
        process::cgroup(self.pid).ok().flatten()
    }
}

impl Datagram {
    /// The last value of `key`.
    pub fn value(&self, key: &str) -> Option<&str> {
        self.fields.iter().rev().find(|(k, _)| k == key).map(|(_, v)| v.as_str())
    }
}

impl NotifySocket {
    /// Binds at `path`, mode 0600; a stale socket is replaced.
    pub fn bind(path: &Path) -> Result<NotifySocket, SocketError> {
        bind_new(path, nix::sys::socket::SockType::Datagram).map(|fd| NotifySocket { fd })
    }

    /// The next message. Error kind WouldBlock: none is waiting. Descriptors that came with it are closed, which is also
    /// what ends a sender's sd_notify_barrier.
    pub fn recv(&self) -> io::Result<Datagram> {
        let mut text = [0u8; MAX_DATAGRAM];
        // u64 for the alignment of cmsghdr.
        let mut control = [0u64; CONTROL_LEN.div_ceil(8)];
        let mut part = libc::iovec { iov_base: text.as_mut_ptr().cast(), iov_len: text.len() };
        // SAFETY: msghdr is plain data; zeros mean "no address, no buffers".
        let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
        message.msg_iov = &raw mut part;
        message.msg_iovlen = 1;
        message.msg_control = control.as_mut_ptr().cast();
        message.msg_controllen = CONTROL_LEN as _;
        let flags = libc::MSG_DONTWAIT | libc::MSG_CMSG_CLOEXEC | libc::MSG_TRUNC;
        // SAFETY: `message` leads to one buffer of `text.len()` bytes and one of CONTROL_LEN, both alive and writable.
        let n = unsafe { libc::recvmsg(self.fd.as_raw_fd(), &raw mut message, flags) };
        let n = usize::try_from(n).map_err(|_| io::Error::last_os_error())?;
        // SAFETY: `message` was filled by recvmsg and `control` is still alive.
        let sender = unsafe { take_control(&message) };
        let truncated = n > text.len();
        let fields = if truncated { Vec::new() } else { parse(&text[..n]) };
        Ok(Datagram { sender, fields, truncated })
    }
}

/// Room for the credentials and the most descriptors that the kernel sends, so that none arrives without being seen.
const CONTROL_LEN: usize = {
    // SAFETY: CMSG_SPACE only computes.
    unsafe {
        libc::CMSG_SPACE(size_of::<libc::ucred>() as u32) as usize
            + libc::CMSG_SPACE((MAX_FDS * size_of::<RawFd>()) as u32) as usize
    }
};

/// Closes all descriptors of a message and returns its credentials.
///
/// # Safety
/// `message` was filled by a successful recvmsg, its control buffer is alive, and this is called once for it.
unsafe fn take_control(message: &libc::msghdr) -> Option<Sender> {
    let mut sender = None;
    // SAFETY: the CMSG macros stay inside msg_controllen, which the kernel set to what it wrote.
    let mut next = unsafe { libc::CMSG_FIRSTHDR(message) };
    while !next.is_null() {
        // SAFETY: not null, so a whole header that the kernel wrote; the buffer is aligned for it.
        let header = unsafe { &*next };
        // SAFETY: as above; the data follows the header.
        let data = unsafe { libc::CMSG_DATA(next) };
        // SAFETY: only computes.
        let len = (header.cmsg_len as usize).saturating_sub(unsafe { libc::CMSG_LEN(0) } as usize);
        match (header.cmsg_level, header.cmsg_type) {
            (libc::SOL_SOCKET, libc::SCM_RIGHTS) => {
                for i in 0..len / size_of::<RawFd>() {
                    // SAFETY: the kernel wrote `len` bytes of descriptors, each fresh in this process and known to nobody
                    // else; read once, so owned once. Dropped at once: that closes it.
                    drop(unsafe { OwnedFd::from_raw_fd(data.cast::<RawFd>().add(i).read_unaligned()) });
                }
            }
            (libc::SOL_SOCKET, libc::SCM_CREDENTIALS) if len >= size_of::<libc::ucred>() => {
                // SAFETY: the kernel wrote a whole ucred, for which any bytes are valid.
                let credentials = unsafe { data.cast::<libc::ucred>().read_unaligned() };
                let pid = u32::try_from(credentials.pid).unwrap_or(0);
                sender = Some(Sender { pid, uid: credentials.uid, gid: credentials.gid });
            }
            _ => {}
        }
        // SAFETY: `next` is a header of this message.
        next = unsafe { libc::CMSG_NXTHDR(message, next) };
    }
    sender
}

impl AsFd for NotifySocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

impl AsRawFd for NotifySocket {
    fn as_raw_fd(&self) -> RawFd {
        self.fd.as_raw_fd()
    }
}

/// Lines KEY=VALUE with an upper-case key and printable UTF-8; other lines are left out. A NUL byte spoils the whole message.
fn parse(text: &[u8]) -> Vec<(String, String)> {
    if text.contains(&0) {
        return Vec::new();
    }
    text.split(|b| *b == b'\n').filter_map(field).collect()
}

fn field(line: &[u8]) -> Option<(String, String)> {
    let (key, value) = std::str::from_utf8(line).ok()?.split_once('=')?;
    let key_byte = |b: u8| b.is_ascii_uppercase() || b.is_ascii_digit() || b == b'_';
    let good = !key.is_empty() && !key.as_bytes()[0].is_ascii_digit() && key.bytes().all(key_byte);
    (good && !value.chars().any(|c| c.is_control() && c != '\t')).then(|| (key.into(), value.into()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_whole_clean_lines_count() {
        let check = |text: &[u8], want: &[(&str, &str)]| {
            let got = parse(text);
            let got: Vec<_> = got.iter().map(|(k, v)| (k.as_str(), v.as_str())).collect();
            assert_eq!(got, want, "{text:?}");
        };
        check(b"READY=1", &[("READY", "1")]);
        check(b"READY=1\nSTATUS=two words = fine\n", &[("READY", "1"), ("STATUS", "two words = fine")]);
        check(b"STATUS=", &[("STATUS", "")]);
        check(b"X_SOCIALWEB=a\nREADY=1", &[("X_SOCIALWEB", "a"), ("READY", "1")]);
        check(b"", &[]);
        check(b"\n\n=\n=x\nREADY\nready=1\nRE ADY=1\n1A=2\n\xff\xfe=1", &[]);
        check(b"STATUS=\x1b[31mred\nREADY=1", &[("READY", "1")]);
        check(b"STATUS=\xff\nREADY=1", &[("READY", "1")]);
        check(b"READY=1\0", &[]);
        check(b"READY=1\r\n", &[]);
    }

    #[test]
    fn any_bytes_are_survived() {
        // A small linear congruential generator: the same bytes in every run.
        let mut seed = 7u32;
        let mut next = || {
            seed = seed.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (seed >> 24) as u8
        };
        for _ in 0..2_000 {
            let len = usize::from(next());
            let alphabet = b"A=\n\x00\xff 1_";
            let bytes: Vec<u8> = (0..len).map(|_| alphabet[usize::from(next()) % alphabet.len()]).collect();
            for (key, value) in parse(&bytes) {
                assert!(!key.is_empty() && !value.contains('\n'));
            }
        }
    }
}
