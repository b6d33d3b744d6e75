//! What is: the host, its groups, their components. Observed, never inferred.

use crate::receipt::{End, ExitStatus, Reaped};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt;

/// Answer to `status`, and each line of `watch`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct HostStatus {
    /// [`crate::SCHEMA`].
    pub schema: u32,
    /// The daemon's version.
    pub version: String,
    /// The daemon's process id.
    pub pid: u32,
    /// When it started, by the wall clock of that moment.
    pub started_at_ms: u64,
    /// How long it runs.
    pub uptime_s: u64,
    /// One sentence: how processes are kept together on this host, and what that cannot do.
    pub cgroups: String,
    /// Where all state lives.
    pub state_dir: String,
    /// The config file in force.
    pub config: String,
    /// Which server program tenants get: `k3s`, `kube-server`, or a path from the configuration; empty when no group
    /// needs one.
    pub server: String,
    /// How many tenants the leased port ranges allow.
    pub max_tenants: u32,
    /// Resident memory of the daemon alone.
    pub rss_bytes: u64,
    /// Log lines dropped because a component wrote faster than they could be kept, since the daemon's start.
    pub dropped_log_lines: u64,
    /// Events dropped because a follower was too slow, since the daemon's start.
    pub dropped_events: u64,
    /// What is wrong and does not stop the daemon: a broken cluster file, a source that cannot be read.
    pub warnings: Vec<String>,
    /// The groups by name; only the one asked for when one was named.
    pub groups: Vec<GroupStatus>,
}

/// One group.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct GroupStatus {
    /// Its name.
    pub name: String,
    /// Its phase.
    pub phase: Phase,
    /// Seconds since it entered the phase.
    pub since_s: u64,
    /// One sentence: why it is so, or what is being waited for. Empty when Ready.
    pub reason: String,
    /// Seconds until it tries again, if it gave up for now.
    pub retry_in_s: Option<u64>,
    /// Counts the starts of the whole group.
    pub generation: u64,
    /// True while the source declares it.
    pub declared: bool,
    /// For tenants: `https://127.0.0.1:PORT`.
    pub url: Option<String>,
    /// For tenants: the operator's kubeconfig file.
    pub kubeconfig: Option<String>,
    /// Leased ports by role.
    pub ports: BTreeMap<String, u16>,
    /// How long the last start that reached Ready took.
    pub last_start_ms: Option<u64>,
    /// Size of a tenant's sqlite database and its write-ahead log.
    #[serde(default)]
    pub datastore_bytes: Option<u64>,
    /// The longest that an orderly stop can take.
    pub stop_deadline_s: u64,
    /// What the sweep before the last start found.
    pub survivors: Vec<Reaped>,
    /// What the whole group takes of the host.
    #[serde(default, skip_serializing_if = "Usage::is_empty")]
    pub usage: Usage,
    /// Bounds that are in force, by their key in the cluster file; a component's with `COMPONENT.` in front. Bytes, thousandths
    /// of a core, processes, io weight.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub bounds: BTreeMap<String, u64>,
    /// Bounds that the cluster file wants and this host does not keep, under the same names.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub bounds_missing: Vec<String>,
    /// The components by rank, then name.
    pub components: Vec<ComponentStatus>,
}

/// One component.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ComponentStatus {
    /// Its name.
    pub name: String,
    /// Its place in the order: lower starts earlier and stops later.
    pub rank: u16,
    /// Idle, Waiting, Preparing, Starting, Ready, Done, Backoff, Stopping, Wedged, Failed.
    pub state: String,
    /// One sentence on what is being waited for, or why it failed.
    pub detail: String,
    /// Its process.
    pub pid: Option<u32>,
    /// The current run.
    pub birth: Option<u64>,
    /// Seconds since it entered the state.
    pub since_s: u64,
    /// Restarts since the group's start.
    pub restarts: u64,
    /// How the last run of the main program ended.
    pub last_exit: Option<ExitStatus>,
    /// The same with who ended it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_end: Option<End>,
    /// Seconds since that run was gone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_end_s: Option<u64>,
    /// Resident memory of all its processes; absent when it has none or they cannot be read.
    pub rss_bytes: Option<u64>,
    /// CPU time used by the current run.
    pub cpu_usec: Option<u64>,
    /// What the component takes of the host: all processes of its runs in this generation of the group.
    #[serde(default, skip_serializing_if = "Usage::is_empty")]
    pub usage: Usage,
    /// Its log lines; absent before the first.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub log: Option<LogCounts>,
}

/// Log lines of one component since the daemon's start: `lines = written + dropped + waiting`, exactly.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LogCounts {
    /// Read from its pipes.
    pub lines: u64,
    /// Taken by the journal or the file.
    pub written: u64,
    /// Dropped, because there was no room for them; the log says where.
    pub dropped: u64,
    /// On their way.
    pub waiting: u64,
}

/// What one cgroup takes, as the kernel counts it; absent where no controller does. Counters begin when the group starts.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Usage {
    /// Memory, page cache included.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory_bytes: Option<u64>,
    /// The most that it ever was.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory_peak_bytes: Option<u64>,
    /// Processor time.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cpu_usec: Option<u64>,
    /// Time for which it was held back by its cpu bound.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cpu_throttled_usec: Option<u64>,
    /// Processes and threads.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pids: Option<u64>,
    /// Bytes read from block devices.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub io_read_bytes: Option<u64>,
    /// Bytes written to block devices.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub io_write_bytes: Option<u64>,
    /// Processes that the kernel ended, out of memory.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub oom_kills: Option<u64>,
}

impl Usage {
    /// True when nothing is counted.
    pub fn is_empty(&self) -> bool {
        *self == Usage::default()
    }
}

impl ComponentStatus {
    /// True when it does its work, or has done it.
    pub fn is_up(&self) -> bool {
        self.state == "Ready" || self.state == "Done"
    }
}

impl GroupStatus {
    /// The component of that name.
    pub fn component(&self, name: &str) -> Option<&ComponentStatus> {
        self.components.iter().find(|c| c.name == name)
    }
}

impl HostStatus {
    /// The group of that name.
    pub fn group(&self, name: &str) -> Option<&GroupStatus> {
        self.groups.iter().find(|g| g.name == name)
    }
}

/// The phase of a group.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
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
    /// A phase that this reader does not know: the daemon is newer.
    #[serde(other)]
    Unknown,
}

impl Phase {
    /// All phases that a daemon reports.
    pub const ALL: [Phase; 9] = [
        Phase::Absent,
        Phase::Sweeping,
        Phase::Starting,
        Phase::Ready,
        Phase::Degraded,
        Phase::Draining,
        Phase::Stopping,
        Phase::Parked,
        Phase::Unavailable,
    ];

    /// The name, as on the wire.
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
            Phase::Unknown => "Unknown",
        }
    }
}

impl fmt::Display for Phase {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}
