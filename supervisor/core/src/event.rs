//! What the world tells a group. Every outcome of an [`crate::Action`] comes back as one of these.

use crate::action::{Permit, Role};
use crate::end::Traces;
use crate::name::{Birth, ComponentName};
use crate::spec::GroupSpec;
use serde::{Deserialize, Serialize};
use std::fmt;

/// One input of [`crate::Group::handle`].
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", tag = "event")]
pub enum Event {
    /// The source says that the group exists and looks like this. Applies a plan to a running group.
    Declared {
        /// The whole spec, checked.
        spec: Box<GroupSpec>,
    },
    /// The source says that the group is no longer declared: it is parked, its data stays.
    Removed,
    /// Run it. An operator's start clears counters and waits (law L11).
    Start {
        /// Who wants it.
        why: Why,
    },
    /// Take it down.
    Stop {
        /// Who wants it.
        why: Why,
    },
    /// Restart one component, or with `None` the whole group.
    Restart {
        /// The component, or the whole group.
        component: Option<ComponentName>,
        /// Who wants it.
        why: Why,
    },
    /// The sweep before a start ended: nothing of this group lives any more. Lists what was found and how it ended.
    SurvivorsReaped {
        /// The processes that were found.
        found: Vec<Reaped>,
    },
    /// The sweep could not end: something of an earlier run cannot be killed.
    SurvivorsStuck {
        /// Names pid and wait channel.
        what: String,
    },
    /// The tenant's path is shut, and was seen shut.
    PathShut,
    /// All leased ports are free.
    LeasesGranted,
    /// A leased port is in use by somebody else. The group waits; the port never moves (law L9).
    LeaseTaken {
        /// The lease's role.
        role: String,
        /// The port.
        port: u16,
        /// Who holds it, as far as the kernel tells.
        holder: String,
    },
    /// The group's cgroup exists.
    CgroupMade,
    /// It could not be made.
    CgroupFailed {
        /// The error chain.
        error: String,
    },
    /// A permit asked for by [`crate::Action::Request`] is granted.
    Granted {
        /// Which.
        permit: Permit,
    },
    /// exec succeeded.
    Spawned {
        /// The component.
        component: ComponentName,
        /// The run.
        birth: Birth,
        /// Process id.
        pid: u32,
    },
    /// No process came to be, or exec failed.
    SpawnFailed {
        /// The component.
        component: ComponentName,
        /// The run.
        birth: Birth,
        /// The error chain, with what to do.
        error: String,
    },
    /// The readiness probe held.
    Ready {
        /// The component.
        component: ComponentName,
        /// The run.
        birth: Birth,
    },
    /// A probe did not hold. Readiness: kept as the reason shown to who waits. Liveness: counted.
    ProbeFailed {
        /// The component.
        component: ComponentName,
        /// The run.
        birth: Birth,
        /// What was seen.
        why: String,
    },
    /// A liveness probe held again after failures.
    ProbeRecovered {
        /// The component.
        component: ComponentName,
        /// The run.
        birth: Birth,
    },
    /// The run's cgroup counters grew since the last look: a slow start is making progress.
    Progress {
        /// The component.
        component: ComponentName,
        /// The run.
        birth: Birth,
    },
    /// The leader was waited for.
    Exited {
        /// The component.
        component: ComponentName,
        /// The run.
        birth: Birth,
        /// How it ended.
        status: ExitStatus,
        /// What else was seen of its end.
        #[serde(default)]
        traces: Traces,
    },
    /// No process of the run is left, zombies included.
    CgroupEmpty {
        /// The component.
        component: ComponentName,
        /// The run.
        birth: Birth,
        /// Processes other than the leader that had to be ended, or ended by themselves after the ladder began.
        reaped: Vec<Reaped>,
    },
    /// The run was killed and something of it is there still. Shown until it is gone.
    Lingers {
        /// The component.
        component: ComponentName,
        /// The run.
        birth: Birth,
        /// Names the processes and what they wait for.
        what: String,
    },
    /// The run's cgroup is removed.
    CgroupRemoved {
        /// The component.
        component: ComponentName,
        /// The run.
        birth: Birth,
    },
    /// The group's own cgroup is removed.
    GroupRemoved,
    /// The group's own cgroup could not be removed.
    GroupStuck {
        /// Names what is inside.
        what: String,
    },
    /// Time passed: a deadline may be due.
    Tick,
}

