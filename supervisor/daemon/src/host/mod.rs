//! The host: all groups, what runs of them, and the one place where events meet machines.
//!
//! One task owns a [`Host`]; nothing here is shared or locked. Everything that can take time (an exec, a probe, a sweep, a
//! removal) is a task or a kernel notification that ends in a [`Msg`] to this task.
//!
//! Map:
//! - [`drive`] - the loop: what it waits for, and in which order it takes it.
//! - [`clock`] - daemon time.
//! - [`live`] - one run of one component in the shell: pidfd, cgroup, pipes, probe.
//! - [`execute`] - performs core's actions.
//! - [`spawn`] - a launch becomes a process.
//! - [`ladder`] - signal, kill, wait for empty; [`mod@remove`] - the last rung.
//! - [`exits`] - the one owner of waits; strays. [`hunt`] - strays that fork faster than a look takes.
//! - [`limits`] - bounds, and what is taken; [`cores`] - core dumps and their budget.
//! - [`sweep`] - survivors of an earlier daemon.
//! - [`watch`] - readiness, liveness, progress, notify datagrams.
//! - [`reload`] - sources become declarations.
//! - [`answer`] - what people ask through the admin socket; [`status`] and [`feeds`] - what they are told.
//! - [`drill`] - begins the nasty cases. [`shutdown`] - the way out.
//! - [`keep`] - what is taken from under a running daemon. [`old`] - what is ours alone, and what an earlier run had elsewhere.
//! - [`owed`] - what is still to be written, and what is written beside the loop.
//! - [`say`] - events and status for people, journal and systemd.

pub(crate) mod answer;
pub(crate) mod clock;
pub(crate) mod cores;
pub(crate) mod drill;
pub(crate) mod drive;
pub(crate) mod execute;
pub(crate) mod exits;
pub(crate) mod feeds;
pub(crate) mod hunt;
pub(crate) mod keep;
pub(crate) mod ladder;
pub(crate) mod limits;
pub(crate) mod live;
pub(crate) mod old;
pub(crate) mod owed;
pub(crate) mod reload;
pub(crate) mod remove;
pub(crate) mod say;
pub(crate) mod shutdown;
pub(crate) mod spawn;
pub(crate) mod status;
pub(crate) mod sweep;
pub(crate) mod watch;

use crate::admin::AdminPort;
use crate::aside::Asides;
use crate::config::{Binaries, DaemonConfig, Env, Overrides};
use crate::logs::Logs;
use crate::state::{EventLog, EventRing, GroupRecord, LeaseError, Leases, Logged, PortRole, StateDir};
pub(crate) use clock::Clock;
use live::{Key, Live, Owner};
use socialweb_core::budget::Budget;
use socialweb_core::record::{Entry, Header};
use socialweb_core::{Birth, ComponentName, Event, Group, GroupName, GroupView, Shared, Time};
use socialweb_sys::cgroup::{Support, Tree, Watcher};
use socialweb_wire::EventLine;
use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::path::PathBuf;
use std::sync::Arc;
use tokio::io::unix::AsyncFd;
use tokio::sync::{broadcast, mpsc};

/// Size at which a recorded event log is rotated. Only one that was never rotated replays from its beginning, so it is
/// large: 16 MiB are some 50,000 events, and recording is asked for.
const RECORD_BYTES: u64 = 16 << 20;

/// What tasks tell the loop.
#[derive(Debug)]
pub(crate) enum Msg {
    /// An outcome for a group's machine.
    Event(GroupName, Event),
    /// A sweep ended, or stopped short of its end.
    Swept(GroupName, sweep::Swept),
    /// Nobody reads the components' pipes any more.
    LogsEnded(String),
    /// exec of a run succeeded or failed.
    Exec(Key, Result<(), String>),
    /// A run's main process says that it is alive or ready (notify socket, notification fd).
    Said(Key, watch::Saying),
    /// A prober wants a program run in its run's cgroup.
    ExecProbe(watch::ExecAsk),
    /// A look for a group's core dumps ended.
    Cores(GroupName, cores::Found),
    /// It is time to look for core dumps.
    LookForCores,
    /// This version of the leases was written, or not.
    LeasesWritten(u64, Result<(), LeaseError>),
    /// All that was in a deleted group's folder is removed, or not.
    TrashEmptied(PathBuf, std::io::Result<()>),
    /// A removal, a sweep or a write may be tried again.
    Again(Again),
    /// A hunt for what left its run ended.
    Hunted(hunt::Bag),
}

