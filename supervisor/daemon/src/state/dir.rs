//! Opens, checks and locks the state folder.

use super::file::sweep_temps;
use super::leases;
use super::lock::Lock;
use super::trash::{Trash, drop_trash, empty_trash, free_trash, list_trash};
use super::tree;
use crate::failpoint;
use nix::sys::statfs::{FsType, Statfs, statfs};
use nix::sys::statvfs::FsFlags;
use socialweb_core::GroupName;
use std::fs::{self, DirBuilder, Metadata, Permissions};
use std::io::{self, ErrorKind};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

/// Whether a state folder in memory will do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Tmpfs {
    /// Refuse it: databases, CAs and leases must survive a reboot.
    Refuse,
    /// `--allow-tmpfs`: the operator knows that all is gone at a reboot.
    Allow,
}

/// Why a state folder cannot be used. Nothing in it was touched.
#[derive(Debug, thiserror::Error)]
pub enum StateError {
    /// It would be lost at a reboot.
    #[error(
        "the state folder {} is on a {kind}, which a reboot empties; \
         point TMPDIR or -state-dir at a folder on a real disk, or pass --allow-tmpfs", path.display()
    )]
    InMemory {
        /// The folder.
        path: PathBuf,
        /// tmpfs or ramfs.
        kind: &'static str,
    },
    /// Its file system is mounted read-only.
    #[error(
        "the state folder {} is on a read-only file system; remount it, or choose another with -state-dir", path.display()
    )]
    ReadOnly {
        /// The folder.
        path: PathBuf,
    },
    /// It belongs to another account.
    #[error(
        "the state folder {} belongs to uid {owner}, the daemon runs as uid {us}; \
         run it as that account or choose another folder with -state-dir", path.display()
    )]
    NotOurs {
        /// The folder.
        path: PathBuf,
        /// Who owns it.
        owner: u32,
        /// Who we are.
        us: u32,
    },
    /// There is something else under that name.
    #[error("the state folder {} is not a folder; choose another with -state-dir", path.display())]
    NotAFolder {
        /// The path.
        path: PathBuf,
    },
    /// What has the name of a group's folder is none.
    #[error("{} has the name of a group's folder and is a file, a FIFO or a link to nothing; move it away", path.display())]
    InTheWay {
        /// The path.
        path: PathBuf,
    },
    /// Another daemon has it.
    #[error(
        "the state folder is in use: {} is locked by {holder}; stop that daemon, or give this one its own -state-dir",
        path.display()
    )]
    Locked {
        /// The lock file.
        path: PathBuf,
        /// Its pid and since when.
        holder: String,
    },
    /// The lock file cannot be used.
    #[error("cannot use the lock file {}; check its owner, its mode and the space on that disk", path.display())]
    LockFile {
        /// The lock file.
        path: PathBuf,
        /// The cause.
        #[source]
        source: io::Error,
    },
    /// A folder cannot be made, read or cleaned.
    #[error("cannot {step} {}; check the owner and mode of the folders above it", path.display())]
    Folder {
        /// What was being done.
        step: &'static str,
        /// Where.
        path: PathBuf,
        /// The cause.
        #[source]
        source: io::Error,
    },
}

/// Why a group's folder is still there. Nothing of it was deleted.
#[derive(Debug, thiserror::Error)]
#[error("cannot move {} to the trash; see the cause, or check the folder's owner; nothing of it was deleted", path.display())]
pub struct DeleteError {
    /// The group's folder.
    pub path: PathBuf,
    /// The cause.
    #[source]
    pub source: io::Error,
}

/// Where things lie. Pure paths.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Layout {
    root: PathBuf,
}

impl Layout {
    /// The layout below `root`.
    pub fn new(root: impl Into<PathBuf>) -> Self {
        Layout { root: root.into() }
    }
    /// The state folder itself.
    pub fn root(&self) -> &Path {
        &self.root
    }
    /// `leases.json`.
    pub fn leases(&self) -> PathBuf {
        self.root.join("leases.json")
    }
    /// `supervisor.lock`.
    pub fn lock(&self) -> PathBuf {
        self.root.join("supervisor.lock")
    }
    /// `groups/`.
    pub fn groups(&self) -> PathBuf {
        self.root.join("groups")
    }
    /// `groups/<group>/`.
    pub fn group(&self, group: &GroupName) -> PathBuf {
        self.groups().join(group.as_str())
    }
    /// `groups/<group>/record.json`.
    pub fn record(&self, group: &GroupName) -> PathBuf {
        self.group(group).join("record.json")
    }
    /// `groups/<group>/receipts/`.
    pub fn receipts(&self, group: &GroupName) -> PathBuf {
        self.group(group).join("receipts")
    }
    /// `groups/<group>/logs/`.
    pub fn logs(&self, group: &GroupName) -> PathBuf {
        self.group(group).join("logs")
    }
    /// `groups/<group>/events.jsonl`.
    pub fn events(&self, group: &GroupName) -> PathBuf {
        self.group(group).join("events.jsonl")
    }

