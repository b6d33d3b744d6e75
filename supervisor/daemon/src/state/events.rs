//! What happened to a group: a bounded file for replay, a bounded ring for people.

use super::append::{Appended, RotatedFile};
use serde::Serialize;
use std::collections::VecDeque;
use std::path::PathBuf;

/// Size at which an event log is rotated. One event is some 200 bytes, a start of a tenant about 50 events.
pub const MAX_BYTES: u64 = 1 << 20;

/// Bytes of events that wait for room: some thousand events of one group.
const PENDING: usize = 256 << 10;

/// One group's event log, JSON lines, the current file and one older.
///
/// It never fails its caller: what finds no room waits for the next event, up to a bound; what is beyond is counted.
/// Either is named once in the daemon's log.
#[derive(Debug)]
pub struct EventLog {
    file: RotatedFile,
    /// Whole lines that are not in the file yet.
    pending: Vec<u8>,
    lost: u64,
    failing: bool,
}

/// What became of an event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Logged {
    /// It is in the file.
    Written,
    /// It is the first line of a new file: a writer that wants each file to replay alone adds its snapshot now.
    WrittenToNewFile,
    /// It waits for room; the next append, or [`EventLog::settle`], tries again.
    Waiting,
    /// It is lost; see [`EventLog::lost`].
    Lost,
}

impl EventLog {
    /// The log at `path`, see [`super::Layout::events`]. Nothing is opened yet.
    pub fn new(path: impl Into<PathBuf>) -> Self {
        Self::with_limit(path, MAX_BYTES)
    }

    /// The same with another limit, in bytes per file.
    pub fn with_limit(path: impl Into<PathBuf>, max_bytes: u64) -> Self {
        EventLog {
            file: RotatedFile { path: path.into(), max_bytes, keep: 1 },
            pending: Vec::new(),
            lost: 0,
            failing: false,
        }
    }

    /// Appends one event as one line, behind those that wait.
    pub fn append(&mut self, event: &impl Serialize) -> Logged {
        let before = self.pending.len();
        if let Err(error) = serde_json::to_writer(&mut self.pending, event) {
            self.pending.truncate(before);
            return self.lose(&error.into());
        }
        self.pending.push(b'\n');
        self.settle()
    }

    /// Writes what waits.
    pub fn settle(&mut self) -> Logged {
        if self.pending.is_empty() {
            return Logged::Written;
        }
        match self.file.append(&self.pending) {
            Ok(appended) => {
                self.pending = Vec::new();
                self.failing = false;
                match appended {
                    Appended::ToFile => Logged::Written,
                    Appended::ToNewFile => Logged::WrittenToNewFile,
                }
            }
            Err(error) => {
                self.pending.drain(..error.kept);
                self.wait(&error.source)
            }
        }
    }

    fn wait(&mut self, error: &std::io::Error) -> Logged {
        if self.pending.len() > PENDING {
            let last = self.pending[..self.pending.len() - 1].iter().rposition(|b| *b == b'\n').map_or(0, |at| at + 1);
            self.pending.truncate(last);
            return self.lose(error);
        }
        self.say(error, "events wait until it can");
        Logged::Waiting
    }

    fn lose(&mut self, error: &std::io::Error) -> Logged {
        self.lost += 1;
        self.say(error, "events are counted and lost until it can");
        Logged::Lost
    }

    fn say(&mut self, error: &std::io::Error, what: &str) {
        if !std::mem::replace(&mut self.failing, true) {
            tracing::warn!("the event log {} cannot be written: {error}; {what}", self.file.path.display());
        }
    }

    /// Events lost so far.
    pub fn lost(&self) -> u64 {
        self.lost
    }
}

/// The last events, each with its number; costs nothing until the first push.
#[derive(Debug, Clone)]
pub struct EventRing<T> {
    limit: usize,
    next: u64,
    items: VecDeque<T>,
}

impl<T> EventRing<T> {
    /// Keeps the last `limit` (at least one).
    pub fn new(limit: usize) -> Self {
        EventRing { limit: limit.max(1), next: 0, items: VecDeque::new() }
    }

    /// Adds one and returns its number; numbers begin at 0.
    pub fn push(&mut self, item: T) -> u64 {
        if self.items.len() == self.limit {
            self.items.pop_front();
        }
        self.items.push_back(item);
        self.next += 1;
        self.next - 1
    }

    /// The number that the next one gets.
    pub fn next_number(&self) -> u64 {
        self.next
    }

    /// Those from number `from` on that are still held, and how many of them are not.
    pub fn since(&self, from: u64) -> (u64, impl Iterator<Item = (u64, &T)>) {
        let first = self.next - self.items.len() as u64;
        let missed = first.saturating_sub(from);
        let skip = usize::try_from(from.saturating_sub(first)).unwrap_or(usize::MAX);
        (missed, (first..).zip(&self.items).skip(skip))
    }
}
