//! The components with their rings and counters, and [`Logs`], the handle that everybody holds.

use super::file;
use super::follow::{self, Follower, FollowerEnd};
use super::journal::{self, Journal, SendError};
use super::line::{LogLine, Priority, Source, Splitter, interpret};
use super::pump::Pump;
use crate::state::RotatedFile;
use nix::fcntl::{FcntlArg, OFlag, fcntl};
use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags};
use socialweb_core::{Birth, GroupName};
use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::io::{self, ErrorKind};
use std::ops::ControlFlow;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::SystemTime;

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

/// Exact counts of one component since the daemon's start. `lines_in = lines_written + lines_dropped`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counters {
    /// Lines read; each piece of an overlong line counts.
    pub lines_in: u64,
    /// Bytes read, newlines included.
    pub bytes_in: u64,
    /// Lines that the journal or the file took.
    pub lines_written: u64,
    /// Lines that neither took.
    pub lines_dropped: u64,
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
    journal: Option<Journal>,
    state: Mutex<State>,
}

#[derive(Default)]
pub(super) struct State {
    pub(super) pipes: HashMap<u64, Pipe>,
    components: HashMap<Arc<Source>, Component>,
    followers: Vec<FollowerEnd>,
    next: u64,
}

/// One run's pipe.
pub(super) struct Pipe {
    pub(super) fd: OwnedFd,
    pub(super) source: Arc<Source>,
    birth: Birth,
    splitter: Splitter,
    priority: Priority,
    pub(super) watch: Option<Watch>,
}

/// What is kept of a component over its runs.
struct Component {
    /// The folder of its log file.
    folder: PathBuf,
    ring: VecDeque<Arc<LogLine>>,
    ring_bytes: usize,
    counters: Counters,
    /// The last append or send failed, and that was said.
    failing: bool,
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
        let logs = Logs { shared: Arc::new(Shared { epoll, options, journal, state: Mutex::default() }) };
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
        let (read, write) = nonblocking_reader().map_err(|e| failed(e, &source))?;
        let mut state = self.shared.lock();
        let id = state.next;
        let event = EpollEvent::new(EpollFlags::EPOLLIN, id);
        self.shared.epoll.add(&read, event).map_err(|e| failed(e, &source))?;
        state.next += 1;
        let source = state.component_of(source, folder);
        let splitter = Splitter::default();
        state.pipes.insert(id, Pipe { fd: read, source, birth, splitter, priority: Priority::INFO, watch });
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
        let log = self.shared.log_file(source, folder);
        let more = self.more(source, &log.path);
        let ring = self.shared.lock().ring_tail(source, n);
        if ring.len() >= n {
            return Ok(Tail { lines: ring, more });
        }
        let filed = file::tail(&Arc::new(source.clone()), &log, n)?;
        // A full disk or a journal leaves the file behind the ring.
        if filed.len() <= ring.len() {
            return Ok(Tail { lines: ring, more });
        }
        Ok(Tail { lines: filed.into_iter().map(Arc::new).collect(), more })
    }

    fn more(&self, source: &Source, path: &Path) -> String {
        let Source { group, component } = source;
        match &self.shared.journal {
            Some(_) => format!("journalctl --user SOCIALWEB_CLUSTER={group} SOCIALWEB_COMPONENT={component}"),
            None => path.display().to_string(),
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
        self.shared.lock().components.get(source).map(|c| c.counters).unwrap_or_default()
    }

    /// The counts of all components, for metrics.
    pub fn all_counters(&self) -> Vec<(Arc<Source>, Counters)> {
        self.shared.lock().components.iter().map(|(s, c)| (Arc::clone(s), c.counters)).collect()
    }

    /// Drops all that is held of a group; when it is deleted. Its pipes must be finished before.
    pub fn forget(&self, group: &GroupName) {
        self.shared.lock().components.retain(|source, _| source.group != *group);
    }
}

/// Past 1,024 pipes of one account the kernel gives new ones two pages instead of sixteen (pipe-user-pages-soft); that
/// costs throughput, not lines.
fn nonblocking_reader() -> nix::Result<(OwnedFd, OwnedFd)> {
    let (read, write) = nix::unistd::pipe2(OFlag::O_CLOEXEC)?;
    fcntl(&read, FcntlArg::F_SETFL(OFlag::O_NONBLOCK))?;
    Ok((read, write))
}

