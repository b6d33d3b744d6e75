//! What passing time means: deadlines of the group and of its components.

use super::sweep::ask;
use super::{Group, GroupState, SWEEP_AGAIN};
use crate::action::{Action, Permit};
use crate::component::{ASK_AGAIN, Component, State, Verdict};
use crate::event::Why;
use crate::mutant;
use crate::spec::Kind;
use crate::time::Time;

impl Group {
    pub(super) fn tick(&mut self, now: Time, out: &mut Vec<Action>) {
        match &mut self.state {
            GroupState::Unavailable { retry_at } if *retry_at <= now => self.start(Why::Retry, now, out),
            GroupState::Sweeping { .. } if mutant!("l6-a-deadline-that-leads-nowhere") => {}
            GroupState::Sweeping { step, deadline, .. } if *deadline <= now => {
                *deadline = now + SWEEP_AGAIN;
                ask(*step, out);
            }
            GroupState::Draining { deadline, .. } if *deadline <= now => {
                *deadline = now + ASK_AGAIN;
                out.push(Action::ShutPath);
            }
            GroupState::Stopping(s) if s.deadline.is_some_and(|d| d <= now) => {
                s.deadline = Some(now + SWEEP_AGAIN);
                out.push(Action::RemoveGroup);
            }
            GroupState::Running { was_ready: false, began, progress } => {
                let (began, progress) = (*began, *progress);
                self.bringup_due(began, progress, now, out);
            }
            _ => {}
        }
        let running =
            matches!(self.state, GroupState::Running { .. }) || mutant!("l8-deadlines-end-runs-while-draining");
        for c in self.components.values_mut() {
            let deadline = if running { c.next_deadline() } else { c.ladder_deadline() };
            if deadline.is_some_and(|d| d <= now) {
                due(c, now, out);
            }
        }
    }

    pub(super) fn bringup_due(&mut self, began: Time, progress: Time, now: Time, out: &mut Vec<Action>) {
        let Some(limits) = self.spec.as_ref().map(|s| s.bringup) else { return };
        if now >= began + limits.cap {
            self.give_up(format!("not ready after {} s", limits.cap.as_secs()), now, out);
        } else if now >= progress + limits.no_progress {
            self.give_up(format!("no progress for {} s", limits.no_progress.as_secs()), now, out);
        }
    }
}

/// A deadline of one component passed.
pub(super) fn due(c: &mut Component, now: Time, out: &mut Vec<Action>) {
    match &c.state {
        State::Pre { run, .. } => {
            let verdict = Verdict::Failure(format!("{} did not end in time", run.role));
            c.begin_ending(verdict, now, out);
        }
        State::Post { verdict, .. } => {
            let verdict = verdict.clone();
            c.begin_ending(verdict, now, out);
        }
        State::Starting { .. } => {
            let waited = now.since(c.since).as_secs();
            let what = if c.spec.kind == Kind::OneShot { "did not end" } else { "was not ready" };
            let last = if c.detail.is_empty() { String::new() } else { format!("; last: {}", c.detail) };
            c.begin_ending(Verdict::Failure(format!("{what} within {waited} s{last}")), now, out);
        }
        State::Ready { .. } => c.failures = 0,
        State::Ending(_) => c.ending_due(now, out),
        State::Failed { .. } => {
            c.failures = 0;
            ask_restart(c, now, out);
        }
        State::Backoff { .. } | State::Permit { .. } => ask_restart(c, now, out),
        _ => {}
    }
}

pub(super) fn ask_restart(c: &mut Component, now: Time, out: &mut Vec<Action>) {
    out.push(Action::Request { permit: Permit::Restart(c.name().clone()) });
    let since = c.since;
    let waits_already = matches!(c.state, State::Permit { .. });
    c.enter(State::Permit { again: now + SWEEP_AGAIN, twice: waits_already }, now);
    if waits_already {
        c.since = since;
    }
}
