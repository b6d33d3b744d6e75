//! The record that proves a stop, as the daemon keeps it on disk and serves it. The JSON is the same in both places.

use serde::{Deserialize, Serialize};
use std::fmt;

/// One stop of one group. Times of the fields without a unit are daemon time: milliseconds since it started.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Receipt {
    /// Version of this shape.
    pub schema: u32,
    /// The group.
    pub group: String,
    /// Which start of the group this stop ends.
    pub generation: u64,
    /// Who wanted the stop.
    pub why: Why,
    /// When the stop began (daemon time).
    pub began: u64,
    /// When the last proof was in (daemon time).
    pub ended: u64,
    /// Milliseconds between the two.
    pub elapsed_ms: u64,
    /// True when the tenant's path was seen shut before the first component was touched.
    pub path_shut: bool,
    /// The components in the order in which they were proven gone.
    pub components: Vec<Stopped>,
    /// Processes found outside any component's run.
    pub strays: Vec<Reaped>,
    /// True when the group's cgroup was removed (in the fallback: two scans found nothing).
    pub removed: bool,
    /// When it was written, by the wall clock, if the keeper noted it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub written_at_ms: Option<u64>,
}

/// One component's part of a receipt.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stopped {
    /// The component.
    pub component: String,
    /// Its rank.
    pub rank: u16,
    /// The run, when one was alive.
    pub birth: Option<u64>,
    /// The leader.
    pub pid: Option<u32>,
    /// How the leader ended.
    pub status: Option<ExitStatus>,
    /// The same with who ended it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub end: Option<End>,
    /// The highest rung that was needed.
    pub rung: Rung,
    /// When its ladder began (daemon time).
    pub began: u64,
    /// When it was proven gone (daemon time).
    pub gone: u64,
    /// The other processes of the run.
    pub others: Vec<Reaped>,
}

/// Why a stop was asked for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Why {
    /// The kind: `operator`, `shutdown`, `reload`, ...
    pub why: String,
    /// What belongs to it: a component, a sentence.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub detail: Option<String>,
}

/// A step of the ladder.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Rung {
    /// Nothing was running.
    None,
    /// The stop signal, after which it left with all of its own.
    Signal,
    /// The cgroup's kill.
    Kill,
    /// Even that did not empty it in time.
    Wedged,
}

/// How a process ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ExitStatus {
    /// exit(n).
    Code(i32),
    /// Killed by signal n.
    Signal(i32),
    /// Nobody could read it.
    Unknown,
}

/// How a run ended and who ended it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct End {
    /// The main process's own status.
    pub status: ExitStatus,
    /// Who ended it.
    pub by: Cause,
    /// The kernel wrote a core dump.
    #[serde(default)]
    pub core_dumped: bool,
    /// Processes of this run that the kernel ended, out of memory.
    #[serde(default)]
    pub oom_kills: u64,
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
    /// A signal that the supervisor did not send. Also what a reader makes of a cause that it does not know.
    #[serde(other)]
    Unknown,
}

/// One process that a sweep or a ladder found and saw end.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reaped {
    /// Component it was attributed to, if any.
    pub component: Option<String>,
    /// Process id.
    pub pid: u32,
    /// Kernel start time, in clock ticks since boot; 0 when unreadable.
    pub start_time: u64,
    /// Command name, at most 15 bytes.
    pub command: String,
    /// How it was reached.
    pub by: ReapedBy,
}

/// What ended a stray process.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ReapedBy {
    /// It was gone when the ladder looked again.
    Itself,
    /// The stop signal.
    Signal,
    /// cgroup.kill.
    CgroupKill,
    /// Found by its marker outside the cgroup, killed through a pidfd.
    MarkerKill,
}

impl fmt::Display for ExitStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ExitStatus::Code(n) => f.pad(&format!("exit {n}")),
            ExitStatus::Signal(n) => f.pad(&format!("signal {n}")),
            ExitStatus::Unknown => f.pad("unknown"),
        }
    }
}

impl fmt::Display for End {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let core = if self.core_dumped { ", core dumped" } else { "" };
        let by = match self.by {
            Cause::Itself => "",
            Cause::Stop(Rung::Kill | Rung::Wedged) => " (killed by us)",
            Cause::Stop(_) => " (stopped by us)",
            Cause::Liveness(_) => " (ended by us: not alive)",
            Cause::OutOfMemory => " (out of memory)",
            Cause::Unknown if self.status == ExitStatus::Unknown => "",
            Cause::Unknown => " (not by us)",
        };
        f.pad(&format!("{}{by}{core}", self.status))
    }
}

impl fmt::Display for Rung {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Rung::None => "not running",
            Rung::Signal => "stop signal",
            Rung::Kill => "cgroup kill",
            Rung::Wedged => "wedged",
        })
    }
}

impl fmt::Display for ReapedBy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            ReapedBy::Itself => "went by itself",
            ReapedBy::Signal => "ended by the stop signal",
            ReapedBy::CgroupKill => "killed with its cgroup",
            ReapedBy::MarkerKill => "found by its marker, killed",
        })
    }
}

impl fmt::Display for Why {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.why.as_str() {
            "operator" => f.write_str("asked by the operator"),
            "boot" => f.write_str("the daemon came up"),
            "shutdown" => f.write_str("the daemon goes down"),
            "reload" => f.write_str("the configuration changed"),
            "not-declared" => f.write_str("no longer declared"),
            "delete" => f.write_str("deleted by the operator"),
            "retry" => f.write_str("trying again"),
            "survivors" => f.write_str("processes of an earlier run were ended"),
            other => {
                let detail = self.detail.as_deref().unwrap_or_default();
                match other {
                    "component-ended" => write!(f, "component {detail} ended and its restart law is stop-group"),
                    "gave-up" => write!(f, "gave up: {detail}"),
                    _ if detail.is_empty() => f.write_str(other),
                    _ => write!(f, "{other}: {detail}"),
                }
            }
        }
    }
}
