//! One component's state, and the ladder that ends a run.
//!
//! ```text
//!          needs ready            pre ok             probe holds
//!   Idle ---------------> Pre(n) --------> Starting -------------> Ready
//!    ^                       |                 |                     |
//!    |                       +--------+--------+---------------------+
//!    |                                | exit, deadline, liveness, stop
//!    |                                v
//!    |   wanted down           Ending(ladder) --- cannot be ended ---> Wedged (keeps trying)
//!    +<------------------------------ |
//!    |                                +--> Done      (one-shot succeeded, or restart = never)
//!    +<-- Permit <-- Backoff <--------+--> Failed    (too many failures: tries again later)
//! ```
//!
//! Every run of every role ends the same way: the leader waited for, the cgroup empty, the cgroup removed. Only then does
//! what comes next happen.

mod ladder;

use crate::action::Role;
use crate::end::End;
use crate::event::Reaped;
use crate::mutant;
use crate::name::{Birth, ComponentName, Rank};
use crate::receipt::Rung;
use crate::shared::Shared;
use crate::spec::{ComponentSpec, Kind};
use crate::time::Time;
use crate::view::ComponentView;
pub(crate) use ladder::Ending;
use std::time::Duration;

/// Wait before an unanswered or failed removal or kill is asked for again: long enough to cost nothing, short enough
/// that a person who freed the process by hand sees it at once.
pub(crate) const ASK_AGAIN: Duration = Duration::from_secs(5);

/// One component of the running generation.
#[derive(Debug, Clone)]
pub(crate) struct Component {
    /// As declared. A spec that needs a restart waits in `next` until the old run is gone.
    pub spec: Shared<ComponentSpec>,
    pub next: Option<Shared<ComponentSpec>>,
    /// Fixed for the generation (law L2).
    pub rank: Rank,
    pub state: State,
    pub since: Time,
    /// Set while it must not run.
    pub down: Option<Down>,
    /// Failures in a row.
    pub failures: u32,
    /// Failed liveness probes in a row.
    pub missed: u32,
    pub restarts: u64,
    pub last_end: Option<End>,
    /// When that run was gone. People are told; nothing is decided by it.
    pub last_end_at: Option<Time>,
    /// What went wrong last, or what a probe said last.
    pub detail: String,
    /// How the latest run was ended; feeds the receipt of a stop, and is forgotten when one begins.
    pub ended: Option<EndedRun>,
}

/// Why a component must not run now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Down {
    /// The group stops.
    Group,
    /// It starts again once those below it are through.
    Cycle,
    /// It is no longer in the spec.
    Removed,
}

/// States own what only they need.
#[derive(Debug, Clone)]
pub(crate) enum State {
    /// Not running; starts as soon as its needs are ready and nothing holds it down.
    Idle,
    /// A pre task runs.
    Pre { run: Run, deadline: Time },
    /// The main program runs and is not ready yet.
    Starting { run: Run, deadline: Time, cap: Time },
    /// The probe held.
    Ready { run: Run },
    /// A post task runs; `verdict` is what the main program's end means.
    Post { run: Run, deadline: Time, verdict: Verdict },
    /// The run is being ended.
    Ending(Box<Ending>),
    /// Ended, and that is as it should be.
    Done,
    /// Waits for its next try.
    Backoff { until: Time },
    /// Waits for the host-wide restart budget; asked for once more at `again`, should the answer be lost. `twice`: that was done.
    Permit { again: Time, twice: bool },
    /// Too many failures: tries again later, or with `None` only when an operator says so.
    Failed { until: Option<Time> },
}

/// A process that was asked for.
#[derive(Debug, Clone)]
pub(crate) struct Run {
    pub birth: Birth,
    pub role: Role,
    pub pid: Option<u32>,
}

/// What the end of a run means.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// A pre task succeeded: go on.
    Next,
    /// It was asked to stop.
    Down,
    /// A one-shot succeeded.
    Success,
    /// Anything else.
    Failure(String),
}

/// What a receipt wants to know.
#[derive(Debug, Clone)]
pub(crate) struct EndedRun {
    pub birth: Birth,
    pub pid: Option<u32>,
    pub end: Option<End>,
    pub rung: Rung,
    pub began: Time,
    pub others: Vec<Reaped>,
}

impl Component {
    pub fn new(spec: Shared<ComponentSpec>, now: Time) -> Self {
        Component {
            rank: spec.rank,
            spec,
            next: None,
            state: State::Idle,
            since: now,
            down: None,
            failures: 0,
            missed: 0,
            restarts: 0,
            last_end: None,
            last_end_at: None,
            detail: String::new(),
            ended: None,
        }
    }

    pub fn name(&self) -> &ComponentName {
        &self.spec.name
    }

    pub fn enter(&mut self, state: State, now: Time) {
        self.state = state;
        self.since = now;
    }

    /// Dependents may start.
    pub fn is_ready(&self) -> bool {
        matches!(self.state, State::Ready { .. } | State::Done)
    }

    /// Keeps how a run ended. A main program's end is what a receipt shows; a task's only when nothing else ran.
    pub fn note_end(&mut self, ending: &Ending, now: Time) {
        if ending.run.role == Role::Main {
            self.last_end = ending.end;
            self.last_end_at = ending.end.map(|_| now);
        }
        match &mut self.ended {
            Some(ended) if ending.run.role != Role::Main => ended.others.extend(ending.others.iter().cloned()),
            ended => *ended = Some(ending.into()),
        }
    }

