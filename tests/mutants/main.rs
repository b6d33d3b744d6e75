//! The judges are judged: the daemon is broken on purpose, in one way each time, and somebody must notice. A judge passes
//! the daemon as it is, or it proves nothing either.
//!
//! The faults stand in the daemon's source as `mutant!("law-what")`, in debug builds only; core's own are in its world test.
#![allow(clippy::unwrap_used)]

#[path = "../support/mod.rs"]
mod support;

mod judges;
mod scene;

use judges::Judge;
use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use support::{PATIENCE, cgroup2_mount, skip};

/// Faults at a time: a daemon that is broken is mostly waited for.
const AT_ONCE: usize = 5;
/// What a broken daemon has not done by then it does not do. On a slow machine that convicts it too early; it is guilty
/// all the same.
const SHORT: Duration = Duration::from_secs(8);

/// A fault, who must notice it, and whether it needs cgroups to matter.
struct Fault(&'static str, Judge, Needs);

#[derive(Clone, Copy, PartialEq)]
enum Needs {
    Nothing,
    Cgroups,
}

const FAULTS: &[Fault] = &[
    Fault("l2-all-told-at-once", Judge::Stop, Needs::Nothing),
    Fault("l3-child-unseen", Judge::Restart, Needs::Nothing),
    Fault("l3-empty-unseen", Judge::Stop, Needs::Nothing),
    Fault("l3-end-without-stop", Judge::End, Needs::Nothing),
    Fault("l3-group-not-removed", Judge::Stop, Needs::Cgroups),
    Fault("l3-killed-unasked", Judge::Stop, Needs::Nothing),
    Fault("l3-no-marker", Judge::Stop, Needs::Nothing),
    Fault("l3-no-subreaper", Judge::Stop, Needs::Cgroups),
    Fault("l3-no-thaw", Judge::Stop, Needs::Cgroups),
    Fault("l3-run-not-removed", Judge::Restart, Needs::Cgroups),
    Fault("l3-strays-unseen", Judge::Stop, Needs::Cgroups),
    Fault("l3-tree-left", Judge::End, Needs::Cgroups),
    Fault("l4-forgotten-not-reaped", Judge::Crash, Needs::Nothing),
    Fault("l4-generation-lost", Judge::Crash, Needs::Nothing),
    Fault("l4-survivors-not-sought", Judge::Crash, Needs::Nothing),
    Fault("l6-no-kill", Judge::Stop, Needs::Nothing),
    Fault("l6-second-term-cuts", Judge::End, Needs::Nothing),
    Fault("l7-delete-keeps-data", Judge::Delete, Needs::Nothing),
    Fault("l7-stop-not-kept", Judge::Crash, Needs::Nothing),
    Fault("l9-delete-keeps-ports", Judge::Delete, Needs::Nothing),
    Fault("l9-lease-dropped", Judge::Stop, Needs::Nothing),
    Fault("l9-port-not-probed", Judge::Restart, Needs::Nothing),
    Fault("l9-started-before-flush", Judge::Full, Needs::Nothing),
    Fault("l14-receipt-early", Judge::Stop, Needs::Nothing),
    Fault("l14-receipt-lost", Judge::Stop, Needs::Nothing),
];

#[test]
fn each_deliberate_fault_of_the_daemon_is_noticed() {
    let cgroups = cgroup2_mount().is_some();
    let (mine, rest): (Vec<&Fault>, Vec<&Fault>) = FAULTS.iter().partition(|f| cgroups || f.2 == Needs::Nothing);
    if !rest.is_empty() {
        skip("each_deliberate_fault_of_the_daemon_is_noticed", "cgroup2: some faults matter only with it");
    }
    let (next, missed) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
    std::thread::scope(|scope| {
        for _ in 0..AT_ONCE {
            scope.spawn(|| {
                while let Some(Fault(name, judge, _)) = mine.get(next.fetch_add(1, Ordering::Relaxed)) {
                    match judge.verdict(Some(name), SHORT) {
                        Ok(()) => missed.lock().unwrap().push(*name),
                        Err(violation) => println!("{name}: {violation}"),
                    }
                }
            });
        }
    });
    let missed = missed.into_inner().unwrap();
    assert!(missed.is_empty(), "nobody noticed: {missed:?}");
}

#[test]
fn every_fault_in_the_source_has_a_judge() {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("supervisor/daemon/src");
    let mut found = BTreeSet::new();
    collect(&source, &mut found);
    let judged: BTreeSet<String> = FAULTS.iter().map(|f| f.0.to_string()).collect();
    assert_eq!(found, judged);
    assert!(judged.len() >= 15);
}

/// The names of all faults below a folder.
fn collect(folder: &Path, found: &mut BTreeSet<String>) {
    for entry in fs::read_dir(folder).unwrap().flatten() {
        if entry.file_type().unwrap().is_dir() {
            collect(&entry.path(), found);
            continue;
        }
        let text = fs::read_to_string(entry.path()).unwrap_or_default();
        let names = text.split("mutant!(\"").skip(1).filter_map(|rest| rest.split('"').next());
        found.extend(names.map(str::to_string));
    }
}

/// One test for each judge: it passes the daemon that is not broken.
macro_rules! passes {
    ($($name:ident: $judge:ident,)*) => {
        $(
            #[test]
            fn $name() {
                Judge::$judge.verdict(None, PATIENCE).unwrap();
            }
        )*
    };
}

passes! {
    the_judge_of_stops_passes_the_daemon: Stop,
    the_judge_of_restarts_passes_the_daemon: Restart,
    the_judge_of_crashes_passes_the_daemon: Crash,
    the_judge_of_deletes_passes_the_daemon: Delete,
    the_judge_of_the_end_passes_the_daemon: End,
    the_judge_of_full_disks_passes_the_daemon: Full,
}
