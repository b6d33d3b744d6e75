//! The keys of a cluster file, as serde reads them and as `config schema` shows them. What they must obey together is
//! in [`super::cluster`].

use super::limits::{GroupLimitsFile, LimitsFile};
use super::tenant::TenantTimeouts;
use super::value::{HumanDuration, SignalName};
use schemars::JsonSchema;
use serde::Deserialize;
use socialweb_core::ComponentName;
use std::collections::BTreeMap;
use std::path::PathBuf;

/// One file of clusters.d: a tenant cluster, or a group of any programs. The group's name is the file's name.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(title = "clusters.d/NAME.toml")]
pub struct ClusterFile {
    /// tenant (a Kubernetes control plane) or exec (only the programs listed here). Default: tenant.
    #[serde(default)]
    pub kind: ClusterKind,
    /// The group's name, if it is to be repeated here; it must be the file's name without .toml.
    pub name: Option<String>,
    /// Whose cluster it is; required for a tenant.
    pub account: Option<String>,
    /// false = parked: declared, its data and ports kept, nothing running. Default: true.
    #[serde(default = "yes")]
    pub running: bool,
    /// More names that the API server's certificate is valid for.
    #[serde(default)]
    pub tls_san: Vec<String>,
    /// The tenant's datastore.
    #[serde(default)]
    pub kine: KineFile,
    /// Go on asking the tenant's components whether they live. Default: `defaults.liveness` of supervisor.toml.
    pub liveness: Option<bool>,
    /// Other timeouts of the tenant's components.
    #[serde(default)]
    pub timeouts: TenantTimeouts,
    /// Deadlines of the whole bring-up.
    #[serde(default)]
    pub bringup: BringupFile,
    /// What the group may take of the host.
    #[serde(default)]
    pub limits: GroupLimitsFile,
    /// Programs: all of an exec group, or what a tenant runs beside its own.
    #[serde(default)]
    pub component: Vec<ComponentFile>,
}

fn yes() -> bool {
    true
}

/// tenant or exec.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum ClusterKind {
    /// kine, OpenBao and k3s server, and what the file adds.
    #[default]
    Tenant,
    /// Only what the file lists.
    Exec,
}

/// `[kine]`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct KineFile {
    /// A file of mode 0600 that holds the DSN of a postgres or mysql database and nothing else. Default: sqlite in the
    /// group's state folder.
    pub dsn_file: Option<PathBuf>,
}

/// `[bringup]`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct BringupFile {
    /// Give up after this long without any step forward. Default: 15m.
    pub no_progress: Option<HumanDuration>,
    /// Give up after this long in any case. Default: 1h.
    pub cap: Option<HumanDuration>,
    /// First wait before the next try. Default: 10m.
    pub retry: Option<HumanDuration>,
}

/// `[[component]]`. Texts may hold {port.ROLE}, {group}, {component}, {dir} (the group's state folder) and {runtime}
/// (its folder for sockets).
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ComponentFile {
    /// Its name, unique in the group.
    #[schemars(with = "String")]
    pub name: ComponentName,
    /// Program and arguments. The program is an absolute path, or a bare name that is looked for on PATH.
    pub argv: Vec<String>,
    /// Its environment; nothing else is in it.
    #[serde(default)]
    pub env: BTreeMap<String, String>,
    /// Names of variables handed on from the daemon's environment, where they are set.
    #[serde(default)]
    pub env_pass: Vec<String>,
    /// Working folder, made when absent. Default: {dir}/{component}.
    pub cwd: Option<String>,
    /// Components that must be ready before it starts.
    #[serde(default)]
    #[schemars(with = "Vec<String>")]
    pub needs: Vec<ComponentName>,
    /// Its place in the order of the stop. Default: one above the highest of its needs.
    pub rank: Option<u16>,
    /// service or one-shot (runs to success once per start of the group). Default: service.
    #[serde(default)]
    pub kind: ComponentKind,
    /// How it proves that it is ready. Default: it runs.
    pub readiness: Option<ProbeFile>,
    /// How it goes on proving that it lives; without `kind`, by the probe of `readiness`. Default: only its exit counts.
    pub liveness: Option<ProbeFile>,
    /// What its exit means. Default: alone.
    #[serde(default)]
    pub restart: RestartFile,
    /// Waits between restarts.
    #[serde(default)]
    pub backoff: BackoffFile,
    /// How it is stopped.
    #[serde(default)]
    pub stop: StopFile,
    /// Programs that run to success, in order, before each start.
    #[serde(default)]
    pub pre: Vec<Vec<String>>,
    /// Programs that run, in order, after each end.
    #[serde(default)]
    pub post: Vec<Vec<String>>,
    /// Limit of each program of pre and post. Default: 60s.
    pub hook_timeout: Option<HumanDuration>,
    /// Roles of the loopback ports that it listens on; each is leased for the group's whole life.
    #[serde(default)]
    pub ports: Vec<String>,
    /// Limit of open files. Default: the daemon's own hard limit.
    pub nofile: Option<u64>,
    /// oom_score_adj, -1000 to 1000. Default: by its rank, later ones die first.
    pub oom_score_adj: Option<i32>,
    /// What it may take of the host.
    #[serde(default)]
    pub limits: LimitsFile,
}

