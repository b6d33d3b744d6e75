//! Where cgroup2 is mounted, and how a folder there relates to the paths of /proc/PID/cgroup.

use crate::mounts::{self, Mounted};
use std::path::{Path, PathBuf};

/// One cgroup2 mount.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Mount {
    /// The cgroup that is visible at `point`, as /proc/PID/cgroup would name it.
    pub root: PathBuf,
    /// Where it is mounted. On hybrid hosts that is /sys/fs/cgroup/unified.
    pub point: PathBuf,
}

impl Mount {
    /// Folder of the cgroup that /proc/PID/cgroup calls `path`; `None` when this mount does not show it.
    pub fn folder(&self, path: &Path) -> Option<PathBuf> {
        let below = path.strip_prefix(&self.root).ok()?;
        // A path with ".." lies outside of our cgroup namespace.
        let inside = below.components().all(|c| matches!(c, std::path::Component::Normal(_)));
        // Joining an empty path would add a slash at the end.
        let folder = if below.as_os_str().is_empty() { self.point.clone() } else { self.point.join(below) };
        inside.then_some(folder)
    }
}

/// The folder of the cgroup that a process is in, as this mount namespace shows it; `None` when no cgroup2 mount does, or when
/// the process is gone.
pub fn folder_of(pid: u32) -> Option<PathBuf> {
    let path = crate::process::cgroup(pid).ok().flatten()?;
    cgroup2_mounts().iter().filter_map(|m| m.folder(Path::new(&path))).find(|folder| folder.is_dir())
}

/// Where cgroup2 is mounted, in the order of the mounts.
pub fn mount_points() -> Vec<PathBuf> {
    cgroup2_mounts().into_iter().map(|m| m.point).collect()
}

/// All cgroup2 mounts of this process's mount namespace.
pub(super) fn cgroup2_mounts() -> Vec<Mount> {
    cgroup2(mounts::all().unwrap_or_default())
}

/// What /proc/PID/cgroup calls the cgroup at this (canonical) folder; `None` when it is on no cgroup2 mount.
pub(super) fn hierarchy_path(folder: &Path) -> Option<String> {
    let mounts = cgroup2_mounts();
    let mount = mounts.iter().filter(|m| folder.starts_with(&m.point)).max_by_key(|m| m.point.as_os_str().len())?;
    let below = folder.strip_prefix(&mount.point).ok()?;
    // Joining an empty path would add a slash at the end.
    let whole = if below.as_os_str().is_empty() { mount.root.clone() } else { mount.root.join(below) };
    let text = whole.to_str()?;
    // "/" becomes "", so that a prefix always ends where a '/' begins.
    Some(if text == "/" { String::new() } else { text.to_string() })
}

/// Those of them that are cgroup2.
fn cgroup2(mounts: impl IntoIterator<Item = Mounted>) -> Vec<Mount> {
    let own = mounts.into_iter().filter(|mounted| mounted.kind == "cgroup2");
    own.map(|Mounted { root, point, .. }| Mount { root, point }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_cgroup2_mounts_are_found_wherever_they_are() {
        let text = "31 23 0:28 / /sys/fs/cgroup rw,relatime - tmpfs tmpfs rw,mode=755\n\
                    32 31 0:29 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu\n\
                    41 31 0:38 / /sys/fs/cgroup/unified rw shared:4 - cgroup2 cgroup2 rw\n\
                    42 31 0:38 /a\\040b /mnt/x\\134y rw - cgroup2 none rw\n\
                    broken\n";
        let want = [("/", "/sys/fs/cgroup/unified"), ("/a b", "/mnt/x\\y")];
        let found = cgroup2(text.lines().filter_map(|line| mounts::parse(line.as_bytes())));
        assert_eq!(found, want.map(|(r, p)| Mount { root: r.into(), point: p.into() }));
    }

    #[test]
    fn a_cgroup_is_found_only_below_what_the_mount_shows() {
        let mount = Mount { root: "/user".into(), point: "/cg".into() };
        let check = |path: &str, want: Option<&str>| {
            assert_eq!(mount.folder(Path::new(path)).as_ref().and_then(|p| p.to_str()), want, "{path}")
        };
        check("/user/a", Some("/cg/a"));
        check("/user", Some("/cg"));
        check("/other", None);
        check("/username", None);
        check("/user/../x", None);
    }
}
