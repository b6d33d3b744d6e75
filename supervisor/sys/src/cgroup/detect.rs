//! Which cgroup2 subtree is ours: proven by making a child, starting a process in it and removing it.

use super::{Cgroup, mount};
use crate::{process, spawn};
use nix::sys::statfs::{CGROUP2_SUPER_MAGIC, statfs};
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

/// Name of the leaf that the daemon's own process sits in: a cgroup with members may not hand controllers down.
const OWN_LEAF: &str = "supervisor";

/// Controllers that a supervisor has a use for. cpuset, hugetlb and the like cost and serve nobody here.
const WANTED: [(&str, &str, &str); 4] =
    [("cpu", "+cpu", "-cpu"), ("io", "+io", "-io"), ("memory", "+memory", "-memory"), ("pids", "+pids", "-pids")];

/// What this host gives us.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Support {
    /// A subtree of ours, with controllers that work below it.
    Delegated {
        /// Where our own cgroups go.
        root: PathBuf,
        /// Controllers that are handed down: cpu, io, memory, pids or a part of them.
        controllers: Vec<String>,
        /// What did not work, each with its place; not fatal.
        problems: Vec<String>,
    },
    /// A subtree of ours without controllers: membership, kill, freeze and cpu time work, limits and io counters do not.
    NoControllers {
        /// Where our own cgroups go.
        root: PathBuf,
        /// What did not work, each with its place; not fatal.
        problems: Vec<String>,
    },
    /// No cgroup2 that we may use.
    None {
        /// Why, and what would help.
        why: String,
    },
}

impl Support {
    /// Looks for a cgroup2 folder in which this account can really make a cgroup, start a process in it, and remove it:
    /// `explicit` and nothing else if given; else our own cgroup (or its parent, when our own is the leaf `supervisor`).
    /// Where controllers are available, moves this process to that leaf and hands them down. Waits for one child that
    /// exits at once, so call it before the reaper runs.
    pub fn detect(explicit: Option<&Path>) -> Support {
        match usable_root(explicit) {
            Ok(root) => hand_down(root),
            Err(why) => Support::None { why },
        }
    }

    /// Where our own cgroups go.
    pub fn root(&self) -> Option<&Path> {
        match self {
            Support::Delegated { root, .. } | Support::NoControllers { root, .. } => Some(root),
            Support::None { .. } => None,
        }
    }

    /// What did not work on the way; not fatal.
    pub fn problems(&self) -> &[String] {
        match self {
            Support::Delegated { problems, .. } | Support::NoControllers { problems, .. } => problems,
            Support::None { .. } => &[],
        }
    }

    /// One word for tables: `delegated`, `no-controllers`, `none`.
    pub fn word(&self) -> &'static str {
        match self {
            Support::Delegated { .. } => "delegated",
            Support::NoControllers { .. } => "no-controllers",
            Support::None { .. } => "none",
        }
    }

    /// The same for people, in one line without the problems.
    pub fn explain(&self) -> String {
        match self {
            Support::Delegated { root, controllers, .. } => {
                format!("cgroup2 subtree {} is ours, with {}", root.display(), controllers.join(", "))
            }
            Support::NoControllers { root, .. } => format!(
                "cgroup2 subtree {} is ours, without controllers: kill, freeze and cpu time work, limits and io counters do not \
                 (under systemd a unit gets them with Delegate=yes; else the cgroups above must hand them down)",
                root.display()
            ),
            Support::None { why } => format!(
                "no cgroup2 that we may use, so processes are found by session, process group and marker, which is weaker: {why}"
            ),
        }
    }
}

fn usable_root(explicit: Option<&Path>) -> Result<PathBuf, String> {
    let candidates = match explicit {
        Some(path) => {
            vec![
                fs::canonicalize(path)
                    .map_err(|e| format!("{}: {e}; give the folder of an existing cgroup", path.display()))?,
            ]
        }
        None => own_candidates()?,
    };
    let mut refused = Vec::new();
    for folder in candidates {
        match probe(&folder) {
            Ok(()) => return Ok(folder),
            Err(why) => refused.push(why),
        }
    }
    Err(refused.join("; "))
}