impl Shared {
    pub(super) fn lock(&self) -> MutexGuard<'_, State> {
        // Nothing in here is left half done by a panic that later calls could not live with.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn log_file(&self, source: &Source, folder: &Path) -> RotatedFile {
        RotatedFile {
            path: folder.join(format!("{}.log", source.component)),
            max_bytes: self.options.max_file_bytes,
            keep: self.options.keep_files,
        }
    }

    /// Hands lines of one component to the sinks, the ring and the followers.
    pub(super) fn deliver(&self, state: &mut State, source: &Source, lines: &[Arc<LogLine>], bytes_in: usize) {
        let State { components, followers, .. } = state;
        let Some(component) = components.get_mut(source) else { return };
        let written = if lines.is_empty() { 0 } else { self.write(source, component, lines) };
        let n = lines.len() as u64;
        component.counters.lines_in += n;
        component.counters.bytes_in += bytes_in as u64;
        component.counters.lines_written += written;
        component.counters.lines_dropped += n - written;
        component.remember(lines, &self.options);
        followers.retain_mut(|follower| follower.offer(lines));
    }

    /// Returns how many of the lines are kept.
    fn write(&self, source: &Source, component: &mut Component, lines: &[Arc<LogLine>]) -> u64 {
        let mut written = 0;
        let mut chunk = String::new();
        let mut trouble: Option<String> = None;
        for line in lines {
            match self.journal.as_ref().map(|j| j.send(line)) {
                Some(Ok(())) => written += 1,
                None | Some(Err(SendError::Gone(_))) => file::format(line, &mut chunk),
                Some(Err(e)) => trouble = Some(e.to_string()),
            }
        }
        if !chunk.is_empty() {
            match self.log_file(source, &component.folder).append(chunk.as_bytes()) {
                Ok(_) => written += count_lines(chunk.as_bytes()),
                Err(e) => {
                    written += count_lines(&chunk.as_bytes()[..e.kept]);
                    trouble = Some(format!("{e}: {}", e.source));
                }
            }
        }
        component.say_once(source, trouble);
        written
    }
}

fn count_lines(bytes: &[u8]) -> u64 {
    bytes.iter().filter(|b| **b == b'\n').count() as u64
}

impl State {
    /// The component's shared name; makes the component when it is new.
    fn component_of(&mut self, source: Source, folder: PathBuf) -> Arc<Source> {
        if let Some((name, _)) = self.components.get_key_value(&source) {
            return Arc::clone(name);
        }
        let name = Arc::new(source);
        let new =
            Component { folder, ring: VecDeque::new(), ring_bytes: 0, counters: Counters::default(), failing: false };
        self.components.insert(Arc::clone(&name), new);
        name
    }

    fn ring_tail(&self, source: &Source, n: usize) -> Vec<Arc<LogLine>> {
        let Some(component) = self.components.get(source) else { return Vec::new() };
        component.ring.iter().skip(component.ring.len().saturating_sub(n)).cloned().collect()
    }

    /// What an idle pipe and its component cost, in bytes, names aside.
    #[cfg(test)]
    pub(super) const fn idle_cost() -> usize {
        size_of::<Pipe>() + size_of::<Component>() + size_of::<Source>()
    }

    /// Slots that all rings hold.
    #[cfg(test)]
    pub(super) fn ring_capacity(&self) -> usize {
        self.components.values().map(|c| c.ring.capacity()).sum()
    }
}

/// What one line costs in the ring besides its text: the shared line and the ring's slot.
const LINE_COST: usize = size_of::<LogLine>() + 3 * size_of::<usize>();

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

    fn say_once(&mut self, source: &Source, trouble: Option<String>) {
        if let (Some(trouble), false) = (&trouble, self.failing) {
            let Source { group, component } = source;
            tracing::warn!("log lines of {group}/{component} are dropped and counted: {trouble}");
        }
        self.failing = trouble.is_some();
    }
}

impl Pipe {
    /// Lines out of newly read bytes; `None` = the stream ended.
    pub(super) fn lines(&mut self, bytes: Option<&[u8]>) -> Vec<Arc<LogLine>> {
        let mut lines = Vec::new();
        let Pipe { source, birth, splitter, priority, .. } = self;
        let at = SystemTime::now();
        let out = |raw: super::line::Raw<'_>| {
            let (level, text) = interpret(&raw, *priority);
            *priority = level;
            let (source, birth, continues) = (Arc::clone(source), *birth, raw.continues);
            lines.push(Arc::new(LogLine { source, birth, at, priority: level, continues, text }));
        };
        match bytes {
            Some(bytes) => splitter.feed(bytes, out),
            None => splitter.finish(out),
        }
        lines
    }

    /// Reads once; `Ok(None)` = nothing there now.
    pub(super) fn read(&self, buffer: &mut [u8]) -> io::Result<Option<usize>> {
        match nix::unistd::read(&self.fd, buffer).map_err(io::Error::from) {
            Ok(n) => Ok(Some(n)),
            Err(e) if matches!(e.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => Ok(None),
            Err(e) => Err(e),
        }
    }
}
