//! The rungs: signal, kill, wait for the last process, remove. Nothing is inferred to be gone: a run is empty when its
//! cgroup is unpopulated and no child of ours carries its marker; in the fallback when two scans in a row find nothing.

use super::live::{Emptying, Key};
use super::{Again, Containment, Host, Msg};
use socialweb_core::event::ReapedBy;
use socialweb_core::{ComponentName, Event, GroupName, Reaped};
use socialweb_sys::cgroup::{Cgroup, RemoveError};
use socialweb_sys::process::Proc;
use socialweb_sys::{fallback, process};
use std::time::Duration;

/// The kernel answers EBUSY for a moment after the last member died: tried again this often, then core is left to ask.
const REMOVE_TRIES: u32 = 40;
/// Between two tries, and between two looks of the fallback.
const REMOVE_PAUSE: Duration = Duration::from_millis(25);

impl Host {
    /// Thaws the run and signals its leader through the pidfd: a frozen process takes no signal but KILL.
    pub(super) fn signal_run(&mut self, key: &Key, signal: i32) {
        let Some(live) = self.births.get(key) else { return };
        if let Some(cgroup) = &live.cgroup
            && let Err(error) = cgroup.thaw()
        {
            let text = format!("cannot thaw {}: {}", key.component, crate::chain::chain(&error));
            self.warn(Some(&key.group), text);
        }
        let Some(live) = self.births.get(key) else { return };
        // A stopped process keeps signals pending: CONT lets it take ours.
        let sent = live.pidfd.send(signal).and_then(|_| live.pidfd.send(nix::libc::SIGCONT));
        if let Err(error) = sent {
            let text = format!("cannot signal {} (pid {}): {error}", key.component, live.pid);
            self.warn(Some(&key.group), text);
        }
    }

    /// Waits for the last process of the run; with `kill`, ends whatever is there first.
    pub(super) fn empty_run(&mut self, key: &Key, kill: bool) {
        let Some(live) = self.births.get_mut(key) else {
            // No process came to be, or its end was told already.
            return self.later(&key.group, empty_event(key, Vec::new()));
        };
        let cgroup = live.cgroup.clone();
        let before = live.emptying.take();
        let watch = before.and_then(|e| e.watch);
        live.emptying = Some(Emptying { kill: kill || before.is_some_and(|e| e.kill), watch, clean: 0 });
        if watch.is_none()
            && let Some(cgroup) = &cgroup
            && let Containment::Cgroups { watcher: Some(watcher), .. } = &mut self.containment
        {
            // Watch first, look second: an end in between is seen. Not found: nothing lives in it.
            let added = watcher.get_mut().add(cgroup).ok();
            if let Some(emptying) = self.births.get_mut(key).and_then(|l| l.emptying.as_mut()) {
                emptying.watch = added;
            }
        }
        self.emptying.insert(key.clone());
        if kill {
            self.kill_run(key);
        }
        self.look = true;
    }

    fn kill_run(&mut self, key: &Key) {
        let Some(live) = self.births.get(key) else { return };
        match live.cgroup.clone() {
            Some(cgroup) => {
                self.note_others(key, &cgroup);
                // A leader that moved itself out is in no cgroup of ours any more.
                self.kill_leader(key);
                if let Err(error) = cgroup.kill() {
                    self.warn(
                        Some(&key.group),
                        format!("cannot kill {}: {}", key.component, crate::chain::chain(&error)),
                    );
                }
            }
            None => {
                let found = self.fallback_members(key);
                self.kill_each(key, found);
            }
        }
    }

    fn kill_leader(&mut self, key: &Key) {
        if let Some(live) = self.births.get(key).filter(|live| !live.exited) {
            let sent = live.pidfd.send(nix::libc::SIGKILL);
            if let Err(error) = sent {
                let text = format!("cannot kill {} (pid {}): {error}", key.component, live.pid);
                self.warn(Some(&key.group), text);
            }
        }
    }

    /// Who is in the cgroup beside the leader when it is killed, for the receipt.
    fn note_others(&mut self, key: &Key, cgroup: &Cgroup) {
        let Some(live) = self.births.get_mut(key) else { return };
        for pid in cgroup.pids().unwrap_or_default() {
            let known = pid == live.pid || live.others.iter().any(|o| o.pid == pid);
            if !known && let Ok(stat) = process::Stat::of(pid) {
                let by = ReapedBy::CgroupKill;
                live.others.push(reaped(&key.component, pid, stat.start_time, stat.comm, by));
            }
        }
    }

