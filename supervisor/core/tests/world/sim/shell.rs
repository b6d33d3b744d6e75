//! One group's part of the shell: performs its actions on the kernel, answers later, and knows what the group was told.

use super::behave::{Behaviour, Exec};
use super::kernel::{Kernel, Life, Proc, RunId};
use super::run::{Fate, Msg, Run, reaped};
use socialweb_core::end::Traces;
use socialweb_core::event::ReapedBy;
use socialweb_core::{
    Action, Birth, ComponentName, Event, ExitStatus, Group, Kind, Permit, ProbeUse, Rank, Reaped, Role, Time,
};
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// Where a performed action puts what follows from it: after so many ms.
pub struct Later<'a> {
    pub now: Time,
    pub kernel: &'a mut Kernel,
    pub out: Vec<(u64, Msg)>,
}

impl Later<'_> {
    pub fn at(&mut self, ms: u64, msg: Msg) {
        self.out.push((ms, msg));
    }

    pub fn tell(&mut self, event: Event) {
        self.at(0, Msg::Event(event));
    }
}

#[derive(Debug, Clone, Default)]
pub struct Shell {
    pub group: usize,
    pub runs: BTreeMap<Birth, Run>,
    /// Runs of an earlier daemon: nobody knows of them but the kernel.
    pub old: BTreeMap<Birth, Run>,
    /// What the next programs do: `a`, `a.pre`, `a.post`; then the usual thing.
    pub script: BTreeMap<String, VecDeque<Behaviour>>,
    /// What every main program without a script does.
    pub every: Option<Behaviour>,
    pub survivors_until: Time,
    pub port_taken: bool,
    pub path_ms: u64,
    pub path_shut: bool,
    path_shutting: bool,
    pub cgroup_fails: u32,
    /// A group cgroup that is busy for so many tries.
    pub busy: u32,
    /// So many times somebody slips into a run's cgroup just before its rmdir.
    pub intruders: u32,
    found: Vec<Reaped>,
    /// What the group may know.
    pub ready: BTreeMap<ComponentName, Birth>,
    pub done: BTreeSet<ComponentName>,
    pub swept: bool,
    pub leased: bool,
    pub told_path_shut: bool,
    pub start_held: bool,
    pub queued_at: Option<Time>,
    pub restarts_queued: BTreeSet<ComponentName>,
}

impl Shell {
    pub fn new(group: usize) -> Self {
        Shell { group, ..Shell::default() }
    }

    pub fn script(&mut self, of: &str, does: impl IntoIterator<Item = Behaviour>) {
        self.script.entry(of.into()).or_default().extend(does);
    }

    pub fn id(&self, birth: Birth) -> RunId {
        RunId { group: self.group, birth }
    }

    pub fn latest(&self, component: &ComponentName) -> Option<&Run> {
        self.runs.values().rev().find(|r| &r.component == component)
    }

    /// Processes of this group that the living daemon did not start.
    pub fn survivors<'a>(&'a self, kernel: &'a Kernel) -> impl Iterator<Item = &'a Proc> {
        kernel.of_group(self.group).filter(|p| self.runs.get(&p.of.birth).is_none_or(|r| r.removed))
    }

    /// Nobody is in the way any more.
    pub fn heal(&mut self) {
        self.port_taken = false;
        self.survivors_until = Time(0);
        self.cgroup_fails = 0;
        self.busy = 0;
        self.intruders = 0;
        self.path_ms = 0;
        self.script.clear();
        for run in self.runs.values_mut().chain(self.old.values_mut()) {
            run.behaviour.unkillable = 0;
        }
    }

    /// The daemon died: what ran is old, what was asked for is forgotten.
    pub fn forget(&mut self) {
        self.runs.retain(|_, r| !r.removed && r.born);
        self.old.append(&mut self.runs);
        let old = std::mem::take(self);
        *self = Shell {
            group: old.group,
            old: old.old,
            script: old.script,
            every: old.every,
            survivors_until: old.survivors_until,
            port_taken: old.port_taken,
            path_ms: old.path_ms,
            cgroup_fails: old.cgroup_fails,
            busy: old.busy,
            intruders: old.intruders,
            ..Shell::default()
        };
    }

