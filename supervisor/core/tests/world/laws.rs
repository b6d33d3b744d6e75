//! The laws of the design, one scenario each, against the model host. The host checks every law at every step besides.

use crate::sim::spec::{edit, group, liveness, name, task};
use crate::sim::{Behaviour, Exec, World};
use socialweb_core::budget::Limits;
use socialweb_core::receipt::Rung;
use socialweb_core::{Action, Birth, Event, ExitStatus, GroupSpec, Kind, Phase, Restart, Why};

fn ready(spec: GroupSpec) -> World {
    let mut world = World::with(spec);
    world.start(0);
    world.until_phase(Phase::Ready);
    world
}

fn last(world: &World) -> &[Action] {
    world.held[0].actions.last().unwrap()
}

fn signalled(world: &World, of: &str) -> bool {
    let it = |a: &Action| matches!(a, Action::Signal { component, .. } if component.as_str() == of);
    world.held[0].actions.iter().flatten().any(it)
}

fn receipt_order(world: &World) -> Vec<String> {
    world.held[0].receipts.last().unwrap().components.iter().map(|c| c.component.to_string()).collect()
}

#[test]
fn l1_independent_components_overlap_and_dependents_wait() {
    let mut world = World::with(group("a b c:a,b"));
    world.model().script("a", [Behaviour::slow(30_000)]);
    world.start(0);
    world.until_state("b", "Ready");
    assert_eq!((world.state("a").as_str(), world.state("c").as_str()), ("Starting", "Waiting"));
    assert_eq!(world.component("c").detail, "waiting for a");
    world.until_phase(Phase::Ready);
}

#[test]
fn l1_a_need_that_goes_away_during_a_pre_task_is_waited_for() {
    let mut world = World::with(edit(&group("a b:a"), "b", |b| b.pre = vec![task(), task()]));
    world.model().script("a", [Behaviour::serves(2_000, 1), Behaviour::slow(40_000)]);
    world.model().script("b.pre", [Behaviour::exits(3_000, 0)]);
    world.start(0);
    world.until_state("b", "Preparing");
    world.until_state("b", "Waiting");
    assert_eq!(world.spawns("b"), 0);
    world.until_phase(Phase::Ready);
}

#[test]
fn l2_stop_is_the_reverse_of_start_and_equal_ranks_stop_together() {
    let mut world = ready(group("a b c:a,b d:c"));
    world.stop(0);
    world.until_phase(Phase::Parked);
    assert_eq!(receipt_order(&world), ["d", "c", "a", "b"]);
    let actions: Vec<_> =
        world.held[0].actions.iter().filter(|all| all.iter().any(|a| matches!(a, Action::Signal { .. }))).collect();
    assert_eq!(actions.len(), 3, "a and b are signalled in one step");
}

#[test]
fn l2_deadlines_and_probes_of_a_lower_rank_do_not_touch_it_before_its_turn() {
    let mut world = World::with(edit(&group("a x b:a"), "a", |a| a.liveness = Some(liveness())));
    world.model().script("a", [Behaviour::hangs(2_000)]);
    world.model().script("x", [Behaviour::never_ready()]);
    world.model().script("b", [Behaviour::unkillable(100_000)]);
    world.start(0);
    world.until_state("b", "Ready");
    world.stop(0);
    world.run(100);
    assert_eq!(world.state("b"), "Wedged");
    assert!(!signalled(&world, "a") && !signalled(&world, "x"));
    world.until_phase(Phase::Parked);
    assert_eq!(receipt_order(&world), ["b", "a", "x"]);
}

#[test]
fn l3_a_cgroup_that_somebody_slipped_into_is_killed_again() {
    let mut world = ready(group("a"));
    world.model().intruders = 2;
    world.stop(0);
    world.until_phase(Phase::Parked);
    assert_eq!(world.held[0].receipts[0].components[0].rung, Rung::Wedged);
}

#[test]
fn l3_an_empty_cgroup_does_not_stand_in_for_the_wait_nor_the_wait_for_an_empty_cgroup() {
    for empty_first in [true, false] {
        let mut world = ready(group("a"));
        world.model().script("a", []);
        world.stop(0);
        world.until_state("a", "Stopping");
        let (component, birth) = (name("a"), world.component("a").birth.unwrap());
        let empty = Event::CgroupEmpty { component: component.clone(), birth, reaped: vec![] };
        let exited = Event::Exited { component, birth, status: ExitStatus::Code(0), traces: Default::default() };
        let removes = |w: &World| last(w).iter().any(|a| matches!(a, Action::RemoveCgroup { .. }));
        let (first, second) = if empty_first { (empty, exited) } else { (exited, empty) };
        world.give(0, first);
        assert!(!removes(&world));
        world.give(0, second);
        assert!(removes(&world));
    }
}