    fn kill_each(&mut self, key: &Key, found: Vec<Proc>) {
        for proc in found {
            let sent = proc.pidfd.send(nix::libc::SIGKILL);
            if let Err(error) = &sent {
                let text = format!("cannot kill pid {} ({}) of {}: {error}", proc.pid, proc.stat.comm, key.component);
                self.warn(Some(&key.group), text);
            }
            let Some(live) = self.births.get_mut(key) else { return };
            if proc.pid != live.pid && !live.others.iter().any(|o| o.pid == proc.pid) {
                let by = ReapedBy::MarkerKill;
                live.others.push(reaped(&key.component, proc.pid, proc.stat.start_time, proc.stat.comm, by));
            }
        }
    }

    /// Looks again at every run that somebody waits for. One look at our own children serves all whose cgroup is empty
    /// by then; it comes after those cgroups were seen empty, so it sees whatever left them.
    pub(super) fn check_emptying(&mut self) {
        // A dead child is in no cgroup and in no scan, and is not gone before it was waited for (law L3).
        self.collect_ended();
        let mut vacant = Vec::new();
        for key in self.emptying.clone() {
            let Some((cgroup, emptying)) = self.births.get(&key).and_then(|l| Some((l.cgroup.clone(), l.emptying?)))
            else {
                self.emptying.remove(&key);
                continue;
            };
            let populated = cgroup.as_ref().map(|c| c.populated().unwrap_or(true));
            match (cgroup, populated) {
                // Something may have been started or moved into it since it was killed.
                (Some(cgroup), Some(true)) if emptying.kill => drop(cgroup.kill()),
                (Some(_), Some(true)) => {}
                (Some(_), _) => vacant.push((key, emptying)),
                (None, _) if self.fallback_is_empty(&key, emptying) => self.emptied(&key, emptying),
                (None, _) => {}
            }
        }
        if vacant.is_empty() {
            return;
        }
        let mut strays = self.strays();
        for (key, emptying) in vacant {
            let marker = format!("{}/{key}", self.paths.id);
            let (own, rest): (Vec<Proc>, Vec<Proc>) = strays.into_iter().partition(|p| p.marker == marker);
            strays = rest;
            if own.is_empty() && !self.has_unwaited(&key) {
                self.emptied(&key, emptying);
            } else if emptying.kill {
                self.kill_each(&key, own);
            }
        }
    }

    /// Tells core that nothing of the run is left.
    fn emptied(&mut self, key: &Key, emptying: Emptying) {
        self.emptying.remove(key);
        let Some(live) = self.births.get_mut(key) else { return };
        live.emptying = None;
        let others = std::mem::take(&mut live.others);
        if let (Some(watch), Containment::Cgroups { watcher: Some(w), .. }) = (emptying.watch, &mut self.containment) {
            w.get_mut().remove(watch);
        }
        self.later(&key.group, empty_event(key, others));
    }

    /// One that the run is known to have had is dead and our child, and nobody has waited for it yet.
    fn has_unwaited(&self, key: &Key) -> bool {
        let own = std::process::id();
        let waits =
            |pid, start| process::Stat::of(pid).is_ok_and(|s| s.start_time == start && s.ppid == own && s.is_dead());
        self.births.get(key).is_some_and(|live| live.others.iter().any(|o| waits(o.pid, o.start_time)))
    }

    fn fallback_members(&self, key: &Key) -> Vec<Proc> {
        let Some(live) = self.births.get(key) else { return Vec::new() };
        let marker = format!("{}/{key}", self.paths.id);
        let target = fallback::Target {
            leader: Some(fallback::Leader { pid: live.pid, start_time: live.start_time }),
            marker_key: super::spawn::MARKER.into(),
            marker_prefix: marker,
        };
        fallback::members(&target).unwrap_or_default().into_iter().map(|m| m.process).collect()
    }

