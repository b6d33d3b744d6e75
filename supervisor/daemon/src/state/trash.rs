//! Folders of deleted groups: one rename takes a group out of the way, and its data goes at leisure.

use super::file::sync_folder;
use super::tree;
use super::unix_now;
use crate::failpoint;
use socialweb_core::GroupName;
use std::fs;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};

/// Removes all that is in a trash folder and leaves the folder itself: a deletion frees its space even when the leases
/// cannot be written on the full disk, and the empty folder still tells the next start about it. The rename that made
/// the folder is durable before anything in it goes.
///
/// # Errors
/// What cannot be flushed, read or removed; the rest may be gone.
pub fn empty_trash(trash: &Path) -> io::Result<()> {
    sync_folder(trash.parent().unwrap_or(trash))?;
    // Only a link to a folder elsewhere: it goes as a whole, and what it led to is not ours to remove.
    if !fs::symlink_metadata(trash)?.is_dir() {
        return Ok(());
    }
    tree::empty(trash)
}

/// Removes what [`empty_trash`] left.
///
/// # Errors
/// As rmdir(2) and unlink(2); an absent one is fine.
pub fn drop_trash(trash: &Path) -> io::Result<()> {
    let removed = match fs::symlink_metadata(trash) {
        Ok(meta) if !meta.is_dir() => fs::remove_file(trash),
        _ => fs::remove_dir(trash),
    };
    match removed {
        Err(e) if e.kind() != ErrorKind::NotFound => Err(e),
        _ => {
            failpoint::reach("trash-removed");
            Ok(())
        }
    }
}

/// A folder that is being deleted: `.trash-<unix time>-<n>-<group>`. A group's name never begins with a dot.
pub(super) struct Trash {
    pub path: PathBuf,
    pub group: GroupName,
}

pub(super) fn free_trash(groups: &Path, group: &GroupName) -> PathBuf {
    let now = unix_now();
    let mut names = (1u32..).map(|n| groups.join(format!(".trash-{now}-{n}-{group}")));
    names.find(|p| p.symlink_metadata().is_err()).expect("there is always a number that is not taken")
}

pub(super) fn list_trash(groups: &Path) -> io::Result<Vec<Trash>> {
    let mut found = Vec::new();
    for entry in fs::read_dir(groups)? {
        let entry = entry?;
        let name = entry.file_name();
        let parts = name.to_str().and_then(|n| n.strip_prefix(".trash-")).map(|n| n.splitn(3, '-'));
        let group = parts.and_then(|mut p| p.nth(2)).and_then(|g| GroupName::new(g).ok());
        if let Some(group) = group {
            found.push(Trash { path: entry.path(), group });
        }
    }
    Ok(found)
}