    pub fn perform(&mut self, action: &Action, group: &Group, later: &mut Later<'_>) {
        match action {
            Action::ReapSurvivors => self.sweep(later),
            Action::Lease => later.at(1, Msg::Lease),
            Action::Request { permit: Permit::Start } => drop(self.queued_at.get_or_insert(later.now)),
            Action::Request { permit: Permit::Restart(c) } => drop(self.restarts_queued.insert(c.clone())),
            Action::Return { permit: Permit::Start } => (self.start_held, self.queued_at) = (false, None),
            Action::Return { permit: Permit::Restart(c) } => drop(self.restarts_queued.remove(c)),
            Action::MakeCgroup if self.cgroup_fails > 0 => {
                self.cgroup_fails -= 1;
                later.tell(Event::CgroupFailed { error: "no space".into() });
            }
            Action::MakeCgroup => {
                later.kernel.groups.insert(self.group);
                later.tell(Event::CgroupMade);
            }
            Action::Spawn { component, birth, role } => self.spawn(component, *birth, *role, group, later),
            Action::Probe { birth, what, .. } => self.probe(*birth, *what, later),
            Action::Signal { birth, .. } => self.signal(*birth, later),
            Action::AwaitEmpty { birth, .. } => self.await_empty(*birth, later),
            Action::KillCgroup { birth, .. } => {
                self.kill(*birth, later);
                self.await_empty(*birth, later);
            }
            Action::RemoveCgroup { birth, .. } => self.rmdir(*birth, later),
            Action::RemoveGroup => {
                self.kill_survivors(later);
                later.at(1, Msg::RemoveGroup);
            }
            Action::ShutPath if self.path_shut => later.tell(Event::PathShut),
            Action::ShutPath if !self.path_shutting => {
                self.path_shutting = true;
                later.at(self.path_ms, Msg::Path);
            }
            Action::ShutPath | Action::Release | Action::Publish { .. } | Action::Receipt { .. } => {}
        }
    }

    /// Kills all that an earlier daemon left; what was found is told when all of it is gone.
    pub fn sweep(&mut self, later: &mut Later<'_>) {
        (self.swept, self.leased, self.told_path_shut) = (false, false, false);
        (self.path_shut, self.path_shutting) = (false, false);
        self.done.clear();
        self.runs.retain(|_, r| !r.removed);
        self.kill_survivors(later);
        later.at(5, Msg::Reap);
    }

    fn kill_survivors(&mut self, later: &mut Later<'_>) {
        let old: Vec<Proc> = self.survivors(later.kernel).filter(|p| p.alive()).cloned().collect();
        for p in old {
            let stubborn = self.old.get(&p.of.birth).map_or(0, |r| r.behaviour.unkillable);
            let ms = self.survivors_until.0.saturating_sub(later.now.0).max(stubborn);
            later.at(ms, Msg::Kernel(p.of.birth, Fate::Slain { pid: p.pid, start: p.start }));
            if !self.found.iter().any(|f| (f.pid, f.start_time) == (p.pid, p.start)) {
                self.found.push(reaped(&p, self.old.get(&p.of.birth), ReapedBy::CgroupKill));
            }
        }
    }

    fn spawn(&mut self, component: &ComponentName, birth: Birth, role: Role, group: &Group, later: &mut Later<'_>) {
        let ends = role != Role::Main || group.component_spec(component).is_some_and(|s| s.kind == Kind::OneShot);
        let key = match role {
            Role::Main => component.to_string(),
            Role::Pre(_) => format!("{component}.pre"),
            Role::Post(_) => format!("{component}.post"),
        };
        let scripted = self.script.get_mut(&key).and_then(VecDeque::pop_front);
        let behaviour =
            scripted.or(self.every.filter(|_| role == Role::Main)).unwrap_or_else(|| Behaviour::usual(role, ends));
        let mut run = Run::new(component.clone(), birth, role, behaviour);
        run.rank = group.rank_of(component).unwrap_or(Rank(0));
        later.kernel.homes.insert(self.id(birth), Default::default());
        if later.kernel.disk_full {
            // Its fork is behind it: no process comes of it later.
            run.born = true;
            later.tell(Event::SpawnFailed { component: component.clone(), birth, error: "no space left".into() });
        } else {
            let (fate, ms) = match behaviour.exec {
                Exec::Works(ms) | Exec::Late(ms) => (Some(Fate::Exec), ms),
                Exec::Fails(ms) => (Some(Fate::ExecFails), ms),
                Exec::Hangs => (None, 0),
            };
            run.born = !matches!(behaviour.exec, Exec::Late(_));
            if run.born {
                later.kernel.fork(self.id(birth), self.id(birth), true, true);
            }
            if let Some(fate) = fate {
                later.at(ms, Msg::Kernel(birth, fate));
            }
        }
        self.runs.insert(birth, run);
        if !matches!(role, Role::Post(_)) {
            self.done.remove(component);
        }
    }

    fn probe(&mut self, birth: Birth, what: ProbeUse, later: &mut Later<'_>) {
        let Some(run) = self.runs.get_mut(&birth) else { return };
        run.probe = what;
        let b = run.behaviour;
        let since = run.exec.unwrap_or(later.now);
        let wait = |ms: u64| (since.0 + ms).saturating_sub(later.now.0);
        let (ms, fate) = match (what, b.ready, b.hangs) {
            (ProbeUse::Readiness, Some(ms), _) => (wait(ms), Fate::Holds),
            (ProbeUse::Readiness, None, _) => (100, Fate::ProbeFails),
            (ProbeUse::Liveness, _, Some(ms)) => (wait(ms), Fate::ProbeFails),
            _ => return,
        };
        later.at(ms, Msg::Kernel(birth, fate));
        if what == ProbeUse::Readiness && b.progress {
            later.at(20_000, Msg::Kernel(birth, Fate::Progress));
        }
    }

