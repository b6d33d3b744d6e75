//! From the command line to the loop, in the order in which a failure leaves least behind: config, state folder and its
//! lock, cgroups, sockets, and only then groups.

use crate::admin::{self, AdminServer, Limits, PeerPolicy};
use crate::aside::Asides;
use crate::config::{self, Binaries, DaemonConfig, Env, Inputs, Overrides, Switch};
use crate::host::drive::{Inlets, Signals};
use crate::host::old::{Claims, TREE};
use crate::host::owed::Owed;
use crate::host::{Clock, Containment, Host, Msg, Paths, say};
use crate::logs::{Logs, Options, Sink};
use crate::manager::Manager;
use crate::state::{EventRing, LeaseOptions, Leases, NameClaim, PortRole, StateDir, Tmpfs, TreeClaim};
use anyhow::Context;
use socialweb_core::budget::Budget;
use socialweb_core::mutant;
use socialweb_sys::cgroup::{Support, Tree, Watcher};
use socialweb_sys::reap;
use socialweb_sys::socket::NotifySocket;
use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::path::{Path, PathBuf};
use tokio::sync::{broadcast, mpsc, oneshot};

/// Event lines kept in memory for `ctl events`, over all groups: a start of a tenant makes about 20.
const RING: usize = 1000;
/// Event lines that a slow follower may lag behind.
const FOLLOW: usize = 1024;

/// The flags of `run`; what is absent comes from the config file.
#[derive(Debug, Clone, Default)]
pub struct RunOptions {
    /// supervisor.toml.
    pub config: PathBuf,
    /// State folder.
    pub state_dir: Option<PathBuf>,
    /// Folder of the sockets.
    pub runtime_dir: Option<PathBuf>,
    /// cgroup2 folder to work under.
    pub cgroup: Option<PathBuf>,
    /// Accept a state folder in memory.
    pub allow_tmpfs: bool,
    /// Filter of the daemon's own log, such as `info` or `socialweb_daemon=debug`.
    pub log: Option<String>,
}

impl RunOptions {
    /// The same with whole paths: who reads them in a message, a status or a plan is somewhere else.
    fn absolute(mut self) -> std::io::Result<Self> {
        self.config = std::path::absolute(&self.config)?;
        for path in [&mut self.state_dir, &mut self.runtime_dir].into_iter().flatten() {
            *path = std::path::absolute(&path)?;
        }
        Ok(self)
    }
}

/// Runs the daemon until it is asked to stop and every group is down.
///
/// # Errors
/// What keeps it from coming up: each names the thing and the way out. Nothing was started then.
pub fn run(options: RunOptions) -> anyhow::Result<()> {
    socialweb_sys::memory::give_back();
    start_log(options.log.as_deref())?;
    #[cfg(debug_assertions)]
    if let Ok(name) = std::env::var("SOCIALWEB_MUTANT") {
        socialweb_core::mutant::everywhere(&name);
    }
    be_tidy().context("cannot set this process up")?;
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_all().build().context("cannot start the runtime")?;
    runtime.block_on(serve(options))
}

/// Whoever started us may have blocked signals that we live by, or have a mask under which our files could be read by all.
fn be_tidy() -> nix::Result<()> {
    nix::sys::signal::SigSet::empty().thread_set_mask()?;
    nix::sys::stat::umask(nix::sys::stat::Mode::from_bits_truncate(0o077));
    Ok(())
}

async fn serve(options: RunOptions) -> anyhow::Result<()> {
    // Before any child can end: the signal's default action would lose nothing, but a handler set late would miss it.
    let signals = Signals::take().context("cannot take over the signals")?;
    let env = Env::of_this_process();
    let options = options.absolute().context("cannot tell the present folder")?;
    let flags = Overrides {
        state_dir: options.state_dir,
        runtime_dir: options.runtime_dir,
        cgroup: options.cgroup,
        allow_tmpfs: options.allow_tmpfs,
    };
    let nothing = BTreeSet::new();
    let inputs = Inputs { file: &options.config, env: &env, flags: &flags, known: &nothing, may_be_empty: false };
    let config = config::load_daemon(inputs.file, inputs.env, inputs.flags)?;
    let tmpfs = if config.allow_tmpfs { Tmpfs::Allow } else { Tmpfs::Refuse };
    let state = StateDir::open(&config.state_dir, tmpfs)?;
    if !mutant!("l3-no-subreaper") {
        reap::become_subreaper().context("cannot become a subreaper")?;
    }
    raise_nofile();
    let paths = paths(&options.config, &config)?;
    let (mut host, inlets, pump) = assemble(config, state, paths, env, flags, signals)?;
    let tx = host.tx.clone();
    tokio::spawn(async move {
        let ended = pump.run().await;
        let why = ended.map_or_else(|error| error.to_string(), |()| "it has nothing to read any more".into());
        let _ = tx.send(Msg::LogsEnded(why));
    });
    let (handle, port) = admin::channel();
    host.port = port;
    let socket = admin::bind(&host.config.admin_socket())?;
    let policy = PeerPolicy {
        uid: nix::unistd::geteuid().as_raw(),
        groups: host.groups_tree(),
        marker: crate::host::spawn::MARKER.into(),
    };
    let server = AdminServer::new(socket, policy.into_check(), Limits::default(), handle);
    let (close, closed) = oneshot::channel::<()>();
    let admin = tokio::spawn(server.run(async move { drop(closed.await) }));
    host.boot();
    let end = host.drive(inlets).await;
    let _ = close.send(());
    let _ = admin.await;
    host.leave();
    end.map_err(anyhow::Error::msg)
}