/// Folders of our own cgroup, the likeliest first.
fn own_candidates() -> Result<Vec<PathBuf>, String> {
    let mounts = mount::cgroup2_mounts();
    if mounts.is_empty() {
        return Err(
            "no cgroup2 is mounted; boot with the unified hierarchy or mount one (mount -t cgroup2 none DIR)".into()
        );
    }
    let own = process::cgroup(std::process::id()).map_err(|e| format!("cannot read /proc/self/cgroup: {e}"))?;
    let own = own.ok_or("this kernel has no cgroup2 hierarchy (no line 0:: in /proc/self/cgroup)")?;
    let folder = mounts.iter().filter_map(|m| m.folder(Path::new(&own))).find(|f| f.is_dir());
    let folder =
        folder.ok_or_else(|| format!("our own cgroup {own} is visible in no cgroup2 mount of this namespace"))?;
    let parent = folder.parent().filter(|_| folder.file_name().is_some_and(|n| n == OWN_LEAF));
    Ok(parent.map(Path::to_path_buf).into_iter().chain([folder.clone()]).collect())
}

/// mkdir, clone3 into it, rmdir: the only proof that counts.
fn probe(folder: &Path) -> Result<(), String> {
    const FIX: &str =
        "run as a systemd --user unit or scope with Delegate=yes, or give a cgroup of this account by path";
    let at = folder.display();
    if !statfs(folder).is_ok_and(|s| s.filesystem_type() == CGROUP2_SUPER_MAGIC) {
        return Err(format!("{at} is not on a cgroup2 mount"));
    }
    // Unique, so that two probes at once do not take each other's cgroup away.
    static PROBES: AtomicU32 = AtomicU32::new(0);
    let number = PROBES.fetch_add(1, Ordering::Relaxed);
    let child = Cgroup::at(folder).child(&format!("probe-{}-{number}", std::process::id()));
    child.create().map_err(|e| format!("cannot make a cgroup in {at} ({}); {FIX}", cause(&e)))?;
    let spawned = spawn::probe_into(&child);
    // The child is waited for, so nothing is inside; a remove that fails all the same is the answer to the question.
    let removed = child.remove();
    spawned.map_err(|e| {
        let own = process::cgroup(std::process::id()).ok().flatten().unwrap_or_default();
        format!("cannot start a process in a cgroup of {at} ({e}): our own cgroup is {own}, and the kernel asks that the nearest \
                 common ancestor of both is writable for this account; {FIX}")
    })?;
    removed.map_err(|e| format!("cannot remove a cgroup of {at} ({e})"))
}

fn cause(error: &dyn std::error::Error) -> String {
    error.source().map_or_else(|| error.to_string(), ToString::to_string)
}

/// Makes controllers available below `root`, as far as the host lets us.
fn hand_down(root: PathBuf) -> Support {
    let cgroup = Cgroup::at(&root);
    let words = |file: &str| -> Vec<String> {
        cgroup.read(file).unwrap_or_default().split_ascii_whitespace().map(Into::into).collect()
    };
    let available = words("cgroup.controllers");
    let mut problems = Vec::new();
    if !root.join("cgroup.kill").exists() && root.join("cgroup.type").exists() {
        problems
            .push(format!("{} has no cgroup.kill (kernel before 5.14): members are killed one by one", root.display()));
    }
    let wanted = || WANTED.iter().filter(|(name, ..)| available.iter().any(|a| a == name));
    if wanted().next().is_some() {
        problems.extend(leave_root(&cgroup));
        let enabled = words("cgroup.subtree_control");
        for (name, plus, minus) in wanted().filter(|(name, ..)| !enabled.iter().any(|e| e == name)) {
            problems.extend(enable(&cgroup, name, plus, minus));
        }
    }
    let controllers = words("cgroup.subtree_control");
    let controllers: Vec<String> = wanted().map(|w| w.0.into()).filter(|n| controllers.contains(n)).collect();
    match controllers.is_empty() {
        true => Support::NoControllers { root, problems },
        false => Support::Delegated { root, controllers, problems },
    }
}

