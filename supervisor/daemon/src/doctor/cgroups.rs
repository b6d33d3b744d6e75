//! Which cgroup hierarchy this host has, and what of it is the daemon's. Looks, makes nothing.

use super::Place;
use super::facts::{CgroupFacts, Hierarchy, RootFacts};
use nix::unistd::{AccessFlags, access, geteuid};
use socialweb_sys::{cgroup, process};
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

/// Name of the leaf that the daemon's own process sits in where it hands controllers down.
const OWN_LEAF: &str = "supervisor";
/// What a delegation must hand over.
const FILES: [&str; 3] = [".", "cgroup.procs", "cgroup.subtree_control"];

/// Looks.
pub fn gather(place: &Place) -> CgroupFacts {
    let pid = place.seen.pid().unwrap_or_else(std::process::id);
    let own = process::cgroup(pid).ok().flatten().unwrap_or_default();
    let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    let root = root_of(place, pid).map(|(path, whose)| root(place, path, whose));
    CgroupFacts { hierarchy: hierarchy(&mounts), root, own }
}

fn hierarchy(mountinfo: &str) -> Hierarchy {
    let kinds = || mountinfo.lines().filter_map(|line| line.split_once(" - ")?.1.split(' ').next());
    // systemd's own named v1 hierarchy has no controller: what counts is a v1 mount that names one.
    let old = mountinfo
        .lines()
        .filter_map(|line| line.split_once(" - cgroup "))
        .any(|(_, after)| after.split([',', ' ']).any(|word| matches!(word, "memory" | "cpu" | "pids" | "blkio")));
    match (kinds().any(|kind| kind == "cgroup2"), old) {
        (true, false) => Hierarchy::Unified,
        (true, true) => Hierarchy::Hybrid,
        (false, true) => Hierarchy::Old,
        (false, false) => Hierarchy::Missing,
    }
}

/// The folder below which the daemon works, or would, and how it was chosen.
fn root_of(place: &Place, pid: u32) -> Option<(PathBuf, String)> {
    let explicit = place.flags.cgroup.clone().or_else(|| place.config.as_ref()?.cgroup.clone());
    if let Some(path) = explicit {
        return Some((path, "named by the configuration".into()));
    }
    let folder = cgroup::folder_of(pid)?;
    if place.seen.pid().is_some() {
        let above = folder.parent().filter(|_| folder.file_name().is_some_and(|name| name == OWN_LEAF));
        return Some((above.map(Path::to_owned).unwrap_or(folder.clone()), "the daemon's cgroup".into()));
    }
    let service = format!("user@{}.service", place.uid);
    let manager = cgroup::mount_points().into_iter().find_map(|point| {
        let at = point.join("user.slice").join(format!("user-{}.slice", place.uid)).join(&service);
        at.is_dir().then_some(at)
    });
    match manager {
        Some(at) => Some((at, "the account's service manager, which the daemon's unit would be below".into())),
        None => Some((folder, "the cgroup of this shell, which the daemon would take".into())),
    }
}

fn root(place: &Place, path: PathBuf, whose: String) -> RootFacts {
    let read = |name: &str| fs::read_to_string(path.join(name)).unwrap_or_default();
    let words = |name: &str| -> Vec<String> { read(name).split_ascii_whitespace().map(Into::into).collect() };
    let kind = read("cgroup.type").trim().to_string();
    let members = read("cgroup.procs");
    let inside = |pid: u32| members.split_ascii_whitespace().any(|member| member.parse() == Ok(pid));
    let unwritable = FILES.iter().filter(|name| !may_write(place.uid, &path.join(name))).map(|n| n.to_string());
    RootFacts {
        offered: words("cgroup.controllers"),
        handed_down: words("cgroup.subtree_control"),
        unwritable: unwritable.collect(),
        daemon_inside: place.seen.pid().is_some_and(inside),
        has_kill: kind.is_empty() || path.join("cgroup.kill").exists(),
        kind,
        whose,
        path,
    }
}

/// May that account write there? For ourselves the kernel says it; for another account its owner and mode do.
fn may_write(uid: u32, path: &Path) -> bool {
    if uid == geteuid().as_raw() {
        return access(path, AccessFlags::W_OK).is_ok();
    }
    fs::metadata(path).is_ok_and(|meta| {
        let mode = meta.permissions().mode();
        uid == 0 || (meta.uid() == uid && mode & 0o200 != 0) || mode & 0o002 != 0
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hierarchies_are_told_apart_by_what_is_mounted() {
        let unified = "41 31 0:38 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n";
        let named = "42 31 0:39 / /sys/fs/cgroup/systemd rw - cgroup cgroup rw,xattr,name=systemd\n";
        let memory = "43 31 0:40 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n";
        let check = |text: String, want| assert_eq!(hierarchy(&text), want, "{text}");
        check(unified.into(), Hierarchy::Unified);
        check(format!("{unified}{named}"), Hierarchy::Unified);
        check(format!("{unified}{memory}"), Hierarchy::Hybrid);
        check(memory.into(), Hierarchy::Old);
        check(String::new(), Hierarchy::Missing);
    }
}
