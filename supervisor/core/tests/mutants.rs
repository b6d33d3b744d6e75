//! Broken machines: each breaks one law on purpose, and the check of that name must be the one that reports it. A check
//! that cannot fail is a defect.
#![allow(clippy::unwrap_used)]
mod sim;

use sim::laws::{
    L1, L2, L2_ORDER, L3, L3_REMOVE, L4, L5, L6, L6_BUSY, L6_CANCEL, L6_STOP, L8, L9, L11, L11_PERMIT, L14,
};
use sim::spec::{group, name};
use sim::world::{Machine, Wrong};
use sim::{Behaviour, World};
use socialweb_core::budget::Limits;
use socialweb_core::{Action, Birth, Event, Group, GroupName, Phase, Role, Time, Why};

/// Up, then down, on a broken machine; programs that need the kill, survivors, a path and a port that take time.
fn life(machine: impl Machine + 'static) -> World {
    let mut world = World::new(1, Limits::default());
    world.add_machine(Box::new(machine), 1, group("a b:a c:b"));
    let model = world.model();
    model.survivors = 1;
    model.path_ms = 20;
    model.port_taken = true;
    model.script("b", [Behaviour::leaves_stray()]);
    model.script("a", [Behaviour::serves(2_000, 1), Behaviour::exits(1, 1), Behaviour::exits(1, 1)]);
    world.start(0);
    world.until(10, |_| false);
    world.model().port_taken = false;
    world.until(60, |w| w.phase(0) == Phase::Ready);
    world.until(10, |_| false);
    world.stop(0);
    world.until(120, |w| w.phase(0) == Phase::Parked);
    world
}

fn machine() -> Group {
    Group::new(GroupName::new("demo").unwrap(), 1, Birth(1))
}

fn broken(how: impl FnMut(&mut Group, Time, Event) -> Vec<Action> + 'static) -> World {
    life(Wrong(machine(), how))
}

/// Asserts which law a machine breaks first.
fn check(law: &str, how: impl FnMut(&mut Group, Time, Event) -> Vec<Action> + 'static) {
    let world = broken(how);
    assert_eq!(world.violation.as_ref().map(|v| v.law), Some(law), "{:?}", world.violation);
}

/// Claims to have got an answer that nobody gave.
fn pretend(
    group: &mut Group,
    now: Time,
    mut actions: Vec<Action>,
    lie: &dyn Fn(&Action) -> Option<Event>,
) -> Vec<Action> {
    let lies: Vec<_> = actions.iter().filter_map(lie).collect();
    actions.retain(|a| lie(a).is_none());
    for event in lies {
        let more = group.handle(now, event);
        actions.extend(pretend(group, now, more, lie));
    }
    actions
}

#[test]
fn an_honest_machine_breaks_none() {
    let world = life(machine());
    assert_eq!(world.violation, None);
    // One for what the sweep found, one for the stop.
    let receipts = &world.held[0].receipts;
    assert_eq!((world.phase(0), receipts.len()), (Phase::Parked, 2));
    assert_eq!((&receipts[0].why, receipts[0].components.len()), (&Why::Survivors, 0));
    assert!(!receipts[0].strays.is_empty() && receipts[1].strays.is_empty());
}

#[test]
fn one_that_spawns_before_needs_are_ready_breaks_l1() {
    check(L1, |group, now, event| {
        let mut actions = group.handle(now, event);
        if let Some(at) =
            actions.iter().position(|a| matches!(a, Action::Spawn { component, .. } if *component == name("a")))
        {
            actions.insert(at, Action::Spawn { component: name("c"), birth: Birth(99), role: Role::Main });
        }
        actions
    });
}

#[test]
fn one_that_signals_the_next_rank_early_breaks_l2() {
    check(L2, |group, now, event| {
        let mut actions = group.handle(now, event);
        let stops =
            matches!(group.phase(), Phase::Stopping) && actions.iter().any(|a| matches!(a, Action::Signal { .. }));
        for c in group.view().components.into_iter().filter(|c| stops && c.state == "Ready") {
            actions.push(Action::Signal { component: c.name, birth: c.birth.unwrap(), signal: 15 });
        }
        actions
    });
}

#[test]
fn one_that_lists_its_stop_in_another_order_breaks_l2() {
    for drop_one in [false, true] {
        check(L2_ORDER, move |group, now, event| {
            let mut actions = group.handle(now, event);
            for action in &mut actions {
                if let Action::Receipt { receipt } = action
                    && !receipt.components.is_empty()
                {
                    receipt.components.reverse();
                    drop_one.then(|| receipt.components = vec![receipt.components[2].clone()]);
                }
            }
            actions
        });
    }
}

#[test]
fn one_that_writes_its_receipt_early_breaks_l3() {
    check(L3, |group, now, event| {
        let mut actions = group.handle(now, event);
        if group.phase() == Phase::Stopping {
            let receipt = socialweb_core::Receipt {
                schema: 1,
                group: group.name().clone(),
                generation: 1,
                why: Why::Operator,
                began: now,
                ended: now,
                elapsed_ms: 0,
                path_shut: true,
                components: vec![],
                strays: vec![],
                removed: true,
            };
            actions.push(Action::Receipt { receipt: Box::new(receipt) });
        }
        actions
    });
}

