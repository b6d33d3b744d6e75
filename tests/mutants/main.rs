//! The judges are judged: the daemon is broken on purpose, in one way each time, and somebody must notice. A judge passes
//! the daemon as it is, or it proves nothing either.
//!
//! The faults stand in the daemon's source as `mutant!("law-what")`, in debug builds only; core's own are in its world test.
#![allow(clippy::unwrap_used)]

#[path = "../support/mod.rs"]
mod support;

mod judges;
mod scene;
mod trial;

use judges::Judge;
use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use support::{cgroup2_mount, skip};
use trial::{Broken, Finding};

/// Faults at a time: a daemon that is broken is mostly waited for.
const AT_ONCE: usize = 5;

/// A fault, who must notice it, by what, and whether it needs cgroups to matter.
struct Fault(&'static str, Judge, Broken, Needs);

#[derive(Clone, Copy, PartialEq)]
enum Needs {
    Nothing,
    Cgroups,
}

const FAULTS: &[Fault] = &[
    Fault("l2-all-told-at-once", Judge::Stop, Broken::Order, Needs::Nothing),
    Fault("l3-child-unseen", Judge::Restart, Broken::Unreaped, Needs::Nothing),
    Fault("l3-empty-unseen", Judge::Stop, Broken::Outlived, Needs::Nothing),
    Fault("l3-end-without-stop", Judge::End, Broken::Order, Needs::Nothing),
    Fault("l3-group-not-removed", Judge::Stop, Broken::Cgroup, Needs::Cgroups),
    Fault("l3-killed-unasked", Judge::Stop, Broken::Order, Needs::Nothing),
    Fault("l3-no-marker", Judge::Stop, Broken::Marker, Needs::Nothing),
    Fault("l3-no-subreaper", Judge::Stop, Broken::Outlived, Needs::Cgroups),
    Fault("l3-no-thaw", Judge::Stop, Broken::Frozen, Needs::Cgroups),
    Fault("l3-run-not-removed", Judge::Restart, Broken::Cgroup, Needs::Cgroups),
    Fault("l3-strays-unseen", Judge::Stop, Broken::Outlived, Needs::Cgroups),
    Fault("l3-tree-left", Judge::End, Broken::Cgroup, Needs::Cgroups),
    Fault("l4-forgotten-not-reaped", Judge::Crash, Broken::Survivors, Needs::Nothing),
    Fault("l4-generation-lost", Judge::Crash, Broken::Generation, Needs::Nothing),
    Fault("l4-survivors-not-sought", Judge::Crash, Broken::Survivors, Needs::Nothing),
    Fault("l6-no-kill", Judge::Stop, Broken::Outlived, Needs::Nothing),
    Fault("l6-second-term-cuts", Judge::End, Broken::Order, Needs::Nothing),
    Fault("l7-delete-keeps-data", Judge::Delete, Broken::Data, Needs::Nothing),
    Fault("l7-stop-not-kept", Judge::Crash, Broken::Desired, Needs::Nothing),
    Fault("l9-delete-keeps-ports", Judge::Delete, Broken::Ports, Needs::Nothing),
    Fault("l9-lease-dropped", Judge::Stop, Broken::Lease, Needs::Nothing),
    Fault("l9-port-not-probed", Judge::Restart, Broken::Taken, Needs::Nothing),
    Fault("l9-started-before-flush", Judge::Full, Broken::Unflushed, Needs::Nothing),
    Fault("l14-receipt-early", Judge::Stop, Broken::ReceiptEarly, Needs::Nothing),
    Fault("l14-receipt-lost", Judge::Stop, Broken::Receipt, Needs::Nothing),
];

#[test]
fn each_deliberate_fault_of_the_daemon_is_noticed() {
    let cgroups = cgroup2_mount().is_some();
    let (mine, rest): (Vec<&Fault>, Vec<&Fault>) = FAULTS.iter().partition(|f| cgroups || f.3 == Needs::Nothing);
    if !rest.is_empty() {
        skip("each_deliberate_fault_of_the_daemon_is_noticed", "cgroup2: some faults matter only with it");
    }
    let (next, wrong) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
    std::thread::scope(|scope| {
        for _ in 0..AT_ONCE {
            scope.spawn(|| {
                while let Some(fault) = mine.get(next.fetch_add(1, Ordering::Relaxed)) {
                    if let Err(why) = convict(fault) {
                        wrong.lock().unwrap().push(format!("{}: {why}", fault.0));
                    }
                }
            });
        }
    });
    let wrong = wrong.into_inner().unwrap();
    assert!(wrong.is_empty(), "{} of {} faults:\n{}", wrong.len(), mine.len(), wrong.join("\n"));
}

/// The daemon with this fault is convicted of what the fault breaks, and of nothing else.
fn convict(Fault(name, judge, broken, _): &Fault) -> Result<(), String> {
    match judge.verdict(Some((name, *broken))) {
        Ok(()) => Err("nobody noticed".into()),
        Err(Finding::Guilty(of, seen)) if of == *broken => {
            println!("{name}: {of:?}: {seen}");
            Ok(())
        }
        Err(Finding::Guilty(of, seen)) => Err(format!("convicted of {of:?}, not of {broken:?}: {seen}")),
        Err(Finding::Unclear(what)) => Err(format!("inconclusive: {what}")),
    }
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
                Judge::$judge.verdict(None).unwrap();
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
