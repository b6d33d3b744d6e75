//! Processes that cannot run: stopped, traced, in threaded cgroups.

use crate::support::{skip, wait_for};
use crate::world::*;
use socialweb_sys::process::Stat;
use socialweb_wire::Rung;

in_worlds!(a_stopped_process_follows_the_stop_signal_or_is_killed:
    with_cgroups, as_nobody_in_a_delegated_subtree, without_cgroups);

fn a_stopped_process_follows_the_stop_signal_or_is_killed(stage: Stage) {
    let follower = component("follower", "kill -STOP $$; exec sleep 100000", LONG);
    let ignorer = component("ignorer", "trap '' TERM; ($STAY child &) ; kill -STOP $$; $STAY woken", SHORT);
    let stage = stage.started("troubled", &group(&[follower, ignorer]));
    let leaders = ["follower", "ignorer"].map(|name| stage.leader("troubled", name));
    for leader in leaders {
        wait_for("it is stopped", || (Stat::of(leader.pid).ok()?.state == 'T').then_some(()));
    }
    let child = stage.shown("troubled", "ignorer", "child");
    stage.stop("troubled");
    assert!(!leaders[0].lives() && !leaders[1].lives() && !child.lives(), "{}", stage.daemon.log());
    let receipt = stage.daemon.receipts("troubled").pop().unwrap();
    let rung = |name: &str| receipt.components.iter().find(|c| c.component == name).unwrap().rung;
    assert_eq!((rung("follower"), rung("ignorer")), (Rung::Signal, Rung::Kill), "{receipt:#?}");
    stage.end();
}

in_worlds!(a_traced_process_that_its_tracer_never_lets_go_is_ended:
    with_cgroups, as_nobody_in_a_delegated_subtree, without_cgroups);

fn a_traced_process_that_its_tracer_never_lets_go_is_ended(stage: Stage) {
    let stage = stage.started("troubled", &nasty(&format!("exec python3 {}", program("traced.py"))));
    let traced = stage.shown("troubled", "nasty", "traced");
    assert_eq!(Stat::of(traced.pid).unwrap().state, 't', "it is stopped by its tracer");
    stage.stop("troubled");
    assert!(!traced.lives(), "{}", stage.daemon.log());
    stage.end();
}

in_worlds!(a_process_in_a_threaded_cgroup_is_ended: with_cgroups, as_nobody_in_a_delegated_subtree);

fn a_process_in_a_threaded_cgroup_is_ended(stage: Stage) {
    let script = "(mkdir $run/t && echo threaded > $run/t/cgroup.type && echo 0 > $run/t/cgroup.threads && exec $STAY threaded || echo 1 > refused) & $STAY leader";
    let stage = stage.started("troubled", &nasty(script));
    let dir = stage.dir("troubled", "nasty");
    wait_for("it is there, or may not", || {
        (dir.join("threaded").exists() || dir.join("refused").exists()).then_some(())
    });
    if dir.join("refused").exists() {
        skip(&stage.name, "threaded: this kernel makes no threaded cgroups here");
        return stage.end();
    }
    let threaded = stage.shown("troubled", "nasty", "threaded");
    assert!(stage.cgroup_of(threaded.pid).ends_with("t"));
    stage.stop("troubled");
    assert!(!threaded.lives(), "{}", stage.daemon.log());
    stage.end();
}
