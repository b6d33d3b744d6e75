//! The one owner of waits: every ended child is looked at while it is a zombie, attributed, and collected here.

use super::drive::LOOK_GAP;
use super::hunt::Place;
use super::live::{Key, Live, Owner, exit_status};
use super::{Containment, Host};
use crate::failpoint;
use socialweb_core::event::ReapedBy;
use socialweb_core::{Birth, ComponentName, Event, ExitStatus, GroupName, Traces, mutant};
use socialweb_sys::cgroup::Cgroup;
use socialweb_sys::process::{self, Proc};
use socialweb_sys::reap::{self, Zombie};
use std::io;

/// Ended children taken in one round, of which the first [`super::drive::BATCH`] are looked at.
const FLOOD: usize = 4096;

impl Host {
    /// Collects children that have ended, a bounded number per round: a component that forks without end hands us its
    /// orphans faster than anything else happens. Called on SIGCHLD, which may stand for many.
    pub fn reap(&mut self) {
        let early = self.looked.filter(|at| at.elapsed() < LOOK_GAP);
        match early {
            // Not now, but soon.
            Some(at) => {
                self.collect_ended();
                self.look_at = Some(at + LOOK_GAP);
            }
            None => self.check_emptying(),
        }
        self.drain();
    }

    /// The part of [`Host::reap`] that every look at an emptying run begins with.
    pub(super) fn collect_ended(&mut self) {
        self.more_children = true;
        for n in 0..FLOOD {
            // Of a flood a part is looked at, which says enough; the rest must not fill the host while we read.
            let bare = n >= super::drive::BATCH;
            match if bare { reap::next_bare() } else { reap::next_zombie() } {
                Ok(Some(zombie)) => self.collect(zombie, bare),
                Ok(None) => {
                    self.more_children = false;
                    break;
                }
                Err(error) => {
                    self.warn(None, format!("cannot look for ended children: {error}"));
                    self.more_children = false;
                    break;
                }
            }
        }
    }

    fn collect(&mut self, zombie: Zombie, bare: bool) {
        let owner = self.pids.remove(&zombie.pid);
        if owner.is_none() && !bare {
            self.note_stray(&zombie);
        }
        let pid = zombie.pid;
        let mut core_dumped = false;
        failpoint::reach("child-ended");
        let status = match zombie.collect() {
            Ok(status) => {
                core_dumped = matches!(status, reap::Status::Killed { core: true, .. });
                exit_status(status)
            }
            Err(error) => {
                self.warn(None, format!("cannot collect pid {pid}: {error}"));
                ExitStatus::Unknown
            }
        };
        failpoint::reach("child-collected");
        match owner {
            Some(Owner::Leader(key)) => self.leader_exited(&key, status, core_dumped),
            Some(Owner::Probe(_, tell)) => drop(tell.send(status)),
            None => {}
        }
    }

    fn leader_exited(&mut self, key: &Key, status: ExitStatus, core_dumped: bool) {
        let oom_kills = self.births.get(key).map_or(0, |live| self.oom_kills(key, live));
        let Some(live) = self.births.get_mut(key) else { return };
        live.traces = Traces { core_dumped, oom_kills };
        live.exited = true;
        live.status = Some(status);
        // exec is decided by now, but its message may still be on the way; Exited must not overtake Spawned.
        if live.exec.is_none() {
            self.leader_gone(key);
        }
    }

    /// The leader was waited for, and it is known how its exec went.
    pub(super) fn leader_gone(&mut self, key: &Key) {
        let Some(live) = self.births.get_mut(key) else { return };
        let (component, birth) = (key.component.clone(), key.birth);
        let event = match (live.exec_failed.take(), live.status) {
            (Some(error), _) => Event::SpawnFailed { component, birth, error },
            (None, status) => {
                let (status, traces) = (status.unwrap_or(ExitStatus::Unknown), live.traces);
                Event::Exited { component, birth, status, traces }
            }
        };
        self.feed(&key.group, event);
    }

    /// Processes of a run that the kernel ended, out of memory. A run's own cgroup is the best witness; one without the
    /// controller (a leaf of a threaded tree, a depth that nothing was handed down to) leaves the group's.
    fn oom_kills(&self, key: &Key, live: &Live) -> u64 {
        let own = live.cgroup.as_ref().and_then(|cgroup| cgroup.oom_kills());
        own.unwrap_or_else(|| self.group_oom_kills(key).saturating_sub(live.oom_before))
    }

