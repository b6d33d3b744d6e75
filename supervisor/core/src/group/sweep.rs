//! From the wish to run to the first spawn: survivors, ports, permit, cgroup.

use super::{Group, GroupState, SWEEP_AGAIN, Sweep};
use crate::action::{Action, Permit};
use crate::component::Component;
use crate::event::{Reaped, Why};
use crate::mutant;
use crate::receipt::{self, Receipt};
use crate::time::Time;

impl Group {
    pub(super) fn sweep(&mut self, now: Time, out: &mut Vec<Action>) {
        self.generation += 1;
        self.survivors.clear();
        self.components.clear();
        let step = Sweep::Survivors;
        self.enter(GroupState::Sweeping { step, blocked: String::new(), deadline: now + SWEEP_AGAIN });
        out.push(Action::ReapSurvivors);
        if mutant!("l4-does-not-wait-for-the-sweep") {
            self.step(Sweep::Survivors, Sweep::Lease, now, out);
        }
    }

    pub(super) fn swept(&mut self, found: Vec<Reaped>, now: Time, out: &mut Vec<Action>) {
        if matches!(self.state, GroupState::Sweeping { step: Sweep::Survivors, .. }) {
            if !found.is_empty() {
                out.push(Action::Receipt { receipt: Box::new(self.sweep_receipt(&found, now)) });
            }
            self.survivors = found;
            self.step(Sweep::Survivors, Sweep::Lease, now, out);
        }
    }

    /// What an earlier run left has its proof before anything new starts.
    fn sweep_receipt(&self, found: &[Reaped], now: Time) -> Receipt {
        Receipt {
            schema: receipt::SCHEMA,
            group: self.name.clone(),
            generation: self.generation,
            why: Why::Survivors,
            began: self.since,
            ended: now,
            elapsed_ms: u64::try_from(now.since(self.since).as_millis()).unwrap_or(u64::MAX),
            path_shut: false,
            components: Vec::new(),
            strays: found.to_vec(),
            removed: true,
        }
    }

    /// One answer leads to the next question; answers to other questions change nothing.
    pub(super) fn step(&mut self, answered: Sweep, next: Sweep, now: Time, out: &mut Vec<Action>) {
        let GroupState::Sweeping { step, blocked, deadline } = &mut self.state else { return };
        if *step != answered {
            return;
        }
        *step = next;
        blocked.clear();
        *deadline = now + SWEEP_AGAIN;
        ask(next, out);
    }

    pub(super) fn blocked(&mut self, at: Sweep, what: String, until: Time) {
        if let GroupState::Sweeping { step, blocked, deadline } = &mut self.state
            && *step == at
        {
            *blocked = what;
            *deadline = until;
        }
    }

    pub(super) fn granted(&mut self, now: Time, out: &mut Vec<Action>) {
        if matches!(self.state, GroupState::Sweeping { step: Sweep::Permit, .. }) {
            self.holds_permit = true;
            self.step(Sweep::Permit, Sweep::Cgroup, now, out);
        } else if !self.holds_permit {
            out.push(Action::Return { permit: Permit::Start });
        }
    }

    pub(super) fn run(&mut self, now: Time, out: &mut Vec<Action>) {
        if !matches!(self.state, GroupState::Sweeping { step: Sweep::Cgroup, .. }) {
            return;
        }
        match &self.spec {
            Some(spec) => {
                let all = spec.components.iter().map(|c| (c.name.clone(), Box::new(Component::new(c.clone(), now))));
                self.components = all.collect();
                self.enter(GroupState::Running { was_ready: false, began: now, progress: now });
            }
            None => self.begin_stop(now, out),
        }
    }
}

impl Sweep {
    pub(super) fn sentence(self) -> &'static str {
        match self {
            Sweep::Survivors => "looking for processes of an earlier run",
            Sweep::Lease => "seeing that its ports are free",
            Sweep::Permit => "waiting for the host-wide start budget",
            Sweep::Cgroup => "making its cgroup",
        }
    }
}

pub(super) fn ask(step: Sweep, out: &mut Vec<Action>) {
    out.push(match step {
        Sweep::Survivors => Action::ReapSurvivors,
        Sweep::Lease => Action::Lease,
        Sweep::Permit => Action::Request { permit: Permit::Start },
        Sweep::Cgroup => Action::MakeCgroup,
    });
}
