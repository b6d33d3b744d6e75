//! Starting, Ready and Degraded: who may start, who must go down, what the end of a run means.

use super::clock::due;
use super::{Group, GroupState};
use crate::action::{Action, Permit, Role};
use crate::component::{Component, Down, State, Verdict};
use crate::event::Why;
use crate::mutant;
use crate::name::{Birth, ComponentName};
use crate::spec::{ComponentSpec, Kind, Restart};
use crate::time::Time;

impl Group {
    pub(super) fn settle(&mut self, now: Time, out: &mut Vec<Action>) {
        match self.state {
            GroupState::Running { .. } => self.settle_running(now, out),
            GroupState::Stopping(_) => self.settle_stopping(now, out),
            _ => {}
        }
    }

    /// Two phases: first what goes down, then what may come up; no component acts on a half-settled neighbour.
    pub(super) fn settle_running(&mut self, now: Time, out: &mut Vec<Action>) {
        self.lower(now, out);
        self.release(now);
        let falling = self.falling();
        let startable: Vec<_> = self
            .components
            .values()
            .filter(|c| {
                matches!(c.state, State::Idle)
                    && c.down.is_none()
                    && (self.unmet(c).is_empty() || mutant!("l1-ignores-needs"))
            })
            // With dependents: they are down before it comes up again.
            .filter(|c| c.spec.restart != Restart::WithDependents || self.dependents(c.name()).is_disjoint(&falling))
            .map(|c| c.name().clone())
            .collect();
        for name in startable {
            let first = first_role(&self.components[&name].spec);
            self.spawn(&name, first, None, now, out);
        }
        self.settle_readiness(out);
    }

    /// Begins the ladder of each component that must go down, once those that need it and go down too are gone.
    fn lower(&mut self, now: Time, out: &mut Vec<Action>) {
        let falling = self.falling();
        let down: Vec<_> = self.components.values().filter(|c| c.down.is_some()).map(|c| c.name().clone()).collect();
        for name in down {
            let first = self.dependents(&name).is_disjoint(&falling);
            let Some(c) = self.components.get_mut(&name) else { continue };
            match &c.state {
                // Post tasks run after every end, this one too; their own timeout bounds them.
                State::Post { .. } | State::Idle => {}
                _ if !c.has_run() => {
                    withdraw(c, now, out);
                    c.enter(State::Idle, now);
                }
                _ if first => c.begin_ending(Verdict::Down, now, out),
                _ => {}
            }
        }
    }

    /// A component that is down for a cycle may come up again, with the newest spec; its needs hold it back if they are on
    /// their way down too. One that is no longer declared is forgotten.
    fn release(&mut self, now: Time) {
        for c in self.components.values_mut().filter(|c| c.down == Some(Down::Cycle) && !c.has_run()) {
            c.down = None;
            if let Some(next) = c.next.take() {
                c.spec = next;
            }
            c.restarts += 1;
            c.enter(State::Idle, now);
        }
        self.components.retain(|_, c| c.down != Some(Down::Removed) || c.has_run());
    }

    pub(super) fn settle_readiness(&mut self, out: &mut Vec<Action>) {
        let all = self.components.values().all(|c| c.is_ready() && c.down.is_none());
        let GroupState::Running { was_ready, .. } = &mut self.state else { return };
        if all && !*was_ready {
            *was_ready = true;
            self.gave_up = 0;
            self.return_permit(out);
        }
    }

    pub(super) fn spawn(
        &mut self,
        name: &ComponentName,
        role: Role,
        verdict: Option<Verdict>,
        now: Time,
        out: &mut Vec<Action>,
    ) {
        let birth = Birth(self.next_birth);
        self.next_birth += 1;
        let Some(c) = self.components.get_mut(name) else { return };
        let run = crate::component::Run { birth, role, pid: None };
        let state = match (role, verdict) {
            (Role::Pre(n), _) => State::Pre { run, deadline: now + c.spec.pre[n].timeout },
            (Role::Post(n), Some(verdict)) => State::Post { run, deadline: now + c.spec.post[n].timeout, verdict },
            _ => {
                let (deadline, cap) = (now + c.spec.readiness.deadline, now + c.spec.readiness.cap);
                State::Starting { run, deadline: deadline.min(cap), cap }
            }
        };
        c.enter(state, now);
        out.push(Action::Spawn { component: name.clone(), birth, role });
        self.progressed(now);
    }

    /// The run's cgroup is gone: what comes next for its component.
    pub(super) fn run_gone(&mut self, name: &ComponentName, now: Time, out: &mut Vec<Action>) {
        let running = matches!(self.state, GroupState::Running { .. });
        let met = self.components.get(name).is_some_and(|c| self.unmet(c).is_empty());
        let Some(c) = self.components.get_mut(name) else { return };
        // Only an rmdir that was asked for can have worked: the leader was waited for, the cgroup seen empty (law L3).
        let State::Ending(ending) = &c.state else { return };
        if !ending.remove_asked {
            return;
        }
        let ending = ending.clone();
        let role = ending.run.role;
        c.note_end(&ending, now);
        c.enter(State::Idle, now);
        let goes_on = running && c.down.is_none() || mutant!("l6-a-stop-does-not-cancel-the-start");
        let verdict = if goes_on { ending.verdict } else { downed(ending.verdict) };
        let next = match (role, &verdict) {
            // A need went away meanwhile: from the first task once more when it is back (law L1).
            (Role::Pre(_), Verdict::Next) if !met && !mutant!("l1-a-pre-task-outlives-its-need") => None,
            (Role::Pre(n), Verdict::Next) if n + 1 < c.spec.pre.len() => Some(Role::Pre(n + 1)),
            (Role::Pre(_), Verdict::Next) => Some(Role::Main),
            (Role::Main, _) if !c.spec.post.is_empty() => Some(Role::Post(0)),
            (Role::Post(n), _) if n + 1 < c.spec.post.len() => Some(Role::Post(n + 1)),
            _ => None,
        };
        match next {
            Some(role) => self.spawn(name, role, Some(verdict), now, out),
            None => self.conclude(name, verdict, now, out),
        }
    }

