//! Files and folders that are either whole or absent, whatever kills the writer. All are private: 0600 and 0700.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// Creates the folder and its missing parents with mode 0700.
pub fn ensure_dir(path: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o700).create(path)
}

/// Writes a file of mode 0600: aside, fsync, rename, fsync of the folder.
pub fn write_private(path: &Path, content: &[u8]) -> io::Result<()> {
    let aside = aside_of(path, "new")?;
    remove_any(&aside)?;
    create_private(&aside, content)?;
    fs::rename(&aside, path)?;
    sync_parent(path)
}

/// Puts a folder of private files in place: built aside, then renamed or, where one stands already, exchanged with it. The
/// files of a pair therefore never appear, or change, one without the other.
pub fn install_dir(dir: &Path, files: &[(&str, &[u8])]) -> io::Result<()> {
    let aside = aside_of(dir, "new")?;
    remove_any(&aside)?;
    ensure_dir(&aside)?;
    for (name, content) in files {
        create_private(&aside.join(name), content)?;
    }
    sync_dir(&aside)?;
    if dir.exists() {
        replace(&aside, dir)?
    } else {
        fs::rename(&aside, dir)?
    }
    sync_parent(dir)?;
    remove_any(&aside)
}

/// The content, or None when there is no such file.
pub fn read_if_present(path: &Path) -> io::Result<Option<Vec<u8>>> {
    match fs::read(path) {
        Ok(content) => Ok(Some(content)),
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(e) => Err(e),
    }
}

/// `N` bytes from the kernel's generator.
pub fn random<const N: usize>() -> io::Result<[u8; N]> {
    let mut bytes = [0; N];
    File::open("/dev/urandom")?.read_exact(&mut bytes)?;
    Ok(bytes)
}

/// Creates a file of mode 0600 and syncs it; fails when it exists.
pub fn create_private(path: &Path, content: &[u8]) -> io::Result<()> {
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)?;
    file.write_all(content)?;
    file.sync_all()
}

/// A fixed name, not a random one: a killed writer's leftover is found and removed by the next.
fn aside_of(path: &Path, suffix: &str) -> io::Result<PathBuf> {
    let name = path.file_name().ok_or_else(|| io::Error::other("the path ends in no name"))?;
    Ok(path.with_file_name(format!(".{}.{suffix}", name.to_string_lossy())))
}

fn remove_any(path: &Path) -> io::Result<()> {
    let removed = match fs::symlink_metadata(path) {
        Ok(meta) if meta.is_dir() => fs::remove_dir_all(path),
        Ok(_) => fs::remove_file(path),
        Err(e) => Err(e),
    };
    match removed {
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(()),
        other => other,
    }
}

/// Makes the entries of a folder durable.
pub fn sync_dir(dir: &Path) -> io::Result<()> {
    File::open(dir)?.sync_all()
}

fn sync_parent(path: &Path) -> io::Result<()> {
    path.parent().map_or(Ok(()), sync_dir)
}

/// Swaps the two in one step; where the file system cannot, in two steps between which a reader finds nothing.
fn replace(new: &Path, old: &Path) -> io::Result<()> {
    match exchange(new, old) {
        Ok(()) => Ok(()),
        Err(nix::errno::Errno::EINVAL | nix::errno::Errno::ENOSYS) => {
            let away = aside_of(old, "old")?;
            remove_any(&away)?;
            fs::rename(old, &away)?;
            fs::rename(new, old)?;
            remove_any(&away)
        }
        Err(e) => Err(e.into()),
    }
}

#[cfg(target_env = "gnu")]
fn exchange(a: &Path, b: &Path) -> nix::Result<()> {
    use nix::fcntl::{AT_FDCWD, RenameFlags, renameat2};
    renameat2(AT_FDCWD, a, AT_FDCWD, b, RenameFlags::RENAME_EXCHANGE)
}

#[cfg(not(target_env = "gnu"))]
fn exchange(_: &Path, _: &Path) -> nix::Result<()> {
    Err(nix::errno::Errno::ENOSYS)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    fn mode(path: &Path) -> u32 {
        fs::metadata(path).unwrap().permissions().mode() & 0o777
    }

    #[test]
    fn a_folder_is_replaced_as_a_whole_and_leaves_nothing_aside() {
        let tmp = tempfile::tempdir().unwrap();
        let dir = tmp.path().join("pair");
        install_dir(&dir, &[("tls.crt", b"1"), ("tls.key", b"1")]).unwrap();
        fs::create_dir(tmp.path().join(".pair.new")).unwrap();
        fs::write(tmp.path().join(".pair.new/tls.crt"), b"half").unwrap();
        install_dir(&dir, &[("tls.crt", b"2"), ("tls.key", b"2")]).unwrap();
        assert_eq!(fs::read(dir.join("tls.crt")).unwrap(), b"2");
        assert_eq!(fs::read(dir.join("tls.key")).unwrap(), b"2");
        assert_eq!(fs::read_dir(tmp.path()).unwrap().count(), 1);
        assert_eq!((mode(&dir), mode(&dir.join("tls.key"))), (0o700, 0o600));
    }

    #[test]
    fn a_leftover_of_a_killed_writer_does_not_stop_the_next() {
        let tmp = tempfile::tempdir().unwrap();
        let file = tmp.path().join("token");
        fs::write(tmp.path().join(".token.new"), b"half").unwrap();
        write_private(&file, b"whole").unwrap();
        assert_eq!(fs::read(&file).unwrap(), b"whole");
        assert_eq!(mode(&file), 0o600);
    }
}