/// Work that is tried again after a short wait.
#[derive(Debug)]
pub(crate) enum Again {
    RemoveRun(Key, u32),
    RemoveGroup(GroupName, u32),
    Sweep(GroupName),
    Owed,
}

/// How processes are kept together on this host.
pub(crate) enum Containment {
    /// Cgroups below our own tree, and one inotify instance for those that are being emptied.
    Cgroups { tree: Tree, watcher: Option<AsyncFd<Watcher>> },
    /// Sessions, parentage and the marker.
    Fallback,
}

/// One group as the shell holds it.
pub(crate) struct Held {
    pub machine: Group,
    pub view: Shared<GroupView>,
    pub record: GroupRecord,
    pub deadline: Option<Time>,
    /// Present while events are recorded.
    pub log: Option<EventLog>,
    /// Kind, url and the like, for status.
    pub facts: Facts,
    /// When the last start began, and how long the last one took until Ready.
    pub start_began: Option<Time>,
    pub last_start_ms: Option<u64>,
    /// Set by `ctl delete`: its data goes when it is down.
    pub delete: bool,
    /// Bounds that the kernel has for it, and those that it has not.
    pub in_force: limits::InForce,
    /// Somebody looks for its core dumps.
    pub core_look: cores::Looking,
    /// Strays that were ended outside any run, for the receipt.
    pub strays: Vec<socialweb_core::Reaped>,
}

/// What is true of a group beside its machine.
#[derive(Debug, Clone, Default)]
pub(crate) struct Facts {
    pub url: Option<String>,
    pub kubeconfig: Option<PathBuf>,
    /// The file wants it running.
    pub running: bool,
    /// A tenant's sqlite database, if that is where its data is.
    pub datastore: Option<PathBuf>,
}

