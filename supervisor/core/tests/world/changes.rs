//! What changes while a group runs: specs, restarts of one component, laws of restart.

use crate::sim::spec::{edit, group, liveness, name, task};
use crate::sim::{Behaviour, Exec, World};
use socialweb_core::{Action, Event, GroupSpec, Kind, Phase, Probe, ProbeUse, Rank, Restart, Role, Why};

fn ready(spec: GroupSpec) -> World {
    let mut world = World::with(spec);
    world.start(0);
    world.until_phase(Phase::Ready);
    world
}

/// Starts (`+a`) and stop signals (`-a`) of main programs from action list `from` on.
fn story(world: &World, from: usize) -> String {
    let word = |a: &Action| match a {
        Action::Spawn { component, role: Role::Main, .. } => Some(format!("+{component}")),
        Action::Signal { component, .. } => Some(format!("-{component}")),
        _ => None,
    };
    let words: Vec<_> = world.held[0].actions[from..].iter().flatten().filter_map(word).collect();
    words.join(" ")
}

fn after(world: &mut World, act: impl FnOnce(&mut World)) -> String {
    let from = world.held[0].actions.len();
    act(world);
    world.until(1, |_| false);
    world.until_phase(Phase::Ready);
    story(world, from)
}

#[test]
fn one_that_is_restarted_alone_leaves_its_dependents_alone() {
    let mut world = ready(group("a b:a c:b"));
    assert_eq!(after(&mut world, |w| w.restart("a")), "-a +a");
    assert_eq!(after(&mut world, |w| w.crash(0, "a")), "+a");
    assert_eq!(world.component("a").restarts, 2);
}

#[test]
fn with_dependents_they_go_down_first_in_reverse_and_come_up_after_it_in_order() {
    let spec = edit(&group("a b:a c:b d x:d"), "a", |a| a.restart = Restart::WithDependents);
    let mut world = ready(spec.clone());
    assert_eq!(after(&mut world, |w| w.restart("a")), "-c -b -a +a +b +c");
    assert_eq!(after(&mut world, |w| w.crash(0, "a")), "-c -b +a +b +c");
    let edited = edit(&spec, "a", |a| a.launch.argv.push("-v".into()));
    assert_eq!(after(&mut world, |w| w.declare(edited)), "-c -b -a +a +b +c");
}

#[test]
fn with_dependents_a_slow_dependent_is_waited_for() {
    let spec = edit(&group("a b:a"), "a", |a| a.restart = Restart::WithDependents);
    let mut world = World::with(spec);
    world.model().script("b", [Behaviour { term: Some(4_000), ..Behaviour::normal() }]);
    world.start(0);
    world.until_phase(Phase::Ready);
    let began = world.now;
    world.crash(0, "a");
    world.until(60, |w| w.spawns("a") == 2);
    assert!(world.now.since(began).as_secs() >= 4);
}

#[test]
fn stop_group_parks_the_group_and_says_who() {
    let mut world = ready(edit(&group("a b:a"), "b", |b| b.restart = Restart::StopGroup));
    world.crash(0, "b");
    world.until_phase(Phase::Parked);
    assert!(world.view(0).reason.contains("component b ended"));
    assert_eq!(world.held[0].receipts[0].why, Why::ComponentEnded(name("b")));
    world.run(3_600);
    assert_eq!(world.phase(0), Phase::Parked);
}

#[test]
fn never_leaves_the_group_running_without_it() {
    let mut world = ready(edit(&group("a b"), "b", |b| b.restart = Restart::Never));
    world.crash(0, "b");
    world.until_state("b", "Failed");
    world.run(3_600);
    assert_eq!((world.phase(0), world.spawns("b"), world.state("a").as_str()), (Phase::Degraded, 1, "Ready"));
    assert_eq!(after(&mut world, |w| w.start(0)), "+b");
}

#[test]
fn restart_of_the_group_while_it_stops_starts_it_after_the_receipt() {
    for event in [Event::Restart { component: None, why: Why::Operator }, Event::Start { why: Why::Operator }] {
        let mut world = ready(group("a b:a"));
        world.stop(0);
        world.until_state("b", "Stopping");
        world.give(0, event);
        world.until_phase(Phase::Ready);
        assert_eq!((world.held[0].receipts.len(), world.view(0).generation), (1, 2));
        // And a stop after that takes the wish back.
        world.give(0, Event::Restart { component: None, why: Why::Operator });
        world.until_phase(Phase::Stopping);
        world.stop(0);
        world.until_phase(Phase::Parked);
    }
}

