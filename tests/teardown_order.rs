//! The promise that everything else stands on: a stop goes rank by rank in reverse, touches nothing below a rank that is
//! not gone, and leaves nothing, whatever the processes do.
//!
//! The processes are real and nasty (double fork, setsid, TERM ignored, respawning, moving into a sister's cgroup). They
//! are also the witnesses: whoever takes a stop signal writes down, from /proc at that moment, who of the higher ranks is
//! still there. The same judge that passes the daemon must fail three supervisors that are broken on purpose; if it did
//! not, this test would prove nothing.
#![allow(clippy::unwrap_used)]

mod support;
mod teardown {
    pub mod broken;
    pub mod evidence;
    pub mod nasty;
}

use socialweb_wire::{Phase, Rung};
use support::texts::SUPERVISOR;
use support::{Daemon, skip};
use teardown::broken::{Broken, Fault};
use teardown::evidence::{Evidence, Scene};
use teardown::nasty;

/// Starts the nasty group under the daemon and waits until every process has shown itself.
fn nasty_group(scene: &Scene, extra: &str) -> Daemon {
    let daemon = Daemon::started(&format!("{SUPERVISOR}{extra}"), &[("nasty", &nasty::config(scene))]);
    daemon.wait_phase("nasty", Phase::Ready);
    scene.wait_until_complete();
    daemon.assert_eyes_are_open();
    daemon
}

#[test]
fn a_stop_is_the_reverse_of_the_start_and_nothing_outlives_it() {
    let scene = Scene::new("order");
    let mut daemon = nasty_group(&scene, "");
    daemon.ctl_ok(&["stop", "nasty"]);
    let evidence = Evidence::collect(&scene);
    assert_eq!(evidence.violations(), Vec::<String>::new(), "{}", daemon.log());
    check_receipt(&daemon, &scene);
    daemon.stop();
    daemon.assert_nothing_left();
}

fn check_receipt(daemon: &Daemon, scene: &Scene) {
    let receipts = daemon.receipts("nasty");
    let receipt = receipts.last().expect("a receipt");
    assert!(receipt.removed && receipt.path_shut);
    let order: Vec<&str> = receipt.components.iter().map(|c| c.component.as_str()).collect();
    let ranks: Vec<u16> = receipt.components.iter().map(|c| c.rank).collect();
    assert!(ranks.windows(2).all(|w| w[0] >= w[1]), "{order:?} {ranks:?}");
    let mut all: Vec<&str> = order.clone();
    all.sort_unstable();
    assert_eq!(all, nasty::NAMES, "every component, each once");
    let of = |name: &str| receipt.components.iter().find(|c| c.component == name).unwrap();
    assert_eq!(of("plain").rung, Rung::Signal, "who follows TERM is not killed: {receipt:#?}");
    assert_eq!(of("stubborn").rung, Rung::Kill, "who ignores TERM is killed: {receipt:#?}");
    // Every process that showed itself is named: as a leader, or among the others of its component.
    let named: Vec<u32> = receipt
        .components
        .iter()
        .flat_map(|c| c.pid.into_iter().chain(c.others.iter().map(|o| o.pid)))
        .chain(receipt.strays.iter().map(|s| s.pid))
        .collect();
    for (who, pid) in scene.lasting() {
        assert!(named.contains(&pid), "{who} (pid {pid}) is not in the receipt: {receipt:#?}");
    }
}

#[test]
fn the_daemons_own_end_takes_every_group_down_in_order() {
    let scene = Scene::new("term");
    let mut daemon = nasty_group(&scene, "");
    daemon.stop();
    assert_eq!(Evidence::collect(&scene).violations(), Vec::<String>::new(), "{}", daemon.log());
    daemon.assert_nothing_left();
    assert_eq!(daemon.receipts("nasty").len(), 1);
}

