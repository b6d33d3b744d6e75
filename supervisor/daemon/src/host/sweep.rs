//! What an earlier daemon left: found by cgroup and by marker, ended by the ladder, never adopted (law L4).
//!
//! One sweep per group at a time, and the host knows which are under way: a start joins the one that runs, a stop and a
//! delete wait for it, and what it could not end is kept for the next one.

use super::{Again, Containment, Host, Msg};
use crate::failpoint;
use socialweb_core::event::ReapedBy;
use socialweb_core::receipt::{self, Receipt};
use socialweb_core::{ComponentName, Event, GroupName, Phase, Reaped, Time, Why, mutant};
use socialweb_sys::cgroup::Cgroup;
use socialweb_sys::fallback;
use socialweb_sys::process::{self, ChaseLimits, Proc};
use std::time::Duration;

/// How long survivors may take to follow SIGTERM. Shorter than the recipes' own graces: their supervisor is gone, and
/// whoever waits for the group waits for this.
const GRACE: Duration = Duration::from_secs(5);
/// How long a killed one may take to go.
const KILL_WAIT: Duration = Duration::from_secs(10);
/// These are not our children, so the kernel sends us nothing when they end.
const LOOK_AGAIN: Duration = Duration::from_millis(20);
/// One look for survivors that fork faster than /proc is read.
const HOPPERS: ChaseLimits = ChaseLimits { longest: Duration::from_millis(400), quiet: Duration::from_millis(10) };
/// A sweep that nobody waits for and that could not end is tried again after this.
const RETRY: Duration = Duration::from_secs(10);

/// What a sweep saw.
#[derive(Debug)]
pub(crate) struct Swept {
    found: Vec<Reaped>,
    /// What does not end, for people, with the processes themselves.
    stuck: Option<(String, Vec<Proc>)>,
}

/// What is known of a group's survivors before a sweep of it begins.
#[derive(Debug, Default)]
pub(crate) struct Met {
    pub procs: Vec<Proc>,
    /// Ended already, by the chase at the start or by a sweep that got stuck; the next sweep's receipt names them too.
    ended: Vec<Reaped>,
}

/// What is to be done when a sweep has ended.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Then {
    began: Time,
    /// The group stops: its cgroup is to be removed.
    remove_group: bool,
}

impl Host {
    /// Finds every process on this host that carries this state folder's marker. Once, at start: later all that runs of
    /// ours leave are our own children.
    pub fn find_orphans(&mut self) {
        for id in self.ids() {
            self.find_orphans_of(&format!("{id}/"));
        }
    }

    fn find_orphans_of(&mut self, prefix: &str) {
        let group_of = |proc: &Proc| GroupName::new(proc.marker[prefix.len()..].split('/').next()?).ok();
        let found = match process::find_marked(super::spawn::MARKER, prefix) {
            Ok(found) => found,
            Err(error) => {
                self.warn(
                    None,
                    format!("cannot look for processes of an earlier daemon outside of its cgroups: {error}"),
                );
                Vec::new()
            }
        };
        for proc in found {
            if let Some(group) = group_of(&proc) {
                self.orphans.entry(group).or_default().procs.push(proc);
            }
        }
        if self.known_from_state.is_empty() {
            return;
        }
        // What forks faster than that look has no parent any more that would tell us of its dead. It gets no grace.
        let ours = |pid| process::environ_value(pid, super::spawn::MARKER).filter(|m| m.starts_with(prefix));
        for proc in process::chase(HOPPERS, ours).unwrap_or_default() {
            if let Some(group) = group_of(&proc) {
                let reaped = reaped(&proc, &format!("{prefix}{group}/"), ReapedBy::MarkerKill);
                self.orphans.entry(group).or_default().ended.push(reaped);
            }
        }
    }

    /// The names that the marked processes of this state folder may carry: ours, and that of an earlier run.
    fn ids(&self) -> Vec<String> {
        let old = self.old.as_ref().map(|old| old.id.clone()).filter(|id| *id != self.paths.id);
        std::iter::once(self.paths.id.clone()).chain(old).collect()
    }

    /// The subtrees that may hold survivors.
    fn trees(&self) -> Vec<Cgroup> {
        let own = self.groups_tree().map(|tree| tree.top().clone());
        own.into_iter().chain(self.old.as_ref().and_then(|old| old.tree.clone())).collect()
    }