#[test]
fn a_new_spec_is_taken_at_every_step_and_counts_at_the_latest_after_the_next_start() {
    let old = edit(&group("a b:a"), "b", |b| {
        b.pre = vec![task(), task(), task()];
        b.post = vec![task(), task()];
    });
    let mut new = edit(&old, "b", |b| {
        b.pre.clear();
        b.post.truncate(1);
    });
    new.components.extend(group("a c:a").components.into_iter().filter(|c| c.name == name("c")));
    for step in 0..70 {
        let mut world = World::with(old.clone());
        world.model().script("b", [Behaviour::serves(20, 1)]);
        world.start(0);
        (0..step).for_each(|_| _ = world.step());
        if step % 2 == 0 {
            world.give(0, Event::Stop { why: Why::Operator });
            (0..step / 4).for_each(|_| _ = world.step());
        }
        world.declare(new.clone());
        world.start(0);
        world.until(100, |w| w.phase(0) == Phase::Ready && w.state("c") == "Ready");
        world.lawful();
        assert_eq!(world.state("c"), "Ready", "declared at step {step}");
        assert_eq!(world.group(0).component_spec(&name("b")), new.component(&name("b")), "declared at step {step}");
    }
}

#[test]
fn the_same_spec_once_more_changes_nothing() {
    let spec = group("a b:a");
    let mut world = ready(spec.clone());
    world.declare(GroupSpec { name: world.group(0).name().clone(), ..spec });
    assert_eq!(world.held[0].actions.last().unwrap(), &[]);
}

#[test]
fn a_removed_component_stops_alone_and_may_come_back() {
    let spec = group("a b:a c:a");
    let without = GroupSpec { components: spec.components[..2].to_vec(), ..spec.clone() };
    let mut world = ready(spec.clone());
    assert_eq!(after(&mut world, |w| w.declare(without.clone())), "-c");
    assert_eq!(world.state("c"), "-");
    assert_eq!(after(&mut world, |w| w.declare(spec.clone())), "+c");
    // Back before it was gone: it goes down all the same, then up.
    world.declare(without);
    world.until_state("c", "Stopping");
    assert_eq!(after(&mut world, |w| w.declare(spec)), "+c");
}

#[test]
fn the_newest_spec_wins_however_often_it_changes_while_the_old_run_ends() {
    let spec = edit(&group("a b:a"), "a", |a| a.restart = Restart::WithDependents);
    let argv = |n: &str| edit(&spec, "b", |b| b.launch.argv.push(n.into()));
    let mut world = World::with(spec.clone());
    world.model().script("a", [Behaviour { term: Some(4_000), ..Behaviour::normal() }]);
    world.start(0);
    world.until_phase(Phase::Ready);
    world.declare(argv("-1"));
    world.restart("a");
    world.until_state("a", "Stopping");
    world.declare(argv("-2"));
    world.until_phase(Phase::Ready);
    let b = world.group(0).component_spec(&name("b")).unwrap();
    assert_eq!(b.launch.argv, ["/bin/b", "-2"]);
    assert_eq!(world.spawns("b"), 2);
}

#[test]
fn ranks_stay_for_the_generation_and_needs_that_do_not_fit_them_wait_for_the_next() {
    let mut world = ready(group("a b:a"));
    // x slips in between: it needs a, and b needs it.
    world.declare(group("a x:a b:x"));
    world.until_state("x", "Ready");
    let ranks = |w: &World| w.view(0).components.iter().map(|c| (c.name.to_string(), c.rank)).collect::<Vec<_>>();
    assert_eq!(ranks(&world), [("a".into(), Rank(1)), ("b".into(), Rank(2)), ("x".into(), Rank(2))]);
    assert_eq!(world.group(0).component_spec(&name("b")).unwrap().needs, []);
    world.give(0, Event::Restart { component: None, why: Why::Operator });
    world.until(60, |w| w.view(0).generation == 2);
    world.until_phase(Phase::Ready);
    assert_eq!(ranks(&world), [("a".into(), Rank(1)), ("x".into(), Rank(2)), ("b".into(), Rank(3))]);
    assert_eq!(world.group(0).component_spec(&name("b")).unwrap().needs, [name("x")]);
}