    /// All of a component's programs are through: what their end means.
    pub(super) fn conclude(&mut self, name: &ComponentName, verdict: Verdict, now: Time, out: &mut Vec<Action>) {
        let Some(c) = self.components.get_mut(name) else { return };
        match verdict {
            _ if c.down.is_some() => c.enter(State::Idle, now),
            Verdict::Down | Verdict::Next => c.enter(State::Idle, now),
            Verdict::Success => {
                c.failures = 0;
                c.detail.clear();
                c.enter(State::Done, now);
                self.progressed(now);
            }
            Verdict::Failure(why) => self.failed(name, why, now, out),
        }
    }

    pub(super) fn failed(&mut self, name: &ComponentName, why: String, now: Time, out: &mut Vec<Action>) {
        let jitter = self.jitter();
        let running = matches!(self.state, GroupState::Running { .. });
        let was_ready = matches!(self.state, GroupState::Running { was_ready: true, .. });
        let Some(c) = self.components.get_mut(name) else { return };
        c.detail = why.clone();
        c.failures += 1;
        c.missed = 0;
        let (restart, mut limit) = (c.spec.restart, c.spec.backoff.limit.max(1));
        if mutant!("l11-never-gives-up") {
            limit = u32::MAX;
        }
        if !running {
            c.enter(State::Idle, now);
            return;
        }
        if restart == Restart::Never {
            c.enter(State::Failed { until: None }, now);
            if !was_ready {
                self.give_up(format!("component {name} failed and is never restarted: {why}"), now, out);
            }
            return;
        }
        if restart == Restart::StopGroup {
            c.enter(State::Idle, now);
            self.why = Why::ComponentEnded(name.clone());
            self.wanted = false;
            self.begin_stop(now, out);
            return;
        }
        if c.failures >= limit && !was_ready {
            c.enter(State::Idle, now);
            self.give_up(format!("component {name} failed {limit} times in a row: {why}"), now, out);
            return;
        }
        let state = match c.failures >= limit {
            true => State::Failed { until: Some(now + c.spec.backoff.give_up) },
            false => State::Backoff { until: now + c.backoff(jitter) },
        };
        c.enter(state, now);
        if c.next_deadline().is_some_and(|d| d <= now) {
            due(c, now, out);
        }
        if restart == Restart::WithDependents {
            self.cycle_dependents(name, now);
        }
    }

    pub(super) fn cycle_dependents(&mut self, name: &ComponentName, now: Time) {
        for name in self.dependents(name) {
            if let Some(c) = self.components.get_mut(&name) {
                cycle_component(c, now);
            }
        }
    }

    pub(super) fn restart_granted(&mut self, name: &ComponentName, now: Time, out: &mut Vec<Action>) {
        if let Some(c) = self.components.get_mut(name)
            && let State::Permit { twice, .. } = c.state
        {
            if twice && !mutant!("l11-asks-twice-and-takes-two") {
                // The first answer was only late: the second request would take another's permit.
                out.push(Action::Return { permit: Permit::Restart(name.clone()) });
            }
            c.restarts += 1;
            c.enter(State::Idle, now);
        }
    }

    pub(super) fn give_up(&mut self, what: String, now: Time, out: &mut Vec<Action>) {
        self.gave_up += 1;
        self.why = Why::GaveUp(what);
        self.begin_stop(now, out);
    }

    pub(super) fn progressed(&mut self, now: Time) {
        if let GroupState::Running { progress, .. } = &mut self.state {
            *progress = now;
        }
    }
}

pub(super) fn first_role(spec: &ComponentSpec) -> Role {
    if spec.pre.is_empty() { Role::Main } else { Role::Pre(0) }
}

pub(super) fn downed(verdict: Verdict) -> Verdict {
    match verdict {
        Verdict::Next => Verdict::Down,
        other => other,
    }
}

/// Takes back a request for the restart budget that nobody needs any more.
pub(super) fn withdraw(c: &mut Component, now: Time, out: &mut Vec<Action>) {
    if matches!(c.state, State::Permit { .. }) && !mutant!("l11-keeps-its-request-for-a-restart") {
        out.push(Action::Return { permit: Permit::Restart(c.name().clone()) });
        c.enter(State::Idle, now);
    }
}

/// An operator's start or a changed spec: no more waiting, no old count.
pub(super) fn clear_waits(c: &mut Component, now: Time, out: &mut Vec<Action>) {
    c.failures = 0;
    withdraw(c, now, out);
    if matches!(c.state, State::Backoff { .. } | State::Failed { .. }) {
        c.enter(State::Idle, now);
    }
}

/// Down and up again. What waits for its next try anyway, or ended for good, is left alone; a one-shot runs once more.
pub(super) fn cycle_component(c: &mut Component, now: Time) {
    if c.down.is_some() {
        return;
    }
    if c.has_run() {
        c.down = Some(Down::Cycle);
    } else if matches!(c.state, State::Done) && c.spec.kind == Kind::OneShot {
        c.enter(State::Idle, now);
    }
}
