//! Processes that fork and exit without a pause: dead under every number that a look at /proc comes to. A byte per life says
//! whether one still lives; what kills them must be quicker than they are.

use crate::support::wait_for;
use crate::world::*;
use socialweb_wire::{Phase, Rung};
use std::fs;
use std::sync::{Mutex, MutexGuard, PoisonError};

const SISTER: &str = "d=$(echo $group/sister/*/cgroup.procs); d=${d%/cgroup.procs}";
const OTHER: &str = "d=$(echo $tree/steady/steady/*/cgroup.procs); d=${d%/cgroup.procs}";

static TURN: Mutex<()> = Mutex::new(());

/// One at a time: the dead of several would use up the process numbers of a host whose limit is 32,768.
fn turn() -> MutexGuard<'static, ()> {
    TURN.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Outside of our cgroups, and where there are none, nothing can be held still: it is a race that the daemon was seen to
/// lose on a host that is loaded tenfold. There only with --full (docs/security.md says so).
fn fair(stage: &Stage) -> bool {
    crate::support::long(&stage.name)
}

/// Begins the script once only: a restarted component just sleeps.
fn once(script: &str, leader: &str) -> String {
    let sister = component("sister", "exec sleep 100000", LONG);
    let script = format!("[ -e once ] && exec sleep 100000; : > once; {script}\n{leader}");
    group(&[sister, component("nasty", &script, &format!("needs = [\"sister\"]\n{SHORT}"))])
}

/// Restarts the component whose process hops; afterwards nobody does, and the sister was not touched.
fn is_caught(stage: Stage, script: &str) {
    let _turn = turn();
    let stage = stage.started("troubled", &once(script, "exec $STAY leader"));
    stage.shown("troubled", "nasty", "leader");
    stage.wait_size("troubled", "nasty", "beat", 50);
    let (sister, steady) = (stage.leader("troubled", "sister"), stage.leader("steady", "steady"));
    stage.daemon.ctl_ok(&["restart", "troubled/nasty"]);
    assert_silent(&stage.dir("troubled", "nasty").join("beat"), &stage.daemon.log());
    assert!(sister.lives() && steady.lives(), "others were touched\n{}", stage.daemon.log());
    stage.stop("troubled");
    stage.end();
}

in_worlds!(one_that_hops_in_its_own_place_is_caught:
    with_cgroups, as_nobody_in_a_delegated_subtree, without_cgroups);

fn one_that_hops_in_its_own_place_is_caught(stage: Stage) {
    if !stage.has_cgroups() && !fair(&stage) {
        return;
    }
    is_caught(stage, "$HOP & setsid $HOP &");
}

in_worlds!(one_that_hops_in_a_sisters_cgroup_is_caught: with_cgroups, as_nobody_in_a_delegated_subtree);

fn one_that_hops_in_a_sisters_cgroup_is_caught(stage: Stage) {
    is_caught(stage, &format!("{SISTER}; $HOP $d &"));
}

in_worlds!(one_that_hops_in_another_groups_cgroup_is_caught: with_cgroups, as_nobody_in_a_delegated_subtree);

fn one_that_hops_in_another_groups_cgroup_is_caught(stage: Stage) {
    is_caught(stage, &format!("{OTHER}; $HOP $d &"));
}

in_worlds!(those_that_hop_outside_of_every_group_are_caught: with_cgroups, as_nobody_in_a_delegated_subtree);

fn those_that_hop_outside_of_every_group_are_caught(stage: Stage) {
    if !fair(&stage) {
        return;
    }
    let outside = stage.daemon.outside().unwrap();
    is_caught(stage, &format!("$HOP {0} & $HOP {0} &", outside.display()));
}

in_worlds!(a_bomb_in_a_sisters_cgroup_is_ended_whole: with_cgroups, as_nobody_in_a_delegated_subtree);