/// Everything that one daemon holds.
pub(crate) struct Host {
    pub clock: Clock,
    pub state: StateDir,
    pub leases: Leases,
    pub config: DaemonConfig,
    pub paths: Paths,
    pub support: Support,
    pub containment: Containment,
    /// Boxed, as the births are: the maps keep room for more than they hold.
    pub groups: BTreeMap<GroupName, Box<Held>>,
    pub births: HashMap<Key, Box<Live>>,
    pub pids: HashMap<u32, Owner>,
    /// Runs of which somebody waits for the last process.
    pub emptying: BTreeSet<Key>,
    /// Something joined those: look at all of them once the queue is empty.
    pub look: bool,
    /// Groups whose survivors are being ended now.
    pub sweeping: BTreeMap<GroupName, sweep::Then>,
    /// Where children that are no leaders died lately.
    pub passing: hunt::Passing,
    /// Runs that the hunt under way is for.
    pub hunting: BTreeSet<Key>,
    /// When emptying runs were looked at last.
    pub looked: Option<tokio::time::Instant>,
    /// Threads for what waits for a disk, and for what looks at processes.
    pub aside: Asides,
    /// There can be none, and that was said.
    pub said_no_thread: bool,
    /// Writes that are still to be done.
    pub owed: owed::Owed,
    /// A record that is written and to be flushed before its change is confirmed.
    pub unflushed: Option<PathBuf>,
    /// Ours while this daemon runs: its name, and its subtree of cgroups.
    pub _claims: old::Claims,
    /// What an earlier run of this state folder had, when it went by another name or its subtree lay elsewhere.
    pub old: Option<old::OldRun>,
    /// What was there at the last look around.
    pub seen: keep::Seen,
    /// When emptying runs are looked at next.
    pub look_at: Option<tokio::time::Instant>,
    /// More children had ended than one round takes.
    pub more_children: bool,
    /// A notify datagram of somebody else was seen, and that was said.
    pub said_foreign: bool,
    /// Our own children could not be looked at, and that was said.
    pub said_blind: bool,
    /// Core dumps are looked for now and then.
    pub watches_cores: bool,
    /// The notify socket failed for good.
    pub notify_broken: bool,
    /// Since when a shutdown waits for nothing but what cannot be killed.
    pub stuck_since: Option<Time>,
    /// Processes of an earlier daemon, found by their marker at start and not ended yet.
    pub orphans: HashMap<GroupName, sweep::Met>,
    pub budget: Budget,
    pub deadlines: BTreeSet<(Time, GroupName)>,
    pub queue: VecDeque<(GroupName, Event)>,
    pub tx: mpsc::UnboundedSender<Msg>,
    pub port: AdminPort,
    pub logs: Logs,
    pub ring: EventRing<Arc<EventLine>>,
    pub told: broadcast::Sender<Arc<EventLine>>,
    /// What a person should know, from the start.
    pub warnings: Vec<String>,
    /// What was wrong with the sources when they were last read.
    pub sources: status::Sources,
    pub env: Env,
    pub flags: Overrides,
    pub binaries: Binaries,
    /// Groups that had a record when the daemon came up: what an empty folder is measured against (law L7).
    pub known_from_state: BTreeSet<GroupName>,
    /// An operator said that the folder of cluster files is meant to be empty; holds until a file is there.
    pub may_be_empty: bool,
    /// The ports that one tenant takes, for the number that status shows.
    pub tenant_roles: Vec<PortRole>,
    /// The first read of the sources is through.
    pub booted: bool,
    pub stopping: bool,
    pub said_stopping: bool,
    /// Only a deliberate fault sets this: the end does not wait for the groups.
    pub cut_short: bool,
    pub status_line: String,
    pub started_at_ms: u64,
}

/// Where this daemon's things are.
#[derive(Debug, Clone)]
pub(crate) struct Paths {
    pub config: PathBuf,
    pub runtime: PathBuf,
    pub notify: PathBuf,
    /// Our own program, for tasks.
    pub exe: PathBuf,
    /// Names this state folder in markers and cgroups: 12 hex digits of its path's hash.
    pub id: String,
}

impl Host {
    /// Hands an event to its group and performs what follows, until nothing more follows at once.
    pub fn feed(&mut self, group: &GroupName, event: Event) {
        self.queue.push_back((group.clone(), event));
        self.run_queue();
    }

    fn run_queue(&mut self) {
        while let Some((group, event)) = self.queue.pop_front() {
            self.handle(&group, event);
            if self.queue.is_empty() {
                self.grant();
            }
            if self.queue.is_empty() && std::mem::take(&mut self.look) {
                self.check_emptying();
            }
        }
    }

    /// Puts an outcome behind what is being handled now.
    pub fn later(&mut self, group: &GroupName, event: Event) {
        self.queue.push_back((group.clone(), event));
    }

    fn handle(&mut self, group: &GroupName, event: Event) {
        let now = self.clock.now();
        let Some(held) = self.groups.get_mut(group) else { return };
        let full = held
            .log
            .as_mut()
            .is_some_and(|log| log.append(&Entry { at: now, event: event.clone() }) == Logged::WrittenToNewFile);
        if full {
            // A log without its beginning replays to nothing.
            held.log = None;
            let text = "its event log is full, and recording ends until the daemon starts next".to_string();
            self.warn(Some(group), text);
        }
        self.say_event(group, &event);
        let exited = exited(&event);
        if matches!(event, Event::Ready { .. }) {
            crate::failpoint::reach("ready-seen");
        }
        let Some(held) = self.groups.get_mut(group) else { return };
        let actions = held.machine.handle(now, event);
        // Only the machine knows what it had sent.
        let end = exited.and_then(|(c, birth)| Some((held.machine.end_of(&c, birth)?, c, birth)));
        let next = held.machine.next_deadline();
        let before = std::mem::replace(&mut held.deadline, next);
        self.deadlines.remove(&(before.unwrap_or_default(), group.clone()));
        if let Some(at) = next {
            self.deadlines.insert((at, group.clone()));
        }
        if let Some((end, component, birth)) = end {
            self.say_end(group, &component, birth, &end);
        }
        for action in actions {
            self.execute(group, action);
        }
    }

