//! Virtual time and the steps.

use super::held::Held;
use super::kernel::{Kernel, Life, RunId};
use super::laws::{self, Violation};
use super::rng::Rng;
use super::run::{Fate, Msg};
use super::shell::{Later, Shell};
use super::spec::name;
use serde::{Deserialize, Serialize};
use socialweb_core::budget::{Budget, Limits};
use socialweb_core::{
    Action, Birth, ComponentView, Event, ExitStatus, Group, GroupName, GroupSpec, GroupView, Permit, Phase, Role, Time,
    Why,
};
use std::collections::BTreeMap;
use std::time::Duration;

/// How answers travel.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Chaos {
    /// Up to so many ms late, so that answers overtake each other.
    pub jitter: u64,
    /// So many in 100 come twice, the second time late.
    pub twice: u64,
    /// So many in 100 never come.
    pub lost: u64,
}

/// The whole host.
pub struct World {
    pub now: Time,
    pub rng: Rng,
    pub held: Vec<Held>,
    pub kernel: Kernel,
    pub budget: Budget,
    limits: Limits,
    granted: laws::Grants,
    pub chaos: Chaos,
    pub violation: Option<Violation>,
    /// Whether groups keep their logs.
    pub keeps: bool,
    queue: BTreeMap<(Time, u64), (usize, Msg)>,
    count: u64,
}

