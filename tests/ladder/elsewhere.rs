//! Processes that moved to another cgroup, and such as keep what the leader left.

use crate::support::{hygiene, send, wait_for};
use crate::world::*;
use socialweb_wire::Phase;

const SISTER: &str = "d=$(echo $group/sister/*/cgroup.procs); d=${d%/cgroup.procs}";
const OTHER: &str = "o=$(echo $tree/steady/steady/*/cgroup.procs); o=${o%/cgroup.procs}";

/// A component with a sister that runs before it.
fn beside_a_sister(script: &str) -> String {
    let sister = component("sister", "exec sleep 100000", LONG);
    group(&[sister, component("nasty", script, &format!("needs = [\"sister\"]\n{SHORT}"))])
}

in_worlds!(who_moved_anywhere_is_ended_with_its_own_component_and_nobody_else_is:
    with_cgroups, as_nobody_in_a_delegated_subtree);

fn who_moved_anywhere_is_ended_with_its_own_component_and_nobody_else_is(stage: Stage) {
    let outside = stage.daemon.outside().unwrap();
    let script = format!(
        "{SISTER}; {OTHER}; mkdir $run/own; (setsid $STAY own $run/own &) ; (setsid $STAY sister $d &) ; (setsid $STAY other $o &) ; (setsid $STAY outside {} &) ; $STAY leader",
        outside.display()
    );
    let stage = stage.started("troubled", &beside_a_sister(&script));
    let places = ["own", "sister", "other", "outside"];
    let moved = places.map(|name| stage.shown("troubled", "nasty", name));
    let at = moved.map(|p| stage.cgroup_of(p.pid));
    let tree = stage.tree();
    assert!(at[0].ends_with("own") && at[1].starts_with(tree.join("troubled/sister")), "{at:?}");
    assert!(at[2].starts_with(tree.join("steady")) && !at[3].starts_with(&tree), "{at:?}");
    let sister = stage.leader("troubled", "sister");
    stage.daemon.ctl_ok(&["restart", "troubled/nasty"]);
    let left: Vec<_> = places.iter().zip(moved).filter(|(_, p)| p.lives()).collect();
    assert!(left.is_empty(), "{left:?} outlived the run\n{}", stage.daemon.log());
    assert!(sister.lives(), "the sister was touched\n{}", stage.daemon.log());
    stage.stop("troubled");
    stage.end();
}

in_worlds!(an_output_that_somebody_keeps_open_is_not_waited_for:
    with_cgroups, as_nobody_in_a_delegated_subtree, without_cgroups);

fn an_output_that_somebody_keeps_open_is_not_waited_for(stage: Stage) {
    // Outside of every group and without the marker it is nobody's, so it lives on with the pipe in its hands.
    let outside = stage.daemon.outside().filter(|_| stage.has_cgroups()).unwrap_or_default();
    let hold = format!("(setsid env -i PATH=/usr/bin:/bin $STAY holder {} &)", outside.display());
    let stage = stage.started("troubled", &nasty(&format!("[ -e holder ] || {hold} ; exec sleep 100000")));
    let (holder, leader) = (stage.shown("troubled", "nasty", "holder"), stage.leader("troubled", "nasty"));
    let pipe = hygiene::Child::of(holder.pid).unwrap().fds[&1].clone();
    let daemon_has_it = || hygiene::Child::of(stage.daemon.pid()).unwrap().fds.values().any(|fd| *fd == pipe);
    assert!(pipe.starts_with("pipe:") && daemon_has_it(), "{pipe}");
    send(leader.pid, 9);
    wait_for("another leader", || {
        let group = stage.daemon.group("troubled");
        (group.phase == Phase::Ready && group.components[0].restarts == 1).then_some(())
    });
    wait_for("its log is closed", || (!daemon_has_it()).then_some(()));
    assert!(holder.lives(), "the pipe is still held");
    stage.stop("troubled");
    stage.end();
    assert!(!holder.lives(), "what is nobody's ends with the daemon");
}
