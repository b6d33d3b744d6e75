//! Followers: who wants to see lines as they come.

use super::line::LogLine;
use socialweb_core::{ComponentName, GroupName};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use tokio::sync::mpsc;

/// Makes the two ends; up to `capacity` lines wait for a slow follower.
pub(super) fn pair(group: GroupName, component: Option<ComponentName>, capacity: usize) -> (FollowerEnd, Follower) {
    // Two at least: what was missed, and the line after it.
    let (sender, receiver) = mpsc::channel(capacity.max(2));
    let missed = Arc::new(AtomicU64::new(0));
    let end = FollowerEnd { group, component, sender, missed: Arc::clone(&missed) };
    (end, Follower { receiver, missed })
}

/// The room's end of a follower.
pub(super) struct FollowerEnd {
    group: GroupName,
    component: Option<ComponentName>,
    sender: mpsc::Sender<Followed>,
    missed: Arc<AtomicU64>,
}

impl FollowerEnd {
    /// False once the follower is gone.
    pub(super) fn offer(&mut self, lines: &[Arc<LogLine>]) -> bool {
        let wanted = |l: &LogLine| {
            l.source.group == self.group && self.component.as_ref().is_none_or(|c| *c == l.source.component)
        };
        if lines.first().is_some_and(|l| wanted(l)) {
            lines.iter().for_each(|line| self.offer_one(line));
        }
        !self.sender.is_closed()
    }

    fn offer_one(&self, line: &Arc<LogLine>) {
        // What was missed is told before what comes after it.
        let needed = 1 + usize::from(self.missed.load(Ordering::Relaxed) > 0);
        if self.sender.capacity() < needed {
            self.missed.fetch_add(1, Ordering::Relaxed);
            return;
        }
        let missed = self.missed.swap(0, Ordering::Relaxed);
        if missed > 0 {
            let _ = self.sender.try_send(Followed::Missed(missed));
        }
        let _ = self.sender.try_send(Followed::Line(Arc::clone(line)));
    }
}

/// What a follower gets.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Followed {
    /// A line.
    Line(Arc<LogLine>),
    /// At this place so many lines are missing, because the follower was too slow.
    Missed(u64),
}

/// A subscription; ends when it is dropped.
#[derive(Debug)]
pub struct Follower {
    receiver: mpsc::Receiver<Followed>,
    missed: Arc<AtomicU64>,
}

impl Follower {
    /// The next line; `None` when the room is gone. Cancel safe.
    pub async fn next(&mut self) -> Option<Followed> {
        if let Ok(followed) = self.receiver.try_recv() {
            return Some(followed);
        }
        match self.missed.swap(0, Ordering::Relaxed) {
            0 => self.receiver.recv().await,
            n => Some(Followed::Missed(n)),
        }
    }
}
