//! Private unix sockets: nobody but our account can connect, a stale one is replaced, a live one is named.

mod notify;
mod peer;

pub use notify::{Datagram, MAX_DATAGRAM, NotifySocket, Sender};
pub use peer::Peer;

use nix::sys::socket::{AddressFamily, Backlog, SockFlag, SockType, UnixAddr, bind, connect, listen, socket};
use nix::sys::stat::{Mode, fchmod};
use std::fs;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::FileTypeExt;
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};

/// Longest path of a unix socket, in bytes: sun_path has 108, one of them for the end.
pub const MAX_PATH: usize = 107;

/// Why a socket could not be opened.
#[derive(Debug, thiserror::Error)]
pub enum SocketError {
    /// The path does not fit into an address.
    #[error("the socket path {path} has {len} bytes; the kernel takes {MAX_PATH}: shorten the run folder or the name")]
    TooLong {
        /// The path.
        path: PathBuf,
        /// Its length in bytes.
        len: usize,
    },
    /// Somebody listens there.
    #[error("the socket {path} is in use by {holder}: stop that one first")]
    InUse {
        /// The path.
        path: PathBuf,
        /// "pid 12 (name)", or "another process".
        holder: String,
    },
    /// Something else has that name.
    #[error("{path} exists and is not a socket: it is left alone; move it away")]
    NotASocket {
        /// The path.
        path: PathBuf,
    },
    /// The kernel refused.
    #[error("cannot {attempt} the socket {path}: see that its folder exists and belongs to this account")]
    Kernel {
        /// What was tried.
        attempt: &'static str,
        /// The path.
        path: PathBuf,
        /// The kernel's answer.
        #[source]
        source: io::Error,
    },
}

/// Whether a path can be the address of a unix socket.
pub fn check_path(path: &Path) -> Result<(), SocketError> {
    let len = path.as_os_str().len();
    if len > MAX_PATH { Err(SocketError::TooLong { path: path.into(), len }) } else { Ok(()) }
}

/// Listens at `path`: mode 0600 from its creation, non-blocking, close-on-exec. A stale socket is replaced. Two daemons must not
/// race here: take the state folder's lock first.
pub fn bind_listener(path: &Path) -> Result<UnixListener, SocketError> {
    let fd = bind_new(path, SockType::Stream)?;
    let backlog = Backlog::new(128).unwrap_or(Backlog::MAXCONN);
    listen(&fd, backlog).map_err(|e| kernel("listen on", path, e.into()))?;
    Ok(fd.into())
}

/// Makes and binds a socket; what a connecting peer could be given before it is bound must be set in between.
fn bind_new(path: &Path, kind: SockType) -> Result<OwnedFd, SocketError> {
    check_path(path)?;
    clear_stale(path, kind)?;
    let failed = |attempt, e: nix::Error| kernel(attempt, path, e.into());
    let fd = socket(AddressFamily::Unix, kind, SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK, None)
        .map_err(|e| failed("make", e))?;
    // bind gives the file the mode of the socket's inode, less the umask: so there is no moment with a wider mode.
    fchmod(&fd, Mode::S_IRUSR | Mode::S_IWUSR).map_err(|e| failed("protect", e))?;
    if kind == SockType::Datagram {
        nix::sys::socket::setsockopt(&fd, nix::sys::socket::sockopt::PassCred, &true)
            .map_err(|e| failed("ask for credentials on", e))?;
    }
    let address = UnixAddr::new(path).map_err(|e| failed("name", e))?;
    bind(fd.as_raw_fd(), &address).map_err(|e| failed("bind", e))?;
    Ok(fd)
}

/// Removes a socket that nobody listens on; refuses to touch anything else. Not existing is fine. Tells by connecting, without
/// waiting; a live listener sees a connection that closes at once.
pub fn clear_stale_socket(path: &Path) -> Result<(), SocketError> {
    check_path(path)?;
    clear_stale(path, SockType::Stream)
}

fn clear_stale(path: &Path, kind: SockType) -> Result<(), SocketError> {
    match fs::symlink_metadata(path) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(e) => return Err(kernel("look at", path, e)),
        Ok(meta) if !meta.file_type().is_socket() => return Err(SocketError::NotASocket { path: path.into() }),
        Ok(_) => {}
    }
    let fd = socket(AddressFamily::Unix, kind, SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK, None)
        .map_err(|e| kernel("make", path, e.into()))?;
    let address = UnixAddr::new(path).map_err(|e| kernel("name", path, e.into()))?;
    match connect(fd.as_raw_fd(), &address) {
        Err(nix::Error::ECONNREFUSED) => match fs::remove_file(path) {
            Err(e) if e.kind() != io::ErrorKind::NotFound => Err(kernel("remove the stale", path, e)),
            _ => Ok(()),
        },
        Err(nix::Error::ENOENT) => Ok(()),
        Ok(()) => Err(SocketError::InUse { path: path.into(), holder: holder(&fd) }),
        // A full queue, or a socket of another kind: somebody is there.
        Err(nix::Error::EAGAIN | nix::Error::EPROTOTYPE) => {
            Err(SocketError::InUse { path: path.into(), holder: "another process".into() })
        }
        Err(e) => Err(kernel("connect to", path, e.into())),
    }
}

fn holder(connected: &OwnedFd) -> String {
    // A datagram socket has no peer process to name.
    let Ok(peer) = Peer::of(connected) else { return "another process".into() };
    if peer.pid == 0 {
        return "another process".into();
    }
    format!("pid {} ({})", peer.pid, crate::process::comm(peer.pid).unwrap_or_else(|_| "gone".into()))
}

fn kernel(attempt: &'static str, path: &Path, source: io::Error) -> SocketError {
    SocketError::Kernel { attempt, path: path.into(), source }
}
