//! Public bugs of other supervisors, each as a scenario that must not happen here.

use crate::sim::spec::{edit, group, name};
use crate::sim::{Behaviour, Exec, World};
use socialweb_core::event::ReapedBy;
use socialweb_core::receipt::Rung;
use socialweb_core::spec::{Backoff, GroupSpec};
use socialweb_core::{Action, Event, Phase, Restart, Why};
use std::collections::BTreeSet;
use std::time::Duration;

fn ready(spec: GroupSpec) -> World {
    let mut world = World::with(spec);
    world.start(0);
    world.until_phase(Phase::Ready);
    world
}

/// FedericoPonzi/Horust#58: TERM while a child is still starting hangs for ever.
#[test]
fn a_stop_cancels_a_pending_start() {
    let mut world = World::with(group("a b:a"));
    world.model().script("a", [Behaviour::never_ready()]);
    world.start(0);
    world.until_state("a", "Starting");
    assert!(world.takes(|w| w.stop(0), Phase::Parked) < Duration::from_secs(2));
    assert_eq!(world.spawns("b"), 0);
}

/// F1bonacc1/process-compose#280: down during a pending dependency never ends; who never ran counts as stopped.
#[test]
fn those_that_never_started_count_as_stopped() {
    let mut world = World::with(group("a b:a c:b"));
    world.model().script("a", [Behaviour::slow(9_000)]);
    world.start(0);
    world.run(2);
    world.stop(0);
    world.until_phase(Phase::Parked);
    let rungs: Vec<_> = world.held[0].receipts[0].components.iter().map(|c| (c.component.as_str(), c.rung)).collect();
    assert_eq!(rungs, [("c", Rung::None), ("b", Rung::None), ("a", Rung::Signal)]);
}

/// F1bonacc1/process-compose#520: the leader traps TERM and exits, a process of the same run ignores it, and down
/// reports success with that one alive.
#[test]
fn a_leader_that_exits_does_not_end_the_ladder_early() {
    let mut world = World::with(group("a b:a"));
    world.model().script("b", [Behaviour::leaves_stray()]);
    world.start(0);
    world.until_phase(Phase::Ready);
    world.stop(0);
    world.until(60, |w| w.component("b").detail.ends_with("others of it are still there"));
    assert_eq!(world.state("a"), "Ready");
    let left = world.now;
    world.until_phase(Phase::Parked);
    assert!(world.now.since(left) > Duration::from_secs(4), "the others have the whole grace too");
    let b = &world.held[0].receipts[0].components[0];
    assert_eq!((b.rung, b.others.len(), b.others[0].by), (Rung::Kill, 1, ReapedBy::CgroupKill));
}

/// Supervisor/supervisor#520, #217: the stop order is not waited for, or is upside down.
#[test]
fn the_next_stop_begins_after_the_previous_exit() {
    let mut world = World::with(group("redis app:redis"));
    world.model().script("app", [Behaviour { term: Some(4_000), ..Behaviour::normal() }]);
    world.start(0);
    world.until_phase(Phase::Ready);
    world.stop(0);
    world.until_state("app", "Stopping");
    world.run(3);
    assert_eq!(world.state("redis"), "Ready");
    world.until_phase(Phase::Parked);
    let parts = &world.held[0].receipts[0].components;
    assert_eq!(parts[0].component, name("app"));
    assert!(parts[1].began >= parts[0].gone);
}

/// Supervisor/supervisor#1154: editing one program restarts its whole group.
#[test]
fn editing_one_restarts_one() {
    let spec = group("a b:a c:b d");
    let mut world = ready(spec.clone());
    world.declare(edit(&spec, "b", |b| b.launch.argv.push("-v".into())));
    world.until(60, |w| w.spawns("b") == 2);
    world.until_phase(Phase::Ready);
    let starts: Vec<_> = ["a", "b", "c", "d"].iter().map(|c| world.spawns(c)).collect();
    assert_eq!(starts, [1, 2, 1, 1]);
    assert_eq!(world.group(0).component_spec(&name("b")).unwrap().launch.argv, ["/bin/b", "-v"]);
}

/// Supervisor/supervisor#1637: turning autorestart off restarts the program.
#[test]
fn editing_policy_restarts_nothing() {
    let spec = group("a b:a");
    let mut world = ready(spec.clone());
    let policy = edit(&spec, "b", |b| {
        b.restart = Restart::Never;
        b.backoff = Backoff { limit: 2, ..b.backoff };
        b.stop.grace = Duration::from_secs(1);
        b.readiness.cap = Duration::from_secs(61);
    });
    world.declare(policy);
    world.run(300);
    assert_eq!((world.spawns("a"), world.spawns("b"), world.phase(0)), (1, 1, Phase::Ready));
    world.crash(0, "b");
    world.until_state("b", "Failed");
    assert_eq!(world.spawns("b"), 1, "and the new policy counts");
}

/// systemd/systemd#10529: after the cause is fixed, a manual start is still refused by the limiter.
#[test]
fn an_operators_start_clears_the_limiter() {
    let mut world = ready(group("a"));
    // The limit is 5: after the start there are as many tries again.
    world.model().script("a", vec![Behaviour::exits(1, 1); 4 + 1]);
    world.crash(0, "a");
    world.until_state("a", "Failed");
    assert!(world.takes(|w| w.start(0), Phase::Ready) < Duration::from_secs(1));
}