    /// The same of the whole group, since it began.
    pub(super) fn group_oom_kills(&self, key: &Key) -> u64 {
        match &self.containment {
            Containment::Cgroups { tree, .. } => tree.child(key.group.as_str()).oom_kills().unwrap_or(0),
            Containment::Fallback => 0,
        }
    }

    /// An orphan ended: where, and remembered with its run while that is being emptied.
    fn note_stray(&mut self, zombie: &Zombie) {
        let place = self.place_of(zombie);
        self.passing.note(std::time::Instant::now(), place.clone());
        let Place::Run(key) = place else { return };
        let Some(live) = self.births.get_mut(&key) else { return };
        let Some(emptying) = &live.emptying else { return };
        if live.others.iter().any(|o| (o.pid, o.start_time) == (zombie.pid, zombie.start_time)) {
            return;
        }
        let by = if emptying.kill { ReapedBy::CgroupKill } else { ReapedBy::Itself };
        live.others.push(super::ladder::reaped(&key.component, zombie.pid, zombie.start_time, zombie.comm.clone(), by));
    }

    /// A zombie keeps its cgroup and its session, and nothing else that says whose it was.
    fn place_of(&self, zombie: &Zombie) -> Place {
        self.place(zombie.cgroup.as_deref(), zombie.session)
    }

    pub(super) fn place_of_living(&self, proc: &Proc) -> Place {
        self.place(process::cgroup(proc.pid).ok().flatten().as_deref(), proc.stat.session)
    }

    fn place(&self, cgroup: Option<&str>, session: u32) -> Place {
        match &self.containment {
            Containment::Cgroups { tree, .. } => {
                let parts = cgroup.and_then(|path| tree.parts(path));
                match parts.as_deref() {
                    Some([group, component, birth, ..]) => {
                        parse_key(group, component, birth).map_or(Place::Outside, Place::Run)
                    }
                    Some(above) => Place::Inside(Cgroup::at(tree.top().path().join(above.join("/")))),
                    None => Place::Outside,
                }
            }
            Containment::Fallback => match self.pids.get(&session) {
                Some(owner) => Place::Run(owner.key().clone()),
                // A leader that was waited for is in no list of the living; its run is being emptied then.
                None => {
                    let led = |key: &&Key| self.births.get(*key).is_some_and(|live| live.pid == session);
                    self.emptying.iter().find(led).map_or(Place::Outside, |key| Place::Run(key.clone()))
                }
            },
        }
    }

    /// The run that a process belongs to: by its cgroup, else by its marker (a zombie has no environment any more).
    pub(super) fn run_of(&self, pid: u32, cgroup: Option<&str>) -> Option<Key> {
        if let (Containment::Cgroups { tree, .. }, Some(path)) = (&self.containment, cgroup)
            && let Some([group, component, birth, ..]) = tree.parts(path).as_deref()
        {
            return parse_key(group, component, birth);
        }
        let marker = process::environ_value(pid, super::spawn::MARKER)?;
        let mut parts = marker.strip_prefix(&self.paths.id)?.strip_prefix('/')?.split('/');
        parse_key(parts.next()?, parts.next()?, parts.next()?)
    }

    /// Children of ours that are no leaders and no probes, with their markers: what components left behind. With the
    /// daemon as subreaper all of it comes here, wherever it moved. The dead are not among them: their turn is at the reaper.
    /// A part of them, never none, when descriptors run out; an error is not "none" (law L14).
    pub(super) fn strays(&self) -> io::Result<Vec<Proc>> {
        if mutant!("l3-strays-unseen") {
            return Ok(Vec::new());
        }
        let unknown = |pid: &u32| !self.pids.contains_key(pid);
        let marker = |pid| process::environ_value(pid, super::spawn::MARKER).unwrap_or_default();
        let pin = |pid| Proc::pinned(pid, |stat| (!stat.is_dead()).then(|| marker(pid))).transpose();
        process::as_far_as_possible(process::children()?.into_iter().filter(unknown).filter_map(pin))
    }
}

fn parse_key(group: &str, component: &str, birth: &str) -> Option<Key> {
    Some(Key {
        group: GroupName::new(group).ok()?,
        component: ComponentName::new(component).ok()?,
        birth: Birth(birth.parse().ok()?),
    })
}
