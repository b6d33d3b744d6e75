//! For the tests of this crate's rooms.
#![allow(clippy::unwrap_used)]

use nix::mount::{MsFlags, mount, umount};
use socialweb_core::GroupName;
use std::path::Path;
use std::time::{Duration, Instant};
use tempfile::TempDir;

pub(crate) fn group(name: &str) -> GroupName {
    GroupName::new(name).unwrap()
}

/// A file system of a few kilobytes, unmounted when dropped.
pub(crate) struct SmallDisk {
    folder: TempDir,
}

impl SmallDisk {
    /// `None`, and a counted skip, without the right to mount.
    pub(crate) fn mount(test: &str, kib: u32) -> Option<SmallDisk> {
        let folder = TempDir::new().unwrap();
        let size = format!("size={kib}k,mode=700");
        let mounted = mount(Some("tmpfs"), folder.path(), Some("tmpfs"), MsFlags::empty(), Some(size.as_str()));
        if let Err(e) = mounted {
            println!("SKIP: {test}: mount: no small file system can be mounted here ({e})");
            return None;
        }
        Some(SmallDisk { folder })
    }

    pub(crate) fn path(&self) -> &Path {
        self.folder.path()
    }

    pub(crate) fn fill(&self) {
        use std::io::Write;
        let mut file = std::fs::File::create(self.path().join("filler")).unwrap();
        while file.write_all(&[0; 512]).is_ok() {}
    }

    pub(crate) fn remount_read_only(&self) {
        let flags = MsFlags::MS_REMOUNT | MsFlags::MS_RDONLY;
        mount(None::<&str>, self.path(), None::<&str>, flags, None::<&str>).unwrap();
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        // A child that another test has just made holds our descriptors until its exec.
        let deadline = Instant::now() + Duration::from_secs(120);
        while let Err(error) = umount(self.folder.path()) {
            assert!(Instant::now() < deadline, "the small file system stays mounted: {error}");
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}
