//! The components with their rings and counters, and [`Logs`], the handle that everybody holds.

use super::file;
use super::follow::{self, Follower, FollowerEnd};
use super::journal::{self, Journal};
use super::keep::{Keep, LINE_COST};
use super::line::{LogLine, Source};
use super::pipe::{self, Pipe};
use super::pump::Pump;
use super::sink::{Files, Sinks};
use crate::state::RotatedFile;
use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags};
use socialweb_core::{Birth, GroupName};
use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::io;
use std::ops::ControlFlow;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// Where lines are kept.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Sink {
    /// journald when its socket exists at start, else files.
    Auto,
    /// The journal at this socket; while nobody listens there, files.
    Journal(PathBuf),
    /// Files only.
    Files,
}

/// Limits of the room.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Options {
    /// Where lines are kept.
    pub sink: Sink,
    /// A log file is rotated before it grows beyond this, in bytes.
    pub max_file_bytes: u64,
    /// Older files per component.
    pub keep_files: u32,
    /// Lines in memory per component.
    pub ring_lines: usize,
    /// Bytes in memory per component.
    pub ring_bytes: usize,
}

impl Default for Options {
    /// At most 32 MiB on disk and 64 KiB in memory per component; 45 live tenants of five components each then take
    /// 7 GiB and 15 MiB, when all of them flood.
    fn default() -> Self {
        Options { sink: Sink::Auto, max_file_bytes: 8 << 20, keep_files: 3, ring_lines: 200, ring_bytes: 64 << 10 }
    }
}

/// Exact counts of one component since the daemon's start. `lines_in = lines_written + lines_dropped + lines_waiting`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counters {
    /// Lines read; each piece of an overlong line counts.
    pub lines_in: u64,
    /// Bytes read, newlines included.
    pub bytes_in: u64,
    /// Lines that the journal or the file took.
    pub lines_written: u64,
    /// Lines that neither took: there was no room, on the disk or in what waits for it.
    pub lines_dropped: u64,
    /// Lines that wait to be written.
    pub lines_waiting: u64,
}

/// Why a component got no pipe.
#[derive(Debug, thiserror::Error)]
pub enum LogError {
    /// No descriptor was left, most likely.
    #[error("cannot make a log pipe for {group}/{component}; raise LimitNOFILE of the daemon", group = source_of.group, component = source_of.component)]
    Pipe {
        /// For whom.
        source_of: Source,
        /// The cause.
        #[source]
        source: io::Error,
    },
    /// The shared poll descriptor cannot be made.
    #[error("cannot set up the log task; raise LimitNOFILE of the daemon")]
    Setup(#[source] io::Error),
}

/// Looks at every line of one run until it breaks; see [`Logs::attach`].
pub type Watch = Box<dyn FnMut(&LogLine) -> ControlFlow<()> + Send>;

/// One attached pipe.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct PipeId(pub(super) u64);

/// The last lines of a component.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tail {
    /// Oldest first.
    pub lines: Vec<Arc<LogLine>>,
    /// Where more of them are: a file, or a journalctl command.
    pub more: String,
}

/// The room's handle; cheap to clone, usable from any thread.
#[derive(Clone)]
pub struct Logs {
    pub(super) shared: Arc<Shared>,
}

impl fmt::Debug for Logs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Logs").finish_non_exhaustive()
    }
}

pub(super) struct Shared {
    pub(super) epoll: Epoll,
    options: Options,
    files: Files,
    to_journal: bool,
    state: Mutex<State>,
    /// Its lock is taken after the state's, never before.
    pub(super) keep: Keep,
}

#[derive(Default)]
pub(super) struct State {
    /// Boxed: the table keeps room for more than it holds.
    pub(super) pipes: HashMap<u64, Box<Pipe>>,
    components: HashMap<Arc<Source>, Component>,
    followers: Vec<FollowerEnd>,
    next: u64,
}

/// What is held of a component over its runs.
#[derive(Default)]
struct Component {
    ring: VecDeque<Arc<LogLine>>,
    ring_bytes: usize,
    lines_in: u64,
    bytes_in: u64,
}

