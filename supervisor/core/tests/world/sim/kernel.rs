//! The kernel of the model: processes whose numbers come back, zombies, sessions, cgroups that freeze, kill and tell whether
//! anybody is in them; the disk and the wall clock.

use socialweb_core::{Birth, ExitStatus};
use std::collections::{BTreeMap, BTreeSet};

/// So few numbers that they come back within one life.
const PIDS: u32 = 60;

/// A run of a component of a group: names its cgroup and its marker.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct RunId {
    pub group: usize,
    pub birth: Birth,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Life {
    Runs,
    /// By SIGSTOP: it takes no signal but the kill.
    Stopped,
    /// It ended and nobody waited for it yet; its number is not free.
    Zombie(ExitStatus),
}

/// One process. `start` tells it from an earlier one of the same number.
#[derive(Debug, Clone)]
pub struct Proc {
    pub pid: u32,
    pub start: u64,
    /// The run that it truly comes from.
    pub of: RunId,
    /// The run in whose cgroup it is.
    pub cgroup: RunId,
    pub session: u32,
    /// It carries the marker of its run in its environment.
    pub marked: bool,
    pub leader: bool,
    pub life: Life,
    /// A child of the daemon that lives now, or adopted by it; init waits for the others.
    pub ours: bool,
}

impl Proc {
    pub fn alive(&self) -> bool {
        !matches!(self.life, Life::Zombie(_))
    }
}

/// A run's cgroup.
#[derive(Debug, Clone, Copy, Default)]
pub struct Home {
    pub frozen: bool,
    /// The leader's session, by which a host without cgroups finds the others.
    pub session: u32,
}

#[derive(Debug, Clone)]
pub struct Kernel {
    pub procs: Vec<Proc>,
    pub homes: BTreeMap<RunId, Home>,
    /// The groups whose own cgroup exists.
    pub groups: BTreeSet<usize>,
    /// Without cgroups a run is found by its session and its marker.
    pub cgroups: bool,
    pub disk_full: bool,
    /// The lowest free number comes next: that of the process that was waited for last, more often than not.
    pub tight_pids: bool,
    /// Seconds; jumps, and nobody may care.
    pub wall: i64,
    last_pid: u32,
    starts: u64,
}

impl Default for Kernel {
    fn default() -> Self {
        let (procs, homes, groups) = (Vec::new(), BTreeMap::new(), BTreeSet::new());
        Kernel {
            procs,
            homes,
            groups,
            cgroups: true,
            disk_full: false,
            tight_pids: false,
            wall: 1_700_000_000,
            last_pid: 0,
            starts: 0,
        }
    }
}

impl Kernel {
    fn next_pid(&mut self) -> u32 {
        let last = if self.tight_pids { 0 } else { self.last_pid };
        let free = (0..PIDS).map(|n| (last + n) % PIDS + 2).find(|p| self.procs.iter().all(|q| q.pid != *p));
        let pid = free.expect("a life has fewer processes than there are numbers");
        self.last_pid = pid - 1;
        pid
    }

    /// A new process in the cgroup of `cgroup`; in a session of its own, or in that of the run's leader.
    pub fn fork(&mut self, of: RunId, cgroup: RunId, leader: bool, own_session: bool) -> &mut Proc {
        let pid = self.next_pid();
        self.starts += 1;
        let home = self.homes.entry(of).or_default();
        if leader {
            home.session = pid;
        }
        let session = if own_session || leader { pid } else { home.session };
        self.procs.push(Proc {
            pid,
            start: self.starts,
            of,
            cgroup,
            session,
            marked: true,
            leader,
            life: Life::Runs,
            ours: true,
        });
        self.procs.last_mut().expect("pushed just now")
    }

    /// All that a kill of this run reaches, zombies included: what is in its cgroup (without cgroups: in its session), and what
    /// carries its marker.
    pub fn reach(&self, id: RunId) -> impl Iterator<Item = &Proc> {
        let session = self.homes.get(&id).map_or(0, |h| h.session);
        self.procs.iter().filter(move |p| self.reaches(p, id, session))
    }

    fn reaches(&self, p: &Proc, id: RunId, session: u32) -> bool {
        let inside = if self.cgroups { p.cgroup == id } else { p.session == session && p.of == id };
        inside || p.marked && p.of == id
    }

    pub fn leader(&self, id: RunId) -> Option<&Proc> {
        self.procs.iter().find(|p| p.leader && p.of == id)
    }

    pub fn leader_mut(&mut self, id: RunId) -> Option<&mut Proc> {
        self.procs.iter_mut().find(|p| p.leader && p.of == id)
    }

    /// Processes that truly come from this group, whoever waits for them.
    pub fn of_group(&self, group: usize) -> impl Iterator<Item = &Proc> {
        self.procs.iter().filter(move |p| p.of.group == group)
    }

    pub fn alive(&self, id: RunId) -> bool {
        self.procs.iter().any(|p| p.of == id && p.alive())
    }

    pub fn frozen(&self, id: RunId) -> bool {
        self.cgroups && self.homes.get(&id).is_some_and(|h| h.frozen)
    }

    /// It ends: a zombie until its parent waits; init does so at once.
    pub fn end(&mut self, pid: u32, status: ExitStatus) {
        let Some(at) = self.procs.iter().position(|p| p.pid == pid && p.alive()) else { return };
        if self.procs[at].ours {
            self.procs[at].life = Life::Zombie(status);
        } else {
            self.procs.remove(at);
        }
    }

    /// The parent waits: the number is free again.
    pub fn wait(&mut self, pid: u32, start: u64) -> Option<Proc> {
        let at = self.procs.iter().position(|p| (p.pid, p.start) == (pid, start) && !p.alive())?;
        Some(self.procs.remove(at))
    }

    /// rmdir: refused while a living process is inside; zombies do not count.
    pub fn rmdir(&mut self, id: RunId) -> bool {
        let free = !self.cgroups || !self.procs.iter().any(|p| p.cgroup == id && p.alive());
        if free {
            self.homes.remove(&id);
        }
        free
    }

    /// The daemon died: its children are init's, which waits for the dead ones.
    pub fn orphan(&mut self) {
        self.procs.retain(Proc::alive);
        self.procs.iter_mut().for_each(|p| p.ours = false);
    }
}