/// Builds the host and what its loop listens to. Starts nothing.
fn assemble(
    config: DaemonConfig,
    state: StateDir,
    paths: Paths,
    env: Env,
    flags: Overrides,
    signals: Signals,
) -> anyhow::Result<(Host, Inlets, crate::logs::Pump)> {
    let support = Support::detect(config.cgroup.as_deref());
    let mut warnings = state.warnings().to_vec();
    let name = NameClaim::take(&paths.id)?;
    let (containment, tree) = contain(&support, &paths.id, config.cgroup.is_some(), &mut warnings)?;
    let claims = Claims { _name: name, _tree: tree };
    let mut lease_options = LeaseOptions::of_host();
    lease_options.ranges = config.ports.clone();
    let (leases, more) = Leases::open(state.layout(), lease_options)?;
    warnings.extend(more);
    let (logs, pump) = Logs::new(log_options(&config))?;
    let notify = crate::fd::watch(NotifySocket::bind(&paths.notify)?).context("cannot watch the notify socket")?;
    let (tx, messages) = mpsc::unbounded_channel();
    let (_, port) = admin::channel();
    let (told, _) = broadcast::channel(FOLLOW);
    let known_from_state =
        state.layout().list_groups().context("cannot read the groups' folder")?.into_iter().collect();
    let host = Host {
        clock: Clock::start(),
        budget: Budget::new(config.budgets),
        binaries: Binaries::new(&config.binaries, &env, &paths.exe),
        state,
        leases,
        config,
        paths,
        support,
        containment,
        groups: BTreeMap::new(),
        births: HashMap::new(),
        pids: HashMap::new(),
        emptying: BTreeSet::new(),
        look: false,
        sweeping: BTreeMap::new(),
        passing: Default::default(),
        hunting: BTreeSet::new(),
        looked: None,
        aside: Asides::default(),
        said_no_thread: false,
        owed: Owed::default(),
        unflushed: None,
        _claims: claims,
        old: None,
        seen: Default::default(),
        look_at: None,
        more_children: false,
        said_foreign: false,
        said_blind: false,
        watches_cores: false,
        notify_broken: false,
        stuck_since: None,
        orphans: HashMap::new(),
        deadlines: BTreeSet::new(),
        queue: VecDeque::new(),
        tx,
        port,
        logs,
        ring: EventRing::new(RING),
        told,
        warnings,
        sources: Default::default(),
        env,
        flags,
        known_from_state,
        may_be_empty: false,
        tenant_roles: tenant_roles(),
        booted: false,
        stopping: false,
        said_stopping: false,
        cut_short: false,
        status_line: String::new(),
        started_at_ms: say::unix_ms(),
    };
    Ok((host, Inlets { messages, notify, manager: Manager::from_env(), signals }, pump))
}

impl Host {
    /// What an earlier daemon left goes first, then the sources are read and the groups start.
    fn boot(&mut self) {
        self.say_host(format!("version {}; {}", env!("CARGO_PKG_VERSION"), self.support.explain()));
        self.say_host(format!("ports for {} tenants", self.leases.max_tenants(&self.tenant_roles)));
        for warning in self.warnings.clone() {
            tracing::warn!("{warning}");
        }
        self.find_old_run();
        self.find_orphans();
        self.reload();
        self.booted = true;
        // Groups go down side by side, so the slowest one is what TimeoutStopSec has to cover.
        let stops = self.groups.values().map(|h| h.machine.stop_deadline());
        if let Some(longest) = stops.max() {
            self.say_host(format!("the longest orderly stop of a group takes {} s", longest.as_secs()));
        }
        self.reap_forgotten();
        self.drain();
    }
}