    /// Every group that has survivors and does not start now, declared or not: they are ended all the same.
    pub fn reap_forgotten(&mut self) {
        let mut names: Vec<GroupName> = self.orphans.keys().cloned().collect();
        for tree in self.trees() {
            let found = tree.children().unwrap_or_default();
            names.extend(found.iter().filter_map(|c| GroupName::new(c.name()).ok()));
        }
        names.sort();
        names.dedup();
        for name in names {
            let down = |phase: Phase| matches!(phase, Phase::Absent | Phase::Parked | Phase::Unavailable);
            if self.groups.get(&name).is_none_or(|h| down(h.view.phase)) && !mutant!("l4-forgotten-not-reaped") {
                self.reap_survivors(&name);
            }
        }
    }

    /// Begins a sweep, or joins the one that is under way.
    pub(super) fn reap_survivors(&mut self, group: &GroupName) {
        if mutant!("l4-survivors-not-sought") {
            return self.later(group, Event::SurvivorsReaped { found: Vec::new() });
        }
        if self.sweeping.contains_key(group) {
            return;
        }
        let scan = matches!(self.containment, Containment::Fallback);
        let cgroups = self.trees().into_iter().map(|tree| tree.child(group.as_str())).filter(Cgroup::exists);
        let cgroups: Vec<Cgroup> = cgroups.collect();
        let Met { mut procs, ended } = self.orphans.remove(group).unwrap_or_default();
        let prefix = format!("{}/{group}/", self.paths.id);
        procs.extend(self.strays().unwrap_or_default().into_iter().filter(|p| p.marker.starts_with(&prefix)));
        // One that left the cgroup may fork meanwhile, and its children are not ours.
        let scan = scan || procs.iter().any(|p| self.left(group, p.pid));
        if let Containment::Cgroups { tree, .. } = &self.containment
            && let Err(error) = tree.thaw_above(&tree.child(group.as_str()))
        {
            self.warn(Some(group), crate::chain::chain(&error));
        }
        if cgroups.is_empty() && procs.is_empty() && ended.is_empty() {
            return self.later(group, Event::SurvivorsReaped { found: Vec::new() });
        }
        self.sweeping.insert(group.clone(), Then { began: self.clock.now(), remove_group: false });
        let survivors = Survivors { prefix, cgroups, scan, procs, ended, blind: false };
        let (tx, group) = (self.tx.clone(), group.clone());
        tokio::spawn(async move {
            let swept = survivors.end().await;
            let _ = tx.send(Msg::Swept(group, swept));
        });
    }

    /// True when the process is not in the group's cgroup.
    fn left(&self, group: &GroupName, pid: u32) -> bool {
        let Containment::Cgroups { tree, .. } = &self.containment else { return true };
        let path = process::cgroup(pid).ok().flatten().unwrap_or_default();
        tree.parts(&path).is_none_or(|parts| parts.first() != Some(&group.as_str()))
    }

    /// True when the removal of the group's cgroup has to wait for a sweep; it then follows by itself.
    pub(super) fn waits_for_sweep(&mut self, group: &GroupName) -> bool {
        self.sweeping.get_mut(group).map(|then| then.remove_group = true).is_some()
    }

    pub(super) fn swept(&mut self, group: &GroupName, swept: Swept) {
        let then = self.sweeping.remove(group).unwrap_or_default();
        let phase = self.groups.get(group).map(|h| h.view.phase);
        if let Some((what, procs)) = swept.stuck {
            let met = self.orphans.entry(group.clone()).or_default();
            met.procs.extend(procs);
            met.ended.extend(swept.found);
            return self.sweep_stuck(group, phase, what);
        }
        let wanted = phase == Some(Phase::Sweeping);
        if !wanted && !swept.found.is_empty() {
            // The machine did not ask, so the proof is written here.
            let receipt = self.survivors_receipt(group, then, swept.found.clone());
            self.keep_receipt(group, &receipt);
        }
        if wanted {
            self.feed(group, Event::SurvivorsReaped { found: swept.found });
        } else if then.remove_group {
            self.remove_group(group, 0);
        } else if self.groups.get(group).is_some_and(|h| h.delete) {
            self.finish_delete(group);
        }
    }

