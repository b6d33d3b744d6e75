//! One inotify instance for the cgroup.events of all cgroups that are being stopped.
//!
//! Expected flow: [`Watcher::add`], then [`Cgroup::populated`] (in this order, else an end in between is missed); when
//! the watcher is readable, [`Watcher::read_events`] and look at those cgroups again; [`Watcher::remove`] before the
//! cgroup is removed. Caveats: an event says "look again", not what happened. The number of instances per user is small
//! (128 by default), so there is one; watches are opened only during stops, so an idle daemon has none.

use super::Cgroup;
use nix::errno::Errno;
use nix::sys::inotify::{AddWatchFlags, InitFlags, Inotify, WatchDescriptor};
use std::collections::HashMap;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};
use std::path::PathBuf;

/// Names a watched cgroup. Adding the same cgroup again gives the same id.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct WatchId(WatchDescriptor);

/// Watches any number of cgroups; readable when one of them changed.
#[derive(Debug)]
pub struct Watcher {
    inotify: Inotify,
    watched: HashMap<WatchId, PathBuf>,
}

impl Watcher {
    /// Opens the instance, non-blocking and close-on-exec.
    pub fn new() -> io::Result<Watcher> {
        let inotify = Inotify::init(InitFlags::IN_NONBLOCK | InitFlags::IN_CLOEXEC).map_err(|e| {
            with_hint(e, "too many inotify instances of this account: raise fs.inotify.max_user_instances")
        })?;
        Ok(Watcher { inotify, watched: HashMap::new() })
    }

    /// Begins to watch. Error kind NotFound: the cgroup does not exist (any more), so nothing lives in it.
    pub fn add(&mut self, cgroup: &Cgroup) -> io::Result<WatchId> {
        let file = cgroup.path().join("cgroup.events");
        let wd = self
            .inotify
            .add_watch(&file, AddWatchFlags::IN_MODIFY)
            .map_err(|e| with_hint(e, "too many inotify watches of this account: raise fs.inotify.max_user_watches"))?;
        self.watched.insert(WatchId(wd), cgroup.path().to_path_buf());
        Ok(WatchId(wd))
    }

    /// Ends a watch. Unknown ids are fine.
    pub fn remove(&mut self, id: WatchId) {
        if self.watched.remove(&id).is_some() {
            // Fails only when the kernel ended the watch by itself because the cgroup went away.
            let _ = self.inotify.rm_watch(id.0);
        }
    }

    /// The cgroups to look at again, each once; empty when there is no news. When the kernel's queue overflowed (16,384
    /// events by default) that is all of them.
    pub fn read_events(&mut self) -> io::Result<Vec<WatchId>> {
        let mut changed = Vec::new();
        loop {
            let events = match self.inotify.read_events() {
                Err(Errno::EAGAIN) => break,
                Err(Errno::EINTR) => continue,
                other => other?,
            };
            for event in events {
                if event.mask.contains(AddWatchFlags::IN_Q_OVERFLOW) {
                    changed.extend(self.watched.keys());
                } else if self.watched.contains_key(&WatchId(event.wd)) {
                    changed.push(WatchId(event.wd));
                }
                // IN_IGNORED: the cgroup was removed while it was watched. Its number is never given out again.
                if event.mask.contains(AddWatchFlags::IN_IGNORED) {
                    self.watched.remove(&WatchId(event.wd));
                }
            }
        }
        changed.sort_unstable();
        changed.dedup();
        Ok(changed)
    }

    /// How many cgroups are watched.
    pub fn len(&self) -> usize {
        self.watched.len()
    }

    /// True when nothing is watched.
    pub fn is_empty(&self) -> bool {
        self.watched.is_empty()
    }
}

fn with_hint(errno: Errno, hint: &str) -> io::Error {
    match errno {
        Errno::ENOSPC | Errno::EMFILE => io::Error::other(format!("{hint} ({errno})")),
        other => other.into(),
    }
}

impl AsFd for Watcher {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.inotify.as_fd()
    }
}

impl AsRawFd for Watcher {
    fn as_raw_fd(&self) -> RawFd {
        self.inotify.as_fd().as_raw_fd()
    }
}