    /// Hands out host-wide permits.
    fn grant(&mut self) {
        for (group, permit) in self.budget.grants(self.clock.now()) {
            self.queue.push_back((group, Event::Granted { permit }));
        }
    }

    /// When the loop must look at the clock again.
    pub fn next_deadline(&self) -> Option<Time> {
        let group = self.deadlines.first().map(|(at, _)| *at);
        group.into_iter().chain(self.budget.next_deadline()).min()
    }

    /// Ticks every group whose deadline passed.
    pub fn tick(&mut self) {
        let now = self.clock.now();
        let due: Vec<GroupName> =
            self.deadlines.iter().take_while(|(at, _)| *at <= now).map(|(_, group)| group.clone()).collect();
        for group in due {
            self.feed(&group, Event::Tick);
        }
        self.grant();
        self.drain();
    }

    /// Handles what was put behind by work outside of [`Host::feed`].
    pub fn drain(&mut self) {
        self.run_queue();
    }

    /// Keeps a group's record, and adds the group if nothing is known of it yet.
    pub fn hold(&mut self, record: GroupRecord) {
        let name = record.name.clone();
        if let Some(held) = self.groups.get_mut(&name) {
            held.record = record;
            return;
        }
        // Births begin above all that an earlier daemon may have left: its cgroups are named by them, and gone before
        // anything starts, so a clock that was set back costs nothing but the order of the numbers.
        let first = Birth(say::unix_ms());
        let seed = seed(&self.paths.id, &name, first.0);
        let machine = Group::new(name.clone(), seed, first).after(record.generation);
        let log = self.config.record_events.then(|| {
            let (schema, generation) = (socialweb_core::record::SCHEMA, record.generation);
            self.new_log(&Header { schema, group: name.clone(), seed, first_birth: first, generation })
        });
        let held = Held {
            view: machine.view().into(),
            machine,
            record,
            deadline: None,
            log,
            facts: Facts::default(),
            start_began: None,
            last_start_ms: None,
            delete: false,
            in_force: limits::InForce::default(),
            core_look: cores::Looking::No,
            strays: Vec::new(),
        };
        self.groups.insert(name, Box::new(held));
    }

    /// A log of its own for each life of a machine: only so does it replay.
    fn new_log(&self, header: &Header) -> EventLog {
        let path = self.state.layout().events(&header.group);
        let _ = std::fs::rename(&path, path.with_extension("jsonl.1"));
        let mut log = EventLog::with_limit(path, RECORD_BYTES);
        log.append(header);
        log
    }

    /// Forgets a group that is down and deleted.
    pub fn drop_group(&mut self, group: &GroupName) {
        if let Some(held) = self.groups.remove(group)
            && let Some(at) = held.deadline
        {
            self.deadlines.remove(&(at, group.clone()));
        }
    }
}

fn exited(event: &Event) -> Option<(ComponentName, Birth)> {
    let (component, birth) = event.birth().filter(|_| matches!(event, Event::Exited { .. }))?;
    Some((component.clone(), birth))
}

fn seed(id: &str, group: &GroupName, salt: u64) -> u64 {
    // FNV-1a: any spread will do, it only keeps two groups' jitter apart.
    let bytes = id.bytes().chain(group.as_str().bytes()).chain(salt.to_le_bytes());
    bytes.fold(0xcbf2_9ce4_8422_2325, |h, b| (h ^ u64::from(b)).wrapping_mul(0x0100_0000_01b3))
}
