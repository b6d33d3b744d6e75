//! The rungs: signal, kill, wait for the last process (the last rung is in [`super::remove`]). Nothing is inferred to be gone: a run is empty when its
//! cgroup is unpopulated and no child of ours carries its marker; in the fallback when two scans in a row find nothing; and
//! in both cases only when the latest deaths raise no doubt (see [`super::hunt`]).

use super::drive::LOOK_GAP;
use super::hunt::{Doubt, Place, Vacancy};
use super::live::Key;
use super::{Containment, Host};
use socialweb_core::event::ReapedBy;
use socialweb_core::{ComponentName, Event, Reaped, mutant};
use socialweb_sys::cgroup::Cgroup;
use socialweb_sys::process::Proc;
use socialweb_sys::{fallback, process};
use std::time::{Duration, Instant};

/// What was killed longer ago than this and is still there is named.
const A_MOMENT: Duration = Duration::from_secs(1);

impl Host {
    /// Signals the leader of the run through its pidfd, and lets it run. In this order, so that to follow is the first that
    /// it does when it runs again; a frozen or stopped process keeps what it cannot take pending.
    pub(super) fn signal_run(&mut self, key: &Key, signal: i32) {
        let signal = if mutant!("l3-killed-unasked") { nix::libc::SIGKILL } else { signal };
        self.send(key, signal);
        let Some(live) = self.births.get(key) else { return };
        if let (Some(cgroup), Containment::Cgroups { tree, .. }) = (&live.cgroup, &self.containment)
            && !mutant!("l3-no-thaw")
            && let Err(error) = tree.thaw_above(cgroup).and_then(|()| cgroup.thaw())
        {
            let text = format!("cannot thaw {}: {}", key.component, crate::chain::chain(&error));
            self.warn(Some(&key.group), text);
        }
        self.send(key, nix::libc::SIGCONT);
    }

    fn send(&mut self, key: &Key, signal: i32) {
        let Some(live) = self.births.get(key) else { return };
        if let Err(error) = live.pidfd.send(signal) {
            let text = format!("cannot signal {} (pid {}): {error}", key.component, live.pid);
            self.warn(Some(&key.group), text);
        }
    }