/// service or one-shot.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum ComponentKind {
    /// Runs until it is stopped.
    #[default]
    Service,
    /// Ends with status 0 once per start of the group.
    OneShot,
}

/// What the exit of a component means.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum RestartFile {
    /// It starts again; nobody else is touched.
    #[default]
    Alone,
    /// All that need it stop first and start again after it.
    WithDependents,
    /// The group stops.
    StopGroup,
    /// It stays ended.
    Never,
}

/// `backoff`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct BackoffFile {
    /// Wait before the second restart; doubles each time. Default: 1s.
    pub base: Option<HumanDuration>,
    /// Longest wait. Default: 1m.
    pub max: Option<HumanDuration>,
    /// Ready this long: the count begins anew. Default: 1m.
    pub stable: Option<HumanDuration>,
    /// Failures in a row after which it gives up for now. Default: 8.
    pub limit: Option<u32>,
    /// How long it then waits. Default: 10m.
    pub give_up: Option<HumanDuration>,
}

/// `stop`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct StopFile {
    /// First signal. Default: TERM.
    pub signal: Option<SignalName>,
    /// Time between that signal and the kill. Default: 10s.
    pub grace: Option<HumanDuration>,
    /// The same at a restart of this component alone. Default: as grace.
    pub grace_restart: Option<HumanDuration>,
    /// How long what was killed may take to vanish. Default: 10s.
    pub kill_wait: Option<HumanDuration>,
}

/// `readiness` and `liveness`: which keys go with which kind is said at each key.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct ProbeFile {
    /// What must hold.
    pub kind: Option<ProbeKind>,
    /// http: the URL, http:// or https://.
    pub url: Option<String>,
    /// http: accepted status codes. Default: 200.
    pub expect: Option<Vec<u16>>,
    /// http with an https URL: PEM file of trusted certificates.
    pub ca: Option<String>,
    /// http with an https URL: PEM file of the client certificate.
    pub cert: Option<String>,
    /// http with an https URL: PEM file of the client's key.
    pub key: Option<String>,
    /// tcp: HOST:PORT.
    pub address: Option<String>,
    /// unix: the socket.
    pub path: Option<String>,
    /// notification-fd: number of the descriptor. Default: 3.
    pub fd: Option<i32>,
    /// exec: program and arguments.
    pub argv: Option<Vec<String>>,
    /// log-line: the text that a line must contain.
    pub contains: Option<String>,
    /// Time between attempts. Default: 1s for readiness, 10s for liveness.
    pub interval: Option<HumanDuration>,
    /// Limit of one attempt. Default: 2s for readiness, 5s for liveness.
    pub timeout: Option<HumanDuration>,
    /// readiness: limit of a start that makes no progress. Default: 60s.
    pub deadline: Option<HumanDuration>,
    /// readiness: limit of a start in any case. Default: 20m, or the deadline where that is longer.
    pub cap: Option<HumanDuration>,
    /// liveness: failures in a row that mean that it hangs. Default: 3.
    pub failures: Option<u32>,
}

/// Kinds of probes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum ProbeKind {
    /// The program was executed and lives.
    Running,
    /// It sends READY=1 (liveness: WATCHDOG=1) to NOTIFY_SOCKET.
    Notify,
    /// It writes a newline to a file descriptor.
    NotificationFd,
    /// A GET is answered.
    Http,
    /// A TCP connection is accepted.
    Tcp,
    /// A unix socket accepts a connection.
    Unix,
    /// A program ends with status 0.
    Exec,
    /// A log line contains a text.
    LogLine,
}

impl ProbeKind {
    /// Its name in a file.
    pub fn as_str(self) -> &'static str {
        match self {
            ProbeKind::Running => "running",
            ProbeKind::Notify => "notify",
            ProbeKind::NotificationFd => "notification-fd",
            ProbeKind::Http => "http",
            ProbeKind::Tcp => "tcp",
            ProbeKind::Unix => "unix",
            ProbeKind::Exec => "exec",
            ProbeKind::LogLine => "log-line",
        }
    }
}
