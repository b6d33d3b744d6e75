//! Queries: phase, view, and the closures of the needs.

use super::{Group, GroupState};
use crate::action::Role;
use crate::component::{Component, State, Verdict};
use crate::end::End;
use crate::event::ExitStatus;
use crate::mutant;
use crate::name::{Birth, ComponentName};
use crate::spec::{self, GroupSpec};
use crate::view::{GroupView, Phase};
use std::collections::BTreeSet;
use std::time::Duration;

impl Group {
    pub(super) fn unmet<'a>(&'a self, c: &'a Component) -> Vec<&'a ComponentName> {
        c.spec
            .needs
            .iter()
            .filter(|need| !self.components.get(need).is_some_and(|n| n.is_ready() && n.down.is_none()))
            .collect()
    }

    /// All that need `name`, directly or not.
    pub(super) fn dependents(&self, name: &ComponentName) -> BTreeSet<ComponentName> {
        closure(name, |n| {
            self.components.values().filter(|c| c.spec.needs.contains(n)).map(|c| c.name().clone()).collect()
        })
    }

    /// Those on their way down while the group runs.
    pub(super) fn falling(&self) -> BTreeSet<ComponentName> {
        self.components.values().filter(|c| c.down.is_some() && c.has_run()).map(|c| c.name().clone()).collect()
    }

    /// The run that the component has now.
    pub fn current_birth(&self, name: &ComponentName) -> Option<Birth> {
        self.components.get(name)?.run().map(|run| run.birth)
    }

    /// How the leader of this run ended, until what is left of the run is gone too.
    pub fn end_of(&self, name: &ComponentName, birth: Birth) -> Option<End> {
        match &self.components.get(name)?.state {
            State::Ending(ending) if ending.run.birth == birth => ending.end,
            _ => None,
        }
    }

    /// The task or program that this run was, when its leader ended as it should: there is nothing to be mended.
    pub fn done_of(&self, name: &ComponentName, birth: Birth) -> Option<Role> {
        match &self.components.get(name)?.state {
            State::Ending(ending) if ending.run.birth == birth => {
                let task = matches!(ending.run.role, Role::Post(_));
                let clean = ending.end.is_some_and(|end| end.status == ExitStatus::Code(0));
                let done = matches!(ending.verdict, Verdict::Next | Verdict::Success) || task && clean;
                done.then_some(ending.run.role)
            }
            _ => None,
        }
    }

    pub(super) fn jitter(&mut self) -> u64 {
        // splitmix64: small, seedable, and all that a jitter asks for.
        self.rng = self.rng.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.rng;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) % 1001
    }

    pub(super) fn enter(&mut self, state: GroupState) {
        self.state = state;
    }

    /// The longest that an orderly stop of what is there now can take: per rank the slowest ladder, summed. Of a group that
    /// does not run: of what is declared.
    pub fn stop_deadline(&self) -> Duration {
        if self.components.is_empty() {
            return self.spec.as_ref().map_or(Duration::ZERO, GroupSpec::stop_deadline);
        }
        spec::slowest_stop(self.components.values().map(|c| (c.rank, &*c.spec)))
    }

    /// The phase as people see it.
    pub fn phase(&self) -> Phase {
        match &self.state {
            GroupState::Absent => Phase::Absent,
            GroupState::Parked => Phase::Parked,
            GroupState::Unavailable { .. } => Phase::Unavailable,
            GroupState::Sweeping { .. } => Phase::Sweeping,
            GroupState::Draining { .. } => Phase::Draining,
            GroupState::Stopping(_) => Phase::Stopping,
            GroupState::Running { was_ready, .. } => {
                let mut all = self.components.values().all(|c| c.is_ready() && c.down.is_none());
                all |= mutant!("l14-ready-with-some") && self.components.values().any(|c| c.is_ready());
                match (all, was_ready) {
                    (true, _) => Phase::Ready,
                    (false, true) => Phase::Degraded,
                    (false, false) => Phase::Starting,
                }
            }
        }
    }

    /// The group as people see it.
    pub fn view(&self) -> GroupView {
        let mut components: Vec<_> = self.components.values().map(|c| c.view(&self.unmet(c))).collect();
        components.sort_by(|a, b| (a.rank, &a.name).cmp(&(b.rank, &b.name)));
        GroupView {
            name: self.name.clone(),
            phase: self.phase(),
            since: self.since,
            reason: self.reason(),
            retry_at: match self.state {
                GroupState::Unavailable { retry_at } => Some(retry_at),
                _ => None,
            },
            generation: self.generation,
            declared: self.declared,
            survivors: self.survivors.clone(),
            components,
        }
    }

    pub(super) fn reason(&self) -> String {
        match &self.state {
            GroupState::Absent => String::new(),
            GroupState::Parked if !self.declared => "no longer declared; its data is kept until `ctl delete`".into(),
            GroupState::Parked => self.why.to_string(),
            GroupState::Unavailable { .. } => self.why.to_string(),
            GroupState::Sweeping { blocked, .. } if !blocked.is_empty() => blocked.clone(),
            GroupState::Sweeping { step, .. } => step.sentence().into(),
            GroupState::Draining { .. } => format!("waiting for the tenant's path to be seen shut ({})", self.why),
            GroupState::Stopping(s) if !s.stuck.is_empty() => s.stuck.clone(),
            GroupState::Stopping(_) => self.why.to_string(),
            GroupState::Running { .. } => self.waiting_for(),
        }
    }

    /// The first component, in order of rank, that everybody waits for.
    pub(super) fn waiting_for(&self) -> String {
        let mut all: Vec<_> = self.components.values().collect();
        all.sort_by_key(|c| c.rank);
        let first = all.into_iter().find(|c| (!c.is_ready() || c.down.is_some()) && self.unmet(c).is_empty());
        first.map_or(String::new(), |c| {
            let view = c.view(&[]);
            let ended = matches!(&c.state, State::Ending(ending) if ending.end.is_some());
            match view.detail.is_empty() {
                // What happened, not the name of the state in which it is cleared away.
                _ if ended => format!("{}'s {}", view.name, view.detail),
                true => format!("{} is {}", view.name, view.state),
                false => format!("{} is {}: {}", view.name, view.state, view.detail),
            }
        })
    }
}

pub(super) fn closure(
    from: &ComponentName,
    step: impl Fn(&ComponentName) -> Vec<ComponentName>,
) -> BTreeSet<ComponentName> {
    let mut seen = BTreeSet::new();
    let mut todo = step(from);
    while let Some(name) = todo.pop() {
        if seen.insert(name.clone()) {
            todo.extend(step(&name));
        }
    }
    seen
}
