//! One daemon per identity. The state folder's lock goes with the folder, wherever it is moved; markers and cgroups are
//! named by the path that it had. So a folder that is moved away under its daemon and made anew must not bring a second
//! daemon under the same name, which would end all that the first one runs.

use nix::errno::Errno;
use nix::fcntl::{Flock, FlockArg};
use std::fs::File;
use std::io;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};
use std::path::{Path, PathBuf};

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
        match UnixListener::bind_addr(&address) {
            Ok(socket) => Ok(NameClaim { _socket: socket }),
            Err(e) if e.kind() == io::ErrorKind::AddrInUse => {
                Err(ClaimError::Named { id: id.into(), holder: holder(&address) })
            }
            Err(e) => Err(kernel(e)),
        }
    }
}

fn holder(address: &SocketAddr) -> String {
    let peer = UnixStream::connect_addr(address).and_then(|stream| socialweb_sys::socket::Peer::of(&stream));
    peer.map_or_else(|_| "its pid cannot be seen".into(), |peer| format!("pid {}", peer.pid))
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
        let folder = File::open(path).map_err(kernel)?;
        match Flock::lock(folder, FlockArg::LockExclusiveNonblock) {
            Ok(lock) if is_still(&lock, path) => Ok(TreeClaim { _lock: lock }),
            Ok(_) | Err((_, Errno::EWOULDBLOCK)) => Err(ClaimError::Tree { path: path.into() }),
            Err((_, errno)) => Err(kernel(errno.into())),
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