impl Logs {
    /// Sets the room up; the [`Pump`] must run (or be dropped, and then no pipe is read).
    ///
    /// # Errors
    /// [`LogError::Setup`].
    pub fn new(options: Options) -> Result<(Logs, Pump), LogError> {
        let journal = match &options.sink {
            Sink::Auto if Path::new(journal::SOCKET).exists() => Some(Path::new(journal::SOCKET)),
            Sink::Journal(path) => Some(path.as_path()),
            Sink::Auto | Sink::Files => None,
        };
        let journal = journal.map(Journal::new).transpose().map_err(LogError::Setup)?;
        let epoll = Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC).map_err(|e| LogError::Setup(e.into()))?;
        let files = Files { max_bytes: options.max_file_bytes, keep: options.keep_files };
        let to_journal = journal.is_some();
        let mut sinks = Sinks { journal, files, text: String::new() };
        let keep = Keep::start(move |source, batch| sinks.write(source, batch));
        let shared = Shared { epoll, options, files, to_journal, state: Mutex::default(), keep };
        let logs = Logs { shared: Arc::new(shared) };
        Ok((logs.clone(), Pump::new(logs)))
    }

    /// Makes the pipe of one run and returns its write end, for the child's stdout and stderr (blocking, CLOEXEC; close the
    /// daemon's copy after the spawn, or the end of the stream is never seen). `folder` is where the log file goes when
    /// there is no journal. `watch` sees each line of this run, also of a flood, until it breaks; it runs in the log task
    /// and must be quick.
    ///
    /// # Errors
    /// [`LogError::Pipe`].
    pub fn attach(
        &self,
        source: Source,
        birth: Birth,
        folder: PathBuf,
        watch: Option<Watch>,
    ) -> Result<(OwnedFd, PipeId), LogError> {
        let failed = |errno: nix::Error, source_of: &Source| LogError::Pipe {
            source_of: source_of.clone(),
            source: errno.into(),
        };
        let (read, write) = pipe::pair().map_err(|e| failed(e, &source))?;
        let mut state = self.shared.lock();
        let id = state.next;
        let event = EpollEvent::new(EpollFlags::EPOLLIN, id);
        self.shared.epoll.add(&read, event).map_err(|e| failed(e, &source))?;
        state.next += 1;
        let source = state.component_of(source);
        self.shared.keep.add(&source, folder);
        state.pipes.insert(id, Box::new(Pipe::new(read, source, birth, watch)));
        Ok((write, PipeId(id)))
    }

    /// Ends a run's pipe: what lies in it is read (bounded), the unfinished line is finished, the pipe is closed. To be
    /// called when the run is proven gone; until then a stray may still hold the write end and be heard.
    /// One that ended by itself (end of stream) is fine.
    pub fn finish(&self, id: PipeId) {
        super::pump::drain(self, id);
    }

    /// The last `n` lines of a component: from memory, and from its files in `folder` where memory does not reach.
    ///
    /// # Errors
    /// A log file exists and cannot be read. A component that never wrote has no lines.
    pub fn tail(&self, source: &Source, folder: &Path, n: usize) -> io::Result<Tail> {
        let log = self.shared.files.of(source, folder);
        let more = self.more(source, &log.path);
        let ring = self.shared.lock().ring_tail(source, n);
        if ring.len() >= n {
            return Ok(Tail { lines: ring, more });
        }
        let mut kept = self.kept_tail(source, &log, n)?;
        // A full disk or a journal leaves the file behind the ring.
        if kept.len() <= ring.len() {
            return Ok(Tail { lines: ring, more });
        }
        kept.drain(..kept.len().saturating_sub(n));
        Ok(Tail { lines: kept, more })
    }

    /// From the file, and behind it what waits to be written there. Should the two move while they are looked at, a line may
    /// be doubled, never missed.
    fn kept_tail(&self, source: &Source, log: &RotatedFile, n: usize) -> io::Result<Vec<Arc<LogLine>>> {
        let shared_name = Arc::new(source.clone());
        let mut lines = Vec::new();
        for _ in 0..LOOKS {
            let before = self.shared.keep.waiting(source);
            lines = file::tail(&shared_name, log, n)?.into_iter().map(Arc::new).collect();
            let after = self.shared.keep.waiting(source);
            let still = !before.moving && !after.moving && before.written == after.written;
            lines.extend(before.lines);
            if still {
                break;
            }
        }
        Ok(lines)
    }

    fn more(&self, source: &Source, path: &Path) -> String {
        let Source { group, component } = source;
        match self.shared.to_journal {
            true => format!("journalctl --user SOCIALWEB_CLUSTER={group} SOCIALWEB_COMPONENT={component}"),
            false => path.display().to_string(),
        }
    }

    /// Gives all further lines of a group, or of one of its components, up to `capacity` waiting ones.
    pub fn follow(
        &self,
        group: GroupName,
        component: Option<socialweb_core::ComponentName>,
        capacity: usize,
    ) -> Follower {
        let (end, follower) = follow::pair(group, component, capacity);
        self.shared.lock().followers.push(end);
        follower
    }

    /// A component's counts; zeros for one that never ran.
    pub fn counters(&self, source: &Source) -> Counters {
        let state = self.shared.lock();
        state.components.get(source).map(|c| self.count(source, c)).unwrap_or_default()
    }

    /// The counts of all components, for metrics.
    pub fn all_counters(&self) -> Vec<(Arc<Source>, Counters)> {
        let state = self.shared.lock();
        state.components.iter().map(|(s, c)| (Arc::clone(s), self.count(s, c))).collect()
    }

    /// With the state locked, so that nothing is offered in between.
    fn count(&self, source: &Source, component: &Component) -> Counters {
        let kept = self.shared.keep.counts(source);
        Counters {
            lines_in: component.lines_in,
            bytes_in: component.bytes_in,
            lines_written: kept.written,
            lines_dropped: kept.dropped,
            lines_waiting: kept.waiting,
        }
    }

    /// Drops all that is held of a group; when it is deleted. Its pipes must be finished before.
    pub fn forget(&self, group: &GroupName) {
        self.shared.lock().components.retain(|source, _| source.group != *group);
        self.shared.keep.forget(group);
    }

    /// Waits until all that was read so far is kept or dropped; false when that takes longer than `patience`. Blocks: for
    /// the daemon's end, and for tests.
    pub fn settle(&self, patience: Duration) -> bool {
        self.shared.keep.settle(patience)
    }
}