    /// Waits for the last process of the run; with `kill`, ends whatever is there first.
    pub(super) fn empty_run(&mut self, key: &Key, kill: bool) {
        if mutant!("l3-empty-unseen") {
            return self.later(&key.group, empty_event(key, Vec::new()));
        }
        let kill = kill && !mutant!("l6-no-kill");
        let Some(live) = self.births.get_mut(key) else {
            // No process came to be, or its end was told already.
            return self.later(&key.group, empty_event(key, Vec::new()));
        };
        let cgroup = live.cgroup.clone();
        let mut emptying = live.emptying.take().unwrap_or_default();
        let now = Instant::now();
        // Two kills in a row say nothing yet: the kernel takes a moment.
        let again = kill && emptying.killed.is_some_and(|at| now.duration_since(at) > A_MOMENT);
        emptying.killed = emptying.killed.or(kill.then_some(now));
        (emptying.clean, emptying.vacancy, emptying.kill) = (0, None, emptying.kill || kill);
        if emptying.watch.is_none()
            && let Some(cgroup) = &cgroup
            && let Containment::Cgroups { watcher: Some(watcher), .. } = &mut self.containment
        {
            // Watch first, look second: an end in between is seen. Not found: nothing lives in it.
            emptying.watch = watcher.get_mut().add(cgroup).ok();
        }
        live.emptying = Some(emptying);
        self.emptying.insert(key.clone());
        if kill {
            self.kill_run(key);
        }
        if again {
            self.name_lingering(key);
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
                // What cannot be read now is read at the next look.
                let found = self.fallback_members(key).unwrap_or_default();
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

    /// It was killed before and something is there still: says who, each time that changes.
    fn name_lingering(&mut self, key: &Key) {
        let Some(live) = self.births.get(key) else { return };
        let inside = match &live.cgroup {
            Some(cgroup) => cgroup.pids().unwrap_or_default(),
            None => self.fallback_members(key).unwrap_or_default().iter().map(|p| p.pid).collect(),
        };
        let leader = (!live.exited).then_some(live.pid);
        let refused = live.emptying.iter().flat_map(|e| &e.refused);
        let refused = refused.filter(|(pid, start)| process::alive(*pid, *start)).map(|(pid, _)| *pid);
        let mut pids: Vec<u32> = inside.into_iter().chain(leader).chain(refused).collect();
        pids.sort_unstable();
        pids.dedup();
        let mut who: Vec<String> = fallback::unkillable(pids).iter().map(ToString::to_string).collect();
        if live.emptying.as_ref().and_then(|e| e.vacancy.as_ref()).is_some_and(|v| v.hunted.is_some()) {
            who.push("something that left its cgroup and forks faster than it can be caught".into());
        }
        let Some(emptying) = self.births.get_mut(key).and_then(|l| l.emptying.as_mut()) else { return };
        let what = who.join("; ");
        if !what.is_empty() && std::mem::replace(&mut emptying.lingering, what.clone()) != what {
            let (component, birth) = (key.component.clone(), key.birth);
            self.later(&key.group, Event::Lingers { component, birth, what });
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

    /// One process of the run that is not its leader, for the receipt.
    pub(super) fn note_other(&mut self, key: &Key, proc: &Proc, by: ReapedBy) {
        let Some(live) = self.births.get_mut(key) else { return };
        let known = proc.pid == live.pid && proc.stat.start_time == live.start_time;
        if !known && !live.others.iter().any(|o| (o.pid, o.start_time) == (proc.pid, proc.stat.start_time)) {
            live.others.push(reaped(&key.component, proc.pid, proc.stat.start_time, proc.stat.comm.clone(), by));
        }
    }

    fn kill_each(&mut self, key: &Key, found: Vec<Proc>) {
        for proc in found {
            match proc.pidfd.send(nix::libc::SIGKILL) {
                Ok(_) => self.note_other(key, &proc, ReapedBy::MarkerKill),
                Err(error) => self.refused(key, &proc, &error),
            }
        }
    }

    /// Another user's process: told once, not at every look.
    fn refused(&mut self, key: &Key, proc: &Proc, error: &std::io::Error) {
        let Some(emptying) = self.births.get_mut(key).and_then(|l| l.emptying.as_mut()) else { return };
        let one = (proc.pid, proc.stat.start_time);
        if emptying.refused.contains(&one) {
            return;
        }
        emptying.refused.push(one);
        let uid = process::uid(proc.pid).map_or_else(|_| "?".into(), |uid| uid.to_string());
        let text = format!(
            "cannot kill pid {} ({}, uid {uid}) of {}: {error}; the stop waits until it ends: end it as that user or as root",
            proc.pid, proc.stat.comm, key.component
        );
        self.note_other(key, proc, ReapedBy::Itself);
        self.warn(Some(&key.group), text);
    }

    /// Looks again at every run that somebody waits for. One look at our own children serves all whose cgroup is empty
    /// by then; it comes after those cgroups were seen empty, so it sees whatever left them.
    pub(super) fn check_emptying(&mut self) {
        self.looked = Some(tokio::time::Instant::now());
        // A dead child is in no cgroup and in no scan, and is not gone before it was waited for (law L3).
        self.collect_ended();
        let began = Instant::now();
        let vacant = self.vacant_runs();
        let (mut certain, mut doubtful) = (Vec::new(), Vec::new());
        for key in vacant {
            match self.doubt(&key) {
                Doubt::None => certain.push(key),
                Doubt::Wait => self.look_soon(),
                Doubt::Hunt(places) => doubtful.push((key, places)),
            }
        }
        match self.more_children {
            // The dead come first: a look at /proc takes the longer the more of them are in it, and one that forks without a
            // pause would fill the host with them meanwhile.
            true => self.look_soon(),
            false => doubtful.extend(self.settle_vacant(certain, began)),
        }
        self.hunt(doubtful);
    }

    /// Those in which nobody seems to live: an unpopulated cgroup, or two scans in a row. What lives in the others is killed
    /// once more where that was asked for: it may have been started or moved there since.
    fn vacant_runs(&mut self) -> Vec<Key> {
        let mut vacant = Vec::new();
        for key in self.emptying.clone() {
            let Some((cgroup, kill)) =
                self.births.get(&key).and_then(|l| Some((l.cgroup.clone(), l.emptying.as_ref()?.kill)))
            else {
                self.emptying.remove(&key);
                continue;
            };
            if self.hunting.contains(&key) {
                continue;
            }
            let empty = match &cgroup {
                // What cannot be read is not empty.
                Some(cgroup) => !cgroup.populated().unwrap_or(true),
                // Not known, as long as so many dead wait; enough of them are a reason to hunt, and nothing else follows.
                None if self.more_children => true,
                None => self.fallback_is_empty(&key, kill),
            };
            if let Some(cgroup) = cgroup.filter(|_| !empty && kill) {
                let _ = cgroup.kill();
            }
            let Some(emptying) = self.births.get_mut(&key).and_then(|l| l.emptying.as_mut()) else { continue };
            match empty {
                true => drop(emptying.vacancy.get_or_insert_with(|| Vacancy::new(Instant::now()))),
                false => emptying.vacancy = None,
            }
            if empty {
                vacant.push(key);
            }
        }
        vacant
    }

    fn doubt(&self, key: &Key) -> Doubt {
        let vacancy = self.births.get(key).and_then(|l| l.emptying.as_ref()?.vacancy.as_ref());
        vacancy.map_or(Doubt::None, |v| self.passing.doubt(Instant::now(), v, self.suspect(key)))
    }

    /// Where something of the run that left it could have died. In its own cgroup nobody lives, the kernel says; a session
    /// proves nothing, and another run's session is not its own.
    fn suspect(&self, key: &Key) -> impl Fn(&Place) -> bool + use<> {
        let own = Place::Run(key.clone());
        let cgroups = matches!(self.containment, Containment::Cgroups { .. });
        move |place| if cgroups { *place != own } else { *place == own || *place == Place::Outside }
    }

    fn look_soon(&mut self) {
        let soon = tokio::time::Instant::now() + LOOK_GAP;
        self.look_at = Some(self.look_at.map_or(soon, |at| at.min(soon)));
    }

    /// True when something of the run may have slipped through a look that began then.
    fn slipped(&self, key: &Key, began: Instant) -> bool {
        let cleared = self.births.get(key).and_then(|l| Some(&l.emptying.as_ref()?.vacancy.as_ref()?.cleared));
        let suspect = self.suspect(key);
        let suspect = |place: &Place| suspect(place) && cleared.is_none_or(|c| !c.contains(place));
        self.more_children || self.passing.since(began, suspect)
    }

    /// One look at our children for all of these. What nobody is found of is gone; what is found elsewhere is killed where
    /// that was asked for. Found there again after that, it is hunted: returns those with the places.
    fn settle_vacant(&mut self, vacant: Vec<Key>, began: Instant) -> Vec<(Key, Vec<Place>)> {
        let mut doubtful = Vec::new();
        if vacant.is_empty() {
            return doubtful;
        }
        let mut strays = match self.strays() {
            Ok(strays) => strays,
            // Not seen is not gone; there is a next look.
            Err(error) => {
                if !std::mem::replace(&mut self.said_blind, true) {
                    self.warn(None, format!("cannot look at our own children, so nothing is called gone: {error}"));
                }
                return doubtful;
            }
        };
        self.collect_ended();
        for key in vacant {
            // An end that was just collected may have led here already.
            if !self.emptying.contains(&key) {
                continue;
            }
            let marker = format!("{}/{key}", self.paths.id);
            let (own, rest): (Vec<Proc>, Vec<Proc>) = strays.into_iter().partition(|p| p.marker == marker);
            strays = rest;
            if own.is_empty() && !self.has_unwaited(&key) {
                match self.slipped(&key, began) {
                    true => self.look_soon(),
                    false => self.emptied(&key),
                }
                continue;
            }
            let Some(emptying) = self.births.get_mut(&key).and_then(|l| l.emptying.as_mut()).filter(|e| e.kill) else {
                continue;
            };
            let struck = emptying.vacancy.as_mut().map_or(0, |v| {
                v.struck += u32::from(!own.is_empty());
                v.struck
            });
            if struck > 1 {
                doubtful.push((key.clone(), own.iter().map(|p| self.place_of_living(p)).collect()));
            }
            self.kill_each(&key, own);
        }
        doubtful
    }

    /// Tells core that nothing of the run is left.
    fn emptied(&mut self, key: &Key) {
        self.emptying.remove(key);
        self.passing.forget(&Place::Run(key.clone()));
        let Some(live) = self.births.get_mut(key) else { return };
        let watch = live.emptying.take().and_then(|e| e.watch);
        crate::failpoint::reach("run-emptied");
        let others = std::mem::take(&mut live.others);
        if let (Some(watch), Containment::Cgroups { watcher: Some(w), .. }) = (watch, &mut self.containment) {
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

    fn fallback_members(&self, key: &Key) -> std::io::Result<Vec<Proc>> {
        let Some(live) = self.births.get(key) else { return Ok(Vec::new()) };
        let marker = format!("{}/{key}", self.paths.id);
        let target = fallback::Target {
            leader: Some(fallback::Leader { pid: live.pid, start_time: live.start_time }),
            marker_key: super::spawn::MARKER.into(),
            marker_prefix: marker,
        };
        Ok(fallback::members(&target)?.into_iter().map(|m| m.process).collect())
    }

    fn fallback_is_empty(&mut self, key: &Key, kill: bool) -> bool {
        let found = self.fallback_members(key);
        let empty = found.as_ref().is_ok_and(Vec::is_empty) && !self.has_unwaited(key);
        if kill {
            self.kill_each(key, found.unwrap_or_default());
        }
        let Some(emptying) = self.births.get_mut(key).and_then(|l| l.emptying.as_mut()) else { return false };
        emptying.clean = if empty { emptying.clean.saturating_add(1) } else { 0 };
        emptying.clean >= 2
    }
}

fn empty_event(key: &Key, reaped: Vec<Reaped>) -> Event {
    Event::CgroupEmpty { component: key.component.clone(), birth: key.birth, reaped }
}

pub(super) fn reaped(component: &ComponentName, pid: u32, start_time: u64, command: String, by: ReapedBy) -> Reaped {
    Reaped { component: Some(component.clone()), pid, start_time, command, by }
}
