//! Removes a folder with all that is in it, whatever a component made of it.
//!
//! The standard library goes down by calling itself, with one descriptor for each level: a few thousand folders in each
//! other end the daemon on its thread's stack. Here nothing calls itself and one folder is open at a time. And what is
//! mounted somewhere below is somebody else's: then nothing at all is removed.

use super::file::folder_of;
use std::fs::{self, Permissions};
use std::io::{self, ErrorKind};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

/// Bytes that a path may grow below the top; a folder that lies deeper is moved up first. With its own path and one more
/// name it stays below PATH_MAX (4096).
const DEEPEST: usize = 1024;
/// Folders that are noted in one look, so that a folder of millions takes no memory for them.
const LOOK: usize = 256;

/// A folder that is being emptied.
struct Level {
    path: PathBuf,
    /// Folders in it that were seen and not entered yet.
    inner: Vec<PathBuf>,
}

impl Level {
    fn new(path: PathBuf) -> Level {
        Level { path, inner: Vec::new() }
    }
}

/// Removes all that is in `top` and leaves `top` itself. Links are removed, never followed; `top` itself may not be one.
///
/// # Errors
/// Something is mounted below it: nothing was removed. Else what cannot be read or removed, by its path; the rest may be gone.
pub(super) fn empty(top: &Path) -> io::Result<()> {
    nothing_is_mounted(top)?;
    let mut levels = vec![Level::new(top.to_owned())];
    let mut moved = 0;
    loop {
        let at_top = levels.len() == 1;
        let Some(level) = levels.last_mut() else { return Ok(()) };
        if level.inner.is_empty() {
            level.inner = remove_files(&level.path)?;
        }
        match level.inner.pop() {
            Some(inner) if inner.as_os_str().len() > top.as_os_str().len() + DEEPEST => {
                move_up(&inner, top, &mut moved)?
            }
            Some(inner) => levels.push(Level::new(inner)),
            None if at_top => return Ok(()),
            None => {
                let path = &level.path;
                fs::remove_dir(path).map_err(|e| named(path, e))?;
                levels.pop();
            }
        }
    }
}

/// Removes a folder and all that is in it; a link of that name goes alone.
///
/// # Errors
/// As [`empty`]. One that is not there is fine.
pub(crate) fn remove(top: &Path) -> io::Result<()> {
    match fs::symlink_metadata(top) {
        Err(e) if e.kind() == ErrorKind::NotFound => Ok(()),
        Err(e) => Err(named(top, e)),
        Ok(meta) if !meta.is_dir() => fs::remove_file(top).map_err(|e| named(top, e)),
        Ok(_) => empty(top).and_then(|()| fs::remove_dir(top).map_err(|e| named(top, e))),
    }
}

/// Refuses a folder below which something is mounted: what is in that is not ours to remove or to move about.
///
/// # Errors
/// It is named, with the way out; or the mounts cannot be read.
pub(super) fn nothing_is_mounted(top: &Path) -> io::Result<()> {
    let top = folder_of(top).canonicalize()?.join(top.file_name().unwrap_or_default());
    let points = socialweb_sys::mounts::points()?;
    match points.into_iter().find(|point| point.starts_with(&top)) {
        None => Ok(()),
        Some(point) => Err(io::Error::new(
            ErrorKind::ResourceBusy,
            format!("something is mounted at {}; unmount it", point.display()),
        )),
    }
}

/// Removes what is no folder, and returns some of the folders; none when there is none.
fn remove_files(path: &Path) -> io::Result<Vec<PathBuf>> {
    open_up(path);
    let mut folders = Vec::new();
    for entry in fs::read_dir(path).map_err(|e| named(path, e))? {
        let entry = entry.map_err(|e| named(path, e))?;
        let inner = entry.path();
        match entry.file_type().map_err(|e| named(&inner, e))?.is_dir() {
            true => folders.push(inner),
            false => fs::remove_file(&inner).map_err(|e| named(&inner, e))?,
        }
        if folders.len() == LOOK {
            break;
        }
    }
    Ok(folders)
}