/// Moves this process out of `root`, if it is there. The real root of the hierarchy (it has no cgroup.type) may hold
/// members and hand controllers down at once, so nobody moves there. Returns a problem.
fn leave_root(root: &Cgroup) -> Option<String> {
    let own = || root.own_pids().is_ok_and(|pids| pids.contains(&std::process::id()));
    if !root.path().join("cgroup.type").exists() || !own() {
        return None;
    }
    let leaf = root.child(OWN_LEAF);
    let moved = leaf.create().and_then(|()| leaf.write("cgroup.procs", "0"));
    moved.err().map(|e| format!("cannot move this process out of the delegation root: {e} ({})", cause(&e)))
}

/// Hands one controller down. With members in the root the kernel either refuses (EBUSY, systemd issue 26311) or, for
/// cpu and pids, makes the cgroups below invalid, so that later spawns fail (ZelAnton/ProcessKit-rs issue 39): checked before,
/// and undone after if it happened all the same. Returns a problem.
fn enable(root: &Cgroup, name: &str, plus: &'static str, minus: &'static str) -> Option<String> {
    let at = root.path().display();
    let kind = || root.read("cgroup.type").ok();
    let before = kind();
    let members = if before.is_some() { root.own_pids().unwrap_or_default() } else { Vec::new() };
    if !members.is_empty() {
        let who: Vec<String> =
            members.iter().map(|p| format!("{p} ({})", process::comm(*p).unwrap_or_default())).collect();
        return Some(format!("controller {name} stays off: {at} has members of its own: pid {}", who.join(", ")));
    }
    if let Err(e) = root.write("cgroup.subtree_control", plus) {
        return Some(format!("controller {name} stays off: {e} ({})", cause(&e)));
    }
    if kind() != before {
        let undone = if root.write("cgroup.subtree_control", minus).is_ok() { "undone" } else { "could not be undone" };
        return Some(format!("controller {name} stays off: it made {at} threaded; {undone}"));
    }
    None
}

/// Takes back what [`Support::detect`] handed down, for a clean end: a root that still hands controllers down refuses the
/// process of the next start (systemd PR 41304). Returns what did not work.
pub fn release_controllers(root: &Path) -> Vec<String> {
    let cgroup = Cgroup::at(root);
    let on = cgroup.read("cgroup.subtree_control").unwrap_or_default();
    let ours = WANTED.iter().filter(|(name, ..)| on.split_ascii_whitespace().any(|w| w == *name));
    ours.filter_map(|(.., minus)| cgroup.write("cgroup.subtree_control", minus).err())
        .map(|e| format!("{e} ({})", cause(&e)))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_that_is_no_cgroup2_is_refused_with_its_name() {
        let dir = tempfile::tempdir().unwrap();
        let support = Support::detect(Some(dir.path()));
        assert_eq!((support.word(), support.root()), ("none", None));
        assert!(support.explain().contains("is not on a cgroup2 mount"), "{}", support.explain());
        let missing = Support::detect(Some(&dir.path().join("missing")));
        assert!(missing.explain().contains("missing"), "{}", missing.explain());
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0, "nothing is left behind");
    }

    #[test]
    fn controllers_are_handed_down_one_by_one_and_taken_back() {
        let dir = tempfile::tempdir().unwrap();
        let file = |name: &str, text: &str| fs::write(dir.path().join(name), text).unwrap();
        // Plain files stand in for the kernel: a write replaces the start of the content.
        file("cgroup.controllers", "cpuset cpu memory\n");
        file("cgroup.subtree_control", "");
        let support = hand_down(dir.path().into());
        assert_eq!(support.word(), "no-controllers", "a write that did not take is no success: {support:?}");
        file("cgroup.subtree_control", "cpu memory\n");
        let Support::Delegated { controllers, problems, .. } = hand_down(dir.path().into()) else { panic!() };
        assert_eq!((controllers, problems), (vec!["cpu".to_string(), "memory".into()], vec![]));
        file("cgroup.type", "domain\n");
        file("cgroup.kill", "");
        file("cgroup.procs", "1\n");
        file("cgroup.subtree_control", "cpu\n");
        let support = hand_down(dir.path().into());
        assert!(
            support.problems()[0].contains("memory stays off") && support.problems()[0].contains("pid 1"),
            "{support:?}"
        );
        assert!(release_controllers(dir.path()).is_empty());
        assert_eq!(fs::read_to_string(dir.path().join("cgroup.subtree_control")).unwrap(), "-cpu");
    }
}
