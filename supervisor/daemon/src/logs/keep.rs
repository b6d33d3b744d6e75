//! What waits to be kept, and the thread that keeps it. A disk may be slower than a flood, or stand still: then lines wait
//! here, bounded, and beyond that they are dropped and counted; nobody who reads pipes ever waits for a disk.
//!
//! Every component has a queue of its own and they take turns, so that one that floods fills only its own. What was left out
//! of a queue stands in it as a hole of so many lines, and is told at that place of the log.

use super::line::{LogLine, Source};
use super::sink::Batch;
use socialweb_core::GroupName;
use std::collections::{HashMap, VecDeque};
use std::io;
use std::path::PathBuf;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Bytes that may wait of one component: a second of the flood of 100 MB/s takes 25 times as much, a burst of a server that
/// starts a hundredth.
pub(super) const MOST: usize = 4 << 20;
/// Bytes that may wait of all together; beyond, each component still has [`SHARE`].
const TOTAL: usize = 32 << 20;
/// What a component may have waiting however much others have.
pub(super) const SHARE: usize = 64 << 10;
/// Bytes that are written at a time: a turn of the round.
const TURN: usize = 256 << 10;

/// Writes one turn.
type Write = Box<dyn FnMut(&Arc<Source>, &Batch) -> Done + Send>;

/// The queues, and the end of the thread when it is dropped.
pub(super) struct Keep {
    shared: Arc<Shared>,
    /// Where no thread can be made, turns are written by who offers lines.
    here: Option<Arc<Mutex<Write>>>,
}

struct Shared {
    queues: Mutex<Queues>,
    /// Something waits, or all is over.
    more: Condvar,
    /// A turn is over.
    turned: Condvar,
}

#[derive(Default)]
struct Queues {
    /// Boxed: the table keeps room for more than it holds.
    components: HashMap<Arc<Source>, Box<Queue>>,
    /// Those of which something waits, each once, in the order of their turns.
    turns: VecDeque<Arc<Source>>,
    /// Bytes that wait of all.
    bytes: usize,
    /// Something is being written.
    writing: bool,
    closed: bool,
}

/// One component's.
#[derive(Default)]
pub(super) struct Queue {
    folder: PathBuf,
    items: VecDeque<Item>,
    bytes: usize,
    /// The first so many items are being written, and stay until they are.
    taken: usize,
    counts: Kept,
    /// It has a place in `turns`.
    listed: bool,
    /// Dropped, and not told where the lines are.
    owed: u64,
    /// The last turn failed, and that was said.
    failing: bool,
}

/// What became of a component's lines.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Kept {
    pub written: u64,
    pub dropped: u64,
    pub waiting: u64,
}

/// A component's lines that are not kept yet.
#[derive(Debug, Default)]
pub(super) struct Waiting {
    /// Oldest first.
    pub lines: Vec<Arc<LogLine>>,
    /// Lines kept before them.
    pub written: u64,
    /// Some of them are being written now.
    pub moving: bool,
}

/// One place in a queue.
#[derive(Debug, Clone)]
pub(super) enum Item {
    Line(Arc<LogLine>),
    /// So many lines were dropped here.
    Hole(u64),
}

/// What a line takes besides its text.
pub(super) const LINE_COST: usize = size_of::<LogLine>() + 3 * size_of::<usize>();

fn cost(line: &LogLine) -> usize {
    line.text.len() + LINE_COST
}

impl Keep {
    /// Starts the thread, which hands each turn to `write`. It ends, with all that waits written, after the value is dropped.
    /// Where there can be no thread, lines are written as they are offered: a slow disk then holds up who reads the pipes.
    pub(super) fn start(write: impl FnMut(&Arc<Source>, &Batch) -> Done + Send + 'static) -> Keep {
        let shared = Arc::new(Shared { queues: Mutex::default(), more: Condvar::new(), turned: Condvar::new() });
        let write: Arc<Mutex<Write>> = Arc::new(Mutex::new(Box::new(write)));
        let here = start_thread(&shared, &write).err().map(|error| {
            tracing::warn!("no thread can be made ({error}): log lines are written by the loop itself");
            write
        });
        Keep { shared, here }
    }

