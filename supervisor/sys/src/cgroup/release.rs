//! Taking back the controllers that were handed down, for a root whose daemon is gone.

use super::{Cgroup, CgroupError};
use crate::process;
use std::path::{Path, PathBuf};

/// Takes every controller back that is handed down in `root` and below it, the deepest cgroup first: the kernel refuses a
/// controller that a cgroup below still hands on. A root that hands controllers down takes no process in, so a service
/// manager could not start the next daemon there while folders of the last one keep it from being removed. Processes that
/// live below are not touched. Returns what did not work.
pub fn release_all(root: &Path) -> Vec<CgroupError> {
    let mut cgroups = match Cgroup::at(root).walk() {
        Ok(cgroups) => cgroups,
        Err(error) => return vec![error],
    };
    cgroups.reverse();
    cgroups.iter().flat_map(release).filter(|error| !error.is_gone()).collect()
}

/// The words of one cgroup's control file, taken back one by one: one that is refused keeps no other.
fn release(cgroup: &Cgroup) -> Vec<CgroupError> {
    let on = match cgroup.read("cgroup.subtree_control") {
        Ok(on) => on,
        Err(error) => return vec![error],
    };
    let words = on.split_ascii_whitespace().map(|name| format!("-{name}"));
    words.filter_map(|word| cgroup.write("cgroup.subtree_control", &word).err()).collect()
}

/// The cgroup of the unit that this process runs for. systemd starts a delegated unit's helpers (ExecStopPost= and the like)
/// in a leaf `.control` of it; from anywhere else there is no telling whose cgroup it is.
///
/// # Errors
/// A sentence that says where this process is instead.
pub fn unit_of_helper() -> Result<PathBuf, String> {
    let own = process::cgroup(std::process::id()).map_err(|e| format!("cannot read /proc/self/cgroup: {e}"))?;
    let own = own.ok_or("this kernel has no cgroup2 hierarchy (no line 0:: in /proc/self/cgroup)")?;
    let unit = unit_path(&own).ok_or_else(|| {
        format!("our own cgroup {own} is not the leaf .control in which systemd runs a delegated unit's ExecStopPost=")
    })?;
    let mounts = super::mount::cgroup2_mounts();
    let folder = mounts.iter().filter_map(|mount| mount.folder(Path::new(unit))).find(|folder| folder.is_dir());
    folder.ok_or_else(|| format!("the cgroup {unit} is visible in no cgroup2 mount of this namespace"))
}

fn unit_path(own: &str) -> Option<&str> {
    own.strip_suffix("/.control").filter(|unit| !unit.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn every_level_gives_back_what_it_handed_on() {
        // Plain files stand in for the kernel: a write replaces the start of the content.
        let dir = tempfile::tempdir().unwrap();
        let file = |inside: &str, text: &str| {
            let folder = dir.path().join(inside);
            fs::create_dir_all(&folder).unwrap();
            fs::write(folder.join("cgroup.subtree_control"), text).unwrap();
        };
        file("", "cpu\n");
        file("tree", "memory\n");
        file("tree/group", "");
        assert!(release_all(dir.path()).is_empty());
        let text = |inside: &str| fs::read_to_string(dir.path().join(inside).join("cgroup.subtree_control")).unwrap();
        assert_eq!((text("").as_str(), text("tree").as_str(), text("tree/group").as_str()), ("-cpu", "-memory", ""));
    }

    #[test]
    fn a_root_that_is_not_there_is_no_problem() {
        let dir = tempfile::tempdir().unwrap();
        assert!(release_all(&dir.path().join("gone")).is_empty());
    }

    #[test]
    fn only_the_leaf_of_a_units_helper_names_its_unit() {
        let check = |own: &str, want: Option<&str>| assert_eq!(unit_path(own), want, "{own}");
        check("/user.slice/a.service/.control", Some("/user.slice/a.service"));
        check("/user.slice/a.service", None);
        check("/user.slice/a.service/x.control", None);
        check("/.control", None);
    }
}
