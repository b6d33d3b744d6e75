//! The way out: every group down in its order, then nothing of ours left.

use super::Host;
use crate::failpoint;
use socialweb_core::{Event, Phase, Why, mutant};
use socialweb_sys::cgroup::{Support, release_controllers};
use socialweb_sys::process::{self, ChaseLimits, Stat};
use socialweb_sys::{fallback, reap};
use std::time::{Duration, Instant};

/// When nothing but processes that cannot be killed has been left for this long, the daemon ends without them and says
/// so. A process in uninterruptible sleep goes when its device answers; nobody knows when.
pub(super) const STUCK: Duration = Duration::from_secs(60);
/// Said when a flush does not end.
pub(super) const DEAD_DISK: &str = "the disk of the state folder does not answer: the leases are not written to it; \
     look after that disk, and the next start makes them from the groups' records";
/// How long the last log lines may take to the disk.
const LAST_LINES: Duration = Duration::from_secs(5);
/// How long stragglers outside of every group may take to go once they are killed.
const STRAGGLERS: Duration = Duration::from_secs(5);
/// One chase of them.
const CHASE: ChaseLimits = ChaseLimits { longest: Duration::from_millis(400), quiet: Duration::from_millis(30) };
/// So many of them are told by name.
const TOLD: usize = 20;

impl Host {
    /// Everything down, in order; a second request changes nothing.
    pub fn begin_shutdown(&mut self) {
        if std::mem::replace(&mut self.stopping, true) {
            self.cut_short |= mutant!("l6-second-term-cuts");
            return self.say_host("still stopping; every group goes down in its order".into());
        }
        self.say_host("stopping: every group goes down in its order".into());
        failpoint::reach("shutdown-begun");
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
        if mutant!("l3-end-without-stop") || self.cut_short {
            return Some(Ok(()));
        }
        let down = |phase: Phase| matches!(phase, Phase::Absent | Phase::Parked | Phase::Unavailable);
        if self.sweeping.is_empty() && self.groups.values().all(|h| down(h.view.phase)) {
            return self.is_written();
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

    /// A flush that is under way ends, well or not, and then all is written once more if need be. On a disk that answers
    /// no more it never ends.
    fn is_written(&mut self) -> Option<Result<(), String>> {
        if !self.leases.is_writing() {
            return Some(Ok(()));
        }
        let now = self.clock.now();
        let since = *self.stuck_since.get_or_insert(now);
        (now.since(since) >= STUCK).then(|| Err(DEAD_DISK.into()))
    }

    fn what_is_stuck(&self) -> String {
        let pids = self.births.values().flat_map(|live| match &live.cgroup {
            Some(cgroup) => cgroup.pids().unwrap_or_default(),
            None => vec![live.pid],
        });
        let told = self.births.values().filter_map(|live| live.emptying.as_ref()).map(|e| e.lingering.clone());
        let who = fallback::unkillable(pids).into_iter().map(|u| u.to_string());
        let who: Vec<String> = who.chain(told.filter(|t| !t.is_empty())).collect();
        format!("these processes were killed and do not go away: {}; the next start waits for them", who.join("; "))
    }

    /// Nothing of ours stays: stragglers that hid from every group, the subtree, what was handed down in it, sockets.
    pub fn leave(&mut self) {
        self.pay_at_the_end();
        self.end_stragglers();
        failpoint::reach("stragglers-ended");
        if !self.logs.settle(LAST_LINES) {
            tracing::warn!("the last log lines are not kept: the disk does not take them");
        }
        let old = self.old.as_ref().and_then(|old| old.tree.clone());
        for top in old.into_iter().chain(self.groups_tree().map(|tree| tree.top().clone())) {
            if mutant!("l3-tree-left") {
                continue;
            }
            if let Err(error) = top.remove() {
                tracing::warn!("the cgroup subtree stays: {}", crate::chain::chain(&error));
            }
        }
        if let (Support::Delegated { .. }, Some(root)) = (&self.support, self.support.root()) {
            release_controllers(root).iter().for_each(|problem| tracing::warn!("{problem}"));
        }
        failpoint::reach("tree-removed");
        let _ = std::fs::remove_file(&self.paths.notify);
        for group in self.groups.keys() {
            let _ = crate::state::remove_tree(&self.paths.runtime.join(group.as_str()));
        }
        // Only when nothing of anybody else is in it.
        let _ = std::fs::remove_dir(&self.paths.runtime);
        failpoint::reach("sockets-removed");
    }

    /// What is still a child of ours now belongs to nobody: it left its cgroup and dropped its marker. While children end
    /// that nobody saw live, there is one that forks faster than a look takes: it is chased.
    fn end_stragglers(&mut self) {
        let deadline = Instant::now() + STRAGGLERS;
        let mut told = std::collections::BTreeSet::new();
        loop {
            let ended = self.collect_last(deadline);
            let mut found = self.strays().unwrap_or_default();
            if found.is_empty() && ended > 0 {
                found = process::chase(CHASE, descends_from_us).unwrap_or_default();
            }
            if found.is_empty() && ended == 0 {
                return;
            }
            for straggler in &found {
                let what = format!("pid {} ({})", straggler.pid, straggler.stat.comm);
                if straggler.pidfd.send(nix::libc::SIGKILL).is_ok() && told.insert(straggler.pid) && told.len() <= TOLD
                {
                    tracing::warn!("{what} had left its group without a trace and is ended with the daemon");
                }
            }
            if Instant::now() > deadline {
                return tracing::error!("processes that left their groups without a trace may outlive the daemon");
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Waits for all children that have ended. Returns how many nobody knew.
    fn collect_last(&mut self, deadline: Instant) -> usize {
        let mut unknown = 0;
        while let Ok(Some(zombie)) = reap::next_zombie() {
            unknown += usize::from(self.pids.remove(&zombie.pid).is_none());
            let _ = zombie.collect();
            if Instant::now() > deadline {
                break;
            }
        }
        unknown
    }
}

/// A living child of ours, or a child's child: nothing of that kind is meant to live any more.
fn descends_from_us(pid: u32) -> Option<String> {
    let parent = |pid| Stat::of(pid).ok().filter(|s| !s.is_dead()).map(|s| s.ppid);
    let own = std::process::id();
    let ppid = parent(pid)?;
    // The parent may be dead already, and not waited for.
    (ppid == own || Stat::of(ppid).is_ok_and(|s| s.ppid == own)).then(String::new)
}