    /// Thaws, and sends the signal to the leader.
    fn signal(&mut self, birth: Birth, later: &mut Later<'_>) {
        let id = self.id(birth);
        if let Some(home) = later.kernel.homes.get_mut(&id) {
            home.frozen = false;
        }
        let Some(run) = self.runs.get_mut(&birth) else { return };
        run.signalled = true;
        for fate in run.held.drain(..) {
            later.out.push((0, Msg::Kernel(birth, fate)));
        }
        if let (true, Some(ms)) = (run.exec.is_some(), run.behaviour.term) {
            later.at(ms, Msg::Kernel(birth, Fate::Dies(ExitStatus::Code(0))));
        }
    }

    fn kill(&mut self, birth: Birth, later: &mut Later<'_>) {
        let id = self.id(birth);
        let Some(run) = self.runs.get_mut(&birth) else { return };
        let since = *run.killed.get_or_insert(later.now);
        let ms = (since.0 + run.behaviour.unkillable).saturating_sub(later.now.0);
        let all: Vec<_> = later.kernel.reach(id).filter(|p| p.alive()).map(|p| (p.of.birth, p.pid, p.start)).collect();
        for (of, pid, start) in all {
            later.at(ms, Msg::Kernel(of, Fate::Slain { pid, start }));
        }
    }

    fn rmdir(&mut self, birth: Birth, later: &mut Later<'_>) {
        let id = self.id(birth);
        let Some(run) = self.runs.get_mut(&birth) else { return };
        if self.intruders > 0 {
            self.intruders -= 1;
            let found_by_marker = !later.kernel.cgroups;
            let intruder = later.kernel.fork(id, id, false, true);
            (intruder.marked, intruder.ours) = (found_by_marker, false);
        } else if later.kernel.rmdir(id) {
            run.removed = true;
            later.tell(Event::CgroupRemoved { component: run.component.clone(), birth });
        }
    }

    fn await_empty(&mut self, birth: Birth, later: &mut Later<'_>) {
        match self.runs.get_mut(&birth) {
            Some(run) => run.empty_asked = true,
            None => return,
        }
        self.look(birth, later);
    }

    /// Tells when nothing of a run is left, zombies included, if somebody asked.
    pub fn look(&mut self, birth: Birth, later: &mut Later<'_>) {
        let id = self.id(birth);
        let Some(run) = self.runs.get_mut(&birth).filter(|r| r.empty_asked) else { return };
        if later.kernel.reach(id).next().is_none() {
            run.empty_asked = false;
            let (component, reaped) = (run.component.clone(), run.reaped.clone());
            later.tell(Event::CgroupEmpty { component, birth, reaped });
        }
    }

    /// What the daemon finds when it looks, or hears when it waits.
    pub fn answer(&mut self, msg: &Msg, later: &mut Later<'_>) -> Option<Event> {
        match msg {
            Msg::Lease if self.port_taken => {
                Some(Event::LeaseTaken { role: "https".into(), port: 61000, holder: "nc (pid 7)".into() })
            }
            Msg::Lease => Some(Event::LeasesGranted),
            Msg::Reap if self.survivors(later.kernel).next().is_some() => {
                Some(Event::SurvivorsStuck { what: "pid 8 waits in D".into() })
            }
            Msg::Reap => {
                self.old.clear();
                let (group, runs) = (self.group, &self.runs);
                later.kernel.homes.retain(|id, _| id.group != group || runs.contains_key(&id.birth));
                Some(Event::SurvivorsReaped { found: std::mem::take(&mut self.found) })
            }
            Msg::Path => {
                self.path_shut = true;
                Some(Event::PathShut)
            }
            Msg::RemoveGroup if self.busy > 0 => {
                self.busy -= 1;
                Some(Event::GroupStuck { what: "pid 9 is inside".into() })
            }
            Msg::RemoveGroup => {
                if let Some(p) = later.kernel.of_group(self.group).next() {
                    return Some(Event::GroupStuck { what: format!("pid {} is inside", p.pid) });
                }
                later.kernel.groups.remove(&self.group);
                Some(Event::GroupRemoved)
            }
            Msg::Wait { pid, start } => self.waited(*pid, *start, later),
            Msg::Event(event) => Some(event.clone()),
            Msg::Kernel(..) => None,
        }
    }

    fn waited(&mut self, pid: u32, start: u64, later: &mut Later<'_>) -> Option<Event> {
        let p = later.kernel.wait(pid, start)?;
        self.looks(&p, later);
        let Life::Zombie(status) = p.life else { return None };
        let run = self.runs.get(&p.of.birth).filter(|_| p.leader)?;
        let (component, birth) = (run.component.clone(), run.birth);
        Some(match run.exec {
            Some(_) => {
                let traces = Traces { oom_kills: run.oom_kills, ..Traces::default() };
                Event::Exited { component, birth, status, traces }
            }
            None => Event::SpawnFailed { component, birth, error: "no such file".into() },
        })
    }
}