/// A folder that its own owner may not write is no reason to keep it: some programs close their caches that way.
fn open_up(path: &Path) {
    let closed = |meta: &fs::Metadata| meta.is_dir() && meta.permissions().mode() & 0o700 != 0o700;
    if fs::symlink_metadata(path).is_ok_and(|meta| closed(&meta)) {
        // Where it does not help, the removal itself says why.
        let _ = fs::set_permissions(path, Permissions::from_mode(0o700));
    }
}

/// To the top, under a name that is free there.
fn move_up(inner: &Path, top: &Path, moved: &mut u64) -> io::Result<()> {
    open_up(inner);
    loop {
        *moved += 1;
        let target = top.join(format!("deep-{moved}"));
        if target.symlink_metadata().is_err() {
            return fs::rename(inner, target).map_err(|e| named(inner, e));
        }
    }
}

/// The error with the path that it is about.
fn named(path: &Path, error: io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("{}: {error}", path.display()))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::state::testing::SmallDisk;
    use std::os::unix::fs::symlink;

    /// `levels` folders in each other, made from the bottom up: no path is ever long.
    fn nest(top: &Path, levels: usize) {
        let (inner, outer) = (top.join("inner"), top.join("outer"));
        fs::create_dir(&inner).unwrap();
        for _ in 1..levels {
            fs::create_dir(&outer).unwrap();
            fs::rename(&inner, outer.join("a-folder-in-a-folder")).unwrap();
            fs::rename(&outer, &inner).unwrap();
        }
    }

    #[test]
    fn a_thousand_folders_in_each_other_are_removed_on_a_small_stack() {
        let dir = tempfile::tempdir().unwrap();
        let top = dir.path().join("top");
        fs::create_dir(&top).unwrap();
        // Too deep for a stack of this size, and for a path.
        nest(&top, 1000);
        let (on_thread, small) = (top.clone(), std::thread::Builder::new().stack_size(64 * 1024));
        small.spawn(move || remove(&on_thread).unwrap()).unwrap().join().unwrap();
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
    }

    #[test]
    fn many_folders_closed_ones_and_links_are_removed_and_what_a_link_leads_to_is_not() {
        let dir = tempfile::tempdir().unwrap();
        let (top, elsewhere) = (dir.path().join("top"), dir.path().join("elsewhere"));
        fs::create_dir_all(top.join("closed/inner")).unwrap();
        fs::create_dir(&elsewhere).unwrap();
        fs::write(elsewhere.join("file"), "kept").unwrap();
        symlink(&elsewhere, top.join("link")).unwrap();
        symlink("nowhere", top.join("deep-1")).unwrap();
        (0..LOOK + 10).for_each(|n| fs::create_dir(top.join(format!("folder{n}"))).unwrap());
        fs::write(top.join("closed/inner/file"), "").unwrap();
        for folder in ["closed/inner", "closed"] {
            fs::set_permissions(top.join(folder), Permissions::from_mode(0o500)).unwrap();
        }
        empty(&top).unwrap();
        assert_eq!(fs::read_dir(&top).unwrap().count(), 0);
        let link = dir.path().join("a link of that name");
        symlink(&elsewhere, &link).unwrap();
        remove(&link).unwrap();
        remove(&link).unwrap();
        assert_eq!(fs::read_to_string(elsewhere.join("file")).unwrap(), "kept");
    }

    #[test]
    fn where_something_is_mounted_below_nothing_is_removed_and_the_place_is_named() {
        let Some(disk) = SmallDisk::mount("where_something_is_mounted_below_nothing_is_removed", 64) else { return };
        let top = disk.path().parent().unwrap();
        fs::write(disk.path().join("file"), "somebody else's").unwrap();
        let refused = nothing_is_mounted(disk.path()).unwrap_err().to_string();
        assert!(refused.contains("unmount it") && refused.contains(&*disk.path().to_string_lossy()), "{refused}");
        nothing_is_mounted(&top.join("no such folder")).unwrap();
        remove(disk.path()).unwrap_err();
        assert!(disk.path().join("file").exists());
    }
}
