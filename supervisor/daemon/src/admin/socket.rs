//! The admin socket's file: private from the start, a stale one replaced, a live one left alone, gone with its owner.

use socialweb_sys::socket::{SocketError, bind_listener};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};
use tokio::net::UnixListener;

/// Why there is no admin socket.
#[derive(Debug, thiserror::Error)]
pub enum BindError {
    /// Its folder cannot be made.
    #[error("cannot make the folder {path} for the admin socket; see that its parent exists and is writable")]
    Folder {
        /// The folder.
        path: PathBuf,
        /// The cause.
        #[source]
        source: io::Error,
    },
    /// The socket itself cannot be opened.
    #[error("cannot open the admin socket {path}; -runtime-dir chooses another folder for it")]
    Socket {
        /// The socket.
        path: PathBuf,
        /// The cause.
        #[source]
        source: SocketError,
    },
    /// The runtime cannot watch it.
    #[error("cannot serve the admin socket {path}")]
    Serve {
        /// The socket.
        path: PathBuf,
        /// The cause.
        #[source]
        source: io::Error,
    },
}

/// A bound socket, removed again when dropped, if it is still ours.
#[derive(Debug)]
pub struct Bound {
    pub(super) listener: UnixListener,
    path: PathBuf,
    inode: u64,
}

/// Binds `path` with mode 0600; its folder is made with mode 0700 when absent. Needs a tokio runtime.
///
/// # Errors
/// See [`BindError`]; each names the path and what to do.
pub fn bind(path: &Path) -> Result<Bound, BindError> {
    let folder = path.parent().unwrap_or(Path::new("/"));
    std::fs::DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(folder)
        .map_err(|source| BindError::Folder { path: folder.into(), source })?;
    let listener = bind_listener(path).map_err(|source| BindError::Socket { path: path.into(), source })?;
    let failed = |source| BindError::Serve { path: path.into(), source };
    let inode = std::fs::symlink_metadata(path).map_err(failed)?.ino();
    let listener = UnixListener::from_std(listener).map_err(failed)?;
    Ok(Bound { listener, path: path.into(), inode })
}

impl Bound {
    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Binds it again when its file is gone: a daemon that nobody can ask is no use. True while that fails; what is in
    /// its place, if it is not ours, is left alone and named once.
    pub(super) fn keep(&mut self, failing: bool) -> bool {
        if std::fs::symlink_metadata(&self.path).is_ok_and(|meta| meta.ino() == self.inode) {
            return false;
        }
        match bind(&self.path) {
            Ok(bound) => {
                tracing::warn!("the admin socket {} was gone and is bound again", self.path.display());
                *self = bound;
                false
            }
            Err(error) => {
                if !failing {
                    tracing::warn!("the admin socket is gone: {}", crate::chain::chain(&error));
                }
                true
            }
        }
    }
}

impl Drop for Bound {
    fn drop(&mut self) {
        if std::fs::symlink_metadata(&self.path).is_ok_and(|meta| meta.ino() == self.inode) {
            let _ = std::fs::remove_file(&self.path);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    #[tokio::test]
    async fn the_socket_is_private_and_goes_with_its_owner() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("run/admin.sock");
        let bound = bind(&path).unwrap();
        assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        assert_eq!(std::fs::metadata(dir.path().join("run")).unwrap().permissions().mode() & 0o777, 0o700);
        drop(bound);
        assert_eq!(std::fs::read_dir(dir.path().join("run")).unwrap().count(), 0);
    }

    #[tokio::test]
    async fn a_stale_socket_is_replaced_and_a_live_one_left_alone() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("admin.sock");
        drop(std::os::unix::net::UnixListener::bind(&path).unwrap());
        // A child that another test has just made holds the listener until its exec, and so somebody still listens.
        while std::os::unix::net::UnixStream::connect(&path).is_ok() {
            tokio::time::sleep(std::time::Duration::from_millis(5)).await;
        }
        assert!(path.exists());
        let bound = bind(&path).unwrap();
        let second = bind(&path).unwrap_err();
        assert!(matches!(second, BindError::Socket { source: SocketError::InUse { .. }, .. }), "{second}");
        std::os::unix::net::UnixStream::connect(bound.path()).unwrap();
    }

    #[tokio::test]
    async fn a_socket_whose_file_is_gone_is_bound_again() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("run/admin.sock");
        let mut bound = bind(&path).unwrap();
        assert!(!bound.keep(false) && path.exists());
        std::fs::remove_dir_all(dir.path().join("run")).unwrap();
        assert!(!bound.keep(false));
        std::os::unix::net::UnixStream::connect(&path).unwrap();
        std::fs::remove_file(&path).unwrap();
        std::fs::write(&path, "somebody else's").unwrap();
        assert!(bound.keep(false), "what is no socket of ours is left alone");
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "somebody else's");
        std::fs::remove_file(&path).unwrap();
        assert!(!bound.keep(true) && path.exists());
    }

    #[tokio::test]
    async fn a_successors_socket_is_not_removed() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("admin.sock");
        let bound = bind(&path).unwrap();
        std::fs::rename(&path, dir.path().join("old")).unwrap();
        let _successor = std::os::unix::net::UnixListener::bind(&path).unwrap();
        drop(bound);
        assert!(path.exists());
    }
}