#[test]
fn a_wedged_component_holds_up_only_what_it_needs() {
    let mut world = World::with(group("a x b:x"));
    world.model().script("b", [Behaviour::unkillable(10_000_000)]);
    world.start(0);
    world.until_phase(Phase::Ready);
    world.restart("b");
    world.until_state("b", "Wedged");
    world.restart("a");
    world.run(10);
    assert_eq!((world.state("a").as_str(), world.spawns("a")), ("Ready", 2));
}

#[test]
fn an_operators_restart_ends_the_wait_of_a_component_that_failed() {
    for script in [vec![Behaviour::exits(1, 1); 4], vec![Behaviour::exits(1, 1); 3]] {
        let mut world = ready(group("a"));
        let state = if script.len() == 4 { "Failed" } else { "Backoff" };
        world.model().script("a", script.clone());
        world.crash(0, "a");
        world.until(3_600, |w| w.state("a") == state && w.spawns("a") == script.len() + 1);
        let began = world.now;
        world.restart("a");
        world.until_phase(Phase::Ready);
        assert!(world.now.since(began).as_secs() < 1, "from {state}");
    }
}

#[test]
fn a_changed_probe_reaches_the_run_it_is_about() {
    let spec = edit(&group("a b:a"), "b", |b| b.liveness = Some(liveness()));
    let mut world = World::with(spec.clone());
    world.model().script("b", [Behaviour::never_ready()]);
    world.start(0);
    world.until_state("b", "Starting");
    world.until(5, |w| w.component("b").detail.contains("connection refused"));
    world.declare(edit(&spec, "b", |b| b.readiness.probe = Probe::Tcp { address: "127.0.0.1:2".into() }));
    let probes = |w: &World, what: ProbeUse| {
        let it = |a: &Action| matches!(a, Action::Probe { what: w, .. } if *w == what);
        w.held[0].actions.last().unwrap().iter().any(it)
    };
    assert!(probes(&world, ProbeUse::Readiness));
    world.declare(edit(&spec, "b", |b| b.readiness.probe = Probe::Running));
    assert_eq!((world.state("b").as_str(), world.phase(0)), ("Ready", Phase::Ready));
    world.declare(edit(&spec, "b", |b| {
        b.readiness.probe = Probe::Running;
        b.liveness = None;
    }));
    assert!(probes(&world, ProbeUse::Off));
}

#[test]
fn liveness_ends_a_run_that_hangs_and_nothing_else_does() {
    let mut world = World::with(edit(&group("a b"), "a", |a| a.liveness = Some(liveness())));
    world.model().script("a", [Behaviour::hangs(5_000)]);
    world.model().script("b", [Behaviour::hangs(5_000)]);
    world.start(0);
    world.until_phase(Phase::Ready);
    world.until(60, |w| w.spawns("a") == 2);
    world.until_phase(Phase::Ready);
    world.run(60);
    assert_eq!((world.spawns("a"), world.spawns("b")), (2, 1));
}

#[test]
fn a_slow_start_lives_as_long_as_it_makes_progress_and_no_longer_than_its_cap() {
    let mut world = World::with(group("a"));
    world.model().script("a", [Behaviour::slow(500_000)]);
    world.start(0);
    world.until_phase(Phase::Ready);
    assert_eq!(world.spawns("a"), 1);
    let mut world = World::with(group("a"));
    world.model().script("a", [Behaviour::slow(2_000_000)]);
    world.start(0);
    world.until(1_300, |w| w.spawns("a") == 2);
    assert_eq!(world.spawns("a"), 2);
    assert_eq!(world.component("a").restarts, 1);
}