#[test]
fn l3_a_cgroup_that_nobody_asked_to_remove_is_not_gone() {
    let mut world = ready(group("a"));
    let birth = world.component("a").birth.unwrap();
    world.give(0, Event::CgroupRemoved { component: name("a"), birth });
    assert_eq!(world.state("a"), "Ready");
    assert_eq!(world.spawns("a"), 1);
    world.stop(0);
    world.until_state("a", "Stopping");
    world.give(0, Event::CgroupRemoved { component: name("a"), birth });
    assert_eq!((world.state("a").as_str(), world.phase(0)), ("Stopping", Phase::Stopping));
    world.until_phase(Phase::Parked);
}

#[test]
fn l5_a_process_that_runs_cannot_have_failed_to_start() {
    let mut world = ready(group("a"));
    let (component, birth) = (name("a"), world.component("a").birth.unwrap());
    world.give(0, Event::SpawnFailed { component, birth, error: "x".into() });
    assert_eq!(last(&world), []);
}

#[test]
fn l3_a_stuck_group_cgroup_is_named_and_asked_again_and_an_old_answer_does_not_hurry() {
    let mut world = ready(group("a b:a"));
    world.model().busy = 3;
    world.restart("b");
    world.model().script("b", [Behaviour::ignores_term()]);
    world.until(60, |w| w.spawns("b") == 2);
    world.until_phase(Phase::Ready);
    world.stop(0);
    world.until_state("b", "Stopping");
    world.give(0, Event::GroupStuck { what: "an earlier stop".into() });
    world.until(60, |w| w.view(0).reason.contains("pid 9 is inside"));
    assert_eq!(world.phase(0), Phase::Stopping);
    world.until_phase(Phase::Parked);
}

#[test]
fn l4_survivors_that_cannot_be_killed_are_named_and_nothing_starts() {
    let mut world = World::with(group("a"));
    world.survivors(0, 2, socialweb_core::Time(60_000));
    world.start(0);
    world.run(30);
    assert_eq!((world.phase(0), world.view(0).reason), (Phase::Sweeping, "pid 8 waits in D".into()));
    world.until_phase(Phase::Ready);
    assert_eq!(world.view(0).survivors.len(), 2);
}

#[test]
fn l5_answers_of_an_earlier_run_change_nothing() {
    let mut world = World::with(group("a"));
    world.model().script("a", [Behaviour::serves(100, 1)]);
    world.start(0);
    world.until(10, |w| w.spawns("a") == 2);
    world.until_phase(Phase::Ready);
    let before = world.view(0);
    let (component, birth) = (name("a"), Birth(1));
    for event in [
        Event::Spawned { component: component.clone(), birth, pid: 9 },
        Event::SpawnFailed { component: component.clone(), birth, error: "x".into() },
        Event::Ready { component: component.clone(), birth },
        Event::ProbeFailed { component: component.clone(), birth, why: "x".into() },
        Event::Exited { component: component.clone(), birth, status: ExitStatus::Code(1), traces: Default::default() },
        Event::CgroupEmpty { component: component.clone(), birth, reaped: vec![] },
        Event::CgroupRemoved { component, birth },
    ] {
        world.give(0, event);
        assert_eq!(last(&world), []);
    }
    assert_eq!(world.view(0), before);
}

/// The worst programs that still go away: deaf to TERM, and a kill takes almost as long as it may.
#[test]
fn l8_nothing_is_touched_and_nothing_starts_while_the_path_is_being_shut() {
    let mut spec = edit(&group("a x b:a"), "a", |a| a.liveness = Some(liveness()));
    spec = edit(&spec, "b", |b| b.pre = vec![task()]);
    let mut world = World::with(spec);
    world.model().path_ms = 70_000;
    world.model().script("a", [Behaviour::hangs(1_000)]);
    world.model().script("x", [Behaviour::never_ready()]);
    world.model().script("b.pre", [Behaviour::exits(500, 0)]);
    world.start(0);
    world.until_state("b", "Preparing");
    world.stop(0);
    world.run(69);
    assert_eq!(world.phase(0), Phase::Draining);
    assert!(!signalled(&world, "a") && !signalled(&world, "x"));
    assert_eq!(world.spawns("b"), 0);
    world.until_phase(Phase::Parked);
    assert!(world.held[0].receipts[0].path_shut);
}

#[test]
fn l8_a_crash_while_the_path_is_being_shut_is_in_the_receipt_and_starts_nothing() {
    let mut world = ready(group("a b:a"));
    world.model().path_ms = 3_000;
    world.stop(0);
    world.crash(0, "a");
    world.until_phase(Phase::Parked);
    assert_eq!(world.spawns("a"), 1);
    let a = world.held[0].receipts[0].components.iter().find(|c| c.component.as_str() == "a").cloned().unwrap();
    assert_eq!(a.status, Some(ExitStatus::Signal(9)));
}

