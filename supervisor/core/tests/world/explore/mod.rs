//! Every state that a group of two components can reach, with whatever the host, the programs and the people do next: messages
//! that are on their way arrive in any order, late or never, deadlines pass before or after, the daemon is killed anywhere.
//!
//! Bounds: one group; what is asked for again while it is on its way is asked for once; the questions of the group are answered
//! in their order; a permit of the host comes before the next deadline. Two states are the same when
//! [`Group::canonical`](socialweb_core::Group::canonical) and what the host knows beside it are the same.

mod key;
mod node;

use crate::sim::behave::{Behaviour, Stray};
use crate::sim::spec::{edit, group, liveness, task};
use key::label;
use node::{Choice, Node};
use socialweb_core::spec::Liveness;
use socialweb_core::{GroupSpec, Kind, Phase, Restart};
use std::collections::{HashMap, VecDeque};
use std::time::Duration;

/// One tick of everything that a spec can set, so that few combinations of deadlines exist. The same as the machine's own wait
/// before it asks again.
const UNIT: Duration = Duration::from_secs(5);
const FAR: Duration = Duration::from_secs(1_000_000);

/// Where a state was reached from, and by which of the choices there.
type Parent = (u32, u16);

#[derive(Debug, Default)]
struct Space {
    parents: Vec<Parent>,
    edges: Vec<(u32, u32)>,
    parked: Vec<u32>,
}

/// Visits every state; panics with the way to the first one that breaks a law.
fn explore(spec: &GroupSpec, every: Behaviour, at_most: usize) -> Space {
    let root = Node::new(spec, every);
    let mut space = Space { parents: vec![(0, 0)], ..Space::default() };
    let mut seen: HashMap<String, u32> = HashMap::from([(root.key(), 0)]);
    let mut todo = VecDeque::from([(0u32, root.clone())]);
    while let Some((from, node)) = todo.pop_front() {
        if matches!(node.held.machine.phase(), Phase::Parked | Phase::Absent) {
            space.parked.push(from);
        }
        for (n, choice) in node.choices().into_iter().enumerate() {
            let mut next = node.clone();
            if let Err(broken) = next.apply(choice) {
                panic!("{:#?}\n{choice:?} breaks {broken:?}", way(&root, &space.parents, from));
            }
            let new = seen.len() as u32;
            let to = *seen.entry(next.key()).or_insert(new);
            space.edges.push((from, to));
            if to == new {
                space.parents.push((from, n as u16));
                todo.push_back((to, next));
                assert!(seen.len() <= at_most, "the space does not close: {:#?}", way(&root, &space.parents, to));
            }
        }
    }
    space
}

/// What was chosen from the first state to this one.
fn way(root: &Node, parents: &[Parent], to: u32) -> Vec<String> {
    let mut steps = Vec::new();
    let mut at = to;
    while at != 0 {
        let (from, n) = parents[at as usize];
        steps.push(n);
        at = from;
    }
    let mut node = root.clone();
    let told = steps.into_iter().rev().map(|n| {
        let choice = node.choices()[n as usize];
        let what = match choice {
            Choice::Arrives(at, other) => {
                format!("{}{}", label(&node.pool[at], &node), if other { " otherwise" } else { "" })
            }
            choice => format!("{choice:?}"),
        };
        let _ = node.apply(choice);
        format!("{what} -> {}", node.key())
    });
    told.collect()
}

impl Space {
    /// States from which no way leads to a group that is down: traps.
    fn traps(&self) -> usize {
        let mut into: Vec<Vec<u32>> = vec![Vec::new(); self.parents.len()];
        self.edges.iter().for_each(|(from, to)| into[*to as usize].push(*from));
        let mut reached = vec![false; self.parents.len()];
        let mut todo = self.parked.clone();
        while let Some(at) = todo.pop() {
            if !std::mem::replace(&mut reached[at as usize], true) {
                todo.extend(&into[at as usize]);
            }
        }
        reached.iter().filter(|reached| !**reached).count()
    }
}

/// Services whose every wait is one unit long, and no wait has a jitter.
fn units(shape: &str) -> GroupSpec {
    let mut spec = group(shape);
    for c in &mut spec.components {
        (c.readiness.deadline, c.readiness.cap) = (UNIT, UNIT);
        (c.stop.grace, c.stop.grace_restart, c.stop.kill_wait) = (UNIT, UNIT, UNIT);
        (c.backoff.stable, c.backoff.give_up, c.backoff.limit) = (UNIT, UNIT, 2);
    }
    (spec.bringup.no_progress, spec.bringup.cap, spec.bringup.retry) = (FAR, FAR, Duration::ZERO);
    spec
}

/// A program that can do anything next: exec or not, get ready or not, end at any moment, heed TERM or not.
fn free() -> Behaviour {
    Behaviour { exits: Some((0, 1)), ..Behaviour::normal() }
}

fn check(spec: &GroupSpec, every: Behaviour, least: usize, most: usize) {
    let space = explore(spec, every, most);
    println!("{} states, {} steps", space.parents.len(), space.edges.len());
    assert!(space.parents.len() >= least, "only {} states: the model lost its freedom", space.parents.len());
    assert_eq!(space.traps(), 0, "states from which the group never comes down");
}

/// The bigger spaces take minutes.
fn is_full(test: &str) -> bool {
    let full = std::env::var_os("SOCIALWEB_FULL").is_some();
    if !full {
        println!("SKIP: {test}: long: only with --full");
    }
    full
}

#[test]
fn every_state_of_two_components_is_lawful() {
    check(&units("a b:a"), free(), 50_000, 400_000);
}

#[test]
fn every_state_of_two_components_side_by_side_is_lawful() {
    if is_full("core::every_state_of_two_components_side_by_side_is_lawful") {
        check(&units("a b"), free(), 50_000, 2_000_000);
    }
}

#[test]
fn every_state_of_a_component_with_tasks_liveness_and_a_stray_is_lawful() {
    let spec = edit(&units("a"), "a", |a| {
        (a.pre, a.post) = (vec![task()], vec![task()]);
        a.pre.iter_mut().chain(&mut a.post).for_each(|task| task.timeout = UNIT);
        a.liveness = Some(Liveness { failures: 1, ..liveness() });
    });
    let every = Behaviour { hangs: Some(0), stray: Stray::Own, ..free() };
    check(&spec, every, 1_000, 400_000);
}

#[test]
fn every_state_of_a_one_shot_and_who_needs_it_is_lawful() {
    if is_full("core::every_state_of_a_one_shot_and_who_needs_it_is_lawful") {
        let spec = edit(&units("a b:a"), "a", |a| a.kind = Kind::OneShot);
        check(&edit(&spec, "b", |b| b.restart = Restart::WithDependents), free(), 10_000, 2_000_000);
    }
}