/// Looks at a log that is being written to meanwhile.
const LOOKS: usize = 3;

impl Shared {
    pub(super) fn lock(&self) -> MutexGuard<'_, State> {
        // Nothing in here is left half done by a panic that later calls could not live with.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Hands lines of one component to who keeps them, the ring and the followers. Who keeps them is to be woken then.
    pub(super) fn deliver(&self, state: &mut State, source: &Arc<Source>, lines: &[Arc<LogLine>], bytes_in: usize) {
        let State { components, followers, .. } = state;
        let Some(component) = components.get_mut(source) else { return };
        component.lines_in += lines.len() as u64;
        component.bytes_in += bytes_in as u64;
        if lines.is_empty() {
            return;
        }
        self.keep.put(source, lines);
        component.remember(lines, &self.options);
        followers.retain_mut(|follower| follower.offer(lines));
    }
}

impl State {
    /// The component's shared name; makes the component when it is new.
    fn component_of(&mut self, source: Source) -> Arc<Source> {
        if let Some((name, _)) = self.components.get_key_value(&source) {
            return Arc::clone(name);
        }
        let name = Arc::new(source);
        self.components.insert(Arc::clone(&name), Component::default());
        name
    }

    fn ring_tail(&self, source: &Source, n: usize) -> Vec<Arc<LogLine>> {
        let Some(component) = self.components.get(source) else { return Vec::new() };
        component.ring.iter().skip(component.ring.len().saturating_sub(n)).cloned().collect()
    }

    /// What an idle pipe and its component cost, in bytes, names aside.
    #[cfg(test)]
    pub(super) const fn idle_cost() -> usize {
        size_of::<Pipe>() + size_of::<Component>() + size_of::<Source>() + super::keep::idle_cost()
    }

    /// Those who follow.
    #[cfg(test)]
    pub(super) fn followers(&self) -> usize {
        self.followers.len()
    }

    /// Slots that all rings hold.
    #[cfg(test)]
    pub(super) fn ring_capacity(&self) -> usize {
        self.components.values().map(|c| c.ring.capacity()).sum()
    }
}

impl Component {
    fn remember(&mut self, lines: &[Arc<LogLine>], options: &Options) {
        let skip = lines.len().saturating_sub(options.ring_lines);
        for line in &lines[skip..] {
            self.ring_bytes += line.text.len() + LINE_COST;
            self.ring.push_back(Arc::clone(line));
            while self.ring.len() > options.ring_lines || self.ring_bytes > options.ring_bytes {
                let Some(old) = self.ring.pop_front() else { break };
                self.ring_bytes -= old.text.len() + LINE_COST;
            }
        }
    }
}
