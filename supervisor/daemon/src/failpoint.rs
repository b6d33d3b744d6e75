//! Named places at which a test kills, stops or starves the daemon: the proof that a crash at any step loses nothing.
//!
//! `SOCIALWEB_FAILPOINT=NAME[:N][=WHAT]`, several parted by commas. WHAT is `kill` (SIGKILL of the daemon itself, the
//! default), `stop` (SIGSTOP) or `hang` (the thread never goes on, as in a call to a dead disk), each at the N-th time the
//! place is reached (default 1); or `enospc`: the first N tries of a write fail as on a full disk, and those of a new
//! thread as on a host that has no room for one.
//!
//! Only in debug builds. A release build has no trace of it: the variables mean nothing there.

/// Every place, in about the order in which a group's life reaches them. The daemon refuses other names, and a test fails
/// when one of these is never reached.
pub const POINTS: &[&str] = &[
    // A file is written.
    "write-temp-made",
    "write-temp-full",
    "write-renamed",
    // The sources are read and applied.
    "reload-read",
    "group-folder-made",
    "record-made",
    "ports-recorded",
    "leases-written",
    "declared",
    "reload-applied",
    // What core asks for, on both sides of doing it.
    "before-reap-survivors",
    "after-reap-survivors",
    "before-lease",
    "after-lease",
    "before-request",
    "after-request",
    "before-return",
    "after-return",
    "before-make-cgroup",
    "after-make-cgroup",
    "before-spawn",
    "after-spawn",
    "before-probe",
    "after-probe",
    "before-signal",
    "after-signal",
    "before-await-empty",
    "after-await-empty",
    "before-kill-cgroup",
    "after-kill-cgroup",
    "before-remove-cgroup",
    "after-remove-cgroup",
    "before-remove-group",
    "after-remove-group",
    "before-shut-path",
    "after-shut-path",
    "before-release",
    "after-release",
    "before-publish",
    "after-publish",
    "before-receipt",
    "after-receipt",
    // Within a start.
    "generation-written",
    "launch-prepared",
    "run-cgroup-made",
    "spawned",
    "run-noted",
    "task-spawned",
    "exec-seen",
    "ready-seen",
    // Within an end.
    "desired-written",
    "child-ended",
    "child-collected",
    "run-emptied",
    // A delete.
    "trashed",
    "ports-released",
    "group-forgotten",
    "trash-removed",
    // A sweep of what an earlier daemon left.
    "survivors-signalled",
    "survivors-killed",
    "survivors-gone",
    // The daemon's own end.
    "shutdown-begun",
    "stragglers-ended",
    "tree-removed",
    "sockets-removed",
];

/// Writes, and the thread for work beside the loop: what `enospc` can make fail.
pub const FULL: &[&str] = &["disk-leases", "disk-record", "disk-receipt", "disk-events", "no-thread"];

#[cfg(debug_assertions)]
mod armed {
    use std::collections::BTreeMap;
    use std::sync::{Mutex, OnceLock, PoisonError};

    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub(super) enum What {
        Kill,
        Stop,
        Hang,
        Enospc,
    }

    /// One `NAME[:N][=WHAT]`.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub(super) struct Armed {
        pub name: String,
        pub n: u32,
        pub what: What,
    }

    #[derive(Debug, Default)]
    struct State {
        armed: Vec<Armed>,
        hits: Mutex<BTreeMap<&'static str, u32>>,
    }

    pub(super) fn parse(text: &str) -> Option<Armed> {
        let (place, what) = text.split_once('=').unwrap_or((text, "kill"));
        let (name, n) = place.split_once(':').unwrap_or((place, "1"));
        let what = match what {
            "kill" => What::Kill,
            "stop" => What::Stop,
            "hang" => What::Hang,
            "enospc" => What::Enospc,
            _ => return None,
        };
        Some(Armed { name: name.into(), n: n.parse().ok().filter(|n| *n > 0)?, what })
    }

    fn state() -> &'static State {
        static STATE: OnceLock<State> = OnceLock::new();
        STATE.get_or_init(|| {
            let text = std::env::var("SOCIALWEB_FAILPOINT").unwrap_or_default();
            let armed = text.split(',').filter(|t| !t.is_empty()).map(|t| {
                let known = |a: &Armed| super::POINTS.iter().chain(super::FULL).any(|p| *p == a.name);
                // A test that names a place which does not exist proves nothing and must not pass.
                parse(t).filter(known).unwrap_or_else(|| panic!("SOCIALWEB_FAILPOINT: {t:?} is no failpoint"))
            });
            State { armed: armed.collect(), ..State::default() }
        })
    }

    /// How often `name` was reached now, this time included, if anybody wants to know.
    fn hit(state: &State, name: &'static str) -> u32 {
        if state.armed.is_empty() {
            return 0;
        }
        let mut hits = state.hits.lock().unwrap_or_else(PoisonError::into_inner);
        let count = hits.entry(name).or_default();
        *count += 1;
        *count
    }

    pub(super) fn reach(name: &'static str) {
        debug_assert!(super::POINTS.contains(&name), "{name} is not in the list of failpoints");
        let state = state();
        let count = hit(state, name);
        let due = |a: &&Armed| a.name == name && a.n == count && a.what != What::Enospc;
        if let Some(armed) = state.armed.iter().find(due) {
            if armed.what == What::Hang {
                loop {
                    std::thread::park();
                }
            }
            let signal = if armed.what == What::Kill { nix::libc::SIGKILL } else { nix::libc::SIGSTOP };
            if let Ok(Some(own)) = socialweb_sys::PidFd::open(std::process::id()) {
                let _ = own.send(signal);
            }
        }
    }

    pub(super) fn is_full(name: &'static str) -> bool {
        debug_assert!(super::FULL.contains(&name), "{name} is not in the list of full disks");
        let state = state();
        let count = hit(state, name);
        state.armed.iter().any(|a| a.name == name && a.what == What::Enospc && count <= a.n)
    }
}

