//! What a component is. Recipes and the config room build these; core reads the policy, the shell reads the launch.

use crate::limits::{CoreBudget, Limits};
use crate::name::{ComponentName, GroupName, Rank};
use crate::shared::Shared;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

/// One group as declared: its components, already ranked and checked by [`crate::graph`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct GroupSpec {
    /// The group's name.
    pub name: GroupName,
    /// Leased ports by role (`https`, `ccm-secure-port`, ...). Sticky for the cluster's life.
    pub ports: BTreeMap<String, u16>,
    /// The components, in any order; [`crate::graph::check`] holds for them.
    pub components: Vec<Shared<ComponentSpec>>,
    /// Deadlines of the whole bring-up.
    pub bringup: Bringup,
    /// What the whole group may take of the host.
    #[serde(default)]
    pub limits: Limits,
    /// How much of core dumps it may keep.
    #[serde(default)]
    pub cores: CoreBudget,
}

/// Deadlines of a group's bring-up; when one passes, the group stops and becomes Unavailable.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Bringup {
    /// Give up after this long without any component making a step.
    pub no_progress: Duration,
    /// Give up after this long in any case.
    pub cap: Duration,
    /// First wait before a group that gave up is tried again; doubles up to six times its value.
    pub retry: Duration,
}

impl Default for Bringup {
    fn default() -> Self {
        Bringup {
            no_progress: Duration::from_secs(15 * 60),
            cap: Duration::from_secs(60 * 60),
            retry: Duration::from_secs(10 * 60),
        }
    }
}

/// One supervised program.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ComponentSpec {
    /// Its name, unique in the group.
    pub name: ComponentName,
    /// Its place in the order of the stop.
    pub rank: Rank,
    /// Components that must be ready before it starts; all of a lower rank.
    pub needs: Vec<ComponentName>,
    /// Long-lived or one-shot.
    pub kind: Kind,
    /// Programs that run to success, in order, before each start (first-start tasks, hooks).
    pub pre: Vec<Task>,
    /// The program.
    pub launch: Launch,
    /// Programs that run, in order, after each end of the main program, whatever their result.
    pub post: Vec<Task>,
    /// How it proves that it is ready.
    pub readiness: Readiness,
    /// How it goes on proving that it lives; absent = only its exit counts.
    pub liveness: Option<Liveness>,
    /// What its exit means.
    pub restart: Restart,
    /// How fast it is started again.
    pub backoff: Backoff,
    /// How it is stopped.
    pub stop: StopPolicy,
    /// What it may take of the host, all of its runs' processes together.
    #[serde(default)]
    pub limits: Limits,
}

/// Long-lived or one-shot.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Kind {
    /// Expected to run until it is stopped.
    Service,
    /// Expected to end with status 0 once per start of the group; its success is its readiness.
    OneShot,
}

/// A short program with a limit, run in the component's own cgroup.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Task {
    /// The program.
    pub launch: Launch,
    /// It is stopped by the ladder when it takes longer.
    pub timeout: Duration,
}

/// What to execute. Everything is explicit: nothing is inherited from the daemon.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Launch {
    /// argv\[0\] is the absolute path of the program.
    pub argv: Vec<String>,
    /// The whole environment (the shell adds only its marker and, where asked for, the notify variables).
    pub env: BTreeMap<String, String>,
    /// Working directory; created with mode 0700 when absent.
    pub cwd: PathBuf,
    /// Directories to create (mode 0700) before the spawn.
    pub dirs: Vec<PathBuf>,
    /// Files to write atomically before the spawn; a file that has the content already is left alone.
    pub files: Vec<FileSpec>,
    /// Paths to remove before the spawn when nobody listens there: stale unix sockets.
    pub stale_sockets: Vec<PathBuf>,
    /// RLIMIT_NOFILE, soft and hard; absent = the daemon's own hard limit.
    pub nofile: Option<u64>,
    /// RLIMIT_CORE in bytes.
    pub core_limit: u64,
    /// oom_score_adj, -1000 to 1000; absent = by its rank, see [`crate::limits::oom_score`].
    pub oom_score_adj: Option<i32>,
}

impl Launch {
    /// A launch of `argv` in `cwd` with an empty environment, no files, no core dumps.
    pub fn new(argv: Vec<String>, cwd: impl Into<PathBuf>) -> Self {
        Launch {
            argv,
            env: BTreeMap::new(),
            cwd: cwd.into(),
            dirs: Vec::new(),
            files: Vec::new(),
            stale_sockets: Vec::new(),
            nofile: None,
            core_limit: 0,
            oom_score_adj: None,
        }
    }
}

/// A file that a launch needs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileSpec {
    /// Absolute path.
    pub path: PathBuf,
    /// Permission bits, such as 0o600.
    pub mode: u32,
    /// Its whole content. Never a secret: secrets are made by tasks and stay in files.
    pub content: String,
}

