//! What the source says: a new spec, and how it reaches a group that runs.

use super::answers::became_ready;
use super::running::clear_waits;
use super::{Group, GroupState};
use crate::action::{Action, ProbeUse};
use crate::component::{Component, Down, State};
use crate::event::Why;
use crate::mutant;
use crate::name::{ComponentName, Rank};
use crate::plan::{self, Effect};
use crate::shared::Shared;
use crate::spec::{ComponentSpec, GroupSpec, Kind, Probe, Restart};
use crate::time::Time;

impl Group {
    pub(super) fn declare(&mut self, spec: GroupSpec, now: Time, out: &mut Vec<Action>) {
        self.declared = true;
        let old = self.spec.replace(spec);
        match (&self.state, old) {
            (GroupState::Absent, _) => self.enter(GroupState::Parked),
            (GroupState::Unavailable { .. }, old) if self.wanted && old != self.spec => {
                self.start(Why::Reload, now, out)
            }
            (GroupState::Running { .. }, Some(old)) => self.apply_plan(&old, now, out),
            _ => {}
        }
    }

    fn apply_plan(&mut self, old: &GroupSpec, now: Time, out: &mut Vec<Action>) {
        let Some(mut new) = self.spec.clone() else { return };
        let plan = plan::diff(old, &new);
        for part in plan.iter().filter(|part| part.effect == Effect::Stop) {
            if let Some(c) = self.components.get_mut(&part.component) {
                c.down = Some(Down::Removed);
            }
        }
        // From the lowest rank up: the place of one depends on the places of those it needs.
        new.components.sort_by_key(|c| c.rank);
        for mut spec in new.components {
            let Some(part) = plan.iter().find(|part| part.component == spec.name) else { continue };
            let rank = self.place(&mut spec);
            match self.components.get_mut(&part.component) {
                Some(c) => {
                    if mutant!("l2-rank-follows-the-spec") {
                        c.rank = spec.rank;
                    }
                    let cycles = change_spec(c, spec, part.effect, now, out);
                    if cycles && c.next.as_ref().unwrap_or(&c.spec).restart == Restart::WithDependents {
                        self.cycle_dependents(&part.component, now);
                    }
                }
                None => {
                    let c = Component { rank, ..Component::new(spec, now) };
                    self.components.insert(part.component.clone(), Box::new(c));
                }
            }
        }
    }

    /// The rank that this generation gives to a changed or new component. One that is there keeps its rank (law L2), so a
    /// need of the same rank or above has to wait for the next start of the group: its stop would take the need away.
    fn place(&self, spec: &mut Shared<ComponentSpec>) -> Rank {
        let rank_of = |name: &ComponentName| self.components.get(name).map(|c| c.rank);
        if let Some(rank) = rank_of(&spec.name) {
            let later = |need: &ComponentName| rank_of(need).is_none_or(|r| r >= rank);
            if spec.needs.iter().any(later) {
                spec.needs.retain(|need| !later(need));
            }
            return rank;
        }
        let above = spec.needs.iter().filter_map(rank_of).max().map(|r| Rank(r.0.saturating_add(1)));
        above.map_or(spec.rank, |above| above.max(spec.rank))
    }
}

/// Says whether the component goes down and up for it.
fn change_spec(
    c: &mut Component,
    spec: Shared<ComponentSpec>,
    effect: Effect,
    now: Time,
    out: &mut Vec<Action>,
) -> bool {
    if c.down == Some(Down::Removed) {
        c.down = Some(Down::Cycle);
    }
    let needs_restart = effect == Effect::Restart || c.next.is_some();
    if needs_restart && c.has_run() {
        c.next = Some(spec);
        c.down.get_or_insert(Down::Cycle);
        return true;
    }
    let old = std::mem::replace(&mut c.spec, spec);
    if needs_restart {
        clear_waits(c, now, out);
        if matches!(c.state, State::Done) {
            c.enter(State::Idle, now);
        }
    } else if c.down.is_none() {
        follow_probes(c, &old, now, out);
    }
    false
}

/// A changed probe reaches the run that it is about.
fn follow_probes(c: &mut Component, old: &ComponentSpec, now: Time, out: &mut Vec<Action>) {
    let component = c.spec.name.clone();
    match &mut c.state {
        State::Ready { run } if old.liveness != c.spec.liveness => {
            let what = if c.spec.liveness.is_some() { ProbeUse::Liveness } else { ProbeUse::Off };
            c.missed = 0;
            out.push(Action::Probe { component, birth: run.birth, what });
        }
        State::Starting { run, deadline, cap } if old.readiness != c.spec.readiness => {
            *cap = c.since + c.spec.readiness.cap;
            *deadline = (c.since + c.spec.readiness.deadline).min(*cap);
            // Before exec nothing is probed; after it, with the probe of that moment.
            let probed = run.pid.is_some() && c.spec.kind == Kind::Service;
            if probed && c.spec.readiness.probe == Probe::Running {
                became_ready(c, now, out);
            } else if probed {
                out.push(Action::Probe { component, birth: run.birth, what: ProbeUse::Readiness });
            }
        }
        _ => {}
    }
}