/// The daemon is at this place now.
#[inline]
pub(crate) fn reach(name: &'static str) {
    #[cfg(debug_assertions)]
    armed::reach(name);
    #[cfg(not(debug_assertions))]
    let _ = name;
}

/// Fails as a full disk does, when a test wants that for this file of the state folder.
///
/// # Errors
/// ENOSPC, in a test.
#[inline]
pub(crate) fn disk(path: &std::path::Path) -> std::io::Result<()> {
    #[cfg(debug_assertions)]
    if let Some(name) = disk_of(path)
        && armed::is_full(name)
    {
        return Err(std::io::Error::from_raw_os_error(nix::libc::ENOSPC));
    }
    let _ = path;
    Ok(())
}

/// True when a test wants no thread to be made.
#[inline]
pub(crate) fn no_thread() -> bool {
    #[cfg(debug_assertions)]
    return armed::is_full("no-thread");
    #[cfg(not(debug_assertions))]
    false
}

#[cfg(debug_assertions)]
fn disk_of(path: &std::path::Path) -> Option<&'static str> {
    let name = path.file_name()?.to_str()?;
    let folder = path.parent().and_then(|f| f.file_name()).and_then(|f| f.to_str());
    match name {
        "leases.json" => Some("disk-leases"),
        "record.json" => Some("disk-record"),
        "events.jsonl" => Some("disk-events"),
        _ if folder == Some("receipts") => Some("disk-receipt"),
        _ => None,
    }
}

#[cfg(all(test, debug_assertions))]
mod tests {
    use super::armed::{Armed, What, parse};
    use super::*;
    use std::path::Path;

    #[test]
    fn a_failpoint_is_a_name_a_number_and_a_deed() {
        let armed = |name: &str, n, what| Some(Armed { name: name.into(), n, what });
        assert_eq!(parse("spawned"), armed("spawned", 1, What::Kill));
        assert_eq!(parse("spawned:3"), armed("spawned", 3, What::Kill));
        assert_eq!(parse("spawned=stop"), armed("spawned", 1, What::Stop));
        assert_eq!(parse("leases-written:2=hang"), armed("leases-written", 2, What::Hang));
        assert_eq!(parse("disk-record:2=enospc"), armed("disk-record", 2, What::Enospc));
        for bad in ["spawned:0", "spawned:x", "spawned=burn"] {
            assert_eq!(parse(bad), None, "{bad}");
        }
    }

    #[test]
    fn names_are_unique_and_nothing_happens_unasked() {
        let all: std::collections::BTreeSet<_> = POINTS.iter().chain(FULL).collect();
        assert_eq!(all.len(), POINTS.len() + FULL.len());
        reach("spawned");
        assert!(disk(Path::new("/s/groups/a/record.json")).is_ok() && !no_thread());
    }

    #[test]
    fn a_file_of_the_state_folder_has_its_disk() {
        assert_eq!(disk_of(Path::new("/s/leases.json")), Some("disk-leases"));
        assert_eq!(disk_of(Path::new("/s/groups/a/receipts/1-1.json")), Some("disk-receipt"));
        assert_eq!(disk_of(Path::new("/s/groups/a/k3s/config")), None);
    }
}