/// The same one level up: a group that gave up is tried at once when a person says so, and its waits begin anew.
#[test]
fn an_operators_start_clears_the_give_up_of_a_group() {
    let mut world = World::with(group("a"));
    world.model().script("a", vec![Behaviour::exec(Exec::Fails(1)); 15]);
    world.start(0);
    world.until_phase(Phase::Unavailable);
    let first = world.view(0);
    assert!(first.reason.contains("component a failed 5 times in a row: no such file"), "{}", first.reason);
    let wait = |w: &World| w.view(0).retry_at.unwrap().since(w.now);
    let ten = Duration::from_secs(600);
    assert_eq!(wait(&world), ten);
    // By itself after that time, and then twice as long.
    world.until_phase(Phase::Sweeping);
    world.until_phase(Phase::Unavailable);
    assert_eq!(wait(&world), ten * 2);
    world.start(0);
    world.until_phase(Phase::Sweeping);
    world.until_phase(Phase::Unavailable);
    assert_eq!(wait(&world), ten, "the count begins anew");
    assert!(world.takes(|w| w.start(0), Phase::Ready) < Duration::from_secs(1));
}

/// A start that comes while the group that gave up is still being taken down is not forgotten, and one that was taken
/// back is.
#[test]
fn a_start_during_the_stop_of_a_give_up_counts() {
    let gives_up = |n: usize| {
        let mut world = World::with(group("a"));
        world.model().script("a", vec![Behaviour::exec(Exec::Fails(1)); n]);
        world.model().path_ms = 1_000;
        world.start(0);
        world.until_phase(Phase::Draining);
        world.start(0);
        world
    };
    let mut world = gives_up(5);
    let began = world.now;
    world.until_phase(Phase::Ready);
    assert!(world.now.since(began) < Duration::from_secs(2), "not only when it would have tried by itself");

    let mut world = gives_up(10);
    world.stop(0);
    world.until_phase(Phase::Parked);
    world.start(0);
    world.until_phase(Phase::Stopping);
    world.until(60, |w| w.phase(0) != Phase::Stopping);
    assert_eq!(world.phase(0), Phase::Unavailable);
}

/// F1bonacc1/process-compose#189: the gate gives up when what it waits for needs one restart to get healthy.
#[test]
fn the_gate_spans_restarts() {
    let mut world = World::with(group("a b:a"));
    world.model().script("a", [Behaviour::exits(10, 1), Behaviour::never_ready()]);
    world.start(0);
    world.until_phase(Phase::Ready);
    assert_eq!((world.spawns("a"), world.spawns("b"), world.view(0).generation), (3, 1, 1));
}

/// Supervisor/supervisor#1640: programs that fail together restart together.
#[test]
fn waits_differ_from_group_to_group_and_repeat_for_a_seed() {
    let second_try = |seed: u64| {
        let mut world = World::new(1, Default::default());
        world.add_seeded("demo", seed, group("a"));
        world.model().script("a", vec![Behaviour::exits(1, 1); 2]);
        world.start(0);
        world.until(60, |w| w.spawns("a") == 3);
        world.now
    };
    let times: BTreeSet<_> = (0..20).map(second_try).collect();
    assert!(times.len() > 15, "{times:?}");
    assert_eq!(second_try(7), second_try(7));
}

/// kubermatic/kubermatic#3720: a cluster that is deleted before it was ever up is stuck. Here: the stop comes at every
/// step of a start, with every kind of trouble on the way, and the deletion goes through.
#[test]
fn a_group_can_be_deleted_at_every_step_of_its_start() {
    let trouble = |w: &mut World| {
        w.survivors(0, 1, Default::default());
        w.model().path_ms = 50;
        w.model().script("a", [Behaviour::leaves_stray()]);
        w.model().script("b", [Behaviour::exec(Exec::Late(40)), Behaviour::ignores_term()]);
        w.model().script("c.pre", [Behaviour::exits(30, 1), Behaviour::exits(30, 0)]);
    };
    let spec = edit(&group("a b:a c:b"), "c", |c| c.pre = vec![crate::sim::spec::task()]);
    let mut step = 0;
    loop {
        let mut world = World::with(spec.clone());
        trouble(&mut world);
        world.start(0);
        let steps = (0..step).filter(|_| world.phase(0) != Phase::Ready && world.step()).count();
        world.give(0, Event::Removed);
        world.give(0, Event::Stop { why: Why::Delete });
        let gone = world.until(60, |w| w.phase(0) == Phase::Absent);
        world.lawful();
        assert!(gone, "stopped at step {step}: {:#?}", world.view(0));
        assert_eq!(world.alive(), 0);
        if steps < step {
            break;
        }
        step += 1;
    }
    assert!(step > 20, "{step} steps");
}

/// Supervisor/supervisor#1232: parallel restart commands leave a mix of old and new trees.
#[test]
fn three_restarts_at_once_leave_one_tree() {
    let mut world = ready(group("a b:a"));
    for _ in 0..3 {
        world.give(0, Event::Restart { component: None, why: Why::Operator });
        world.step();
    }
    world.until(60, |w| w.view(0).generation == 2);
    world.until_phase(Phase::Ready);
    assert_eq!(world.alive(), 2);
    let receipts = world.held[0].actions.iter().flatten().filter(|a| matches!(a, Action::Receipt { .. })).count();
    assert_eq!((receipts, world.view(0).generation), (1, 2));
}