    fn sweep_stuck(&mut self, group: &GroupName, phase: Option<Phase>, what: String) {
        match phase {
            // The machine asks again by itself.
            Some(Phase::Sweeping) => self.feed(group, Event::SurvivorsStuck { what }),
            Some(Phase::Stopping) => self.feed(group, Event::GroupStuck { what }),
            _ => {
                self.warn(Some(group), what);
                if !self.stopping {
                    let (tx, group) = (self.tx.clone(), group.clone());
                    tokio::spawn(async move {
                        tokio::time::sleep(RETRY).await;
                        let _ = tx.send(Msg::Again(Again::Sweep(group)));
                    });
                }
            }
        }
    }

    pub(super) fn survivors_receipt(&self, group: &GroupName, then: Then, found: Vec<Reaped>) -> Receipt {
        let ended = self.clock.now();
        Receipt {
            schema: receipt::SCHEMA,
            group: group.clone(),
            generation: self.groups.get(group).map_or(0, |h| h.view.generation),
            why: Why::Survivors,
            began: then.began,
            ended,
            elapsed_ms: u64::try_from(ended.since(then.began).as_millis()).unwrap_or(u64::MAX),
            path_shut: false,
            components: Vec::new(),
            strays: found,
            removed: true,
        }
    }
}

struct Survivors {
    prefix: String,
    /// Its own, and in the subtree of an earlier run.
    cgroups: Vec<Cgroup>,
    /// Without cgroups, and outside of them, only a scan of /proc finds what is forked meanwhile.
    scan: bool,
    procs: Vec<Proc>,
    /// Of before the sweep.
    ended: Vec<Reaped>,
    /// The latest scan failed.
    blind: bool,
}

impl Survivors {
    async fn end(mut self) -> Swept {
        let mut found = std::mem::take(&mut self.ended);
        let before = found.len();
        // Who was met and is gone by now counts too: a shell whose child the chase caught dies of telling that, on a pipe
        // which nobody reads any more.
        self.note(&mut found);
        let met = self.alive();
        found[before..].iter_mut().filter(|r| !met.contains(&r.pid)).for_each(|r| r.by = ReapedBy::Itself);
        self.look(&mut found);
        for cgroup in &self.cgroups {
            let _ = cgroup.thaw();
        }
        for proc in &self.procs {
            let _ = proc.pidfd.send(nix::libc::SIGTERM);
            let _ = proc.pidfd.send(nix::libc::SIGCONT);
        }
        failpoint::reach("survivors-signalled");
        self.wait(GRACE, &mut found).await;
        let after_term: Vec<u32> = self.alive();
        let follows = |r: &&mut Reaped| r.by != ReapedBy::Itself && !after_term.contains(&r.pid);
        found[before..].iter_mut().filter(follows).for_each(|r| r.by = ReapedBy::Signal);
        self.kill(found).await
    }

    /// Kills until nothing is left, in the fallback until two looks in a row agree on that.
    async fn kill(mut self, mut found: Vec<Reaped>) -> Swept {
        let deadline = tokio::time::Instant::now() + KILL_WAIT;
        let mut clean = 0;
        loop {
            self.look(&mut found);
            for cgroup in &self.cgroups {
                let _ = cgroup.kill();
            }
            for proc in &self.procs {
                let _ = proc.pidfd.send(nix::libc::SIGKILL);
            }
            failpoint::reach("survivors-killed");
            clean = if self.is_gone() { clean + 1 } else { 0 };
            let enough = clean >= if self.scan { 2 } else { 1 };
            if enough && self.cgroups.iter().all(|c| c.remove().is_ok()) {
                failpoint::reach("survivors-gone");
                return Swept { found, stuck: None };
            }
            if tokio::time::Instant::now() >= deadline {
                return Swept { stuck: Some((self.stuck(), self.procs)), found };
            }
            tokio::time::sleep(LOOK_AGAIN).await;
        }
    }

