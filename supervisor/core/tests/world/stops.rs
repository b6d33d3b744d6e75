//! Law L6 in scenarios: every wait ends, and a stop ends everything, in bounded time.

use crate::sim::spec::{edit, group, task};
use crate::sim::{Behaviour, Chaos, Exec, World};
use socialweb_core::Phase;
use socialweb_core::receipt::Rung;
use std::time::Duration;

#[test]
fn l6_a_process_born_after_the_stop_began_is_killed_at_once() {
    let mut world = World::with(group("a"));
    world.model().script("a", [Behaviour { term: None, ..Behaviour::exec(Exec::Late(3_000)) }]);
    world.start(0);
    world.until_state("a", "Starting");
    let took = world.takes(|w| w.stop(0), Phase::Parked);
    assert!(took < Duration::from_secs(4), "{took:?}");
    assert_eq!(world.held[0].receipts[0].components[0].rung, Rung::Kill);
}

#[test]
fn l6_a_spawn_that_fails_or_hangs_during_a_stop_does_not_hold_it_up() {
    for exec in [Exec::Fails(500), Exec::Hangs] {
        let mut world = World::with(group("a"));
        world.model().script("a", [Behaviour::exec(exec)]);
        world.start(0);
        world.until_state("a", "Starting");
        assert!(world.takes(|w| w.stop(0), Phase::Parked) < Duration::from_secs(2));
    }
}

#[test]
fn l6_a_stop_shortens_the_longer_grace_of_a_restart() {
    let spec = edit(&group("a"), "a", |a| a.stop.grace_restart = Duration::from_secs(75));
    let mut world = World::with(spec);
    world.model().script("a", [Behaviour::ignores_term()]);
    world.start(0);
    world.until_phase(Phase::Ready);
    world.restart("a");
    assert!(world.takes(|w| w.stop(0), Phase::Parked) < Duration::from_secs(6));
}

#[test]
fn l6_a_post_task_at_the_stop_is_waited_for_no_longer_than_its_limit() {
    let spec = edit(&group("a"), "a", |a| a.post = vec![task(), task()]);
    let mut world = World::with(spec.clone());
    world.model().script("a", [Behaviour::serves(100, 1)]);
    world.model().script("a.post", [Behaviour::exec(Exec::Hangs), Behaviour::never_ready()]);
    world.start(0);
    world.until_state("a", "Stopping");
    world.until(60, |w| w.component("a").detail == "post task 1 is running");
    let took = world.takes(|w| w.stop(0), Phase::Parked);
    assert!(took > Duration::from_secs(19) && took < spec.stop_deadline(), "{took:?}");
}

#[test]
fn l6_a_stop_ends_within_the_time_that_is_shown_for_it() {
    let worst = Behaviour { ready: Some(10), ..Behaviour::unkillable(9_900) };
    let spec = edit(&group("a b:a"), "b", |b| b.post = vec![task(), task()]);
    let stop = |world: &mut World| {
        let (shown, began) = (world.group(0).stop_deadline(), world.now);
        world.stop(0);
        world.until_phase(Phase::Parked);
        let took = world.now.since(began);
        assert!(took <= shown && took * 10 > shown * 9, "{took:?} of {shown:?}");
    };
    for removes in [false, true] {
        let mut world = World::with(spec.clone());
        world.model().script("a", [worst]);
        world.model().script("b", [worst]);
        world.model().script("b.post", [Behaviour { ready: None, ..worst }; 2]);
        world.start(0);
        world.until_phase(Phase::Ready);
        if removes {
            // It is in no spec any more, and its ladder takes as long as before.
            world.declare(group("a"));
        }
        stop(&mut world);
    }
}

#[test]
fn l6_lost_answers_are_asked_for_again() {
    let mut world = World::with(group("a b:a"));
    world.chaos = Chaos { lost: 30, ..Chaos::default() };
    world.start(0);
    world.until_phase(Phase::Ready);
    world.stop(0);
    world.until_phase(Phase::Parked);
}
