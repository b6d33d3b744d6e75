//! Restarts and host-wide allowances: counted, asked for, waited for, given back, whatever comes in between (law L11).

use crate::sim::spec::group;
use crate::sim::{Behaviour, World};
use socialweb_core::budget::{Limits, Rate};
use socialweb_core::{Action, ComponentName, Event, GroupSpec, Permit, Phase};

fn last(world: &World) -> &[Action] {
    world.held[0].actions.last().unwrap()
}

fn restart(of: &str) -> Permit {
    Permit::Restart(ComponentName::new(of).unwrap())
}

/// `b` waits for the only token of this hour: `a` took it.
fn starved(spec: &GroupSpec) -> World {
    let rate = Some(Rate { burst: 1, per_minute: 1 });
    let mut world = World::new(1, Limits { restarts: rate, ..Limits::default() });
    world.add("demo", spec.clone());
    world.start(0);
    world.until_phase(Phase::Ready);
    world.crash(0, "a");
    world.until(10, |w| w.spawns("a") == 2);
    world.crash(0, "b");
    world.until(10, |w| w.component("b").detail.starts_with("waiting for the host-wide restart budget"));
    assert_eq!(world.state("b"), "Backoff");
    world
}

#[test]
fn a_restart_waits_for_the_host_wide_budget() {
    let mut world = starved(&group("a b"));
    let began = world.now;
    world.until(600, |w| w.spawns("b") == 2);
    assert!(world.now.since(began).as_secs() >= 50);
    world.until_phase(Phase::Ready);
}

#[test]
fn who_no_longer_waits_takes_its_request_back() {
    let returned = |w: &World| last(w).contains(&Action::Return { permit: restart("b") });
    let mut world = starved(&group("a b"));
    world.stop(0);
    assert!(returned(&world), "at a stop");
    world.until_phase(Phase::Parked);

    let mut world = starved(&group("a b"));
    world.declare(group("a"));
    assert!(returned(&world), "when it is removed");
    world.until_phase(Phase::Ready);

    for restarts_it in [true, false] {
        let mut world = starved(&group("a b"));
        if restarts_it {
            world.restart("b")
        } else {
            world.start(0)
        }
        assert!(returned(&world), "when a person starts it");
        assert_eq!(world.spawns("b"), 2);
    }
}

#[test]
fn a_late_grant_goes_back() {
    let mut world = World::with(group("a"));
    world.stop(0);
    world.give(0, Event::Granted { permit: Permit::Start });
    assert_eq!(last(&world), [Action::Return { permit: Permit::Start }]);
    world.start(0);
    world.until_phase(Phase::Ready);
    world.give(0, Event::Granted { permit: Permit::Start });
    assert_eq!(last(&world), [Action::Return { permit: Permit::Start }]);
}

#[test]
fn a_start_that_waits_for_its_permit_can_be_stopped() {
    let limits = Limits { concurrent_starts: Some(1), ..Limits::default() };
    let mut world = World::new(1, limits);
    world.add("waits", group("a"));
    world.add("first", group("a"));
    world.held[1].model.script("a", [Behaviour::never_ready()]);
    world.start(1);
    world.until(10, |w| w.phase(1) == Phase::Starting);
    world.start(0);
    world.until(10, |w| w.view(0).reason == "waiting for the host-wide start budget");
    world.stop(0);
    assert_eq!(last(&world)[0], Action::Return { permit: Permit::Start });
    world.until_phase(Phase::Parked);
    assert_eq!(world.budget.waiting_starts(), 0);
}

#[test]
fn only_a_stable_run_makes_the_next_restart_immediate_again() {
    // Ready for a minute is stable.
    for (serves, least, most) in [(70_000, 70_000, 70_200), (30_000, 30_500, 31_200)] {
        let mut world = World::with(group("a"));
        world.model().script("a", [Behaviour::normal(), Behaviour::serves(serves, 1)]);
        world.start(0);
        world.until_phase(Phase::Ready);
        world.crash(0, "a");
        world.until(10, |w| w.spawns("a") == 2);
        let began = world.now;
        world.until(100, |w| w.spawns("a") == 3);
        let took = world.now.since(began).as_millis();
        assert!((least..most).contains(&took), "{took} ms");
    }
}
