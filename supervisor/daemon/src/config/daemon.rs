//! `supervisor.toml`: its keys, and what they come to once defaults, environment and flags are in.

use super::env::Env;
use super::finding::{ConfigError, Finding};
use super::read;
use super::source::{Source, Step};
use super::tenant::TenantTimeouts;
use super::value::{HumanDuration, Limit, PortRange, Size};
use schemars::JsonSchema;
use serde::Deserialize;
use socialweb_core::GroupName;
use socialweb_core::budget::{Limits, Rate};
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Longest path of a unix socket, in bytes: sun_path is 108 with its NUL.
pub const MAX_SOCKET_PATH: usize = 107;

/// supervisor.toml. Relative paths are relative to this file's folder.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
#[schemars(title = "supervisor.toml")]
pub struct DaemonFile {
    /// Where all state lives. Default: $XDG_STATE_HOME/socialweb-computer, else ~/.local/state/socialweb-computer.
    pub state_dir: Option<PathBuf>,
    /// Where sockets live. Default: $XDG_RUNTIME_DIR/socialweb-computer, else `run` in the state folder.
    pub runtime_dir: Option<PathBuf>,
    /// The folder of the cluster files. Default: clusters.d beside this file.
    pub clusters_dir: Option<PathBuf>,
    /// The cgroup2 folder to work under. Default: the daemon's own cgroup when it is delegated, else a writable cgroup2 mount.
    pub cgroup: Option<PathBuf>,
    /// Accept a state folder on a tmpfs, which a reboot empties. Default: false.
    pub allow_tmpfs: bool,
    /// Record every event of every group, so that a run can be replayed. Default: false.
    pub record_events: bool,
    /// Answer systemd's watchdog: auto (when systemd asks for it) or never. Default: auto.
    pub watchdog: Switch,
    /// Ports that groups lease.
    pub ports: PortsFile,
    /// Log lines of components.
    pub log: LogFile,
    /// Host-wide limits.
    pub budgets: BudgetsFile,
    /// Where programs are found.
    pub binaries: BinariesFile,
    /// What tenants get unless their own file says otherwise.
    pub defaults: DefaultsFile,
}

/// auto or never.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Switch {
    /// When the host offers it.
    #[default]
    Auto,
    /// Not at all.
    Never,
}

/// `[ports]`.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct PortsFile {
    /// Ranges to lease from, the first one first. Keep them outside the ephemeral range.
    pub ranges: Vec<PortRange>,
}

impl Default for PortsFile {
    fn default() -> Self {
        PortsFile { ranges: vec![PortRange(61000..=65535), PortRange(20000..=32767)] }
    }
}

/// `[log]`.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct LogFile {
    /// Send lines to the journal: auto (where there is one) or never. Without a journal they go to rotated files.
    pub journal: Switch,
    /// Size at which a log file is rotated.
    pub max_file_bytes: Size,
    /// Rotated files kept per component, besides the current one.
    pub keep_files: u32,
}

impl Default for LogFile {
    fn default() -> Self {
        LogFile { journal: Switch::Auto, max_file_bytes: Size(10 * 1024 * 1024), keep_files: 3 }
    }
}

/// `[budgets]`.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct BudgetsFile {
    /// Groups that may be coming up at once, or "off". Default: twice the number of cores.
    pub max_concurrent_starts: Option<Limit>,
    /// How long one group may hold its place among those.
    pub start_hold: HumanDuration,
    /// Restarts of components a minute over all groups, or "off".
    pub restarts_per_minute: Limit,
    /// Restarts that may come at once.
    pub restart_burst: u32,
}

impl Default for BudgetsFile {
    fn default() -> Self {
        BudgetsFile {
            max_concurrent_starts: None,
            start_hold: HumanDuration(Duration::from_secs(120)),
            restarts_per_minute: Limit(Some(60)),
            restart_burst: 20,
        }
    }
}

/// `[binaries]`: each is looked for on PATH, then in `search`, then beside our own binary; a key names one outright.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct BinariesFile {
    /// The k3s to use.
    pub k3s: Option<PathBuf>,
    /// The kube-server to use where there is no k3s.
    pub kube_server: Option<PathBuf>,
    /// The kine to use.
    pub kine: Option<PathBuf>,
    /// The OpenBao (`bao`) to use.
    pub bao: Option<PathBuf>,
    /// More folders to look into.
    pub search: Vec<PathBuf>,
}

/// `[defaults]`.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct DefaultsFile {
    /// Go on asking tenants' components whether they live, once they are ready.
    pub liveness: bool,
    /// Other timeouts than the built-in ones.
    pub timeouts: TenantTimeouts,
}

