//! One daemon per identity. The state folder's lock goes with the folder, wherever it is moved; markers and cgroups are
//! named by the path that it had. So a folder that is moved away under its daemon and made anew must not bring a second
//! daemon under the same name, which would end all that the first one runs.

use nix::errno::Errno;
use nix::fcntl::{Flock, FlockArg};
use socialweb_sys::process;
use std::fs::File;
use std::io;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// How long a child of a dead daemon may take to close what it was made with, the lock of the state folder first.
const LEFT: Duration = Duration::from_secs(2);
/// The kernel tells nobody when a claim is free.
const LOOK_AGAIN: Duration = Duration::from_millis(10);

/// Why a name or a cgroup tree cannot be had.
#[derive(Debug, thiserror::Error)]
pub enum ClaimError {
    /// A daemon that runs has the name.
    #[error(
        "another daemon goes by the same name ({id}): {holder}. Was its state folder moved away under it? \
         Stop it first, or give this one another -state-dir"
    )]
    Named {
        /// Hash of the state folder's path.
        id: String,
        /// Its pid.
        holder: String,
    },
    /// A daemon that runs has the tree.
    #[error("the cgroup {} is in use by another daemon; stop that one first, or give this one another -cgroup", path.display())]
    Tree {
        /// The folder.
        path: PathBuf,
    },
    /// The kernel refused.
    #[error("cannot claim {what}; see the cause")]
    Kernel {
        /// What.
        what: String,
        /// The kernel's answer.
        #[source]
        source: io::Error,
    },
}

/// The name of a state folder's daemon on this host: an abstract socket, which the kernel takes back with its owner.
#[derive(Debug)]
pub struct NameClaim {
    _socket: UnixListener,
}

impl NameClaim {
    /// Takes the name for as long as the value lives.
    ///
    /// # Errors
    /// [`ClaimError::Named`] when somebody has it.
    pub fn take(id: &str) -> Result<NameClaim, ClaimError> {
        let name = format!("socialweb-computer/{}/{id}", nix::unistd::geteuid());
        let kernel = |source| ClaimError::Kernel { what: format!("the name {name}"), source };
        let address = SocketAddr::from_abstract_name(&name).map_err(kernel)?;
        let deadline = Instant::now() + LEFT;
        loop {
            match UnixListener::bind_addr(&address) {
                Ok(socket) => return Ok(NameClaim { _socket: socket }),
                Err(e) if e.kind() != io::ErrorKind::AddrInUse => return Err(kernel(e)),
                Err(_) => {}
            }
            let holder = holder(&address);
            let lives = holder.is_none_or(|pid| process::start_time(pid).is_ok());
            if lives || Instant::now() >= deadline {
                let holder = holder.map_or_else(|| "its pid cannot be seen".into(), |pid| format!("pid {pid}"));
                return Err(ClaimError::Named { id: id.into(), holder });
            }
            std::thread::sleep(LOOK_AGAIN);
        }
    }
}

/// Who listened first. Its number stays when it has ended and a child of its, on the way to another program, has the socket.
fn holder(address: &SocketAddr) -> Option<u32> {
    let peer = UnixStream::connect_addr(address).and_then(|stream| socialweb_sys::socket::Peer::of(&stream));
    peer.ok().map(|peer| peer.pid)
}

/// A daemon's subtree of cgroups, locked. It goes with its owner too.
#[derive(Debug)]
pub struct TreeClaim {
    _lock: Flock<File>,
}

impl TreeClaim {
    /// Locks the folder for as long as the value lives.
    ///
    /// # Errors
    /// [`ClaimError::Tree`] when somebody has it, or took it away in this moment.
    pub fn take(path: &Path) -> Result<TreeClaim, ClaimError> {
        let kernel = |source| ClaimError::Kernel { what: path.display().to_string(), source };
        let mut folder = File::open(path).map_err(kernel)?;
        let deadline = Instant::now() + LEFT;
        loop {
            folder = match Flock::lock(folder, FlockArg::LockExclusiveNonblock) {
                Ok(lock) if is_still(&lock, path) => return Ok(TreeClaim { _lock: lock }),
                Err((folder, Errno::EWOULDBLOCK)) if Instant::now() < deadline => folder,
                Ok(_) | Err((_, Errno::EWOULDBLOCK)) => return Err(ClaimError::Tree { path: path.into() }),
                Err((_, errno)) => return Err(kernel(errno.into())),
            };
            std::thread::sleep(LOOK_AGAIN);
        }
    }
}

/// Its last owner may have removed the folder between the opening and the lock.
fn is_still(file: &File, path: &Path) -> bool {
    let same = |a: std::fs::Metadata, b: std::fs::Metadata| (a.dev(), a.ino()) == (b.dev(), b.ino());
    file.metadata().is_ok_and(|a| std::fs::metadata(path).is_ok_and(|b| same(a, b)))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn a_name_has_one_owner_who_is_told_and_is_free_after_it() {
        let id = format!("test-{}", std::process::id());
        let first = NameClaim::take(&id).unwrap();
        let refused = NameClaim::take(&id).unwrap_err().to_string();
        assert!(
            refused.contains(&format!("pid {}", std::process::id())) && refused.contains("moved away"),
            "{refused}"
        );
        drop(first);
        NameClaim::take(&id).unwrap();
    }

    #[test]
    fn a_tree_has_one_owner_and_one_that_was_removed_has_none() {
        let home = tempfile::TempDir::new().unwrap();
        let path = home.path().join("tree");
        std::fs::create_dir(&path).unwrap();
        let first = TreeClaim::take(&path).unwrap();
        assert!(matches!(TreeClaim::take(&path), Err(ClaimError::Tree { .. })));
        std::fs::remove_dir(&path).unwrap();
        std::fs::create_dir(&path).unwrap();
        let second = TreeClaim::take(&path).unwrap();
        drop((first, second));
        TreeClaim::take(&path).unwrap();
    }
}