    /// Adds what is there now to what is known.
    fn look(&mut self, found: &mut Vec<Reaped>) {
        self.procs.retain(|p| process::alive(p.pid, p.stat.start_time));
        if self.scan {
            let known = |p: &Proc| self.procs.iter().any(|k| k.pid == p.pid);
            let scanned = process::find_marked(super::spawn::MARKER, &self.prefix);
            self.blind = scanned.is_err();
            let new: Vec<Proc> = scanned.unwrap_or_default().into_iter().filter(|p| !known(p)).collect();
            self.procs.extend(new);
        }
        for pid in self.inside() {
            if !self.procs.iter().any(|p| p.pid == pid) {
                let marker =
                    |_: &process::Stat| Some(process::environ_value(pid, super::spawn::MARKER).unwrap_or_default());
                self.procs.extend(Proc::pinned(pid, marker).ok().flatten());
            }
        }
        self.note(found);
    }

    /// Adds those who are known and not noted yet.
    fn note(&self, found: &mut Vec<Reaped>) {
        let by = if self.scan { ReapedBy::MarkerKill } else { ReapedBy::CgroupKill };
        for proc in &self.procs {
            if !found.iter().any(|f| (f.pid, f.start_time) == (proc.pid, proc.stat.start_time)) {
                found.push(reaped(proc, &self.prefix, by));
            }
        }
    }

    fn inside(&self) -> Vec<u32> {
        self.cgroups.iter().flat_map(|c| c.pids().unwrap_or_default()).collect()
    }

    async fn wait(&mut self, limit: Duration, found: &mut Vec<Reaped>) {
        let deadline = tokio::time::Instant::now() + limit;
        while !self.is_gone() && tokio::time::Instant::now() < deadline {
            tokio::time::sleep(LOOK_AGAIN).await;
            self.look(found);
        }
    }

    fn alive(&self) -> Vec<u32> {
        let lives = |p: &&Proc| process::alive(p.pid, p.stat.start_time);
        self.procs.iter().filter(lives).map(|p| p.pid).collect()
    }

    fn is_gone(&self) -> bool {
        // What cannot be read is not gone (law L14).
        let empty = self.cgroups.iter().all(|c| !c.exists() || !c.populated().unwrap_or(true));
        empty && !self.blind && self.alive().is_empty()
    }

    fn stuck(&self) -> String {
        let inside = self.inside();
        let mut pids: Vec<u32> = self.alive().into_iter().chain(inside).collect();
        pids.sort_unstable();
        pids.dedup();
        let who: Vec<String> = fallback::unkillable(pids).iter().map(ToString::to_string).collect();
        format!("processes of an earlier run do not end: {}; the group starts when they are gone", who.join(", "))
    }
}

/// `prefix`: what the markers of its group begin with.
fn reaped(proc: &Proc, prefix: &str, by: ReapedBy) -> Reaped {
    let component = proc.marker.strip_prefix(prefix).and_then(|m| m.split('/').next());
    Reaped {
        component: component.and_then(|c| ComponentName::new(c).ok()),
        pid: proc.pid,
        start_time: proc.stat.start_time,
        command: proc.stat.comm.clone(),
        by,
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use std::process::{Child, Command};

    const PREFIX: &str = "id/group/";

    /// A sleeping process, as it was met.
    fn met(component: &str) -> (Child, Proc) {
        let child = Command::new("sleep").arg("1000").spawn().unwrap();
        let marker = |_: &process::Stat| Some(format!("{PREFIX}{component}/1"));
        let proc = Proc::pinned(child.id(), marker).unwrap().unwrap();
        (child, proc)
    }

    #[tokio::test]
    async fn who_is_gone_before_the_sweep_began_is_in_its_receipt_too() {
        let ((mut caught, first), (mut gone, second), (mut here, third)) = (met("a"), met("b"), met("c"));
        let ended = vec![reaped(&first, PREFIX, ReapedBy::MarkerKill)];
        for child in [&mut caught, &mut gone] {
            child.kill().unwrap();
            child.wait().unwrap();
        }
        let procs = vec![second, third];
        let survivors =
            Survivors { prefix: PREFIX.into(), cgroups: Vec::new(), scan: false, procs, ended, blind: false };
        let swept = survivors.end().await;
        here.wait().unwrap();
        let told: Vec<(u32, ReapedBy)> = swept.found.iter().map(|r| (r.pid, r.by)).collect();
        let want = [(caught.id(), ReapedBy::MarkerKill), (gone.id(), ReapedBy::Itself), (here.id(), ReapedBy::Signal)];
        assert_eq!(told, want);
        assert!(swept.stuck.is_none());
    }
}