impl Default for DefaultsFile {
    fn default() -> Self {
        DefaultsFile { liveness: true, timeouts: TenantTimeouts::default() }
    }
}

/// What the flags of `run` put above the file.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Overrides {
    /// `-state-dir`.
    pub state_dir: Option<PathBuf>,
    /// `-runtime-dir`.
    pub runtime_dir: Option<PathBuf>,
    /// `-cgroup`.
    pub cgroup: Option<PathBuf>,
    /// `-allow-tmpfs`.
    pub allow_tmpfs: bool,
}

/// The daemon's configuration; every path is absolute but `file` and `clusters_dir`, which read as they were given.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DaemonConfig {
    /// supervisor.toml.
    pub file: PathBuf,
    /// All state.
    pub state_dir: PathBuf,
    /// All sockets.
    pub runtime_dir: PathBuf,
    /// Cluster files.
    pub clusters_dir: PathBuf,
    /// An explicit cgroup2 folder.
    pub cgroup: Option<PathBuf>,
    /// Accept a tmpfs.
    pub allow_tmpfs: bool,
    /// Record events.
    pub record_events: bool,
    /// Answer systemd's watchdog.
    pub watchdog: Switch,
    /// Ranges to lease from, in order.
    pub ports: Vec<RangeInclusive<u16>>,
    /// Log lines of components.
    pub log: LogConfig,
    /// Host-wide limits.
    pub budgets: Limits,
    /// Programs; paths absolute.
    pub binaries: BinariesFile,
    /// What tenants get unless their own file says otherwise.
    pub defaults: DefaultsFile,
}

/// Log lines of components.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LogConfig {
    /// Use the journal.
    pub journal: Switch,
    /// Bytes at which a file is rotated.
    pub max_file_bytes: u64,
    /// Rotated files kept per component.
    pub keep_files: u32,
}

impl DaemonConfig {
    /// The group's state folder.
    pub fn group_dir(&self, group: &GroupName) -> PathBuf {
        self.state_dir.join("groups").join(group.as_str())
    }

    /// The group's folder for sockets.
    pub fn group_runtime_dir(&self, group: &GroupName) -> PathBuf {
        self.runtime_dir.join(group.as_str())
    }

    /// The admin socket.
    pub fn admin_socket(&self) -> PathBuf {
        self.runtime_dir.join("admin.sock")
    }
}

/// Reads supervisor.toml and settles every value.
pub fn load_daemon(file: &Path, env: &Env, flags: &Overrides) -> Result<DaemonConfig, ConfigError> {
    let source = Source::read(file).map_err(|f| ConfigError::new(None, vec![f]))?;
    let parsed: DaemonFile = read::parse(&source).map_err(|f| ConfigError::new(None, f))?;
    settle(&source, parsed, env, flags).map_err(|f| ConfigError::new(None, f))
}

fn settle(source: &Source, file: DaemonFile, env: &Env, flags: &Overrides) -> Result<DaemonConfig, Vec<Finding>> {
    let mut findings = Vec::new();
    check_numbers(source, &file, &mut findings);
    let folder = folder_of(source.path());
    let absolute = |path: &PathBuf| std::path::absolute(folder.join(path)).unwrap_or_else(|_| folder.join(path));
    let flag = |path: &Option<PathBuf>| path.as_ref().map(|p| std::path::absolute(p).unwrap_or_else(|_| p.clone()));
    let state =
        flag(&flags.state_dir).or_else(|| file.state_dir.as_ref().map(absolute)).or_else(|| env.default_state_dir());
    let Some(state_dir) = state else {
        let message = "there is no place for state: set state_dir here, give -state-dir, or set XDG_STATE_HOME or HOME";
        findings.push(source.error(&[], message));
        return Err(findings);
    };
    // kine takes the path as part of a URL, in which these mean something else.
    if state_dir.to_str().is_none_or(|path| path.contains(['?', '#', '%'])) {
        let message = format!(
            "the state folder {} is not UTF-8 or has one of ? # % in its path; choose another",
            state_dir.display()
        );
        findings.push(source.error(&["state_dir".into()], message));
    }
    let runtime_dir = flag(&flags.runtime_dir)
        .or_else(|| file.runtime_dir.as_ref().map(absolute))
        .unwrap_or_else(|| env.default_runtime_dir(&state_dir));
    // notify.sock has the longest name of the daemon's own sockets.
    if let Err(message) = check_socket(&runtime_dir.join("notify.sock")) {
        findings.push(source.error(&["runtime_dir".into()], message));
    }
    for path in [&state_dir, &runtime_dir].into_iter().filter(|p| p.to_str().is_none()) {
        findings.push(source.error(&[], format!("the path {} is not UTF-8; choose another", path.display())));
    }
    if !findings.is_empty() {
        return Err(findings);
    }
    let named = |path: &Option<PathBuf>| path.as_ref().map(absolute);
    Ok(DaemonConfig {
        file: source.path().to_owned(),
        clusters_dir: folder.join(file.clusters_dir.as_deref().unwrap_or(Path::new("clusters.d"))),
        cgroup: flag(&flags.cgroup).or_else(|| named(&file.cgroup)),
        allow_tmpfs: file.allow_tmpfs || flags.allow_tmpfs,
        record_events: file.record_events,
        watchdog: file.watchdog,
        ports: file.ports.ranges.iter().map(|r| r.0.clone()).collect(),
        log: LogConfig {
            journal: file.log.journal,
            max_file_bytes: file.log.max_file_bytes.0,
            keep_files: file.log.keep_files,
        },
        budgets: limits(&file.budgets),
        binaries: BinariesFile {
            k3s: named(&file.binaries.k3s),
            kube_server: named(&file.binaries.kube_server),
            kine: named(&file.binaries.kine),
            bao: named(&file.binaries.bao),
            search: file.binaries.search.iter().map(absolute).collect(),
        },
        defaults: file.defaults,
        state_dir,
        runtime_dir,
    })
}

