//! What one component makes of the answers about its current run.

use crate::action::{Action, ProbeUse};
use crate::component::{Component, State, Verdict};
use crate::end::End;
use crate::mutant;
use crate::spec::{Kind, Probe, Restart};
use crate::time::Time;

pub(super) fn spawned(c: &mut Component, pid: u32, now: Time, out: &mut Vec<Action>) {
    match c.run_mut() {
        Some(run) if run.pid.is_none() => run.pid = Some(pid),
        _ => return,
    }
    if matches!(c.state, State::Ending(_)) {
        c.born_late(now, out);
    }
    if let State::Starting { run, .. } = &c.state
        && c.spec.kind == Kind::Service
    {
        let (component, birth) = (c.spec.name.clone(), run.birth);
        if c.spec.readiness.probe == Probe::Running || mutant!("l14-exec-is-readiness") {
            became_ready(c, now, out);
        } else {
            out.push(Action::Probe { component, birth, what: ProbeUse::Readiness });
        }
    }
}

pub(super) fn became_ready(c: &mut Component, now: Time, out: &mut Vec<Action>) {
    let State::Starting { run, .. } = &c.state else { return };
    // A one-shot's readiness is its success, whatever a probe says.
    if c.spec.kind == Kind::OneShot {
        return;
    }
    let run = run.clone();
    if c.spec.liveness.is_some() {
        let (component, birth) = (c.spec.name.clone(), run.birth);
        out.push(Action::Probe { component, birth, what: ProbeUse::Liveness });
    }
    c.missed = 0;
    c.detail.clear();
    c.enter(State::Ready { run }, now);
}

pub(super) fn probe_failed(c: &mut Component, why: String, now: Time, out: &mut Vec<Action>) {
    c.detail = why;
    if !matches!(c.state, State::Ready { .. }) {
        return;
    }
    // A late answer of the readiness probe counts for nothing where no liveness was asked for.
    let Some(limit) = c.spec.liveness.as_ref().map(|l| l.failures.max(1)) else { return };
    c.missed += 1;
    if c.missed >= limit {
        let verdict = Verdict::Failure(format!("{} liveness probes in a row failed: {}", c.missed, c.detail));
        c.begin_ending(verdict, now, out);
        if let State::Ending(ending) = &mut c.state {
            ending.hung = true;
        }
    }
}

pub(super) fn exited(c: &mut Component, end: End, now: Time, out: &mut Vec<Action>) {
    let verdict = match (&c.state, end.status.success()) {
        (State::Pre { .. }, true) => Verdict::Next,
        (State::Pre { run, .. }, false) => Verdict::Failure(format!("{} ended with {end}", run.role)),
        (State::Post { verdict, .. }, _) => verdict.clone(),
        (State::Starting { .. }, true) if c.spec.kind == Kind::OneShot => Verdict::Success,
        // It was ready and ended well, and its restart law lets it.
        (State::Ready { .. }, true) if c.spec.restart == Restart::Never => Verdict::Success,
        (State::Starting { .. }, _) if c.spec.kind == Kind::OneShot => Verdict::Failure(format!("ended with {end}")),
        (State::Starting { .. }, _) => Verdict::Failure(format!("ended with {end} before it was ready")),
        _ => Verdict::Failure(format!("ended with {end}")),
    };
    c.leader_ended(Some(end), verdict, now, out);
}