#[test]
fn a_bring_up_without_progress_gives_up_and_says_so() {
    let mut spec = edit(&group("a"), "a", |a| a.readiness.deadline = a.readiness.cap);
    spec.bringup.no_progress = std::time::Duration::from_secs(300);
    let mut world = World::with(spec);
    world.model().script("a", [Behaviour::never_ready()]);
    world.start(0);
    world.until_phase(Phase::Unavailable);
    assert_eq!(world.view(0).reason, "gave up: no progress for 300 s");
    assert!(world.now.0 > 300_000 && world.now.0 < 310_000);
}

#[test]
fn one_shots_run_once_per_start_and_their_failure_keeps_the_group_from_ready() {
    let one = |spec: &GroupSpec| edit(spec, "a", |a| a.kind = Kind::OneShot);
    let mut world = ready(one(&group("a b:a")));
    world.crash(0, "b");
    world.run(30);
    assert_eq!((world.spawns("a"), world.state("a").as_str()), (1, "Done"));
    world.give(0, Event::Restart { component: None, why: Why::Operator });
    world.until(60, |w| w.view(0).generation == 2);
    world.until_phase(Phase::Ready);
    assert_eq!(world.spawns("a"), 2);

    let mut world = World::with(one(&group("a b:a")));
    world.model().script("a", vec![Behaviour::exec(Exec::Fails(1)); 5]);
    world.start(0);
    world.until_phase(Phase::Unavailable);
    assert_eq!(world.spawns("b"), 0);
}

#[test]
fn a_new_component_gets_a_place_above_those_it_needs() {
    let mut world = ready(group("a b:a"));
    // Without a, b would be of rank 1 and c of rank 2; but b stays where it is until the next start.
    world.declare(group("b c:b"));
    world.until_state("c", "Ready");
    let ranks: Vec<_> = world.view(0).components.iter().map(|c| (c.name.to_string(), c.rank)).collect();
    assert_eq!(ranks, [("b".into(), Rank(2)), ("c".into(), Rank(3))]);
}

#[test]
fn nobody_starts_on_a_need_that_is_about_to_go_down() {
    let spec = group("a b:a c:a");
    let mut world = World::with(spec.clone());
    world.model().script("b", [Behaviour { term: Some(4_000), ..Behaviour::normal() }]);
    world.start(0);
    world.until_phase(Phase::Ready);
    let new = edit(&spec, "a", |a| a.launch.argv.push("-v".into()));
    world.declare(edit(&new, "b", |b| b.launch.argv.push("-v".into())));
    assert_eq!((world.state("a").as_str(), world.state("b").as_str()), ("Ready", "Stopping"));
    world.crash(0, "c");
    world.until(2, |_| false);
    assert_eq!((world.state("c").as_str(), world.spawns("c")), ("Waiting", 1));
    world.until_phase(Phase::Ready);
    assert_eq!((world.spawns("a"), world.spawns("b"), world.spawns("c")), (2, 2, 2));
}

#[test]
fn each_step_of_a_component_is_progress_of_the_bring_up() {
    let slow = |ms| Behaviour { ready: Some(ms), ..Behaviour::normal() };
    let mut spec = group("a b");
    spec.components.iter_mut().for_each(|c| c.readiness.deadline = c.readiness.cap);
    spec.bringup.no_progress = std::time::Duration::from_secs(300);
    let mut world = World::with(spec);
    world.model().script("a", [slow(200_000)]);
    world.model().script("b", [slow(450_000)]);
    world.start(0);
    world.until_phase(Phase::Ready);
    assert_eq!(world.view(0).generation, 1);
}

#[test]
fn an_answer_that_comes_twice_counts_once() {
    let mut world = World::with(group("a b:a"));
    world.model().script("b", [Behaviour::never_ready()]);
    world.start(0);
    world.until_state("b", "Starting");
    world.until(10, |w| w.component("b").detail.contains("connection refused"));
    let birth = |w: &World, of: &str| w.component(of).birth.unwrap();
    world.give(0, Event::Spawned { component: name("b"), birth: birth(&world, "b"), pid: 77 });
    assert_eq!(world.held[0].actions.last().unwrap(), &[]);
    // A late answer of the readiness probe is no failed liveness, of which there is none.
    world.give(0, Event::ProbeFailed { component: name("a"), birth: birth(&world, "a"), why: "late".into() });
    assert_eq!(world.held[0].actions.last().unwrap(), &[]);
}