/// The folder that holds a file; "." for a bare name.
pub(super) fn folder_of(file: &Path) -> &Path {
    match file.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder,
        _ => Path::new("."),
    }
}

fn limits(file: &BudgetsFile) -> Limits {
    let cores = std::thread::available_parallelism().map_or(2, |n| u32::try_from(n.get()).unwrap_or(u32::MAX));
    let starts = file.max_concurrent_starts.unwrap_or(Limit(Some(cores.saturating_mul(2))));
    let rate = |per_minute| Rate { burst: file.restart_burst, per_minute };
    Limits {
        concurrent_starts: starts.0,
        start_hold: file.start_hold.0,
        restarts: file.restarts_per_minute.0.map(rate),
    }
}

fn check_numbers(source: &Source, file: &DaemonFile, findings: &mut Vec<Finding>) {
    let mut refuse = |steps: &[Step<'_>], message: String| findings.push(source.error(steps, message));
    if file.ports.ranges.is_empty() {
        refuse(&["ports".into(), "ranges".into()], "\"ports.ranges\" is empty; name at least one range".into());
    }
    for (i, range) in file.ports.ranges.iter().enumerate() {
        let before =
            file.ports.ranges[..i].iter().find(|b| b.0.start() <= range.0.end() && range.0.start() <= b.0.end());
        if let Some(before) = before {
            let (a, b) = (text_of(range), text_of(before));
            refuse(
                &["ports".into(), "ranges".into(), i.into()],
                format!("the ranges {a} and {b} overlap; make them distinct"),
            );
        }
    }
    // Below a few lines a file would rotate at every write.
    if file.log.max_file_bytes.0 < 4096 {
        refuse(&["log".into(), "max_file_bytes".into()], "\"log.max_file_bytes\" must be at least 4096".into());
    }
    if file.budgets.restart_burst == 0 {
        refuse(&["budgets".into(), "restart_burst".into()], "\"budgets.restart_burst\" must be at least 1".into());
    }
    if file.budgets.start_hold.0 < Duration::from_secs(1) {
        refuse(&["budgets".into(), "start_hold".into()], "\"budgets.start_hold\" must be at least 1s".into());
    }
    for (name, timeouts) in file.defaults.timeouts.each() {
        for (key, message) in timeouts.faults() {
            let steps = ["defaults".into(), "timeouts".into(), name.into(), key.into()];
            refuse(&steps, format!("\"defaults.timeouts.{name}.{key}\" {message}"));
        }
    }
}

fn text_of(range: &PortRange) -> String {
    format!("{}-{}", range.0.start(), range.0.end())
}

/// Refuses a socket path that the kernel would refuse, before anything depends on it.
pub(super) fn check_socket(path: &Path) -> Result<(), String> {
    let len = path.as_os_str().len();
    if len <= MAX_SOCKET_PATH {
        return Ok(());
    }
    Err(format!(
        "the socket path {} has {len} bytes and the kernel takes {MAX_SOCKET_PATH}; set a shorter runtime_dir (or -runtime-dir), or shorten the name",
        path.display()
    ))
}
