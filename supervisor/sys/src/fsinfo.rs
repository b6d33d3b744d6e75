//! What a folder lies on: memory, something read-only, how much is free.

use nix::sys::statfs::{FsType, TMPFS_MAGIC, statfs};
use nix::sys::statvfs::{FsFlags, statvfs};
use std::io;
use std::path::Path;

/// linux/magic.h; nix has no name for it.
const RAMFS_MAGIC: FsType = FsType(0x8584_58f6);

/// The file system under a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FsInfo {
    /// "tmpfs" or "ramfs" when the content does not survive a reboot.
    pub memory: Option<&'static str>,
    /// Mounted read-only.
    pub read_only: bool,
    /// Bytes that this account may still write.
    pub free_bytes: u64,
}

impl FsInfo {
    /// Looks at the path, or at its nearest ancestor when it does not exist yet. An overlay over a tmpfs shows as overlay.
    pub fn of(path: &Path) -> io::Result<FsInfo> {
        let existing = path.ancestors().find(|p| !p.as_os_str().is_empty() && p.exists()).unwrap_or(Path::new("."));
        let (kind, space) = (statfs(existing)?, statvfs(existing)?);
        let memory = match kind.filesystem_type() {
            TMPFS_MAGIC => Some("tmpfs"),
            RAMFS_MAGIC => Some("ramfs"),
            _ => None,
        };
        #[allow(clippy::useless_conversion, reason = "the types are narrower on 32-bit targets")]
        let free_bytes = u64::from(space.blocks_available()) * u64::from(space.fragment_size());
        Ok(FsInfo { memory, read_only: space.flags().contains(FsFlags::ST_RDONLY), free_bytes })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_that_does_not_exist_yet_is_judged_by_its_ancestor() {
        let dir = tempfile::tempdir().unwrap();
        let here = FsInfo::of(dir.path()).unwrap();
        let below = FsInfo::of(&dir.path().join("a/b/c")).unwrap();
        assert_eq!((here.memory, here.read_only), (below.memory, below.read_only));
        assert!(here.free_bytes > 0 && !here.read_only);
        assert!(FsInfo::of(Path::new("no-such-relative-path")).is_ok());
    }

    #[test]
    fn tmpfs_is_recognised() {
        let mounts = std::fs::read_to_string("/proc/self/mounts").unwrap();
        let Some(at) = mounts.lines().find_map(|l| l.strip_prefix("tmpfs ")?.split(' ').next()) else {
            eprintln!("SKIP: tmpfs_is_recognised: tmpfs: none is mounted");
            return;
        };
        assert_eq!(FsInfo::of(Path::new(at)).unwrap().memory, Some("tmpfs"));
        assert_eq!(FsInfo::of(Path::new("/proc")).unwrap().memory, None);
    }
}
