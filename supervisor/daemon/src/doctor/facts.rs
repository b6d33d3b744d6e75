//! What was seen on the host. Plain data: everything that [`super::judge()`] knows.

use super::place::Seen;
use std::collections::BTreeMap;
use std::path::PathBuf;

/// All of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Facts {
    /// Whether a daemon answers.
    pub seen: Seen,
    /// Where it was looked for, for people.
    pub socket: String,
    /// A living daemon that has the state folder locked, whoever answers.
    pub holder: Option<u32>,
    /// The account that runs the daemon, or would: uid and name.
    pub account: (u32, String),
    /// The configuration.
    pub config: ConfigFacts,
    /// The cgroup hierarchy, and what of it is ours.
    pub cgroups: CgroupFacts,
    /// The kernel's release, such as "6.1.0-13-amd64".
    pub kernel: String,
    /// A pidfd could be opened.
    pub pidfds: bool,
    /// What the daemon may use.
    pub limits: LimitFacts,
    /// What the declared groups need.
    pub need: Need,
    /// systemd's version, such as "252.39-1"; none where it does not run this host.
    pub systemd: Option<String>,
    /// Whether the account's services outlive its sessions; none where the question makes no sense.
    pub linger: Option<bool>,
    /// How much of the journal the account may fill; none where lines go to files, or to root's own units.
    pub journal: Option<JournalFacts>,
    /// What dead daemons left.
    pub left: Left,
    /// The programs that tenants need.
    pub programs: Programs,
    /// The state folder.
    pub state: StateFacts,
    /// Ports.
    pub ports: PortFacts,
    /// The clock.
    pub clock: ClockFacts,
}

/// The configuration.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ConfigFacts {
    /// The file; none when there is none to find.
    pub file: Option<PathBuf>,
    /// What is wrong and keeps something from being used.
    pub errors: Vec<String>,
    /// What somebody should look at.
    pub warnings: Vec<String>,
}

/// Which hierarchies are mounted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Hierarchy {
    /// cgroup2 alone.
    Unified,
    /// cgroup2 beside v1, which has the controllers.
    Hybrid,
    /// v1 alone.
    Old,
    /// Nothing.
    Missing,
}

/// The cgroup hierarchy, and what of it is ours.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CgroupFacts {
    /// Which.
    pub hierarchy: Hierarchy,
    /// The folder below which the daemon works, or would.
    pub root: Option<RootFacts>,
    /// The daemon's own path in the hierarchy, as /proc shows it.
    pub own: String,
}

/// The folder below which the daemon works.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RootFacts {
    /// Where.
    pub path: PathBuf,
    /// How it was chosen, as in "the daemon's cgroup".
    pub whose: String,
    /// cgroup.type; empty at the root of the hierarchy, which has none.
    pub kind: String,
    /// cgroup.controllers.
    pub offered: Vec<String>,
    /// cgroup.subtree_control.
    pub handed_down: Vec<String>,
    /// What of it the account may not write: "." is the folder itself.
    pub unwritable: Vec<String>,
    /// The daemon is a direct member.
    pub daemon_inside: bool,
    /// It has cgroup.kill, or is the root of the hierarchy.
    pub has_kill: bool,
}

/// What the daemon may use. `None`: without limit.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct LimitFacts {
    /// RLIMIT_NOFILE, hard.
    pub nofile: Option<u64>,
    /// RLIMIT_NPROC, soft; none also for root, whom it does not bind.
    pub nproc: Option<u64>,
    /// The lowest pids.max from the daemon's cgroup up, with its folder.
    pub tasks: Option<(u64, PathBuf)>,
}

/// What the declared groups need, as far as files tell.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Need {
    /// Declared groups.
    pub groups: u64,
    /// Tenants among them.
    pub tenants: u64,
    /// Components of all.
    pub components: u64,
}

/// journald's limit for all that the units of one account say.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct JournalFacts {
    /// The unit of the system's manager that journald counts those lines for.
    pub unit: String,
    /// LogRateLimitBurst= of that unit, as journald was told; none: its default for any service is in force.
    pub burst: Option<u64>,
}

/// What dead daemons left.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Left {
    /// Processes that carry the marker of a state folder whose daemon does not live: pid, name, marker.
    pub processes: Vec<(u32, String, String)>,
    /// Cgroup subtrees of such.
    pub cgroups: Vec<PathBuf>,
    /// The id of our own state folder, with which its markers begin.
    pub own_id: String,
    /// State folders by their id, as far as they are known.
    pub folders: BTreeMap<String, PathBuf>,
}

/// The programs that tenants need.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Programs {
    /// Whose PATH was searched, as in "the daemon's PATH".
    pub searched: String,
    /// Name, and where it is or why not.
    pub found: Vec<(String, Result<PathBuf, String>)>,
}

/// The state folder.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct StateFacts {
    /// Where; none when nobody says.
    pub path: Option<PathBuf>,
    /// Owner and permission bits; none while it does not exist.
    pub owner_and_mode: Option<(u32, u32)>,
    /// "tmpfs" or "ramfs" where a reboot empties it.
    pub memory: Option<String>,
    /// That is accepted by the configuration.
    pub memory_accepted: bool,
    /// Mounted read-only.
    pub read_only: bool,
    /// Free bytes; none when they cannot be read.
    pub free_bytes: Option<u64>,
}

/// Ports.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PortFacts {
    /// Ranges to lease from that the kernel also gives to outgoing connections, low to high.
    pub overlap: Vec<(u16, u16)>,
    /// net.ipv4.ip_local_port_range.
    pub ephemeral: String,
}

/// The clock.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ClockFacts {
    /// Seconds since 1970.
    pub now: u64,
    /// The newest time of a file in the state folder, and its name.
    pub newest: Option<(u64, String)>,
    /// What systemd-timesyncd says, where it runs.
    pub synchronised: Option<bool>,
}