fn a_bomb_in_a_sisters_cgroup_is_ended_whole(stage: Stage) {
    let script = format!("{SISTER}; (echo 0 > $d/cgroup.procs; exec $BOMB 6) &");
    let stage = stage.started("troubled", &once(&script, "exec $STAY leader"));
    stage.wait_size("troubled", "nasty", "bomb", 127);
    let sister = stage.leader("troubled", "sister");
    stage.daemon.ctl_ok(&["restart", "troubled/nasty"]);
    // The steady one, the sister, and the new run.
    wait_for("only leaders are left", || (stage.daemon.marked().len() == 3).then_some(()));
    assert!(sister.lives());
    stage.stop("troubled");
    stage.end();
}

in_worlds!(a_leader_that_leaves_a_hopping_one_behind_is_not_taken_for_an_orderly_end:
    with_cgroups, as_nobody_in_a_delegated_subtree, without_cgroups);

fn a_leader_that_leaves_a_hopping_one_behind_is_not_taken_for_an_orderly_end(stage: Stage) {
    if !fair(&stage) {
        return;
    }
    let _turn = turn();
    let outside = stage.daemon.outside().filter(|_| stage.has_cgroups()).unwrap_or_default();
    let follow = "exec sleep 100000";
    let stage = stage.started("troubled", &once(&format!("$HOP {} &", outside.display()), follow));
    stage.wait_size("troubled", "nasty", "beat", 50);
    stage.stop("troubled");
    assert_silent(&stage.dir("troubled", "nasty").join("beat"), &stage.daemon.log());
    let receipt = stage.daemon.receipts("troubled").pop().unwrap();
    let nasty = receipt.components.iter().find(|c| c.component == "nasty").unwrap();
    assert_eq!(nasty.rung, Rung::Kill, "it followed the signal, and left one that did not: {receipt:#?}");
    stage.end();
}

in_worlds!(one_without_a_trace_holds_up_no_group_and_ends_with_the_daemon:
    with_cgroups, as_nobody_in_a_delegated_subtree, without_cgroups);

fn one_without_a_trace_holds_up_no_group_and_ends_with_the_daemon(stage: Stage) {
    if !fair(&stage) {
        return;
    }
    let _turn = turn();
    let outside = stage.daemon.outside().filter(|_| stage.has_cgroups()).unwrap_or_default();
    let hide = format!("setsid env -i PATH=/usr/bin:/bin $HOP {} &", outside.display());
    let stage = stage.started("troubled", &once(&hide, "exec $STAY leader"));
    stage.shown("troubled", "nasty", "leader");
    stage.wait_size("troubled", "nasty", "beat", 50);
    stage.stop("troubled");
    let beat = stage.dir("troubled", "nasty").join("beat");
    let copy = stage.daemon.dir.join("beat");
    stage.end_with(|| drop(fs::hard_link(&beat, &copy)), || assert_silent(&copy, ""));
}

in_worlds!(one_that_survived_the_daemon_is_caught_by_the_next:
    with_cgroups, as_nobody_in_a_delegated_subtree, without_cgroups);

fn one_that_survived_the_daemon_is_caught_by_the_next(stage: Stage) {
    // Its dead go to the host's init meanwhile, and how fast that takes them is not ours to say.
    if !fair(&stage) {
        return;
    }
    let _turn = turn();
    let outside = stage.daemon.outside().filter(|_| stage.has_cgroups()).unwrap_or_default();
    let script = once(&format!("$HOP {} &", outside.display()), "exec $STAY leader");
    let mut stage = stage.started("troubled", &script);
    stage.shown("troubled", "nasty", "leader");
    stage.wait_size("troubled", "nasty", "beat", 50);
    stage.daemon.kill_9();
    stage.daemon.start();
    stage.daemon.wait_phase("troubled", Phase::Ready);
    assert_silent(&stage.dir("troubled", "nasty").join("beat"), &stage.daemon.log());
    stage.end();
}