fn contain(
    support: &Support,
    id: &str,
    asked: bool,
    warnings: &mut Vec<String>,
) -> anyhow::Result<(Containment, Option<TreeClaim>)> {
    let Some(root) = support.root() else {
        anyhow::ensure!(!asked, "the cgroup named in the configuration cannot be used: {}", support.explain());
        return Ok((Containment::Fallback, None));
    };
    let tree = Tree::new(root, &format!("{TREE}{id}"))?;
    let claim = TreeClaim::take(tree.top().path())?;
    let watcher = match Watcher::new().and_then(crate::fd::watch) {
        Ok(watcher) => Some(watcher),
        Err(error) => {
            warnings.push(format!("cgroups are looked at instead of watched: {error}"));
            None
        }
    };
    Ok((Containment::Cgroups { tree, watcher }, Some(claim)))
}

fn paths(config_file: &Path, config: &DaemonConfig) -> anyhow::Result<Paths> {
    let id = state_id(&config.state_dir);
    crate::host::execute::make_private(&config.runtime_dir).map_err(anyhow::Error::msg)?;
    Ok(Paths {
        config: config_file.to_owned(),
        notify: config.runtime_dir.join("notify.sock"),
        runtime: config.runtime_dir.clone(),
        exe: own_exe()?,
        id,
    })
}

/// Our own program, for tasks. A replaced file reads as "PATH (deleted)": the new one under the same path is meant.
fn own_exe() -> anyhow::Result<PathBuf> {
    let exe = std::env::current_exe().context("cannot find our own program; is /proc mounted?")?;
    let text = exe.to_string_lossy();
    Ok(text.strip_suffix(" (deleted)").map(PathBuf::from).unwrap_or(exe.clone()))
}

/// 12 hex digits that tell this state folder's processes and cgroups from another's. Its markers begin with them and its
/// cgroup subtree is `socialweb-<them>`.
pub fn state_id(state: &Path) -> String {
    use std::os::unix::ffi::OsStrExt;
    let path = std::fs::canonicalize(state).unwrap_or_else(|_| state.to_owned());
    let hash = path
        .as_os_str()
        .as_bytes()
        .iter()
        .fold(0xcbf2_9ce4_8422_2325_u64, |h, b| (h ^ u64::from(*b)).wrapping_mul(0x0100_0000_01b3));
    format!("{:012x}", hash & 0xffff_ffff_ffff)
}

fn log_options(config: &DaemonConfig) -> Options {
    Options {
        sink: if config.log.journal == Switch::Auto { Sink::Auto } else { Sink::Files },
        max_file_bytes: config.log.max_file_bytes,
        keep_files: config.log.keep_files,
        ..Options::default()
    }
}

fn tenant_roles() -> Vec<PortRole> {
    let roles = config::tenant_port_roles().into_iter();
    roles.map(crate::host::reload::lease_role).collect()
}

/// 5,000 components have a pipe and a pidfd each: as many descriptors as the hard limit gives.
fn raise_nofile() {
    use nix::sys::resource::{Resource, getrlimit, setrlimit};
    if let Ok((_, hard)) = getrlimit(Resource::RLIMIT_NOFILE) {
        let _ = setrlimit(Resource::RLIMIT_NOFILE, hard, hard);
    }
}

/// The daemon's own lines: to the journal when that is where stderr goes, else to stderr.
fn start_log(filter: Option<&str>) -> anyhow::Result<()> {
    use tracing_subscriber::prelude::*;
    let text = filter.unwrap_or("info");
    let filter = tracing_subscriber::EnvFilter::try_new(text)
        .with_context(|| format!("-log {text:?} is no filter; give a level such as info, or socialweb_daemon=debug"))?;
    let journal = stderr_is_journal().then(|| tracing_journald::layer().ok()).flatten();
    let stderr = journal.is_none().then(|| {
        let ansi = std::io::IsTerminal::is_terminal(&std::io::stderr());
        tracing_subscriber::fmt::layer().with_writer(std::io::stderr).with_ansi(ansi).with_target(false)
    });
    // A second daemon in one process (a test) keeps the first one's log.
    let _ = tracing_subscriber::registry().with(filter).with(journal).with(stderr).try_init();
    Ok(())
}

/// systemd names the journal's end by device and inode; a redirected stderr is another file.
fn stderr_is_journal() -> bool {
    let Ok(named) = std::env::var("JOURNAL_STREAM") else { return false };
    nix::sys::stat::fstat(std::io::stderr()).is_ok_and(|s| named == format!("{}:{}", s.st_dev, s.st_ino))
}
