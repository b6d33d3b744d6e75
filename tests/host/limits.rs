//! Bounds, the order out of memory, causes of death and core dumps, as an operator meets them on whatever host this is.

use crate::support::{Daemon, cgroup2_mount, send, skip, wait_for};
use crate::{STEADY, SUPERVISOR, script};
use socialweb_wire::{Cause, ExitStatus, GroupStatus, Phase, Rung};

const BOUND: &str = r#"
kind = "exec"
[limits]
memory_max = "512MiB"
pids_max = 400
[[component]]
name = "a"
argv = ["sleep", "100000"]
limits = { cpu = 0.5 }
stop = { grace = "1s" }
"#;

fn about_bounds(daemon: &Daemon) -> Vec<String> {
    daemon.status().warnings.into_iter().filter(|w| w.contains("bounds of group bound")).collect()
}

/// systemd/systemd 29305: a bound that silently is not there.
#[test]
fn every_bound_is_in_force_or_named_in_one_warning_for_as_long_as_it_is_not() {
    let mut daemon = Daemon::started(SUPERVISOR, &[("bound", BOUND), ("steady", STEADY)]);
    let group = daemon.wait_phase("bound", Phase::Ready);
    let pid = group.components[0].pid;
    let (kept, missing) = (group.bounds.len(), &group.bounds_missing);
    assert_eq!(kept + missing.len(), 3, "{group:?}");
    let warnings = about_bounds(&daemon);
    assert_eq!(warnings.len(), usize::from(!missing.is_empty()), "{warnings:?}");
    for name in missing {
        assert!(warnings[0].contains(name), "{warnings:?}");
    }
    let said = daemon.ctl_ok(&["events", "bound"]).matches("are not in force").count();
    assert_eq!(said, warnings.len(), "said once");
    assert_eq!(daemon.group("steady").bounds_missing, Vec::<String>::new());

    // Fewer bounds, in place: the plan names file and line, nothing restarts, the warning goes.
    daemon.write_cluster("bound", &BOUND.replace("pids_max = 400\n", "").replace("\"512MiB\"", "\"600MiB\""));
    let plan = daemon.ctl_ok(&["reload", "--dry-run"]);
    assert!(plan.contains("limits.memory_max") && plan.contains("bound.toml:4"), "{plan}");
    assert!(plan.contains("limits.pids_max") && plan.contains("takes effect at once"), "{plan}");
    daemon.ctl_ok(&["reload"]);
    let group = daemon.group("bound");
    assert_eq!(group.bounds.len() + group.bounds_missing.len(), 2, "{group:?}");
    daemon.write_cluster("bound", "kind = \"exec\"\n[[component]]\nname = \"a\"\nargv = [\"sleep\", \"100000\"]\n");
    daemon.ctl_ok(&["reload"]);
    assert_eq!(about_bounds(&daemon), Vec::<String>::new());
    let group = daemon.group("bound");
    assert_eq!((group.components[0].pid, group.components[0].restarts), (pid, 0));
    // Of a group that is down nothing is in force, and nothing is missing.
    daemon.write_cluster("bound", BOUND);
    daemon.ctl_ok(&["reload"]);
    let group = daemon.group("bound");
    assert_eq!(group.bounds.len() + group.bounds_missing.len(), 3, "{group:?}");
    daemon.ctl_ok(&["stop", "bound"]);
    let group = daemon.group("bound");
    assert_eq!(group.bounds.len() + group.bounds_missing.len() + about_bounds(&daemon).len(), 0, "{group:?}");
    daemon.stop();
    daemon.assert_nothing_left();
}

#[test]
fn what_the_kernel_counts_is_in_status_and_metrics() {
    let mut daemon = Daemon::started(SUPERVISOR, &[("steady", STEADY)]);
    let group = daemon.wait_phase("steady", Phase::Ready);
    if cgroup2_mount().is_some() {
        // cpu.stat needs no controller.
        assert!(group.usage.cpu_usec.is_some() && group.components[0].usage.cpu_usec.is_some(), "{group:?}");
        let metrics = daemon.ctl_ok(&["metrics"]);
        assert!(metrics.contains("socialweb_group_cgroup_cpu_seconds_total{group=\"steady\"}"), "{metrics}");
    }
    daemon.stop();
}

/// None when it is gone.
fn try_score(pid: u32) -> Option<i32> {
    std::fs::read_to_string(format!("/proc/{pid}/oom_score_adj")).ok()?.trim().parse().ok()
}

fn score(pid: u32) -> i32 {
    try_score(pid).unwrap()
}

