//! Virtual time and the steps.

use super::laws::{self, Memory, Violation};
use super::model::{Later, Model, Msg};
use super::rng::Rng;
use super::spec::name;
use socialweb_core::budget::{Budget, Limits};
use socialweb_core::record::{self, Entry, Header};
use socialweb_core::{
    Action, Birth, ComponentView, Event, Group, GroupName, GroupSpec, GroupView, Permit, Phase, Receipt, Time, Why,
};
use std::collections::BTreeMap;
use std::time::Duration;

/// Something that acts like a group; a broken one proves that a law is checked.
pub trait Machine {
    fn handle(&mut self, now: Time, event: Event) -> Vec<Action>;
    fn group(&self) -> &Group;
    fn next_deadline(&self) -> Option<Time> {
        self.group().next_deadline()
    }
}

impl Machine for Group {
    fn handle(&mut self, now: Time, event: Event) -> Vec<Action> {
        Group::handle(self, now, event)
    }
    fn group(&self) -> &Group {
        self
    }
}

/// A group whose actions somebody tampers with.
pub struct Wrong<F>(pub Group, pub F);

impl<F: FnMut(&mut Group, Time, Event) -> Vec<Action>> Machine for Wrong<F> {
    fn handle(&mut self, now: Time, event: Event) -> Vec<Action> {
        (self.1)(&mut self.0, now, event)
    }
    fn group(&self) -> &Group {
        &self.0
    }
}

/// How answers travel.
#[derive(Debug, Clone, Copy, Default)]
pub struct Chaos {
    /// Up to so many ms late, so that answers overtake each other.
    pub jitter: u64,
    /// So many in 100 come twice, the second time late.
    pub twice: u64,
    /// So many in 100 never come.
    pub lost: u64,
}

/// One group and its part of the host.
pub struct Held {
    pub machine: Box<dyn Machine>,
    pub model: Model,
    pub memory: Memory,
    pub seed: u64,
    pub log: Vec<Entry>,
    pub actions: Vec<Vec<Action>>,
    pub receipts: Vec<Receipt>,
}

/// The whole host.
pub struct World {
    pub now: Time,
    pub rng: Rng,
    pub held: Vec<Held>,
    pub budget: Budget,
    pub chaos: Chaos,
    pub violation: Option<Violation>,
    queue: BTreeMap<(Time, u64), (usize, Msg)>,
    count: u64,
}

impl World {
    pub fn new(seed: u64, limits: Limits) -> Self {
        World {
            now: Time(1_000),
            rng: Rng(seed),
            held: Vec::new(),
            budget: Budget::new(limits),
            chaos: Chaos::default(),
            violation: None,
            queue: BTreeMap::new(),
            count: 0,
        }
    }

    /// A host with one group, declared.
    pub fn with(spec: GroupSpec) -> Self {
        let mut world = World::new(1, Limits::default());
        world.add("demo", spec);
        world
    }

    pub fn add(&mut self, group: &str, spec: GroupSpec) -> usize {
        let seed = self.rng.next();
        let machine = Group::new(GroupName::new(group).unwrap(), seed, Birth(1));
        self.add_machine(Box::new(machine), seed, spec)
    }

    pub fn add_machine(&mut self, machine: Box<dyn Machine>, seed: u64, mut spec: GroupSpec) -> usize {
        let (model, memory) = (Model::default(), Memory::default());
        spec.name = machine.group().name().clone();
        let (log, actions, receipts) = (Vec::new(), Vec::new(), Vec::new());
        self.held.push(Held { machine, model, memory, seed, log, actions, receipts });
        let n = self.held.len() - 1;
        self.give(n, Event::Declared { spec: Box::new(spec) });
        n
    }

    // ---- looking ------------------------------------------------------------------------------------------------

    pub fn group(&self, n: usize) -> &Group {
        self.held[n].machine.group()
    }

    pub fn phase(&self, n: usize) -> Phase {
        self.group(n).phase()
    }

