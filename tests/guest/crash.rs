//! The daemon dies or hangs: systemd starts it again, and what the dead one left is gone before anything starts.

use crate::systemd::{entries, number, property, unit_journal, wait_for};
use crate::unit::{Unit, group, script, steady};
use socialweb_wire::GroupStatus;

/// A leader, and a grandchild that left session and parent.
fn sprawling() -> String {
    group(&[script("sprawling", "(setsid sleep 100001 &); exec sleep 100000", "")])
}

/// Everything marked that lives: the leader of `steady`, that of `sprawling`, and its grandchild.
fn three_alive(unit: &Unit) -> Vec<u32> {
    unit.wait_ready("sprawling");
    unit.wait_ready("steady");
    wait_for("all three processes", || {
        let pids: Vec<u32> = unit.marked().into_iter().map(|(pid, _)| pid).collect();
        (pids.len() == 3).then_some(pids)
    })
}

fn nothing_of(before: &[u32], unit: &Unit) {
    let now = unit.marked();
    assert!(now.iter().all(|(pid, _)| !before.contains(pid)), "of the dead daemon: {before:?}, now: {now:?}");
}

fn births(status: &GroupStatus) -> Vec<Option<u64>> {
    status.components.iter().map(|c| c.birth).collect()
}

#[test]
fn after_kill_9_the_unit_is_back_and_every_group_started_once() {
    let unit = Unit::started("", &[("sprawling", sprawling()), ("steady", steady())]);
    let before = three_alive(&unit);
    let births_before = births(&unit.wait_ready("steady"));
    let old = unit.main_pid();
    crate::support::send(old, 9);
    unit.wait_restarted(old);
    let again = three_alive(&unit);
    nothing_of(&before, &unit);
    assert_eq!(again.len(), 3);
    let births_now = births(&unit.wait_ready("steady"));
    assert!(births_now > births_before, "a new run has a new number: {births_before:?}, {births_now:?}");
    assert_eq!(number("NRestarts"), 1, "the first restart succeeds: {}", unit_journal());
    unit.stop();
    assert_eq!(unit.marked(), []);
}

#[test]
fn a_hung_daemon_is_ended_by_the_watchdog_and_started_again() {
    let unit = Unit::started("", &[("sprawling", sprawling()), ("steady", steady())]);
    let before = three_alive(&unit);
    let old = unit.main_pid();
    crate::support::send(old, 19);
    unit.wait_restarted(old);
    three_alive(&unit);
    nothing_of(&before, &unit);
    // The manager's own entries about a unit name it in USER_UNIT.
    let said = entries(&["USER_UNIT=socialweb-computer-gateway.service"]);
    let said: Vec<&str> = said.iter().filter_map(|entry| entry["MESSAGE"].as_str()).collect();
    assert!(said.iter().any(|line| line.contains("Watchdog timeout")), "{said:#?}");
    assert_eq!(property("ActiveState"), "active");
    unit.stop();
    assert_eq!(unit.marked(), []);
}
