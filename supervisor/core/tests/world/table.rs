//! The phase x event table at the head of `group/mod.rs`, cell by cell for the events of people and sources.

use crate::sim::spec::{edit, group};
use crate::sim::{Behaviour, Exec, World};
use socialweb_core::{Event, Permit, Phase, Why};

/// A group in that phase.
fn world(phase: Phase) -> World {
    let mut world = World::with(group("a b:a"));
    world.model().path_ms = 1_000;
    world.model().script("b", [Behaviour { term: Some(1_000), ..Behaviour::normal() }]);
    match phase {
        Phase::Absent => {
            world.give(0, Event::Removed);
            world.give(0, Event::Stop { why: Why::Delete });
        }
        Phase::Parked => {}
        Phase::Unavailable => {
            world.model().script("a", vec![Behaviour::exec(Exec::Fails(1)); 5]);
            world.start(0);
        }
        Phase::Degraded => {
            world.start(0);
            world.until_phase(Phase::Ready);
            world.crash(0, "a");
        }
        Phase::Draining | Phase::Stopping => {
            world.start(0);
            world.until_phase(Phase::Ready);
            world.stop(0);
        }
        Phase::Sweeping | Phase::Starting | Phase::Ready => world.start(0),
    }
    world.until_phase(phase);
    world
}

/// The phase after an event, and the phase in which everything comes to rest.
fn check(event: &Event, cells: [(Phase, Phase); 9]) {
    let phases = [
        Phase::Absent,
        Phase::Parked,
        Phase::Unavailable,
        Phase::Sweeping,
        Phase::Starting,
        Phase::Ready,
        Phase::Degraded,
        Phase::Draining,
        Phase::Stopping,
    ];
    for (phase, cell) in phases.into_iter().zip(cells) {
        let mut world = world(phase);
        world.give(0, event.clone());
        let next = world.phase(0);
        if phase != Phase::Unavailable || next != phase {
            world.run(300);
        }
        assert_eq!((next, world.phase(0)), cell, "{event:?} in {}", phase.as_str());
    }
}

const A: Phase = Phase::Absent;
const P: Phase = Phase::Parked;
const U: Phase = Phase::Unavailable;
const SW: Phase = Phase::Sweeping;
const ST: Phase = Phase::Starting;
const R: Phase = Phase::Ready;
const DE: Phase = Phase::Degraded;
const DR: Phase = Phase::Draining;
const SP: Phase = Phase::Stopping;

#[test]
fn declared() {
    let old = Box::new(group("a b:a"));
    let row = [(P, P), (P, P), (U, U), (SW, R), (ST, R), (R, R), (DE, R), (DR, P), (SP, P)];
    // The name is the world's; here only the difference counts.
    check(&Event::Declared { spec: old.clone() }, row);
    let new = Box::new(edit(&old, "a", |a| a.launch.argv.push("-v".into())));
    let row = [(P, P), (P, P), (SW, R), (SW, R), (ST, R), (DE, R), (DE, R), (DR, P), (SP, P)];
    check(&Event::Declared { spec: new }, row);
}

#[test]
fn start_and_restart() {
    let row = [(A, A), (SW, R), (SW, R), (SW, R), (ST, R), (R, R), (DE, R), (DR, R), (SP, R)];
    check(&Event::Start { why: Why::Operator }, row);
    let row = [(A, A), (SW, R), (SW, R), (SP, R), (DR, R), (DR, R), (DR, R), (DR, R), (SP, R)];
    check(&Event::Restart { component: None, why: Why::Operator }, row);
    let row = [(A, A), (P, P), (U, U), (SW, R), (ST, R), (DE, R), (DE, R), (DR, P), (SP, P)];
    check(&Event::Restart { component: Some(crate::sim::spec::name("a")), why: Why::Operator }, row);
}

#[test]
fn stop_and_removed() {
    let row = [(A, A), (P, P), (P, P), (SP, P), (DR, P), (DR, P), (DR, P), (DR, P), (SP, P)];
    check(&Event::Stop { why: Why::Operator }, row);
    check(&Event::Stop { why: Why::Delete }, row);
    let mut removed = row;
    // Data that nobody declares is shown, so that it can be deleted.
    removed[0] = (P, P);
    check(&Event::Removed, removed);
}

#[test]
fn answers_that_nobody_waits_for() {
    let row = [(A, A), (P, P), (U, U), (SW, R), (ST, R), (R, R), (DE, R), (DR, P), (SP, P)];
    check(&Event::LeasesGranted, row);
    check(&Event::CgroupMade, row);
    check(&Event::CgroupFailed { error: "x".into() }, row);
    check(&Event::Granted { permit: Permit::Start }, row);
    check(&Event::GroupRemoved, row);
    check(&Event::GroupStuck { what: "x".into() }, row);
    check(&Event::Tick, row);
}
