//! Finding processes by a marker in their environment: for survivors, for hosts without cgroups, and for what moved
//! itself out of its cgroup.

use super::{PidFd, Stat, environ_value, scan};
use std::io;

/// One process, named so that a signal cannot reach another one.
#[derive(Debug)]
pub struct Proc {
    /// Process id.
    pub pid: u32,
    /// What /proc said while `pidfd` was held.
    pub stat: Stat,
    /// The marker's whole value; empty where the process was found by other evidence.
    pub marker: String,
    /// The process itself.
    pub pidfd: PidFd,
}

impl Proc {
    /// Reads `pid` through `read` while a pidfd is held. `None`: gone, recycled while we looked, or `read` said no.
    /// When the pidfd's process still exists after the reads, its number was its own during all of them.
    pub fn pinned(pid: u32, read: impl FnOnce(&Stat) -> Option<String>) -> io::Result<Option<Proc>> {
        let Some(pidfd) = PidFd::open(pid)? else { return Ok(None) };
        let Ok(stat) = Stat::of(pid) else { return Ok(None) };
        let Some(marker) = read(&stat) else { return Ok(None) };
        Ok(pidfd.exists()?.then_some(Proc { pid, stat, marker, pidfd }))
    }
}

/// All living processes whose environment has `key` with a value that begins with `value_prefix`. Zombies have no
/// environment and are not found; their turn is at the reaper. Only processes whose environment we may read: with an
/// ordinary account its own ones, less those that made themselves undumpable. A process in the middle of exec shows no
/// environment for a moment, and one look can miss what is forked meanwhile: "none" is known only when two looks agree.
pub fn find_marked(key: &str, value_prefix: &str) -> io::Result<Vec<Proc>> {
    let matches = |pid| environ_value(pid, key).filter(|v| v.starts_with(value_prefix));
    // Cheap look first: a pidfd is opened only for a process that seems to match, and then all is read again.
    let candidates = scan()?.filter(|pid| matches(*pid).is_some());
    as_far_as_possible(candidates.filter_map(|pid| Proc::pinned(pid, |_| matches(pid)).transpose()))
}

/// What came before the first error; the error itself only when nothing did. A look at more processes than there are
/// descriptors gives a part of them: whoever ends those and looks again gets the next part, and never takes "could not
/// look" for "nobody there".
pub fn as_far_as_possible<T>(items: impl Iterator<Item = io::Result<T>>) -> io::Result<Vec<T>> {
    let mut all = Vec::new();
    for item in items {
        match item {
            Ok(item) => all.push(item),
            Err(error) if all.is_empty() => return Err(error),
            Err(_) => break,
        }
    }
    Ok(all)
}

/// The children of this process, living or dead, in no order. With this process as subreaper that is also every orphan
/// of its descendants. Reads one file per thread of ours, not the whole of /proc, where the kernel offers it
/// (CONFIG_PROC_CHILDREN).
pub fn children() -> io::Result<Vec<u32>> {
    let mut found = Vec::new();
    for task in std::fs::read_dir("/proc/self/task")? {
        match std::fs::read_to_string(task?.path().join("children")) {
            Ok(text) => found.extend(text.split_whitespace().filter_map(|pid| pid.parse::<u32>().ok())),
            // The thread ended between the listing and the read: its children went to another thread's list, which may
            // have been read already; the whole of /proc tells for certain. The same without CONFIG_PROC_CHILDREN.
            Err(_) => return children_by_scan(),
        }
    }
    Ok(found)
}

fn children_by_scan() -> io::Result<Vec<u32>> {
    let own = std::process::id();
    // From the end: the newest are the likeliest to be gone by the time of their turn.
    let mut all: Vec<u32> = scan()?.collect();
    all.sort_unstable_by(|a, b| b.cmp(a));
    Ok(all.into_iter().filter(|pid| Stat::of(*pid).is_ok_and(|stat| stat.ppid == own)).collect())
}