#[test]
fn after_kill_9_of_the_daemon_survivors_are_reaped_before_anything_starts() {
    let scene = Scene::new("kill9");
    let mut daemon = nasty_group(&scene, "");
    let before = scene.lasting();
    daemon.kill_9();
    assert!(!scene.alive(&before).is_empty(), "something must survive, or this proves nothing");
    scene.forget();
    daemon.start();
    daemon.wait_phase("nasty", Phase::Ready);
    scene.wait_until_complete();
    assert_eq!(scene.alive(&before), [], "survivors run beside the new ones\n{}", daemon.log());
    assert!(!daemon.group("nasty").survivors.is_empty(), "what was reaped is told");
    daemon.stop();
    daemon.assert_nothing_left();
}

#[test]
fn without_cgroups_the_same_order_holds() {
    // A cgroup2 mount that cannot be written to is what a plain account has without delegation.
    let scene = Scene::new("fallback");
    let mut daemon = Daemon::new(SUPERVISOR, &[("nasty", &nasty::config_without_mover(&scene))]).without_cgroups();
    daemon.start();
    daemon.wait_phase("nasty", Phase::Ready);
    scene.wait_until_complete();
    assert!(
        daemon.status().cgroups.contains("no cgroup2"),
        "status says which way is used: {}",
        daemon.status().cgroups
    );
    daemon.ctl_ok(&["stop", "nasty"]);
    assert_eq!(Evidence::collect(&scene).violations(), Vec::<String>::new(), "{}", daemon.log());
    daemon.stop();
    daemon.assert_nothing_left();
}

#[test]
fn an_account_without_root_in_a_delegated_subtree_does_the_same() {
    let scene = Scene::new("nobody");
    scene.open_to_all();
    let Some(mut daemon) = Daemon::new(SUPERVISOR, &[("nasty", &nasty::config(&scene))]).run_as_nobody() else {
        return skip("an_account_without_root", "root: needed with a writable cgroup2, to hand a subtree over");
    };
    daemon.start();
    daemon.wait_phase("nasty", Phase::Ready);
    scene.wait_until_complete();
    assert!(daemon.status().cgroups.contains("is ours"), "{}", daemon.status().cgroups);
    let leader = daemon.group("nasty").component("plain").unwrap().pid.unwrap();
    assert_eq!(socialweb_sys::process::uid(leader).unwrap(), support::NOBODY);
    daemon.ctl_ok(&["stop", "nasty"]);
    assert_eq!(Evidence::collect(&scene).violations(), Vec::<String>::new(), "{}", daemon.log());
    daemon.stop();
    daemon.assert_nothing_left();
}

fn broken(name: &str, fault: Fault) -> Vec<String> {
    let scene = Scene::new(name);
    let Some(supervisor) = Broken::start(&scene, fault) else {
        skip(name, "cgroup2: none that is writable, in which the broken supervisor's leftovers could be ended");
        return vec!["skipped".into()];
    };
    scene.wait_until_complete();
    supervisor.stop(&scene);
    Evidence::collect(&scene).violations()
}

#[test]
fn the_judge_fails_a_supervisor_that_stops_in_the_order_of_the_start() {
    let violations = broken("wrong-order", Fault::WrongOrder);
    assert!(violations.iter().any(|v| v.contains("skipped") || v.contains("was still there")), "{violations:?}");
}

#[test]
fn the_judge_fails_a_supervisor_that_kills_only_leaders() {
    let violations = broken("leader-only", Fault::LeaderOnly);
    assert!(violations.iter().any(|v| v.contains("skipped") || v.contains("outlived")), "{violations:?}");
}

#[test]
fn the_judge_fails_a_supervisor_that_touches_the_next_rank_when_the_leader_is_gone() {
    let violations = broken("early-rank", Fault::EarlyRank);
    assert!(violations.iter().any(|v| v.contains("skipped") || v.contains("was still there")), "{violations:?}");
}

#[test]
fn the_judge_passes_a_supervisor_that_does_it_right() {
    let violations = broken("right", Fault::None);
    assert!(violations.is_empty() || violations == ["skipped"], "{violations:?}");
}