    /// A process exists or may exist.
    pub fn has_run(&self) -> bool {
        self.run().is_some()
    }

    pub fn run(&self) -> Option<&Run> {
        match &self.state {
            State::Pre { run, .. } | State::Starting { run, .. } | State::Ready { run } | State::Post { run, .. } => {
                Some(run)
            }
            State::Ending(ending) => Some(&ending.run),
            _ => None,
        }
    }

    pub fn run_mut(&mut self) -> Option<&mut Run> {
        match &mut self.state {
            State::Pre { run, .. } | State::Starting { run, .. } | State::Ready { run } | State::Post { run, .. } => {
                Some(run)
            }
            State::Ending(ending) => Some(&mut ending.run),
            _ => None,
        }
    }

    /// True for the birth that is current; everything else is a late answer.
    pub fn is_current(&self, birth: Birth) -> bool {
        self.run().is_some_and(|run| run.birth == birth || mutant!("l5-answers-of-an-earlier-run-count"))
    }

    /// Wait before restart number `failures`, with `jitter` in 0..=1000 taking up to half of it away. The first is zero.
    pub fn backoff(&self, jitter: u64) -> Duration {
        let policy = self.spec.backoff;
        if self.failures <= 1 || mutant!("l11-no-backoff") {
            return Duration::ZERO;
        }
        let doublings = (self.failures - 2).min(20);
        let wait = policy.base.saturating_mul(1 << doublings).min(policy.max);
        let ms = u64::try_from(wait.as_millis()).unwrap_or(u64::MAX);
        Duration::from_millis(ms - ms / 2 * jitter.min(1000) / 1000)
    }

    /// The next moment at which this component wants a tick while its group runs.
    pub fn next_deadline(&self) -> Option<Time> {
        match &self.state {
            State::Pre { deadline, .. } | State::Starting { deadline, .. } => Some(*deadline),
            State::Ready { .. } if self.failures > 0 => Some(self.since + self.spec.backoff.stable),
            State::Backoff { until } | State::Permit { again: until, .. } => Some(*until),
            State::Failed { until } => *until,
            _ => self.ladder_deadline(),
        }
    }

    /// The same while its group stops: what has begun to end goes on, nothing else is touched before its rank's turn
    /// (laws L2 and L8).
    pub fn ladder_deadline(&self) -> Option<Time> {
        match &self.state {
            State::Post { deadline, .. } => Some(*deadline),
            State::Ending(_) if mutant!("l6-a-ladder-without-deadline") => None,
            State::Ending(ending) => Some(ending.deadline),
            _ => None,
        }
    }

    /// State name and sentence for people. `waiting_on`: the needs that are not ready.
    pub fn view(&self, waiting_on: &[&ComponentName]) -> ComponentView {
        let (state, detail) = self.describe(waiting_on);
        ComponentView {
            name: self.spec.name.clone(),
            rank: self.rank,
            state: state.into(),
            detail,
            birth: self.run().map(|r| r.birth),
            pid: self.run().and_then(|r| r.pid),
            since: self.since,
            restarts: self.restarts,
            last_exit: self.last_end.map(|end| end.status),
            last_end: self.last_end,
            last_end_at: self.last_end_at,
        }
    }

    fn describe(&self, waiting_on: &[&ComponentName]) -> (&'static str, String) {
        let last = |prefix: &str| match self.detail.is_empty() {
            true => prefix.to_string(),
            false => format!("{prefix}; last: {}", self.detail),
        };
        match &self.state {
            State::Idle if self.down.is_some() => ("Idle", self.detail.clone()),
            State::Idle if waiting_on.is_empty() => ("Idle", self.detail.clone()),
            State::Idle => {
                let names: Vec<_> = waiting_on.iter().map(|n| n.as_str()).collect();
                ("Waiting", format!("waiting for {}", names.join(", ")))
            }
            State::Pre { run, .. } => ("Preparing", format!("{} is running", run.role)),
            State::Starting { run, .. } if run.pid.is_none() => ("Starting", "waiting for exec".into()),
            State::Starting { .. } if self.spec.kind == Kind::OneShot => ("Starting", last("waiting for it to end")),
            State::Starting { .. } => ("Starting", last("waiting for its readiness probe")),
            State::Ready { .. } if self.missed > 0 => {
                ("Ready", format!("{} liveness probes in a row failed: {}", self.missed, self.detail))
            }
            State::Ready { .. } => ("Ready", String::new()),
            State::Post { run, .. } => ("Stopping", format!("{} is running", run.role)),
            State::Ending(e) if e.wedged && !e.lingering.is_empty() => (
                "Wedged",
                format!("it was killed and does not go away; other groups are not affected: {}", e.lingering),
            ),
            State::Ending(e) if e.wedged => {
                ("Wedged", last("it was killed and does not go away; other groups are not affected"))
            }
            State::Ending(e) => ("Stopping", e.describe()),
            State::Done => ("Done", self.detail.clone()),
            State::Backoff { .. } => ("Backoff", last("waiting before the next try")),
            State::Permit { .. } => ("Backoff", last("waiting for the host-wide restart budget")),
            State::Failed { .. } => ("Failed", last("gave up for now")),
        }
    }
}
