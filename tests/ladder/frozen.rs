//! A member of a group can freeze its own cgroup, its group's, and the daemon's whole subtree.

use crate::world::*;
use socialweb_wire::{Phase, Rung};
use std::fs;

/// Follows the stop signal whenever it comes: a shell that sleeps in a child can be caught between the fork and the note of the child's number.
const PARK: &str = "exec sleep 100000";

in_worlds!(who_froze_itself_follows_the_stop_signal: with_cgroups, as_nobody_in_a_delegated_subtree);

fn who_froze_itself_follows_the_stop_signal(stage: Stage) {
    let plain = component("plain", &format!("echo 1 > $run/cgroup.freeze; touch woken; {PARK}"), LONG);
    let nested = "mkdir -p $run/a/b && echo $$ > $run/a/b/cgroup.procs; echo $$ > there";
    let nested = component("nested", &format!("{nested}; {PARK}"), LONG);
    let stage = stage.started("troubled", &group(&[plain, nested]));
    wait_frozen(&stage.cgroup_of(stage.leader("troubled", "plain").pid));
    // From the inside out: who froze the outer one first would not come to the inner ones.
    let inner = stage.cgroup_of(stage.shown("troubled", "nested", "there").pid);
    for cgroup in inner.ancestors().take(3) {
        fs::write(cgroup.join("cgroup.freeze"), "1").unwrap();
        wait_frozen(cgroup);
    }
    stage.stop("troubled");
    // The signal was there before the thaw: what it would have done next it did not do.
    assert!(!stage.dir("troubled", "plain").join("woken").exists(), "{}", stage.daemon.log());
    let receipt = stage.daemon.receipts("troubled").pop().unwrap();
    assert!(receipt.components.iter().all(|c| c.rung == Rung::Signal), "{receipt:#?}");
    stage.end();
}

in_worlds!(a_group_frozen_by_a_member_holds_up_neither_a_sisters_restart_nor_the_stop:
    with_cgroups, as_nobody_in_a_delegated_subtree);

fn a_group_frozen_by_a_member_holds_up_neither_a_sisters_restart_nor_the_stop(stage: Stage) {
    let stage = freezer(stage, "$group");
    let group = stage.tree().join("troubled");
    wait_frozen(&group);
    restart(&stage, "troubled", "sister");
    // Once more, for the stop.
    fs::write(group.join("cgroup.freeze"), "1").unwrap();
    wait_frozen(&group);
    stage.stop("troubled");
    stage.end();
}

in_worlds!(a_subtree_frozen_by_a_member_holds_up_no_group: with_cgroups, as_nobody_in_a_delegated_subtree);

fn a_subtree_frozen_by_a_member_holds_up_no_group(stage: Stage) {
    let stage = freezer(stage, "$tree");
    wait_frozen(&stage.tree());
    restart(&stage, "steady", "steady");
    fs::write(stage.tree().join("cgroup.freeze"), "1").unwrap();
    wait_frozen(&stage.tree());
    stage.daemon.ctl_ok(&["stop", "troubled"]);
    stage.end();
}

/// A group of a sister and of one that freezes this cgroup when the sister is there.
fn freezer(stage: Stage, which: &str) -> Stage {
    let freeze = format!("while [ ! -e go ]; do sleep 0.02; done; echo 1 > {which}/cgroup.freeze; {PARK}");
    let text = group(&[component("freezer", &freeze, LONG), component("sister", PARK, LONG)]);
    let stage = stage.started("troubled", &text);
    fs::write(stage.dir("troubled", "freezer").join("go"), "").unwrap();
    stage
}

/// It follows the stop signal at once and comes up again, or this waits for its grace of 100 s.
fn restart(stage: &Stage, group: &str, component: &str) {
    let before = stage.leader(group, component);
    stage.daemon.ctl_ok(&["restart", &format!("{group}/{component}")]);
    stage.daemon.wait_phase(group, Phase::Ready);
    let after = stage.leader(group, component);
    assert!(!before.lives() && after.lives() && after.pid != before.pid, "{before:?} {after:?}");
}
