//! Processes that outlived their supervisor elsewhere.

use crate::support::{cgroup2_mount, wait_for};
use crate::{ENDLESS, SHORT, WHEN_SET, ready, stop_leaves_nothing, wait_processes, wait_sleeps, wait_wrote, wrote};
use socialweb_wire::Phase;
use std::process::{Command, Stdio};

/// Supervisor/supervisor#1101: npm runs sh runs node; the stop reaches the first, the last lives on.
#[test]
fn grandchildren_of_a_launcher_go_with_it() {
    let daemon = ready("sh -c 'sh -c \"sleep 100000; :\" & wait' & wait", SHORT);
    wait_processes(&daemon, 4);
    stop_leaves_nothing(daemon);
}

/// F1bonacc1/process-compose#520: the leader takes TERM and exits, a process of the same run ignores it, and the stop
/// succeeds with that one alive.
#[test]
fn a_leader_that_exits_does_not_cancel_the_kill_of_what_it_leaves() {
    // The second shell says who it is once it ignores the signal.
    let second = "sh -c 'trap \"\" TERM; echo $$ > stubborn; while :; do sleep 1; done'";
    let daemon = ready(&format!("trap 'exit 0' TERM; {second} & while :; do sleep 0.1; done"), SHORT);
    let stubborn: u32 = wait_wrote(&daemon, "g", "c/stubborn").trim().parse().unwrap();
    daemon.ctl_ok(&["stop", "g"]);
    let receipts = daemon.receipts("g");
    let others = &receipts.last().unwrap().components[0].others;
    assert!(others.iter().any(|o| o.pid == stubborn), "who was killed is named: {receipts:#?}");
    stop_leaves_nothing(daemon);
}

/// circus-tent/circus#1044: the parent dies at once on INT, its child lingers. A shell's background child ignores INT.
#[test]
fn a_child_that_ignores_the_stop_signal_is_killed_after_the_grace() {
    let daemon = ready("trap 'exit 0' INT; sleep 100000 & wait", "stop = { signal = \"INT\", grace = \"1s\" }");
    wait_processes(&daemon, 2);
    stop_leaves_nothing(daemon);
}

/// Yelp/dumb-init#191: a script backgrounds a setsid'd sleep and execs another program; the signal misses the first.
#[test]
fn a_child_with_a_session_of_its_own_is_no_stranger() {
    let daemon = ready("setsid sleep 100000 & exec sleep 100001", SHORT);
    wait_sleeps(&daemon, 2);
    stop_leaves_nothing(daemon);
}

/// Yelp/dumb-init#212: init exits when its first child has ended and does not wait for the others.
#[test]
fn the_daemon_ends_after_the_last_of_its_children() {
    let slow = "trap 'sleep 1; echo orderly > end; exit 0' TERM; echo set; while :; do sleep 0.1; done";
    let quick = crate::component("nginx", "exec sleep 100000", ENDLESS);
    let group = crate::group(&[crate::component("cron", slow, &format!("{WHEN_SET}\n{ENDLESS}")), quick]);
    let mut daemon = crate::support::Daemon::started(crate::SUPERVISOR, &[("g", &group)]);
    daemon.wait_phase("g", Phase::Ready);
    daemon.stop();
    assert_eq!(wrote(&daemon, "g", "cron/end").as_deref(), Some("orderly\n"));
    daemon.assert_nothing_left();
}

/// krallin/tini#236: SIGKILL of a launcher; its worker lives on beside the copy that is started anew.
#[test]
fn what_a_killed_launcher_left_is_gone_before_it_starts_again() {
    let script = "w=$(cat worker 2>/dev/null); if [ -n \"$w\" ] && [ -e /proc/$w/exe ]; then echo beside >> verdict; else echo alone >> verdict; fi; sleep 100000 & echo $! > worker; wait";
    let daemon = ready(script, SHORT);
    let worker = wait_wrote(&daemon, "g", "c/worker");
    crate::support::send(daemon.group("g").components[0].pid.unwrap(), 9);
    wait_for("another worker runs", || wrote(&daemon, "g", "c/worker").filter(|w| w.ends_with('\n') && *w != worker));
    assert_eq!(wrote(&daemon, "g", "c/verdict").unwrap(), "alone\nalone\n");
    wait_processes(&daemon, 2);
    stop_leaves_nothing(daemon);
}

/// k3s-io/k3s#6553, #6218: a kill script that looks for command lines misses the shim whose path is another one.
/// jdx/pitchfork PR#665: a process's name is taken for its identity, and a second copy of the program is hit.
#[test]
fn no_process_is_known_by_its_name() {
    let odd = "cp \"$(command -v sleep)\" './odd name'; './odd name' 86421 & o=$!; sleep 86422 & until [ \"$(cat /proc/$o/comm)\" = 'odd name' ]; do sleep 0.05; done; rm './odd name'; wait";
    let mut namesake = Command::new("sleep").arg("86422").stdin(Stdio::null()).spawn().unwrap();
    let daemon = ready(odd, SHORT);
    wait_for("the program under the odd name runs", || {
        daemon.marked().iter().any(|(_, c)| c == "odd name").then_some(())
    });
    stop_leaves_nothing(daemon);
    assert!(namesake.try_wait().unwrap().is_none(), "the same command line elsewhere is nobody's business");
    namesake.kill().unwrap();
    namesake.wait().unwrap();
}

/// opencontainers/runc#4040, containers/crun PR#657: the removal of a cgroup is refused as busy just after its members
/// died. Here members appear and die until the end.
#[test]
fn a_cgroup_whose_members_have_just_died_is_removed_all_the_same() {
    if cgroup2_mount().is_none() {
        return crate::support::skip("a_cgroup_whose_members", "cgroup2: there is none");
    }
    let storm = "trap '' TERM; while :; do (sleep 0.01 &) ; sleep 0.005; done";
    let mut daemon = ready(storm, "stop = { grace = \"100ms\" }");
    for _ in 0..5 {
        daemon.ctl_ok(&["restart", "g"]);
    }
    daemon.ctl_ok(&["stop", "g"]);
    assert!(daemon.receipts("g").iter().all(|r| r.removed));
    daemon.stop();
    daemon.assert_nothing_left();
}