    fn fallback_is_empty(&mut self, key: &Key, emptying: Emptying) -> bool {
        let found = self.fallback_members(key);
        let clean = if found.is_empty() && !self.has_unwaited(key) { emptying.clean + 1 } else { 0 };
        if emptying.kill {
            self.kill_each(key, found);
        }
        if let Some(emptying) = self.births.get_mut(key).and_then(|l| l.emptying.as_mut()) {
            emptying.clean = clean;
        }
        clean >= 2
    }

    /// rmdir of the run's cgroup; EBUSY is tried again for a second.
    pub(super) fn remove_run(&mut self, key: &Key, tries: u32) {
        let removed = match self.run_cgroup(key) {
            Some(cgroup) => cgroup.remove(),
            None => Ok(()),
        };
        match removed {
            Ok(()) => {
                if let Some(live) = self.births.remove(key) {
                    self.logs.finish(live.pipe);
                }
                let (component, birth) = (key.component.clone(), key.birth);
                self.later(&key.group, Event::CgroupRemoved { component, birth });
            }
            Err(e) if e.is_busy() && tries < REMOVE_TRIES => self.again(Again::RemoveRun(key.clone(), tries + 1)),
            // Core asks again; until then this says why it waits.
            Err(e) => self.warn(Some(&key.group), crate::chain::chain(&e)),
        }
    }

    /// The group's own cgroup, and once more a look for anything that carries its marker.
    pub(super) fn remove_group(&mut self, group: &GroupName, tries: u32) {
        if self.waits_for_sweep(group) {
            return;
        }
        let strays = self.end_strays_of(group);
        let removed = match &self.containment {
            Containment::Cgroups { tree, .. } => tree.child(group.as_str()).remove(),
            Containment::Fallback => Ok(()),
        };
        let event = match removed {
            Ok(()) if strays == 0 => Event::GroupRemoved,
            Ok(()) if tries < REMOVE_TRIES => return self.again(Again::RemoveGroup(group.clone(), tries + 1)),
            Ok(()) => Event::GroupStuck { what: format!("{strays} processes that left the group's cgroup do not end") },
            Err(e) if e.is_busy() && tries < REMOVE_TRIES => {
                if let (RemoveError::Busy { .. }, Containment::Cgroups { tree, .. }) = (&e, &self.containment) {
                    // Something came in from outside after the last component was gone.
                    let _ = tree.child(group.as_str()).kill();
                }
                return self.again(Again::RemoveGroup(group.clone(), tries + 1));
            }
            Err(e) => Event::GroupStuck { what: crate::chain::chain(&e) },
        };
        self.later(group, event);
    }

    /// Kills what carries this group's marker and is in no run of its own any more. Returns how many there were.
    fn end_strays_of(&mut self, group: &GroupName) -> usize {
        let prefix = format!("{}/{group}/", self.paths.id);
        let mut found: Vec<Proc> = self.strays().into_iter().filter(|p| p.marker.starts_with(&prefix)).collect();
        if matches!(self.containment, Containment::Fallback) {
            found.extend(process::find_marked(super::spawn::MARKER, &prefix).unwrap_or_default());
        }
        let Some(held) = self.groups.get_mut(group) else { return 0 };
        for proc in &found {
            let _ = proc.pidfd.send(nix::libc::SIGKILL);
            let component = proc.marker[prefix.len()..].split('/').next().and_then(|c| ComponentName::new(c).ok());
            if !held.strays.iter().any(|s| s.pid == proc.pid) {
                held.strays.push(Reaped {
                    component,
                    pid: proc.pid,
                    start_time: proc.stat.start_time,
                    command: proc.stat.comm.clone(),
                    by: ReapedBy::MarkerKill,
                });
            }
        }
        found.len()
    }

    fn again(&self, again: Again) {
        let tx = self.tx.clone();
        tokio::spawn(async move {
            tokio::time::sleep(REMOVE_PAUSE).await;
            let _ = tx.send(Msg::Again(again));
        });
    }
}

fn empty_event(key: &Key, reaped: Vec<Reaped>) -> Event {
    Event::CgroupEmpty { component: key.component.clone(), birth: key.birth, reaped }
}

pub(super) fn reaped(component: &ComponentName, pid: u32, start_time: u64, command: String, by: ReapedBy) -> Reaped {
    Reaped { component: Some(component.clone()), pid, start_time, command, by }
}