#[test]
fn l9_a_taken_port_is_named_and_waited_for() {
    let mut world = World::with(group("a"));
    world.model().port_taken = true;
    world.start(0);
    world.run(600);
    assert_eq!((world.phase(0), world.spawns("a")), (Phase::Sweeping, 0));
    assert!(world.view(0).reason.contains("61000") && world.view(0).reason.contains("nc (pid 7)"));
    world.model().port_taken = false;
    world.until_phase(Phase::Ready);
}

#[test]
fn l10_a_wedged_group_does_not_delay_another() {
    let limits = Limits { concurrent_starts: Some(1), ..Limits::default() };
    let mut world = World::new(1, limits);
    world.add("wedged", group("a"));
    world.add("other", group("a b:a"));
    world.held[0].model.script("a", [Behaviour { ready: None, ..Behaviour::unkillable(u64::MAX / 2) }]);
    world.start(0);
    world.start(1);
    assert!(world.until(200, |w| w.phase(1) == Phase::Ready), "{:#?}", world.view(1));
    world.until(600, |w| w.state("a") == "Wedged");
    assert_eq!(world.phase(1), Phase::Ready);
    world.stop(1);
    assert!(world.until(60, |w| w.phase(1) == Phase::Parked));
    world.lawful();
}

#[test]
fn l11_the_first_restart_is_immediate_and_then_it_waits_longer_and_gives_up_loudly() {
    let mut world = ready(group("a"));
    world.model().script("a", vec![Behaviour::serves(100, 1); 100]);
    world.crash(0, "a");
    world.until(1, |w| w.spawns("a") == 2);
    world.until_state("a", "Failed");
    assert!(world.component("a").detail.contains("ended with exit status 1"));
    assert_eq!((world.phase(0), world.spawns("a")), (Phase::Degraded, 5));
    world.run(3_600);
    assert!(world.spawns("a") <= 40, "{}", world.spawns("a"));
}

#[test]
fn l12_no_clock_is_read_in_this_room() {
    let mut folders = vec![std::path::PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("src")];
    let mut files = 0;
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
                continue;
            }
            let text = std::fs::read_to_string(&path).unwrap();
            for word in ["SystemTime", "Instant", "std::env", "std::fs", "thread_rng"] {
                assert!(!text.contains(word), "{} uses {word}", path.display());
            }
            files += 1;
        }
    }
    assert!(files > 10);
}

#[test]
fn l14_a_receipt_tells_what_was_seen_in_this_stop_only() {
    let mut world = World::with(group("a b:a"));
    world.model().script("b", [Behaviour::serves(100, 1), Behaviour::exits(1, 1), Behaviour::exits(1, 1)]);
    world.start(0);
    world.until_state("b", "Backoff");
    world.until(10, |w| w.component("b").detail.starts_with("waiting before"));
    world.stop(0);
    world.until_phase(Phase::Parked);
    let receipt = &world.held[0].receipts[0];
    let b = receipt.components.iter().find(|c| c.component.as_str() == "b").unwrap();
    assert_eq!((b.birth, b.rung), (None, Rung::None), "it ran before the stop, not at the stop");
    assert_eq!(receipt.why, Why::Operator);

    let mut world = World::with(group("a"));
    world.start(0);
    world.stop(0);
    world.until_phase(Phase::Parked);
    assert!(!world.held[0].receipts[0].path_shut, "a stop in the sweep has seen no path");
}

#[test]
fn l14_restart_never_and_one_shots_are_done_only_after_they_ended_well() {
    let never = |spec: &GroupSpec| edit(spec, "a", |a| a.restart = Restart::Never);
    let mut world = World::with(never(&group("a b")));
    world.model().script("a", [Behaviour::serves(5_000, 0)]);
    world.start(0);
    world.until_state("a", "Done");
    assert_eq!(world.phase(0), Phase::Ready);
    // Started by hand, its program cannot even be executed: an earlier good end says nothing about that.
    world.model().script("a", [Behaviour::exec(Exec::Fails(1))]);
    world.restart("a");
    world.until_state("a", "Failed");
    assert_eq!(world.phase(0), Phase::Degraded);

    let mut world = World::with(edit(&group("a b:a"), "a", |a| a.kind = Kind::OneShot));
    world.model().script("a", [Behaviour::exits(5, 1), Behaviour::exits(5, 0)]);
    world.start(0);
    world.until_phase(Phase::Ready);
    assert_eq!((world.state("a").as_str(), world.spawns("a")), ("Done", 2));
}
