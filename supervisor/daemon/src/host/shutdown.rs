//! The way out: every group down in its order, then nothing of ours left.

use super::{Containment, Host};
use socialweb_core::{Event, Phase, Why};
use socialweb_sys::cgroup::{Support, release_controllers};
use socialweb_sys::{fallback, reap};
use std::time::Duration;

/// When nothing but processes that cannot be killed has been left for this long, the daemon ends without them and says
/// so. A process in uninterruptible sleep goes when its device answers; nobody knows when.
const STUCK: Duration = Duration::from_secs(60);
/// How long stragglers outside of every group may take to go once they are killed.
const STRAGGLERS: Duration = Duration::from_secs(2);

impl Host {
    /// Everything down, in order; a second request changes nothing.
    pub fn begin_shutdown(&mut self) {
        if std::mem::replace(&mut self.stopping, true) {
            return self.say_host("still stopping; every group goes down in its order".into());
        }
        self.say_host("stopping: every group goes down in its order".into());
        let groups: Vec<_> = self.groups.keys().cloned().collect();
        for group in groups {
            self.feed(&group, Event::Stop { why: Why::Shutdown });
        }
    }

    /// `Some` when the daemon may end: all is down, or what is left cannot be taken away.
    pub(super) fn is_through(&mut self) -> Option<Result<(), String>> {
        if !self.stopping {
            return None;
        }
        let down = |phase: Phase| matches!(phase, Phase::Absent | Phase::Parked | Phase::Unavailable);
        if self.sweeping.is_empty() && self.groups.values().all(|h| down(h.view.phase)) {
            return Some(Ok(()));
        }
        let wedged = self.groups.values().filter(|h| !down(h.view.phase)).all(|h| {
            let mut alive = h.view.components.iter().filter(|c| c.birth.is_some()).peekable();
            alive.peek().is_some() && alive.all(|c| c.state == "Wedged")
        });
        if !(wedged && self.sweeping.is_empty()) {
            self.stuck_since = None;
            return None;
        }
        let now = self.clock.now();
        let since = *self.stuck_since.get_or_insert(now);
        (now.since(since) >= STUCK).then(|| Err(self.what_is_stuck()))
    }

    fn what_is_stuck(&self) -> String {
        let pids = self.births.values().flat_map(|live| match &live.cgroup {
            Some(cgroup) => cgroup.pids().unwrap_or_default(),
            None => vec![live.pid],
        });
        let who: Vec<String> = fallback::unkillable(pids).iter().map(ToString::to_string).collect();
        format!("these processes were killed and do not go away: {}; the next start waits for them", who.join("; "))
    }

    /// Nothing of ours stays: stragglers that hid from every group, the subtree, what was handed down in it, sockets.
    pub fn leave(&mut self) {
        self.end_stragglers();
        if let Containment::Cgroups { tree, .. } = &self.containment {
            for top in self.old_tree.iter().chain([tree.top()]) {
                if let Err(error) = top.remove() {
                    tracing::warn!("the cgroup subtree stays: {}", crate::chain::chain(&error));
                }
            }
        }
        if let (Support::Delegated { .. }, Some(root)) = (&self.support, self.support.root()) {
            release_controllers(root).iter().for_each(|problem| tracing::warn!("{problem}"));
        }
        let _ = std::fs::remove_file(&self.paths.notify);
        for group in self.groups.keys() {
            let _ = std::fs::remove_dir_all(self.paths.runtime.join(group.as_str()));
        }
        // Only when nothing of anybody else is in it.
        let _ = std::fs::remove_dir(&self.paths.runtime);
    }

    /// What is still a child of ours now belongs to nobody: it left its cgroup and dropped its marker.
    fn end_stragglers(&mut self) {
        let deadline = std::time::Instant::now() + STRAGGLERS;
        loop {
            while let Ok(Some(zombie)) = reap::next_zombie() {
                self.pids.remove(&zombie.pid);
                let _ = zombie.collect();
            }
            let found = self.strays();
            if found.is_empty() || std::time::Instant::now() > deadline {
                break;
            }
            for straggler in found {
                let what = format!("pid {} ({})", straggler.pid, straggler.stat.comm);
                if straggler.pidfd.send(nix::libc::SIGKILL).is_ok() {
                    tracing::warn!("{what} had left its group without a trace and is ended with the daemon");
                }
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}