    /// A component is there; `folder` is where its log file goes.
    pub(super) fn add(&self, source: &Arc<Source>, folder: PathBuf) {
        let mut queues = self.shared.lock();
        queues.components.entry(Arc::clone(source)).or_insert_with(|| Box::new(Queue { folder, ..Queue::default() }));
    }

    /// Takes the lines on, or drops and counts those for which there is no room; the thread begins with them at once.
    #[cfg(test)]
    pub(super) fn offer(&self, source: &Arc<Source>, lines: &[Arc<LogLine>]) {
        self.put(source, lines);
        self.wake();
    }

    /// The thread looks for its next turn, if it sleeps.
    pub(super) fn wake(&self) {
        self.shared.more.notify_one();
    }

    /// Takes the lines on, or drops and counts those for which there is no room. Who calls this calls [`Keep::wake`] soon.
    pub(super) fn put(&self, source: &Arc<Source>, lines: &[Arc<LogLine>]) {
        let mut queues = self.shared.lock();
        let Queues { components, turns, bytes, .. } = &mut *queues;
        let Some(queue) = components.get_mut(source) else { return };
        for line in lines {
            let cost = cost(line);
            let mine = queue.bytes + cost;
            if mine <= SHARE || (mine <= MOST && *bytes + cost <= TOTAL) {
                *bytes += cost;
                queue.push(line, cost);
            } else {
                queue.drop_one();
            }
        }
        if !queue.items.is_empty() && !std::mem::replace(&mut queue.listed, true) {
            turns.push_back(Arc::clone(source));
        }
        drop(queues);
        if let Some(write) = &self.here {
            while let Some((source, batch)) = self.shared.take_turn() {
                turn(&self.shared, write, source, &batch);
            }
        }
    }

    pub(super) fn counts(&self, source: &Source) -> Kept {
        self.shared.lock().components.get(source).map(|q| q.counts).unwrap_or_default()
    }

    /// What of the component is not kept yet.
    pub(super) fn waiting(&self, source: &Source) -> Waiting {
        let queues = self.shared.lock();
        let Some(queue) = queues.components.get(source) else { return Waiting::default() };
        let line = |item: &Item| match item {
            Item::Line(line) => Some(Arc::clone(line)),
            Item::Hole(_) => None,
        };
        Waiting {
            lines: queue.items.iter().filter_map(line).collect(),
            written: queue.counts.written,
            moving: queue.taken > 0,
        }
    }

    /// Forgets a group; what waits of it is dropped.
    pub(super) fn forget(&self, group: &GroupName) {
        let mut queues = self.shared.lock();
        let gone: usize = queues.components.iter().filter(|(s, _)| s.group == *group).map(|(_, q)| q.bytes).sum();
        queues.bytes -= gone;
        queues.components.retain(|source, _| source.group != *group);
        queues.turns.retain(|source| source.group != *group);
        self.shared.turned.notify_all();
    }

    /// Waits until all that was offered before is kept or dropped; false when that takes longer than `patience`.
    pub(super) fn settle(&self, patience: Duration) -> bool {
        let deadline = Instant::now() + patience;
        self.wake();
        let mut queues = self.shared.lock();
        while queues.writing || !queues.turns.is_empty() {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return false;
            }
            queues = self.shared.turned.wait_timeout(queues, left).unwrap_or_else(PoisonError::into_inner).0;
        }
        true
    }
}

