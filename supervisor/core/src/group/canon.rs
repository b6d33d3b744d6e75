//! A group's state without what only people are told, so that an exploration can tell whether it was here before.

use super::{Group, GroupState};
use crate::component::{Component, Run, State, Verdict};
use crate::event::Why;
use crate::time::Time;
use std::fmt::Write;

/// Later than any deadline that an exploration can reach; all that lies beyond is the same.
const FAR: u64 = 10_000_000;

/// The wait before a group that gave up is tried again stops growing here.
const GAVE_UP: u32 = 4;

impl Group {
    /// Two groups of the same specs with the same text do the same from here on: birth numbers, reasons, elapsed times and
    /// mere counts are left out, deadlines are told from `now`, and counters only as far as they decide something. The seed of
    /// the jitter is left out too, so waits with a jitter must not matter to who compares.
    pub fn canonical(&self, now: Time) -> String {
        let mut text = String::with_capacity(96);
        let flags = [self.declared, self.wanted, self.again, self.holds_permit];
        flags.iter().for_each(|on| text.push(if *on { '1' } else { '0' }));
        // Whatever stops it gives the reason anew; until then the last one decides nothing.
        let stops = matches!(self.state, GroupState::Draining { .. } | GroupState::Stopping(_));
        text.push(match self.why {
            Why::Delete if stops && !self.declared => 'd',
            Why::GaveUp(_) if stops => 'g',
            _ => '-',
        });
        self.canonical_state(now, &mut text);
        let waits = self.spec.as_ref().is_some_and(|s| !s.bringup.retry.is_zero());
        let _ = write!(text, " {}", if waits { self.gave_up.min(GAVE_UP) } else { 0 });
        for c in self.components.values() {
            c.canonical(now, &mut text);
        }
        text
    }

    fn canonical_state(&self, now: Time, text: &mut String) {
        let _ = match &self.state {
            GroupState::Absent => write!(text, "A"),
            GroupState::Parked => write!(text, "P"),
            GroupState::Unavailable { retry_at } => write!(text, "U{}", until(*retry_at, now)),
            GroupState::Sweeping { step, deadline, .. } => write!(text, "W{step:?}{}", until(*deadline, now)),
            GroupState::Running { was_ready: true, .. } => write!(text, "R"),
            GroupState::Running { began, progress, .. } => {
                let limits = self.spec.as_ref().map(|s| s.bringup).unwrap_or_default();
                let (cap, no_progress) = (*began + limits.cap, *progress + limits.no_progress);
                write!(text, "S{},{}", until(cap, now), until(no_progress, now))
            }
            GroupState::Draining { deadline, .. } => write!(text, "D{}", until(*deadline, now)),
            GroupState::Stopping(s) => {
                let deadline = s.deadline.map_or(FAR, |d| until(d, now));
                write!(text, "X{}{}{deadline}", s.path_shut as u8, s.removing as u8)
            }
        };
    }
}

impl Component {
    fn canonical(&self, now: Time, text: &mut String) {
        let (limit, missed) = (self.spec.backoff.limit.max(1), self.spec.liveness.as_ref().map_or(0, |l| l.failures));
        let (failures, missed) = (self.failures.min(limit), self.missed.min(missed));
        let down = self.down.map_or(0, |down| down as u8 + 1);
        let _ = write!(text, "/{}{down}{}{failures}{missed}", self.rank, self.next.is_some() as u8);
        let _ = match &self.state {
            State::Idle => write!(text, "I"),
            State::Pre { run, deadline } => write!(text, "<{}{}", role(run), until(*deadline, now)),
            State::Starting { run, deadline, cap } => {
                write!(text, "S{}{},{}", role(run), until(*deadline, now), until(*cap, now))
            }
            State::Ready { .. } if failures > 0 => {
                write!(text, "R{}", until(self.since + self.spec.backoff.stable, now))
            }
            State::Ready { .. } => write!(text, "R"),
            State::Post { run, deadline, verdict } => {
                write!(text, ">{}{}{}", role(run), until(*deadline, now), kind(verdict))
            }
            State::Ending(e) => {
                let flags = [e.leader_gone, e.empty, e.removing, e.remove_asked];
                let flags = flags.iter().fold(0, |all, on| all * 2 + u8::from(*on));
                let deadline = until(e.deadline, now);
                write!(text, "E{}{}{flags:x}{}{deadline}", role(&e.run), e.rung as u8, kind(&e.verdict))
            }
            State::Done => write!(text, "D"),
            State::Backoff { until: at } => write!(text, "B{}", until(*at, now)),
            State::Permit { again, twice } => write!(text, "P{}{}", *twice as u8, until(*again, now)),
            State::Failed { until: at } => write!(text, "F{}", at.map_or(FAR, |at| until(at, now))),
        };
    }
}

fn until(at: Time, now: Time) -> u64 {
    at.0.saturating_sub(now.0).min(FAR)
}

fn role(run: &Run) -> String {
    format!("{}{}", run.role, run.pid.is_some() as u8)
}

fn kind(verdict: &Verdict) -> char {
    match verdict {
        Verdict::Next => 'n',
        Verdict::Down => 'd',
        Verdict::Success => 's',
        Verdict::Failure(_) => 'f',
    }
}
