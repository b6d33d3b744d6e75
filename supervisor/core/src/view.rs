//! What people see of a group: always derived from the machine's state, never from intent (law L14).

use crate::end::End;
use crate::event::{ExitStatus, Reaped};
use crate::name::{Birth, ComponentName, GroupName, Rank};
use crate::time::Time;
use serde::{Deserialize, Serialize};

/// The phase of a group.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Phase {
    /// Neither declared nor running.
    Absent,
    /// Ending what an earlier run left, and seeing that its ports are free.
    Sweeping,
    /// Components are starting.
    Starting,
    /// All components are ready.
    Ready,
    /// It was ready, and a component is not at the moment.
    Degraded,
    /// The tenant's path is being shut before anything is touched.
    Draining,
    /// Components are stopping.
    Stopping,
    /// Declared, not running.
    Parked,
    /// Gave up for now.
    Unavailable,
}

impl Phase {
    /// The name shown to people.
    pub fn as_str(self) -> &'static str {
        match self {
            Phase::Absent => "Absent",
            Phase::Sweeping => "Sweeping",
            Phase::Starting => "Starting",
            Phase::Ready => "Ready",
            Phase::Degraded => "Degraded",
            Phase::Draining => "Draining",
            Phase::Stopping => "Stopping",
            Phase::Parked => "Parked",
            Phase::Unavailable => "Unavailable",
        }
    }
}

/// One group, as it is.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct GroupView {
    /// Its name.
    pub name: GroupName,
    /// Its phase.
    pub phase: Phase,
    /// When it entered the phase.
    pub since: Time,
    /// One sentence: why it is so, or what is being waited for. Empty when Ready.
    pub reason: String,
    /// When it tries again, if it gave up.
    pub retry_at: Option<Time>,
    /// Counts the starts of the whole group.
    pub generation: u64,
    /// True while the source declares it.
    pub declared: bool,
    /// What the last sweep found.
    pub survivors: Vec<Reaped>,
    /// The components by rank, then name.
    pub components: Vec<ComponentView>,
}

/// One component, as it is.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ComponentView {
    /// Its name.
    pub name: ComponentName,
    /// Its rank in this generation.
    pub rank: Rank,
    /// Idle, Waiting, Preparing, Starting, Ready, Done, Backoff, Stopping, Wedged, Failed.
    pub state: String,
    /// One sentence on what is being waited for, or why it failed.
    pub detail: String,
    /// The current run.
    pub birth: Option<Birth>,
    /// Its process.
    pub pid: Option<u32>,
    /// When the state was entered.
    pub since: Time,
    /// Restarts since the group's start.
    pub restarts: u64,
    /// How the last run of the main program ended.
    pub last_exit: Option<ExitStatus>,
    /// The same with who ended it.
    #[serde(default)]
    pub last_end: Option<End>,
    /// When that run was gone.
    #[serde(default)]
    pub last_end_at: Option<Time>,
}