    /// The groups that have a folder, in order. Other names are not looked at.
    ///
    /// # Errors
    /// The folder cannot be read; that is not "no groups" (law L7).
    pub fn list_groups(&self) -> io::Result<Vec<GroupName>> {
        let mut groups = Vec::new();
        for entry in fs::read_dir(self.groups())? {
            let entry = entry?;
            let name = entry.file_name().to_str().and_then(|n| GroupName::new(n).ok());
            // Through a link too: an operator may have put one tenant's data on another disk. A link to nothing, a FIFO
            // or a file is no group, and no reason to read none of them.
            if let Some(name) = name
                && fs::metadata(entry.path()).is_ok_and(|meta| meta.is_dir())
            {
                groups.push(name);
            }
        }
        groups.sort();
        Ok(groups)
    }
}

/// The state folder, checked and locked; the lock goes with the value.
#[derive(Debug)]
pub struct StateDir {
    layout: Layout,
    warnings: Vec<String>,
    /// Device and inode, to know the folder again.
    inode: (u64, u64),
    _lock: Lock,
}

impl StateDir {
    /// Opens `path`, making it with mode 0700 when absent, and completes what a crash cut short.
    ///
    /// # Errors
    /// [`StateError`]; until the lock is taken nothing is written but the folder and the lock file.
    pub fn open(path: &Path, tmpfs: Tmpfs) -> Result<StateDir, StateError> {
        let root = std::path::absolute(path).map_err(|e| folder("resolve", path, e))?;
        check_file_system(&root, tmpfs)?;
        make_folders(&root).map_err(|e| folder("make", &root, e))?;
        let meta = fs::metadata(&root).map_err(|e| folder("look at", &root, e))?;
        check_owner(&root, &meta)?;
        let layout = Layout::new(root);
        let lock = Lock::take(&layout.lock())?;
        let inode = (meta.dev(), meta.ino());
        let mut state = StateDir { layout, warnings: Vec::new(), inode, _lock: lock };
        state.tighten(&meta)?;
        state.settle()?;
        Ok(state)
    }

    /// The paths.
    pub fn layout(&self) -> &Layout {
        &self.layout
    }

    /// What a person should know about the folder; shown once at start.
    pub fn warnings(&self) -> &[String] {
        &self.warnings
    }

    fn tighten(&mut self, meta: &Metadata) -> Result<(), StateError> {
        let (root, mode) = (self.layout.root(), meta.permissions().mode() & 0o7777);
        if mode & 0o077 != 0 {
            fs::set_permissions(root, Permissions::from_mode(0o700)).map_err(|e| folder("close", root, e))?;
            self.warnings.push(format!("{} was open to others (mode {mode:o}); it is 0700 now", root.display()));
        }
        Ok(())
    }

    /// Removes temporary files and completes deletions. The leases of a deleted group go before its trash, so that a
    /// crash at any point here is seen again at the next start.
    fn settle(&mut self) -> Result<(), StateError> {
        let groups = self.layout.groups();
        make_folders(&groups).map_err(|e| folder("make", &groups, e))?;
        let known = self.layout.list_groups().map_err(|e| folder("read", &groups, e))?;
        let trash = list_trash(&groups).map_err(|e| folder("read", &groups, e))?;
        for dir in std::iter::once(self.layout.root().to_owned()).chain(known.iter().map(|g| self.layout.group(g))) {
            if let Err(e) = sweep_temps(&dir) {
                // One group's trouble keeps no daemon from coming up (law L10).
                self.warnings.push(crate::chain::chain(&folder("clean", &dir, e)));
            }
        }
        let gone: Vec<GroupName> = trash.iter().map(|t| t.group.clone()).filter(|g| !known.contains(g)).collect();
        if !gone.is_empty() {
            match leases::forget(&self.layout, &gone) {
                Ok(warnings) => self.warnings.extend(warnings),
                // The trash stays: it is what tells the next start that those ports are free.
                Err(e) => {
                    self.warnings.push(crate::chain::chain(&e));
                    return Ok(());
                }
            }
        }
        for Trash { path, .. } in trash {
            if let Err(e) = empty_trash(&path).and_then(|()| drop_trash(&path)) {
                self.warnings.push(format!("cannot remove the deleted {}: {e}; remove it by hand", path.display()));
            }
        }
        Ok(())
    }