    pub fn view(&self, n: usize) -> GroupView {
        self.group(n).view()
    }

    pub fn component(&self, of: &str) -> ComponentView {
        self.view(0).components.into_iter().find(|c| c.name.as_str() == of).unwrap()
    }

    pub fn state(&self, of: &str) -> String {
        self.view(0).components.into_iter().find(|c| c.name.as_str() == of).map_or("-".into(), |c| c.state)
    }

    pub fn model(&mut self) -> &mut Model {
        &mut self.held[0].model
    }

    /// Spawns of a component's main program so far.
    pub fn spawns(&self, of: &str) -> usize {
        let is_it = |a: &&Action| matches!(a, Action::Spawn { component, role, .. } if component.as_str() == of && *role == socialweb_core::Role::Main);
        self.held[0].actions.iter().flatten().filter(is_it).count()
    }

    /// The events of group `n` as a log that can be replayed.
    pub fn record(&self, n: usize) -> String {
        let held = &self.held[n];
        let group = held.machine.group().name().clone();
        let header = Header { schema: record::SCHEMA, group, seed: held.seed, first_birth: Birth(1), generation: 0 };
        let mut text = serde_json::to_string(&header).unwrap() + "\n";
        for entry in &held.log {
            text += &(serde_json::to_string(entry).unwrap() + "\n");
        }
        text
    }

    // ---- acting -------------------------------------------------------------------------------------------------

    pub fn start(&mut self, n: usize) {
        self.give(n, Event::Start { why: Why::Operator });
    }

    pub fn stop(&mut self, n: usize) {
        self.give(n, Event::Stop { why: Why::Operator });
    }

    pub fn restart(&mut self, of: &str) {
        self.give(0, Event::Restart { component: Some(name(of)), why: Why::Operator });
    }

    pub fn declare(&mut self, spec: GroupSpec) {
        self.give(0, Event::Declared { spec: Box::new(spec) });
    }

    /// Kills the leader of a component's latest run from outside.
    pub fn crash(&mut self, n: usize, of: &str) {
        let Some(birth) = self.held[n].model.latest(&name(of)).map(|r| r.birth) else { return };
        let status = socialweb_core::ExitStatus::Signal(9);
        self.send(n, vec![(0, Msg::Kernel(birth, super::model::Kernel::Dies(status)))]);
    }

    /// Hands one event to a group and performs what it answers.
    pub fn give(&mut self, n: usize, event: Event) {
        let tick = event == Event::Tick;
        if self.violation.is_some() {
            return;
        }
        let held = &mut self.held[n];
        held.log.push(Entry { at: self.now, event: event.clone() });
        laws::hear(&mut held.model, &mut held.memory, held.machine.group(), &event);
        let actions = held.machine.handle(self.now, event);
        let mut later = Later { now: self.now, rng: &mut self.rng, out: Vec::new() };
        for action in &actions {
            let group = held.machine.group();
            let judged = laws::judge(&mut held.model, &mut held.memory, group, action, self.now);
            self.violation = self.violation.take().or(judged.err());
            held.model.perform(action, group, &mut later);
            match action {
                Action::Request { permit } => self.budget.request(group.name(), permit.clone()),
                Action::Return { permit } => self.budget.give_back(group.name(), permit),
                Action::Receipt { receipt } => held.receipts.push((**receipt).clone()),
                _ => {}
            }
        }
        held.actions.push(actions);
        let deadline = held.machine.next_deadline();
        let rested = laws::rest(&held.model, &mut held.memory, held.machine.group(), deadline, tick, self.now);
        self.violation = self.violation.take().or(rested.err());
        let out = later.out;
        self.send(n, out);
        self.grant();
    }

    fn grant(&mut self) {
        for (group, permit) in self.budget.grants(self.now) {
            let Some(n) = self.held.iter().position(|h| h.machine.group().name() == &group) else { continue };
            let model = &mut self.held[n].model;
            match &permit {
                Permit::Start => (model.start_held, model.start_queued) = (true, false),
                Permit::Restart(c) => drop(model.restarts_queued.remove(c)),
            }
            self.send(n, vec![(0, Msg::Event(Event::Granted { permit }))]);
        }
    }

