//! journald's native protocol: one datagram per line, fields as text.

use super::line::LogLine;
use nix::errno::Errno;
use nix::fcntl::{FcntlArg, SealFlag, fcntl};
use nix::sys::memfd::{MFdFlags, memfd_create};
use nix::sys::socket::{ControlMessage, MsgFlags, UnixAddr, sendmsg};
use std::cell::Cell;
use std::fmt::Write as _;
use std::fs::File;
use std::io::{self, Write};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::net::UnixDatagram;
use std::path::Path;
use std::time::Duration;

/// Where journald listens.
pub const SOCKET: &str = "/run/systemd/journal/socket";

/// A journal that reads takes a datagram within a few milliseconds, and now and then rotates or waits for its disk; its socket
/// holds only some ten of them (net.unix.max_dgram_qlen), so a burst has to wait for it. Meanwhile lines wait in their queues.
const PATIENCE: Duration = Duration::from_secs(2);

/// A sender to a journal. Not connected, so that a journald that comes back under the same name is reached again.
#[derive(Debug)]
pub struct Journal {
    socket: UnixDatagram,
    address: UnixAddr,
    /// The journal took the last line: worth waiting for. One that has stopped costs its patience once.
    reads: Cell<bool>,
}

/// Why a line is not in the journal.
#[derive(Debug, thiserror::Error)]
pub enum SendError {
    /// journald does not read fast enough.
    #[error("the journal is full; it drops or is stopped")]
    Full,
    /// Nobody listens.
    #[error("no journal listens")]
    Gone(#[source] io::Error),
    /// The kernel refused the datagram.
    #[error("the journal refused a line")]
    Refused(#[source] io::Error),
}

impl Journal {
    /// Prepares a sender to the socket at `path`; whether somebody listens shows at the first send.
    ///
    /// # Errors
    /// No socket can be made, or `path` is too long for one.
    pub fn new(path: &Path) -> io::Result<Journal> {
        let socket = UnixDatagram::unbound()?;
        socket.set_write_timeout(Some(PATIENCE))?;
        Ok(Journal { socket, address: UnixAddr::new(path)?, reads: Cell::new(true) })
    }

    /// Sends one line; waits a moment for a journal that is busy, and not at all for one that did not take the last line.
    ///
    /// # Errors
    /// [`SendError`]; the line is not in the journal.
    pub fn send(&self, line: &LogLine) -> Result<(), SendError> {
        let message = encode(line);
        let sent = match self.datagram(message.as_bytes(), &[]) {
            Err(Errno::EMSGSIZE | Errno::ENOBUFS) => self.send_large(message.as_bytes()),
            other => other.map_err(classify),
        };
        self.reads.set(!matches!(sent, Err(SendError::Full)));
        sent
    }

    /// A sealed memory file instead of a datagram that would not fit into the socket's buffer.
    fn send_large(&self, message: &[u8]) -> Result<(), SendError> {
        let fd = sealed(message).map_err(SendError::Refused)?;
        let fds = [fd.as_raw_fd()];
        self.datagram(&[], &[ControlMessage::ScmRights(&fds)]).map_err(classify)
    }

    fn datagram(&self, bytes: &[u8], control: &[ControlMessage<'_>]) -> nix::Result<()> {
        let parts = [io::IoSlice::new(bytes)];
        let wait = if self.reads.get() { MsgFlags::empty() } else { MsgFlags::MSG_DONTWAIT };
        let flags = wait | MsgFlags::MSG_NOSIGNAL;
        sendmsg(self.socket.as_raw_fd(), &parts, control, flags, Some(&self.address)).map(drop)
    }

    #[cfg(test)]
    pub(super) fn socket(&self) -> &UnixDatagram {
        &self.socket
    }
}

fn classify(errno: Errno) -> SendError {
    match errno {
        Errno::EAGAIN => SendError::Full,
        Errno::ECONNREFUSED | Errno::ENOENT => SendError::Gone(errno.into()),
        other => SendError::Refused(other.into()),
    }
}

fn sealed(bytes: &[u8]) -> io::Result<OwnedFd> {
    let fd = memfd_create("socialweb-log", MFdFlags::MFD_CLOEXEC | MFdFlags::MFD_ALLOW_SEALING)?;
    let mut file = File::from(fd);
    file.write_all(bytes)?;
    // journald takes only a file that its sender can no longer change.
    fcntl(&file, FcntlArg::F_ADD_SEALS(SealFlag::all()))?;
    Ok(file.into())
}

/// No value holds a newline (names are labels, a line is a line), so the simple form of the protocol is enough.
fn encode(line: &LogLine) -> String {
    let (group, component) = (&line.source.group, &line.source.component);
    let mut out = String::with_capacity(line.text.len() + 160);
    let _ = write!(
        out,
        "PRIORITY={}\nSYSLOG_IDENTIFIER={group}/{component}\nSOCIALWEB_CLUSTER={group}\n\
         SOCIALWEB_COMPONENT={component}\nSOCIALWEB_BIRTH={}\nMESSAGE=",
        line.priority.number(),
        line.birth,
    );
    out.push_str(&line.text);
    out.push('\n');
    out
}