impl Drop for Keep {
    fn drop(&mut self) {
        self.shared.lock().closed = true;
        self.wake();
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Queues> {
        // Counts and queues are changed together under the lock, and nothing in between can panic.
        self.queues.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits for the next turn; `None` when all is over.
    fn next_turn(&self) -> Option<(Arc<Source>, Batch)> {
        let mut queues = self.lock();
        loop {
            match queues.take_turn() {
                Some(turn) => return Some(turn),
                None if queues.closed => return None,
                None => queues = self.more.wait(queues).unwrap_or_else(PoisonError::into_inner),
            }
        }
    }

    /// The next turn, if anybody has one.
    fn take_turn(&self) -> Option<(Arc<Source>, Batch)> {
        self.lock().take_turn()
    }

    fn end_turn(&self, source: Arc<Source>, batch: &Batch, done: &Done) {
        let mut queues = self.lock();
        queues.writing = false;
        let Queues { components, turns, bytes, .. } = &mut *queues;
        // Forgotten meanwhile, its bytes are counted off already; another one may have come in its place, under its name, of
        // which nothing was taken yet.
        if let Some(queue) = components.get_mut(&source).filter(|queue| queue.taken == batch.items.len()) {
            *bytes -= queue.end(batch, done);
            queue.listed = !queue.items.is_empty();
            if queue.listed {
                turns.push_back(source);
            }
        }
        self.turned.notify_all();
    }
}

impl Queues {
    fn take_turn(&mut self) -> Option<(Arc<Source>, Batch)> {
        while let Some(source) = self.turns.pop_front() {
            if let Some(queue) = self.components.get_mut(&source) {
                let batch = queue.take();
                self.writing = true;
                return Some((source, batch));
            }
        }
        None
    }
}

/// What a turn did.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Done {
    /// Lines of the component that are kept.
    pub written: u64,
    /// Of the dropped ones, so many are told.
    pub told: u64,
    /// Why not all.
    pub trouble: Option<String>,
}

impl Queue {
    fn push(&mut self, line: &Arc<LogLine>, cost: usize) {
        self.items.push_back(Item::Line(Arc::clone(line)));
        self.bytes += cost;
        self.counts.waiting += 1;
    }

    fn drop_one(&mut self) {
        self.counts.dropped += 1;
        let last = self.items.len();
        match self.items.back_mut() {
            Some(Item::Hole(n)) if last > self.taken => *n += 1,
            _ => self.items.push_back(Item::Hole(1)),
        }
    }

    /// The next lines; at least one item, and about [`TURN`] bytes.
    fn take(&mut self) -> Batch {
        let mut bytes = 0;
        let within = |item: &&Item| {
            let before = bytes;
            bytes += match item {
                Item::Line(line) => cost(line),
                Item::Hole(_) => 0,
            };
            before < TURN
        };
        let items: Vec<Item> = self.items.iter().take_while(within).cloned().collect();
        self.taken = items.len();
        Batch { folder: self.folder.clone(), owed: self.owed, items }
    }

    /// The turn is over. Returns the bytes that wait no longer.
    fn end(&mut self, batch: &Batch, done: &Done) -> usize {
        let lines = batch.items.iter().filter_map(|item| match item {
            Item::Line(line) => Some(cost(line)),
            Item::Hole(_) => None,
        });
        let (count, bytes) = lines.fold((0u64, 0), |(n, sum), cost| (n + 1, sum + cost));
        let lost = count - done.written;
        self.counts.waiting -= count;
        self.counts.written += done.written;
        self.counts.dropped += lost;
        self.owed = batch.holes() + lost - done.told;
        self.items.drain(..self.taken);
        self.taken = 0;
        self.bytes -= bytes;
        if self.items.is_empty() {
            // A flood's room is given back.
            self.items = VecDeque::new();
        }
        bytes
    }

    /// True when this trouble is new.
    fn is_new(&mut self, done: &Done) -> bool {
        let before = std::mem::replace(&mut self.failing, done.trouble.is_some());
        done.trouble.is_some() && !before
    }
}

fn start_thread(shared: &Arc<Shared>, write: &Arc<Mutex<Write>>) -> io::Result<()> {
    if crate::failpoint::no_thread() {
        return Err(io::Error::from(io::ErrorKind::WouldBlock));
    }
    let (shared, write) = (Arc::clone(shared), Arc::clone(write));
    let keep = move || {
        while let Some((source, batch)) = shared.next_turn() {
            turn(&shared, &write, source, &batch);
        }
    };
    std::thread::Builder::new().name("keep-logs".into()).spawn(keep).map(drop)
}

fn turn(shared: &Shared, write: &Mutex<Write>, source: Arc<Source>, batch: &Batch) {
    let done = (write.lock().unwrap_or_else(PoisonError::into_inner))(&source, batch);
    let new = shared.lock().components.get_mut(&source).is_some_and(|queue| queue.is_new(&done));
    if let (true, Some(trouble)) = (new, &done.trouble) {
        let Source { group, component } = &*source;
        tracing::warn!("log lines of {group}/{component} are dropped and counted: {trouble}");
    }
    shared.end_turn(source, batch, &done);
}

/// What an idle component costs here, in bytes, names aside.
#[cfg(test)]
pub(super) const fn idle_cost() -> usize {
    size_of::<Queue>()
}

#[cfg(test)]
#[path = "tests/keep.rs"]
mod tests;
