//! Stops that hung, came too late, or were refused.

use crate::support::{Daemon, send};
use crate::{ENDLESS, SHORT, SUPERVISOR, WHEN_SET};
use crate::{component, group, ready, stop_leaves_nothing, wait_processes, wait_wrote};
use nix::sys::signal::Signal;
use socialweb_wire::Phase;

/// Never ready, and no test waits for its deadline.
const NEVER_READY: &str =
    "readiness = { kind = \"exec\", argv = [\"false\"], interval = \"50ms\", deadline = \"1h\", cap = \"1h\" }";

/// F1bonacc1/process-compose#280: down during a pending dependency never ends. FedericoPonzi/Horust#58: TERM while a child is
/// still starting hangs for ever.
#[test]
fn a_stop_ends_a_start_in_the_middle() {
    let more = format!("{NEVER_READY}\n{SHORT}");
    let chain = group(&[
        component("first", "exec sleep 100000", &more),
        component("second", "touch ../ran; exec sleep 100000", "needs = [\"first\"]"),
        component("third", "touch ../ran; exec sleep 100000", "needs = [\"second\"]"),
    ]);
    let mut daemon = Daemon::started(SUPERVISOR, &[("g", &chain)]);
    wait_processes(&daemon, 1);
    daemon.ctl_ok(&["stop", "g"]);
    assert_eq!(daemon.group("g").phase, Phase::Parked);
    assert_eq!(daemon.marked(), []);
    daemon.ctl_ok(&["start", "g", "--no-wait"]);
    wait_processes(&daemon, 1);
    daemon.stop();
    daemon.assert_nothing_left();
    assert!(!daemon.state().join("groups/g/ran").exists(), "who never had its turn never ran");
}

/// circus-tent/circus#935: TERM is ignored during the long start of many programs, and whoever waits kills the supervisor.
#[test]
fn the_end_of_the_daemon_does_not_wait_for_a_long_start() {
    let slow = group(&[component("c", "exec sleep 100000", &format!("{NEVER_READY}\n{SHORT}"))]);
    let names: Vec<String> = (0..40).map(|n| format!("g{n}")).collect();
    let clusters: Vec<(&str, &str)> = names.iter().map(|name| (name.as_str(), slow.as_str())).collect();
    let supervisor = format!("{SUPERVISOR}[budgets]\nmax_concurrent_starts = 2\nstart_hold = \"1h\"\n");
    let mut daemon = Daemon::started(&supervisor, &clusters);
    wait_processes(&daemon, 2);
    daemon.stop();
    daemon.assert_nothing_left();
}

/// circus-tent/circus#776, #1154: while one stop is going on every other one is refused.
#[test]
fn a_long_stop_holds_up_no_other() {
    let stubborn = group(&[component(
        "c",
        "trap '' TERM; echo set; while :; do sleep 1; done",
        &format!("{WHEN_SET}\n{ENDLESS}"),
    )]);
    let quick = group(&[component("c", "exec sleep 100000", ENDLESS)]);
    let mut daemon = Daemon::started(SUPERVISOR, &[("long", &stubborn), ("quick", &quick)]);
    let pid = daemon.wait_phase("long", Phase::Ready).components[0].pid.unwrap();
    daemon.wait_phase("quick", Phase::Ready);
    daemon.ctl_ok(&["stop", "long", "--no-wait"]);
    daemon.wait_phase("long", Phase::Stopping);
    daemon.ctl_ok(&["stop", "quick"]);
    daemon.ctl_ok(&["start", "quick"]);
    assert_eq!(daemon.group("long").phase, Phase::Stopping, "the long one is still going on");
    // Its shell may have a sleep beside it, which ends by itself.
    send(pid, 9);
    daemon.wait_phase("long", Phase::Parked);
    daemon.stop();
    daemon.assert_nothing_left();
}

/// just-containers/s6-overlay#554: TERM is only sent when the grace time has run out.
#[test]
fn the_stop_signal_comes_before_the_grace_and_not_after_it() {
    let script = "trap 'echo told > told; exit 0' TERM; echo set; while :; do sleep 0.1; done";
    let daemon = ready(script, &format!("{WHEN_SET}\n{ENDLESS}"));
    daemon.ctl_ok(&["stop", "g"]);
    assert_eq!(wait_wrote(&daemon, "g", "c/told"), "told\n");
    stop_leaves_nothing(daemon);
}

/// Supervisor/supervisor#1232: three restarts at once leave a mix of old and new trees.
#[test]
fn restarts_at_the_same_time_leave_one_tree() {
    let tree = group(&[
        component("a", "sleep 100000 & wait", SHORT),
        component("b", "sleep 100000 & wait", &format!("needs = [\"a\"]\n{SHORT}")),
    ]);
    let daemon = Daemon::started(SUPERVISOR, &[("g", &tree)]);
    daemon.wait_phase("g", Phase::Ready);
    let before = wait_processes(&daemon, 4);
    std::thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| daemon.ctl(&["restart", "g"]));
        }
    });
    daemon.wait_phase("g", Phase::Ready);
    let after = wait_processes(&daemon, 4);
    assert!(after.iter().all(|pid| !before.contains(pid)), "{before:?} {after:?}");
    stop_leaves_nothing(daemon);
}

/// Supervisor/supervisor#520: the second TERM, or one that comes while a stop is already going on, changes no order and
/// loses nothing.
#[test]
fn a_second_term_changes_nothing() {
    let slow = "trap 'sleep 1; echo orderly > end; exit 0' TERM; echo set; while :; do sleep 0.1; done";
    let redis = component("redis", slow, &format!("{WHEN_SET}\n{ENDLESS}"));
    let app = component(
        "app",
        "trap 'cat ../redis/end > seen 2>/dev/null; exit 0' TERM; echo set; while :; do sleep 0.1; done",
        &format!("needs = [\"redis\"]\n{WHEN_SET}\n{ENDLESS}"),
    );
    let mut daemon = Daemon::started(SUPERVISOR, &[("g", &group(&[redis, app]))]);
    daemon.wait_phase("g", Phase::Ready);
    daemon.signal(Signal::SIGTERM);
    // Two at the same moment would be one; this one is sure to find the stop under way.
    daemon.wait_phase("g", Phase::Stopping);
    daemon.signal(Signal::SIGTERM);
    daemon.wait_end();
    assert_eq!(crate::wrote(&daemon, "g", "redis/end").as_deref(), Some("orderly\n"));
    assert_eq!(crate::wrote(&daemon, "g", "app/seen").as_deref(), Some(""), "the app ended while redis was whole");
    daemon.assert_nothing_left();
}