#[test]
fn later_ranks_are_the_first_to_die_when_memory_runs_out_and_the_daemon_is_the_last() {
    let component = |name: &str, more: &str| {
        format!(
            "[[component]]\nname = \"{name}\"\nargv = [\"sleep\", \"100000\"]\nstop = {{ grace = \"1s\" }}\n{more}\n"
        )
    };
    let text = format!(
        "kind = \"exec\"\n{}{}{}{}",
        component("first", ""),
        component("second", "needs = [\"first\"]"),
        component("third", "needs = [\"second\"]"),
        // Lower than a daemon without CAP_SYS_RESOURCE may set: it starts all the same.
        component("dear", "oom_score_adj = -500"),
    );
    let mut daemon = Daemon::started(SUPERVISOR, &[("ranks", &text)]);
    let group = daemon.wait_phase("ranks", Phase::Ready);
    let of = |name: &str| score(group.component(name).unwrap().pid.unwrap());
    let (own, scores) = (score(daemon.pid()), ["first", "second", "third"].map(of));
    assert!(own < scores[0] && scores[0] < scores[1] && scores[1] < scores[2], "{own} {scores:?}");
    let refused = group.bounds_missing.contains(&"dear.oom_score_adj".to_string());
    assert_eq!(of("dear"), if refused { own } else { -500 }, "{group:?}");
    // What is asked for anew and can be had is missing no more.
    daemon.write_cluster("ranks", &text.replace("-500", "900"));
    daemon.ctl_ok(&["reload"]);
    wait_for("the new score counts and nothing is missing", || {
        let group = daemon.group("ranks");
        let pid = group.component("dear")?.pid.filter(|_| group.phase == Phase::Ready)?;
        (group.bounds_missing.is_empty() && try_score(pid) == Some(900)).then_some(())
    });
    daemon.stop();
}

fn last_end(group: &GroupStatus) -> Option<socialweb_wire::End> {
    group.components[0].last_end
}

#[test]
fn an_end_says_who_sent_it_in_status_events_and_receipt() {
    let mut daemon = Daemon::started(SUPERVISOR, &[("mortal", &script("mortal", "exec sleep 100000", ""))]);
    let pid = daemon.wait_phase("mortal", Phase::Ready).components[0].pid.unwrap();
    send(pid, 9);
    let end = wait_for("its end is told", || last_end(&daemon.try_status()?.group("mortal")?.clone()));
    assert_eq!((end.status, end.by, end.core_dumped), (ExitStatus::Signal(9), Cause::Unknown, false));
    daemon.wait_phase("mortal", Phase::Ready);
    daemon.ctl_ok(&["restart", "mortal/mortal"]);
    let end = wait_for("another end is told", || {
        last_end(&daemon.group("mortal")).filter(|end| end.status == ExitStatus::Signal(15))
    });
    assert_eq!(end.by, Cause::Stop(Rung::Signal));
    let events = daemon.ctl_ok(&["events", "mortal"]);
    assert!(events.contains("ended with signal 9, not sent by the supervisor"), "{events}");
    assert!(events.contains("ended with signal 15, by the supervisor's stop signal"), "{events}");
    daemon.ctl_ok(&["stop", "mortal"]);
    let receipts = daemon.receipts("mortal");
    let end = receipts.last().unwrap().components[0].end.unwrap();
    assert_eq!(end.by, Cause::Stop(Rung::Signal), "{receipts:#?}");
    daemon.stop();
}

#[test]
fn a_hanging_component_is_told_apart_from_one_that_was_stopped() {
    let flag = std::env::temp_dir().join(format!("sw-cause-{}", std::process::id()));
    std::fs::write(&flag, "").unwrap();
    let probes = format!(
        "readiness = {{ kind = \"exec\", argv = [\"test\", \"-e\", \"{0}\"], interval = \"50ms\" }}\nliveness = {{ interval = \"100ms\", failures = 2 }}",
        flag.display()
    );
    let mut daemon = Daemon::started(SUPERVISOR, &[("hang", &script("hang", "exec sleep 100000", &probes))]);
    daemon.wait_phase("hang", Phase::Ready);
    std::fs::remove_file(&flag).unwrap();
    let end = wait_for("its end is told", || last_end(&daemon.group("hang")));
    assert!(matches!(end.by, Cause::Liveness(_)), "{end:?}");
    daemon.stop();
}

/// systemd/systemd 17672: a crash loop whose dumps fill the disk.
#[test]
fn a_crash_loop_keeps_no_more_core_dumps_than_its_budget() {
    const NAME: &str = "a_crash_loop_keeps_no_more_core_dumps";
    let pattern = std::fs::read_to_string("/proc/sys/kernel/core_pattern").unwrap_or_default();
    if !pattern.starts_with("core") || pattern.contains('/') {
        return skip(NAME, "core_pattern: dumps of this host do not go into the working folder");
    }
    if nix::sys::resource::getrlimit(nix::sys::resource::Resource::RLIMIT_CORE).is_ok_and(|(_, hard)| hard < 64 << 20) {
        return skip(NAME, "core_pattern: the hard limit of core dumps is too low here");
    }
    let more = "limits = { core_max = \"64MiB\" }\nbackoff = { base = \"10ms\", max = \"20ms\", limit = 1000 }\n[limits]\ncore_count = 2\n";
    let crash = script("crash", "kill -SEGV $$", more);
    let mut daemon = Daemon::started(SUPERVISOR, &[("crash", &crash), ("steady", STEADY)]);
    let cores = daemon.state().join("groups/crash/cores");
    wait_for("dumps beyond the budget are removed", || {
        daemon.ctl_ok(&["events", "crash", "-n", "1000"]).contains("core dumps are removed").then_some(())
    });
    let end = last_end(&daemon.group("crash")).unwrap();
    assert_eq!((end.status, end.core_dumped), (ExitStatus::Signal(11), true));
    daemon.ctl_ok(&["stop", "crash"]);
    wait_for("the last look is through", || {
        let kept = std::fs::read_dir(&cores).unwrap().count();
        let loose = std::fs::read_dir(daemon.state().join("groups/crash/crash")).unwrap().count();
        (kept <= 2 && loose == 0).then_some(())
    });
    daemon.stop();
}