/// Why a start or a stop was asked for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", tag = "why", content = "detail")]
pub enum Why {
    /// A person, through the admin socket.
    Operator,
    /// The daemon came up and the group is declared.
    Boot,
    /// The daemon goes down.
    Shutdown,
    /// The source changed.
    Reload,
    /// The source no longer declares it.
    NotDeclared,
    /// `ctl delete`.
    Delete,
    /// A component's restart law says so.
    ComponentEnded(ComponentName),
    /// The bring-up was given up.
    GaveUp(String),
    /// Time to try again after a give-up.
    Retry,
    /// Of a receipt only: processes of an earlier run were ended before a start.
    Survivors,
}

impl fmt::Display for Why {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Why::Operator => f.write_str("asked by the operator"),
            Why::Boot => f.write_str("the daemon came up"),
            Why::Shutdown => f.write_str("the daemon goes down"),
            Why::Reload => f.write_str("the configuration changed"),
            Why::NotDeclared => f.write_str("no longer declared"),
            Why::Delete => f.write_str("deleted by the operator"),
            Why::ComponentEnded(c) => write!(f, "component {c} ended and its restart law is stop-group"),
            Why::GaveUp(what) => write!(f, "gave up: {what}"),
            Why::Retry => f.write_str("trying again"),
            Why::Survivors => f.write_str("processes of an earlier run were ended"),
        }
    }
}

/// How a process ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ExitStatus {
    /// exit(n).
    Code(i32),
    /// Killed by signal n.
    Signal(i32),
    /// Nobody could read it (the process was not our child).
    Unknown,
}

impl ExitStatus {
    /// True for exit(0).
    pub fn success(self) -> bool {
        self == ExitStatus::Code(0)
    }
}

impl fmt::Display for ExitStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ExitStatus::Code(n) => write!(f, "exit status {n}"),
            ExitStatus::Signal(n) => write!(f, "signal {n}"),
            ExitStatus::Unknown => f.write_str("unknown status"),
        }
    }
}

/// One process that a sweep or a ladder found and saw end.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reaped {
    /// Component it was attributed to, if any.
    pub component: Option<ComponentName>,
    /// Process id.
    pub pid: u32,
    /// Kernel start time, in clock ticks since boot; 0 when unreadable.
    pub start_time: u64,
    /// Command name (comm), at most 15 bytes.
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
    /// The group's stop signal.
    Signal,
    /// cgroup.kill.
    CgroupKill,
    /// Found by its marker outside the cgroup, killed through a pidfd.
    MarkerKill,
}

impl Event {
    /// The component and run that this event is about, if it is about one.
    pub fn birth(&self) -> Option<(&ComponentName, Birth)> {
        match self {
            Event::Spawned { component, birth, .. }
            | Event::SpawnFailed { component, birth, .. }
            | Event::Ready { component, birth }
            | Event::ProbeFailed { component, birth, .. }
            | Event::ProbeRecovered { component, birth }
            | Event::Progress { component, birth }
            | Event::Exited { component, birth, .. }
            | Event::CgroupEmpty { component, birth, .. }
            | Event::Lingers { component, birth, .. }
            | Event::CgroupRemoved { component, birth } => Some((component, *birth)),
            _ => None,
        }
    }
}

/// Names a role in messages.
impl fmt::Display for Role {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Role::Main => f.write_str("main program"),
            Role::Pre(n) => write!(f, "pre task {}", n + 1),
            Role::Post(n) => write!(f, "post task {}", n + 1),
        }
    }
}