    /// Makes `groups/<group>/` (mode 0700) when absent. Its name is durable with the leases ([`super::flush::Flush`]).
    ///
    /// # Errors
    /// [`StateError::Folder`]; [`StateError::InTheWay`].
    pub fn ensure_group(&self, group: &GroupName) -> Result<PathBuf, StateError> {
        let path = self.layout.group(group);
        match DirBuilder::new().mode(0o700).create(&path) {
            Ok(()) => failpoint::reach("group-folder-made"),
            Err(e) if e.kind() == ErrorKind::AlreadyExists && path.is_dir() => {}
            Err(e) if e.kind() == ErrorKind::AlreadyExists => return Err(StateError::InTheWay { path }),
            Err(e) => return Err(folder("make", &path, e)),
        }
        Ok(path)
    }

    /// Takes a group's folder out of the way: it counts as deleted, and its data lies under the trash name that is
    /// returned, to be removed at leisure; the next open removes what is left of it. `None`: there was none.
    ///
    /// One rename, so that a kill -9 leaves either the whole group or none of it. Call [`super::Leases::release`] after
    /// it; the flush of the leases makes the trash name durable, and [`super::empty_trash`] may go before that.
    ///
    /// # Errors
    /// [`DeleteError`]; nothing was deleted.
    pub fn trash_group(&self, group: &GroupName) -> Result<Option<PathBuf>, DeleteError> {
        let path = self.layout.group(group);
        let trash = free_trash(&self.layout.groups(), group);
        if path.symlink_metadata().is_ok() {
            tree::nothing_is_mounted(&path).map_err(|source| DeleteError { path: path.clone(), source })?;
        }
        match fs::rename(&path, &trash) {
            Err(e) if e.kind() == ErrorKind::NotFound => Ok(None),
            Err(source) => Err(DeleteError { path, source }),
            Ok(()) => Ok(Some(trash)),
        }
    }

    /// False when another folder, or none, has the state folder's name now: somebody moved it away under the daemon.
    pub fn is_in_place(&self) -> bool {
        fs::metadata(self.layout.root()).is_ok_and(|meta| (meta.dev(), meta.ino()) == self.inode)
    }
}

fn folder(step: &'static str, path: &Path, source: io::Error) -> StateError {
    if source.kind() == ErrorKind::ReadOnlyFilesystem {
        return StateError::ReadOnly { path: path.to_owned() };
    }
    StateError::Folder { step, path: path.to_owned(), source }
}

fn make_folders(path: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o700).create(path)
}

/// Asks about the nearest existing folder, so that a refusal leaves nothing behind.
fn check_file_system(root: &Path, tmpfs: Tmpfs) -> Result<(), StateError> {
    let existing = root.ancestors().find(|p| p.exists()).unwrap_or(Path::new("/"));
    if !existing.is_dir() {
        return Err(StateError::NotAFolder { path: existing.to_owned() });
    }
    let fs: Statfs = statfs(existing).map_err(|e| folder("look at", existing, e.into()))?;
    match in_memory(fs.filesystem_type()) {
        Some(kind) if tmpfs == Tmpfs::Refuse => Err(StateError::InMemory { path: root.to_owned(), kind }),
        _ if fs.flags().contains(FsFlags::ST_RDONLY) => Err(StateError::ReadOnly { path: root.to_owned() }),
        _ => Ok(()),
    }
}

/// RAMFS_MAGIC of linux/magic.h; nix knows only tmpfs.
const RAMFS_MAGIC: u64 = 0x8584_58f6;

fn in_memory(kind: FsType) -> Option<&'static str> {
    if kind == nix::sys::statfs::TMPFS_MAGIC {
        return Some("tmpfs");
    }
    // The kernel's long may be sign-extended from these 32 bits.
    (kind.0 as u64 & 0xffff_ffff == RAMFS_MAGIC).then_some("ramfs")
}

fn check_owner(root: &Path, meta: &Metadata) -> Result<(), StateError> {
    if !meta.is_dir() {
        return Err(StateError::NotAFolder { path: root.to_owned() });
    }
    let (owner, us) = (meta.uid(), nix::unistd::geteuid().as_raw());
    if owner != us {
        return Err(StateError::NotOurs { path: root.to_owned(), owner, us });
    }
    Ok(())
}