#[test]
fn one_that_stops_only_leaders_breaks_l3() {
    check(L3, |group, now, event| {
        // As if an exit of the leader were the end of all.
        let actions = group.handle(now, event);
        pretend(group, now, actions, &|action| match action {
            Action::AwaitEmpty { component, birth } | Action::KillCgroup { component, birth } => {
                Some(Event::CgroupEmpty { component: component.clone(), birth: *birth, reaped: vec![] })
            }
            Action::RemoveCgroup { component, birth } => {
                Some(Event::CgroupRemoved { component: component.clone(), birth: *birth })
            }
            Action::RemoveGroup => Some(Event::GroupRemoved),
            _ => None,
        })
    });
}

#[test]
fn one_that_does_not_wait_for_its_leader_breaks_l3() {
    check(L3_REMOVE, |group, now, event| {
        let mut actions = group.handle(now, event);
        let signalled = actions.iter().find_map(|a| match a {
            Action::Signal { component, birth, .. } => Some((component.clone(), *birth)),
            _ => None,
        });
        actions.extend(signalled.map(|(component, birth)| Action::RemoveCgroup { component, birth }));
        actions
    });
}

#[test]
fn one_that_does_not_sweep_breaks_l4() {
    check(L4, |group, now, event| {
        let actions = group.handle(now, event);
        let lie = |a: &Action| matches!(a, Action::ReapSurvivors).then_some(Event::SurvivorsReaped { found: vec![] });
        pretend(group, now, actions, &lie)
    });
}

#[test]
fn one_that_signals_an_earlier_run_breaks_l5() {
    check(L5, |group, now, event| {
        let mut actions = group.handle(now, event);
        for action in &mut actions {
            if let Action::Signal { component, birth, .. } = action
                && *component == name("a")
            {
                *birth = Birth(1);
            }
        }
        actions
    });
}

struct Deaf(Group, fn(&Group) -> Option<Time>);

impl Machine for Deaf {
    fn handle(&mut self, now: Time, event: Event) -> Vec<Action> {
        if event == Event::Tick { Vec::new() } else { self.0.handle(now, event) }
    }
    fn group(&self) -> &Group {
        &self.0
    }
    fn next_deadline(&self) -> Option<Time> {
        (self.1)(&self.0)
    }
}

#[test]
fn one_without_deadlines_or_with_one_that_leads_nowhere_breaks_l6() {
    let law = |deadline: fn(&Group) -> Option<Time>| life(Deaf(machine(), deadline)).violation.unwrap().law;
    assert_eq!(law(|_| None), L6);
    assert_eq!(law(Group::next_deadline), L6_BUSY);
}

#[test]
fn one_that_goes_on_starting_while_it_stops_breaks_l6() {
    check(L6_CANCEL, |group, now, event| {
        let mut actions = group.handle(now, event);
        if group.phase() == Phase::Draining {
            actions.push(Action::Spawn { component: name("c"), birth: Birth(99), role: Role::Main });
        }
        actions
    });
}

#[test]
fn one_that_never_kills_breaks_the_bound_of_a_stop() {
    let machine = Wrong(machine(), |group: &mut Group, now, event| {
        let mut actions = group.handle(now, event);
        actions.retain(|a| !matches!(a, Action::KillCgroup { .. }));
        actions
    });
    let mut world = World::new(1, Limits::default());
    world.add_machine(Box::new(machine), 1, group("a"));
    world.model().script("a", [Behaviour::ignores_term()]);
    world.start(0);
    world.until(60, |w| w.phase(0) == Phase::Ready);
    sim::drive::end(&mut world, 0);
    assert_eq!(world.violation.unwrap().law, L6_STOP);
}

#[test]
fn one_that_does_not_shut_the_path_breaks_l8() {
    check(L8, |group, now, event| {
        let actions = group.handle(now, event);
        let mut actions = pretend(group, now, actions, &|a| matches!(a, Action::ShutPath).then_some(Event::PathShut));
        // Asked all the same, so that only the wait is missing.
        if group.phase() == Phase::Stopping {
            actions.insert(0, Action::ShutPath);
        }
        actions
    });
}

#[test]
fn one_that_starts_on_a_taken_port_breaks_l9() {
    check(L9, |group, now, event| match event {
        Event::LeaseTaken { .. } => group.handle(now, Event::LeasesGranted),
        event => group.handle(now, event),
    });
}

#[test]
fn one_that_restarts_without_a_wait_breaks_l11() {
    let machine = Wrong(machine(), |group: &mut Group, now, event| {
        let ended = matches!(event, Event::CgroupRemoved { .. });
        let mut actions = group.handle(now, event);
        if ended {
            actions.extend(group.handle(now, Event::Start { why: Why::Operator }));
        }
        actions
    });
    let mut world = World::new(1, Limits::default());
    world.add_machine(Box::new(machine), 1, group("a"));
    world.model().script("a", vec![Behaviour::exits(1, 1); 50]);
    world.start(0);
    world.until(60, |_| false);
    assert_eq!(world.violation.unwrap().law, L11);
}

#[test]
fn one_that_keeps_its_permits_breaks_l11() {
    check(L11_PERMIT, |group, now, event| {
        let mut actions = group.handle(now, event);
        actions.retain(|a| !matches!(a, Action::Return { .. }));
        actions
    });
}

#[test]
fn one_that_claims_to_be_ready_or_to_have_seen_the_path_shut_breaks_l14() {
    check(L14, |group, now, event| {
        let mut actions = group.handle(now, event);
        for action in &mut actions {
            if let Action::Publish { view } = action {
                view.components.iter_mut().filter(|c| c.state == "Starting").for_each(|c| c.state = "Ready".into());
            }
        }
        actions
    });
    check(L14, |group, now, event| {
        let mut actions = group.handle(now, event);
        for action in &mut actions {
            if let Action::Publish { view } = action {
                view.phase = Phase::Ready;
            }
        }
        actions
    });
}
