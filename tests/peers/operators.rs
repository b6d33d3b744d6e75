//! What operators ran into: numbers, callers that hang, answers that come late.

use crate::support::{Daemon, long};
use crate::{SHORT, SUPERVISOR, component, group, ready, stop_leaves_nothing, wait_processes};
use socialweb_wire::Phase;

/// A daemon whose descriptors are few until it raises its own limit.
fn many(groups: usize, each: usize) {
    let components: Vec<String> = (0..each).map(|n| component(&format!("c{n}"), "exec sleep 100000", SHORT)).collect();
    let text = group(&components);
    let names: Vec<String> = (0..groups).map(|n| format!("g{n}")).collect();
    let clusters: Vec<(&str, &str)> = names.iter().map(|name| (name.as_str(), text.as_str())).collect();
    let supervisor = format!("{SUPERVISOR}[budgets]\nmax_concurrent_starts = \"off\"\n");
    let mut daemon = Daemon::new(&supervisor, &clusters).with_prelude("ulimit -Sn 128");
    daemon.start();
    for name in &names {
        daemon.wait_phase(name, Phase::Ready);
    }
    let status = daemon.status();
    assert_eq!(status.groups.iter().map(|g| g.components.len()).sum::<usize>(), groups * each);
    assert!(status.groups.iter().flat_map(|g| &g.components).all(|c| c.pid.is_some() && c.restarts == 0));
    wait_processes(&daemon, groups * each);
    daemon.stop();
    daemon.assert_nothing_left();
}

/// Supervisor/supervisor#636: more than 200 programs do not start, for want of descriptors.
#[test]
fn two_hundred_and_fifty_programs_start_under_a_small_limit_of_descriptors() {
    many(10, 25);
}

/// Supervisor/supervisor#1511: past 1,000 programs the status says nothing any more.
#[test]
fn twelve_hundred_programs_are_shown_in_one_answer() {
    if long("twelve_hundred_programs_are_shown_in_one_answer") {
        many(24, 50);
    }
}

/// jdx/pitchfork PR#886: whoever asks for a start through a pipe waits for its end for ever, because the started program
/// holds it. `Daemon::ctl` reads such pipes to their ends.
#[test]
fn a_caller_gets_the_end_of_its_answer_while_what_it_started_runs() {
    let daemon = ready("exec sleep 100000", SHORT);
    daemon.ctl_ok(&["stop", "g"]);
    daemon.ctl_ok(&["start", "g"]);
    daemon.ctl_ok(&["restart", "g/c"]);
    assert_eq!(daemon.group("g").phase, Phase::Ready);
    stop_leaves_nothing(daemon);
}

/// olafkfreund/nixos_config PR#1387: a flat deadline kills, again and again, a server that is healthy and reads a large
/// database in silence. Here processor time in the component's cgroup counts as a sign of life.
#[test]
fn a_slow_start_that_works_is_not_killed_by_its_deadline() {
    if !long("a_slow_start_that_works_is_not_killed_by_its_deadline") {
        return;
    }
    let works =
        "end=$(($(date +%s) + 20)); while [ $(date +%s) -lt $end ]; do :; done; echo it-is-read; exec sleep 100000";
    let readiness = "readiness = { kind = \"log-line\", contains = \"it-is-read\", deadline = \"11s\", cap = \"10m\" }";
    let daemon = ready(works, &format!("{readiness}\n{SHORT}"));
    assert_eq!(daemon.group("g").components[0].restarts, 0, "{}", daemon.log());
    stop_leaves_nothing(daemon);
}
