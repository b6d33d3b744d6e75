//! Draining and Stopping: the order of the stop, and the receipt.

use super::running::withdraw;
use super::{Group, GroupState, SWEEP_AGAIN, Stopping, Sweep};
use crate::action::{Action, Permit};
use crate::component::{ASK_AGAIN, Component, Down, State, Verdict};
use crate::event::Why;
use crate::mutant;
use crate::receipt::{self, Receipt, Rung, Stopped};
use crate::time::Time;
use std::time::Duration;

impl Group {
    pub(super) fn begin_stop(&mut self, now: Time, out: &mut Vec<Action>) {
        self.return_permit(out);
        match &self.state {
            GroupState::Running { .. } => {
                for c in self.components.values_mut() {
                    c.ended = None;
                    withdraw(c, now, out);
                }
                self.enter(GroupState::Draining { began: now, deadline: now + ASK_AGAIN });
                out.push(Action::ShutPath);
                if mutant!("l8-does-not-wait-for-the-path") {
                    self.path_shut();
                }
            }
            // Nothing of this generation runs yet, but the sweep may have left something, and the cgroup may exist.
            GroupState::Sweeping { .. } => self.enter(stopping(now, mutant!("l14-claims-that-the-path-was-shut"))),
            _ => {}
        }
    }

    pub(super) fn path_shut(&mut self) {
        if let GroupState::Draining { began, .. } = self.state {
            for c in self.components.values_mut() {
                c.down = Some(Down::Group);
                c.next = None;
            }
            self.enter(stopping(began, true));
        }
    }

    /// Rank by rank from the highest: the next rank is touched only when the one above is proven gone (law L2).
    pub(super) fn settle_stopping(&mut self, now: Time, out: &mut Vec<Action>) {
        while let Some(rank) = self.components.values().map(|c| c.rank).max() {
            let here: Vec<_> = self.components.values().filter(|c| c.rank == rank).map(|c| c.name().clone()).collect();
            for name in here {
                let Some(c) = self.components.get_mut(&name) else { continue };
                if matches!(c.state, State::Post { .. }) {
                    // Post tasks run after every end, this one too; their own timeout bounds them.
                } else if c.has_run() {
                    c.begin_ending(Verdict::Down, now, out);
                } else {
                    let entry = stopped_entry(c, now);
                    self.components.remove(&name);
                    if let GroupState::Stopping(s) = &mut self.state {
                        s.stopped.push(entry);
                    }
                }
            }
            if mutant!("l2-ranks-together") {
                self.components.values_mut().for_each(|c| c.begin_ending(Verdict::Down, now, out));
            }
            if self.components.values().any(|c| c.rank == rank) {
                return;
            }
        }
        if let GroupState::Stopping(s) = &mut self.state
            && !s.removing
        {
            s.removing = true;
            s.deadline = Some(now + SWEEP_AGAIN);
            if mutant!("l3-a-receipt-before-the-rmdir") {
                return self.removed(now, out);
            }
            out.push(Action::RemoveGroup);
        }
    }

    pub(super) fn removed(&mut self, now: Time, out: &mut Vec<Action>) {
        let GroupState::Stopping(s) = &self.state else { return };
        if !s.removing {
            return;
        }
        let receipt = self.receipt(s, now);
        out.push(Action::Receipt { receipt: Box::new(receipt) });
        out.push(Action::Release);
        if self.wanted && self.declared && (self.again || !matches!(self.why, Why::GaveUp(_))) {
            self.again = false;
            self.sweep(now, out);
            return;
        }
        match (&self.why, self.declared && self.wanted) {
            (Why::Delete, _) if !self.declared => self.enter(GroupState::Absent),
            (Why::GaveUp(_), true) => {
                let first = self.spec.as_ref().map_or(Duration::from_secs(600), |s| s.bringup.retry);
                let factor = (1u32 << (self.gave_up.max(1) - 1).min(3)).min(6);
                self.enter(GroupState::Unavailable { retry_at: now + first * factor });
            }
            _ => self.enter(GroupState::Parked),
        }
    }

    pub(super) fn receipt(&self, s: &Stopping, now: Time) -> Receipt {
        Receipt {
            schema: receipt::SCHEMA,
            group: self.name.clone(),
            generation: self.generation,
            why: self.why.clone(),
            began: s.began,
            ended: now,
            elapsed_ms: u64::try_from(now.since(s.began).as_millis()).unwrap_or(u64::MAX),
            path_shut: s.path_shut,
            components: match mutant!("l2-receipt-in-start-order") {
                true => s.stopped.iter().rev().cloned().collect(),
                false => s.stopped.clone(),
            },
            // Those of the sweep have a receipt of their own; the shell adds what it ends at this stop.
            strays: Vec::new(),
            removed: true,
        }
    }

    pub(super) fn return_permit(&mut self, out: &mut Vec<Action>) {
        let waits = matches!(self.state, GroupState::Sweeping { step: Sweep::Permit, .. });
        if self.holds_permit || waits {
            if mutant!("l11-keeps-the-start-permit") {
                return;
            }
            self.holds_permit = false;
            out.push(Action::Return { permit: Permit::Start });
        }
    }
}

/// `path_shut` is what was observed: a stop in the sweep has nothing to shut a path to, and does not claim it.
fn stopping(began: Time, path_shut: bool) -> GroupState {
    GroupState::Stopping(Box::new(Stopping {
        began,
        path_shut,
        stopped: Vec::new(),
        removing: false,
        stuck: String::new(),
        deadline: None,
    }))
}

fn stopped_entry(c: &mut Component, now: Time) -> Stopped {
    let ended = c.ended.take();
    Stopped {
        component: c.name().clone(),
        rank: c.rank,
        birth: ended.as_ref().map(|e| e.birth),
        pid: ended.as_ref().and_then(|e| e.pid),
        status: ended.as_ref().and_then(|e| e.end).map(|end| end.status),
        end: ended.as_ref().and_then(|e| e.end),
        rung: ended.as_ref().map_or(Rung::None, |e| e.rung),
        began: ended.as_ref().map_or(now, |e| e.began),
        gone: now,
        others: ended.map(|e| e.others).unwrap_or_default(),
    }
}