/// How a component proves something. Paths are absolute.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", tag = "kind")]
pub enum Probe {
    /// Holds as soon as exec succeeded and while the process lives.
    Running,
    /// The process sends READY=1 to its NOTIFY_SOCKET (liveness: WATCHDOG=1).
    Notify,
    /// The process writes a newline to this file descriptor, as s6 does.
    NotificationFd {
        /// Number of the descriptor in the child.
        fd: i32,
    },
    /// GET answers with one of the statuses.
    Http {
        /// http:// or https:// URL.
        url: String,
        /// Accepted status codes.
        expect: Vec<u16>,
        /// Trust and client certificate for https.
        tls: Option<TlsFiles>,
    },
    /// A TCP connection is accepted.
    Tcp {
        /// HOST:PORT.
        address: String,
    },
    /// A unix socket accepts a connection.
    Unix {
        /// The socket.
        path: PathBuf,
    },
    /// An etcd range query over a unix socket with TLS is answered.
    EtcdRange {
        /// The socket.
        socket: PathBuf,
        /// Trust and client certificate; the server's name is `localhost`.
        tls: TlsFiles,
    },
    /// A program ends with status 0.
    Exec {
        /// The program; runs in the component's own cgroup.
        launch: Box<Launch>,
    },
    /// A log line contains this text.
    LogLine {
        /// The text.
        contains: String,
    },
}

/// PEM files for a TLS client.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TlsFiles {
    /// Certificates that are trusted.
    pub ca: PathBuf,
    /// Client certificate and key, if the server asks for one.
    pub identity: Option<(PathBuf, PathBuf)>,
}

/// When a component counts as ready.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Readiness {
    /// What must hold.
    pub probe: Probe,
    /// Time between attempts.
    pub interval: Duration,
    /// Limit of one attempt.
    pub timeout: Duration,
    /// Not ready this long after its spawn: the start failed. While it makes progress (cgroup io or cpu counters grow) the
    /// deadline moves on, up to `cap`.
    pub deadline: Duration,
    /// The hard limit.
    pub cap: Duration,
}

/// How often a ready component is asked, and how many failures in a row mean that it hangs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Liveness {
    /// What must hold.
    pub probe: Probe,
    /// Time between attempts.
    pub interval: Duration,
    /// Limit of one attempt.
    pub timeout: Duration,
    /// This many failures in a row: stop by the ladder, start again.
    pub failures: u32,
}

/// What the end of a component means for its group.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Restart {
    /// It starts again; nobody else is touched.
    Alone,
    /// All that need it, directly or not, stop first and start again after it.
    WithDependents,
    /// The group stops.
    StopGroup,
    /// It stays ended; the group goes on.
    Never,
}

/// Growing waits between restarts. The first restart after a stable run is immediate.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Backoff {
    /// Wait before the second restart; doubles each time. Jitter takes up to half of a wait away.
    pub base: Duration,
    /// Longest wait.
    pub max: Duration,
    /// Ready this long: the count begins anew.
    pub stable: Duration,
    /// After this many failures in a row the component gives up for now and says so.
    pub limit: u32,
    /// How long it then waits before it tries again by itself.
    pub give_up: Duration,
}

impl Default for Backoff {
    fn default() -> Self {
        Backoff {
            base: Duration::from_secs(1),
            max: Duration::from_secs(60),
            stable: Duration::from_secs(60),
            limit: 8,
            give_up: Duration::from_secs(10 * 60),
        }
    }
}

/// The ladder of one component.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct StopPolicy {
    /// Signal number of the first rung (SIGTERM = 15).
    pub signal: i32,
    /// Grace between that signal and the cgroup's kill at a group's stop.
    pub grace: Duration,
    /// The same at a restart of this component alone.
    pub grace_restart: Duration,
    /// How long a killed cgroup may take to empty before the component is Wedged.
    pub kill_wait: Duration,
}

impl StopPolicy {
    /// SIGTERM, `grace` everywhere, 10 s for the kernel to take a killed process away.
    pub fn term(grace: Duration) -> Self {
        StopPolicy { signal: 15, grace, grace_restart: grace, kill_wait: Duration::from_secs(10) }
    }
}

impl GroupSpec {
    /// The component of that name.
    pub fn component(&self, name: &ComponentName) -> Option<&Shared<ComponentSpec>> {
        self.components.iter().find(|c| &c.name == name)
    }

    /// The longest that an orderly stop can take: per rank the slowest ladder, summed.
    pub fn stop_deadline(&self) -> Duration {
        slowest_stop(self.components.iter().map(|c| (c.rank, &**c)))
    }
}

/// A post task is a run of its own: past its limit it is killed, and that may take as long as any kill.
pub(crate) fn slowest_stop<'a>(components: impl Iterator<Item = (Rank, &'a ComponentSpec)>) -> Duration {
    let mut by_rank: BTreeMap<Rank, Duration> = BTreeMap::new();
    for (rank, c) in components {
        let post: Duration = c.post.iter().map(|t| t.timeout + c.stop.kill_wait).sum();
        let ladder = c.stop.grace + c.stop.kill_wait + post;
        let slowest = by_rank.entry(rank).or_default();
        *slowest = (*slowest).max(ladder);
    }
    by_rank.values().sum()
}
