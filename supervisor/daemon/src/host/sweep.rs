//! What an earlier daemon left: found by cgroup and by marker, ended by the ladder, never adopted (law L4).

use super::{Containment, Host, Msg};
use socialweb_core::event::ReapedBy;
use socialweb_core::{ComponentName, Event, GroupName, Reaped};
use socialweb_sys::cgroup::Cgroup;
use socialweb_sys::fallback;
use socialweb_sys::process::{self, Proc};
use std::time::Duration;

/// How long survivors may take to follow SIGTERM. Shorter than the recipes' own graces: their supervisor is gone, and
/// whoever waits for the group waits for this.
const GRACE: Duration = Duration::from_secs(5);
/// How long a killed one may take to go.
const KILL_WAIT: Duration = Duration::from_secs(10);
/// These are not our children, so the kernel sends us nothing when they end.
const LOOK_AGAIN: Duration = Duration::from_millis(20);

impl Host {
    /// Finds every process on this host that carries this state folder's marker. Once, at start: later all that runs of
    /// ours leave are our own children.
    pub fn find_orphans(&mut self) {
        let prefix = format!("{}/", self.paths.id);
        for proc in process::find_marked(super::spawn::MARKER, &prefix).unwrap_or_default() {
            let name = proc.marker[prefix.len()..].split('/').next().and_then(|g| GroupName::new(g).ok());
            if let Some(group) = name {
                self.orphans.entry(group).or_default().push(proc);
            }
        }
    }

    /// Groups that have survivors or cgroups and are held by no machine: ended all the same.
    pub fn reap_forgotten(&mut self) {
        let mut names: Vec<GroupName> = self.orphans.keys().cloned().collect();
        if let Containment::Cgroups { tree, .. } = &self.containment {
            let found = tree.top().children().unwrap_or_default();
            names.extend(found.iter().filter_map(|c| GroupName::new(c.name()).ok()));
        }
        names.sort();
        names.dedup();
        for name in names {
            if self.groups.get(&name).is_none_or(|h| h.machine.spec().is_none()) {
                self.reap_survivors(&name);
            }
        }
    }

    pub(super) fn reap_survivors(&mut self, group: &GroupName) {
        let cgroup = match &self.containment {
            Containment::Cgroups { tree, .. } => Some(tree.child(group.as_str())).filter(Cgroup::exists),
            Containment::Fallback => None,
        };
        let mut procs = self.orphans.remove(group).unwrap_or_default();
        let prefix = format!("{}/{group}/", self.paths.id);
        procs.extend(self.strays().into_iter().filter(|p| p.marker.starts_with(&prefix)));
        if cgroup.is_none() && procs.is_empty() {
            return self.later(group, Event::SurvivorsReaped { found: Vec::new() });
        }
        let survivors = Survivors { group: group.clone(), prefix, cgroup, procs };
        let tx = self.tx.clone();
        tokio::spawn(async move {
            let group = survivors.group.clone();
            let event = survivors.end().await;
            let _ = tx.send(Msg::Event(group, event));
        });
    }
}

struct Survivors {
    group: GroupName,
    prefix: String,
    cgroup: Option<Cgroup>,
    procs: Vec<Proc>,
}

impl Survivors {
    async fn end(mut self) -> Event {
        let mut found: Vec<Reaped> = Vec::new();
        self.look(&mut found);
        if let Some(cgroup) = &self.cgroup {
            let _ = cgroup.thaw();
        }
        for proc in &self.procs {
            let _ = proc.pidfd.send(nix::libc::SIGTERM);
            let _ = proc.pidfd.send(nix::libc::SIGCONT);
        }
        self.wait(GRACE, &mut found).await;
        let after_term: Vec<u32> = self.alive();
        for reaped in found.iter_mut().filter(|r| !after_term.contains(&r.pid)) {
            reaped.by = ReapedBy::Signal;
        }
        let deadline = tokio::time::Instant::now() + KILL_WAIT;
        loop {
            self.look(&mut found);
            if let Some(cgroup) = &self.cgroup {
                let _ = cgroup.kill();
            }
            for proc in &self.procs {
                let _ = proc.pidfd.send(nix::libc::SIGKILL);
            }
            if self.is_gone() && self.cgroup.as_ref().is_none_or(|c| c.remove().is_ok()) {
                return Event::SurvivorsReaped { found };
            }
            if tokio::time::Instant::now() >= deadline {
                return Event::SurvivorsStuck { what: self.stuck() };
            }
            tokio::time::sleep(LOOK_AGAIN).await;
        }
    }

    /// Adds what is in the cgroup now to what is known.
    fn look(&mut self, found: &mut Vec<Reaped>) {
        for pid in self.cgroup.as_ref().and_then(|c| c.pids().ok()).unwrap_or_default() {
            if !self.procs.iter().any(|p| p.pid == pid) {
                let marker =
                    |_: &process::Stat| Some(process::environ_value(pid, super::spawn::MARKER).unwrap_or_default());
                self.procs.extend(Proc::pinned(pid, marker).ok().flatten());
            }
        }
        for proc in &self.procs {
            if !found.iter().any(|f| (f.pid, f.start_time) == (proc.pid, proc.stat.start_time)) {
                let component = proc.marker.strip_prefix(&self.prefix).and_then(|m| m.split('/').next());
                found.push(Reaped {
                    component: component.and_then(|c| ComponentName::new(c).ok()),
                    pid: proc.pid,
                    start_time: proc.stat.start_time,
                    command: proc.stat.comm.clone(),
                    by: ReapedBy::CgroupKill,
                });
            }
        }
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
        self.cgroup.as_ref().is_none_or(|c| !c.populated().unwrap_or(false)) && self.alive().is_empty()
    }

    fn stuck(&self) -> String {
        let inside = self.cgroup.as_ref().and_then(|c| c.pids().ok()).unwrap_or_default();
        let mut pids: Vec<u32> = self.alive().into_iter().chain(inside).collect();
        pids.sort_unstable();
        pids.dedup();
        let who: Vec<String> = fallback::unkillable(pids).iter().map(ToString::to_string).collect();
        format!("processes of an earlier run do not end: {}; the group starts when they are gone", who.join(", "))
    }
}