impl World {
    pub fn new(seed: u64, limits: Limits) -> Self {
        World {
            now: Time(1_000),
            rng: Rng(seed),
            held: Vec::new(),
            kernel: Kernel::default(),
            budget: Budget::new(limits),
            limits,
            granted: laws::Grants::default(),
            chaos: Chaos::default(),
            violation: None,
            keeps: true,
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
        self.add_seeded(group, seed, spec)
    }

    pub fn add_seeded(&mut self, group: &str, seed: u64, mut spec: GroupSpec) -> usize {
        let n = self.held.len();
        spec.name = GroupName::new(group).unwrap();
        let held = Held::new(spec.name.clone(), seed, n);
        self.held.push(Held { keeps: self.keeps, ..held });
        self.give(n, Event::Declared { spec: Box::new(spec) });
        n
    }

    /// Processes that an earlier daemon left in a group; no kill works before `until`.
    pub fn survivors(&mut self, n: usize, count: u32, until: Time) {
        self.held[n].model.survivors_until = until;
        let of = RunId { group: n, birth: Birth(0) };
        for _ in 0..count {
            self.kernel.fork(of, of, false, true).ours = false;
        }
    }

    // ---- looking ------------------------------------------------------------------------------------------------

    pub fn group(&self, n: usize) -> &Group {
        &self.held[n].machine
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

    /// How many processes of all groups live.
    pub fn alive(&self) -> usize {
        self.kernel.procs.iter().filter(|p| p.alive()).count()
    }

    pub fn model(&mut self) -> &mut Shell {
        &mut self.held[0].model
    }

    /// Spawns of a component's main program so far.
    pub fn spawns(&self, of: &str) -> usize {
        let is_it =
            |a: &&Action| matches!(a, Action::Spawn { component, role: Role::Main, .. } if component.as_str() == of);
        self.held[0].actions.iter().flatten().filter(is_it).count()
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
        self.send(n, vec![(0, Msg::Kernel(birth, Fate::Dies(ExitStatus::Signal(9))))]);
    }

    /// The kernel ends the leader of a component's latest run, out of memory.
    pub fn out_of_memory(&mut self, n: usize, of: &str) {
        if let Some(id) = self.leader(n, of) {
            self.send(n, vec![(0, Msg::Kernel(id.birth, Fate::OutOfMemory))]);
        }
    }

    fn leader(&mut self, n: usize, of: &str) -> Option<RunId> {
        let model = &self.held[n].model;
        let run = model.latest(&name(of)).filter(|r| !r.removed)?;
        Some(model.id(run.birth))
    }

    /// Freezes the cgroup of a component's latest run.
    pub fn freeze(&mut self, n: usize, of: &str) {
        let there = self.leader(n, of).filter(|id| self.kernel.alive(*id));
        if let Some(home) = there.and_then(|id| self.kernel.homes.get_mut(&id)) {
            home.frozen = true;
        }
    }

    /// Stops the leader of a component's latest run.
    pub fn sigstop(&mut self, n: usize, of: &str) {
        if let Some(p) = self.leader(n, of).and_then(|id| self.kernel.leader_mut(id)).filter(|p| p.alive()) {
            p.life = Life::Stopped;
        }
    }

    /// Nothing is handled for so long; then all of it is late.
    pub fn stall(&mut self, ms: u64) {
        self.now = self.now + Duration::from_millis(ms);
        self.grant();
    }

    /// Nobody is in the way of this group any more.
    pub fn heal(&mut self, n: usize) {
        self.kernel.disk_full = false;
        self.held[n].cut = None;
        self.held[n].model.heal();
    }

    /// Hands one event to a group and performs what it answers.
    pub fn give(&mut self, n: usize, event: Event) {
        if self.violation.is_some() {
            return;
        }
        let held = &mut self.held[n];
        let mut step = held.take(self.now, event, &mut self.kernel);
        self.violation = step.broken.take();
        for action in &step.actions {
            match action {
                Action::Request { permit } => self.budget.request(held.machine.name(), permit.clone()),
                Action::Return { permit } => self.budget.give_back(held.machine.name(), permit),
                _ => {}
            }
        }
        self.send(n, step.out);
        if step.died {
            self.kill_daemon();
        }
        self.grant();
    }

    /// kill -9 of the daemon, and the next one a moment later: what was on its way to the old one is lost.
    pub fn kill_daemon(&mut self) {
        self.queue.retain(|_, (_, msg)| matches!(msg, Msg::Kernel(_, fate) if fate.is_the_kernels()));
        self.kernel.orphan();
        self.budget = Budget::new(self.limits);
        self.granted = laws::Grants::default();
        self.now = self.now + Duration::from_millis(50);
        let first: Vec<_> = self.held.iter_mut().map(|held| held.reborn(&self.kernel)).collect();
        for (n, events) in first.into_iter().enumerate() {
            events.into_iter().for_each(|event| self.give(n, event));
            // What does not start is swept all the same; the answer finds nobody who asked.
            let held = &mut self.held[n];
            if matches!(held.machine.phase(), Phase::Parked | Phase::Absent) {
                let mut later = Later { now: self.now, kernel: &mut self.kernel, out: Vec::new() };
                held.model.sweep(&mut later);
                let out = later.out.into_iter().filter(|(_, msg)| *msg != Msg::Reap).collect();
                self.send(n, out);
            }
        }
    }

    fn grant(&mut self) {
        for (group, permit) in self.budget.grants(self.now) {
            let judged = self.granted.judge(&permit, &self.limits, self.now);
            self.violation = self.violation.take().or(judged.err());
            let Some(n) = self.held.iter().position(|h| h.machine.name() == &group) else { continue };
            let model = &mut self.held[n].model;
            match &permit {
                Permit::Start => (model.start_held, model.queued_at) = (true, None),
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
        let (groups, limits, now) = (self.held.len(), &self.limits, self.now);
        let late = |h: &Held| h.model.queued_at.and_then(|at| laws::waits(groups, at, limits, now).err());
        self.violation = self.violation.take().or_else(|| self.held.iter().find_map(late));
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
        let mut later = Later { now: self.now, kernel: &mut self.kernel, out: Vec::new() };
        let model = &mut self.held[n].model;
        let answer = match msg {
            Msg::Event(event) => Some(event),
            Msg::Kernel(birth, fate) => {
                model.fate(birth, fate, &mut later);
                None
            }
            question => {
                let answer = model.answer(&question, &mut later);
                answer.filter(|event| !(can_be_lost(event) && self.rng.percent(self.chaos.lost)))
            }
        };
        let out = later.out;
        if let Some(event) = answer {
            self.give(n, event);
        }
        self.send(n, out);
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

    /// How long it takes from an act until the first group is in that phase.
    pub fn takes(&mut self, act: impl FnOnce(&mut World), phase: Phase) -> Duration {
        let began = self.now;
        act(self);
        self.until_phase(phase);
        self.now.since(began)
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
