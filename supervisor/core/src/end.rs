//! One record of how a run's main process ended: its status, who sent what ended it, and what the kernel left to see.

use crate::event::ExitStatus;
use crate::mutant;
use crate::receipt::Rung;
use serde::{Deserialize, Serialize};
use std::fmt;

/// What was seen beside the status when a process was waited for.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Traces {
    /// The kernel wrote a core dump.
    #[serde(default)]
    pub core_dumped: bool,
    /// Processes of this run that the kernel's out-of-memory killer ended. 0 also where no controller counts them.
    #[serde(default)]
    pub oom_kills: u64,
}

/// How a run ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct End {
    /// The main process's own status.
    pub status: ExitStatus,
    /// Who ended it.
    pub by: Cause,
    /// What else was seen.
    #[serde(flatten)]
    pub traces: Traces,
}

/// Who ended a run, as far as it was observed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", tag = "cause", content = "rung")]
pub enum Cause {
    /// It exited.
    Itself,
    /// The supervisor, by this rung of the ladder.
    Stop(Rung),
    /// The supervisor, by this rung, because it did not answer its liveness probe.
    Liveness(Rung),
    /// The kernel, out of memory.
    OutOfMemory,
    /// A signal that the supervisor did not send: a fault of its own, or somebody else.
    Unknown,
}

/// What the supervisor had done to the run when it ended.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Sent {
    /// The ladder's rung.
    pub rung: Rung,
    /// Number of the stop signal.
    pub signal: i32,
    /// The ladder began because liveness failed.
    pub hung: bool,
}

const SIGKILL: i32 = 9;

impl End {
    /// Puts what was seen together with what was sent.
    pub(crate) fn of(status: ExitStatus, traces: Traces, sent: Option<Sent>) -> End {
        End { status, by: cause(status, traces, sent), traces }
    }
}

fn cause(status: ExitStatus, traces: Traces, sent: Option<Sent>) -> Cause {
    let killed_by_us = sent.is_some_and(|s| s.rung >= Rung::Kill || s.signal == SIGKILL);
    if status == ExitStatus::Signal(SIGKILL)
        && traces.oom_kills > 0
        && !killed_by_us
        && !mutant!("l14-no-end-is-out-of-memory")
    {
        return Cause::OutOfMemory;
    }
    let Some(sent) = sent else {
        return if matches!(status, ExitStatus::Code(_)) { Cause::Itself } else { Cause::Unknown };
    };
    if mutant!("l14-a-stop-takes-no-blame") {
        return Cause::Unknown;
    }
    let ours = |rung| if sent.hung { Cause::Liveness(rung) } else { Cause::Stop(rung) };
    match status {
        ExitStatus::Signal(SIGKILL) if sent.rung >= Rung::Kill => ours(Rung::Kill),
        ExitStatus::Signal(n) if n != sent.signal => Cause::Unknown,
        // It left before the kill reached it, or nobody can tell.
        ExitStatus::Signal(_) | ExitStatus::Code(_) => ours(Rung::Signal),
        ExitStatus::Unknown => ours(sent.rung),
    }
}

impl fmt::Display for End {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.status)?;
        if self.traces.core_dumped {
            f.write_str(" (core dumped)")?;
        }
        match self.by {
            Cause::Itself => {}
            Cause::Stop(rung) => write!(f, ", {}", sender(rung))?,
            Cause::Liveness(rung) => write!(f, ", {} because its liveness probe failed", sender(rung))?,
            Cause::OutOfMemory => f.write_str(", by the kernel: out of memory")?,
            Cause::Unknown => f.write_str(", not sent by the supervisor")?,
        }
        match (self.by, self.traces.oom_kills) {
            (Cause::OutOfMemory, _) | (_, 0) => Ok(()),
            (_, n) => write!(f, "; the kernel ended {n} of its processes, out of memory"),
        }
    }
}

fn sender(rung: Rung) -> &'static str {
    match rung {
        Rung::None | Rung::Signal => "by the supervisor's stop signal",
        Rung::Kill | Rung::Wedged => "by the supervisor's kill",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ExitStatus::{Code, Signal};

    fn check(status: ExitStatus, oom_kills: u64, sent: Option<(Rung, i32, bool)>, by: Cause, text: &str) {
        let sent = sent.map(|(rung, signal, hung)| Sent { rung, signal, hung });
        let end = End::of(status, Traces { core_dumped: false, oom_kills }, sent);
        assert_eq!((end.by, end.to_string().as_str()), (by, text));
    }

    #[test]
    fn an_end_is_laid_to_who_caused_it() {
        check(Code(3), 0, None, Cause::Itself, "exit status 3");
        check(Signal(11), 0, None, Cause::Unknown, "signal 11, not sent by the supervisor");
        check(Signal(9), 0, None, Cause::Unknown, "signal 9, not sent by the supervisor");
        check(Signal(9), 1, None, Cause::OutOfMemory, "signal 9, by the kernel: out of memory");
        let term = |rung| Some((rung, 15, false));
        check(
            Signal(15),
            0,
            term(Rung::Signal),
            Cause::Stop(Rung::Signal),
            "signal 15, by the supervisor's stop signal",
        );
        check(
            Code(0),
            0,
            term(Rung::Signal),
            Cause::Stop(Rung::Signal),
            "exit status 0, by the supervisor's stop signal",
        );
        check(Signal(9), 0, term(Rung::Kill), Cause::Stop(Rung::Kill), "signal 9, by the supervisor's kill");
        let hung = Some((Rung::Kill, 15, true));
        let text = "signal 9, by the supervisor's kill because its liveness probe failed";
        check(Signal(9), 0, hung, Cause::Liveness(Rung::Kill), text);
        check(ExitStatus::Unknown, 0, None, Cause::Unknown, "unknown status, not sent by the supervisor");
    }

    /// systemd/systemd 43439: an out-of-memory kill that looks like a plain error.
    #[test]
    fn an_out_of_memory_kill_is_told_whatever_else_happens() {
        let term = Some((Rung::Signal, 15, false));
        check(Signal(9), 1, term, Cause::OutOfMemory, "signal 9, by the kernel: out of memory");
        let kill = Some((Rung::Kill, 15, false));
        let text = "signal 9, by the supervisor's kill; the kernel ended 2 of its processes, out of memory";
        check(Signal(9), 2, kill, Cause::Stop(Rung::Kill), text);
        let text = "exit status 1; the kernel ended 1 of its processes, out of memory";
        check(Code(1), 1, None, Cause::Itself, text);
        // A crash while it stops is none of our doing.
        check(Signal(11), 0, term, Cause::Unknown, "signal 11, not sent by the supervisor");
    }

    #[test]
    fn an_end_survives_its_json() {
        for by in [Cause::Itself, Cause::Stop(Rung::Kill), Cause::Liveness(Rung::Signal), Cause::OutOfMemory] {
            let end = End { status: Signal(6), by, traces: Traces { core_dumped: true, oom_kills: 2 } };
            let json = serde_json::to_string(&end).unwrap();
            assert_eq!(serde_json::from_str::<End>(&json).unwrap(), end, "{json}");
        }
    }
}