    fn send(&mut self, n: usize, msgs: Vec<(u64, Msg)>) {
        for (ms, msg) in msgs {
            let late = 1 + self.rng.below(self.chaos.jitter + 1);
            if let Msg::Event(event) = &msg {
                if can_be_lost(event) && self.rng.percent(self.chaos.lost) {
                    continue;
                }
                if event.birth().is_some() && self.rng.percent(self.chaos.twice) {
                    let again = late + self.rng.below(20_000);
                    self.push(again, n, msg.clone());
                }
            }
            self.push(ms + late, n, msg);
        }
    }

    fn push(&mut self, ms: u64, n: usize, msg: Msg) {
        self.count += 1;
        self.queue.insert((self.now + Duration::from_millis(ms), self.count), (n, msg));
    }

    /// The next thing that happens; false when nothing ever will.
    pub fn step(&mut self) -> bool {
        let queued = self.queue.keys().next().map(|(at, _)| *at);
        let due = (0..self.held.len()).filter_map(|n| Some((self.held[n].machine.next_deadline()?, n))).min();
        let budget = self.budget.next_deadline();
        let Some(next) = queued.into_iter().chain(due.map(|d| d.0)).chain(budget).min() else { return false };
        if self.violation.is_some() {
            return false;
        }
        self.now = self.now.max(next);
        if queued == Some(next)
            && let Some((_, (n, msg))) = self.queue.pop_first()
        {
            self.arrive(n, msg);
        } else if let Some((at, n)) = due
            && at <= self.now
        {
            self.give(n, Event::Tick);
        } else {
            self.grant();
        }
        true
    }

    fn arrive(&mut self, n: usize, msg: Msg) {
        match msg {
            Msg::Event(event) => self.give(n, event),
            Msg::Kernel(birth, kernel) => {
                let mut later = Later { now: self.now, rng: &mut self.rng, out: Vec::new() };
                self.held[n].model.kernel(birth, kernel, &mut later);
                let out = later.out;
                self.send(n, out);
            }
            question => {
                let now = self.now;
                if let Some(event) = self.held[n].model.answer(&question, now)
                    && !(can_be_lost(&event) && self.rng.percent(self.chaos.lost))
                {
                    self.give(n, event);
                }
            }
        }
    }

    /// Steps until `done`, for at most so many seconds of virtual time.
    pub fn until(&mut self, seconds: u64, mut done: impl FnMut(&World) -> bool) -> bool {
        let end = self.now + Duration::from_secs(seconds);
        while !done(self) {
            if self.now > end || !self.step() {
                return false;
            }
        }
        true
    }

    /// Steps until nothing is left that happens within so many seconds.
    pub fn run(&mut self, seconds: u64) {
        let end = self.now + Duration::from_secs(seconds);
        self.until(seconds, |w| w.now >= end);
        self.now = self.now.max(end);
        self.lawful();
    }

    pub fn until_phase(&mut self, phase: Phase) {
        let reached = self.until(7_200, |w| w.phase(0) == phase);
        self.lawful();
        assert!(reached, "never {}: {:#?}", phase.as_str(), self.view(0));
    }

    pub fn until_state(&mut self, of: &str, state: &str) {
        let reached = self.until(7_200, |w| w.state(of) == state);
        self.lawful();
        assert!(reached, "{of} never {state}: {:#?}", self.view(0));
    }

    /// Fails when a law was broken.
    pub fn lawful(&self) {
        assert_eq!(self.violation, None);
    }
}

/// Exits and failed spawns are the kernel's own word and are not lost; neither is what nobody asks for again.
fn can_be_lost(event: &Event) -> bool {
    !matches!(event, Event::Exited { .. } | Event::SpawnFailed { .. })
}
