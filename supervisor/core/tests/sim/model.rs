//! The host as it truly is: processes, cgroups, ports, the tenant's path. It performs actions and answers later.

use super::behave::{Behaviour, Exec};
use super::rng::Rng;
use super::spec::name;
use socialweb_core::event::ReapedBy;
use socialweb_core::{
    Action, Birth, ComponentName, Event, ExitStatus, Group, Kind, Permit, ProbeUse, Rank, Reaped, Role, Time,
};
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// What is on its way.
#[derive(Debug, Clone)]
pub enum Msg {
    Event(Event),
    /// Looked at when it arrives, so that the answer is true.
    Lease,
    Reap,
    Path,
    RemoveGroup,
    Kernel(Birth, Kernel),
}

/// What happens to a process.
#[derive(Debug, Clone, Copy)]
pub enum Kernel {
    Exec,
    ExecFails,
    Dies(ExitStatus),
    StrayDies,
    Holds,
    ProbeFails,
    Progress,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Leader {
    Unborn,
    Alive,
    Dead,
}

/// One run: first what is true, then what the group was told or did.
#[derive(Debug, Clone)]
pub struct Run {
    pub component: ComponentName,
    pub birth: Birth,
    pub role: Role,
    pub rank: Rank,
    pub behaviour: Behaviour,
    pub leader: Leader,
    pub exec: Option<Time>,
    pub stray: bool,
    pub killed: Option<Time>,
    pub empty_asked: bool,
    pub removed: bool,
    pub probe: ProbeUse,
    pub told_spawned: bool,
    pub told_end: bool,
    pub touched: bool,
    /// It ended well, and that makes it Done.
    pub well: bool,
}

impl Run {
    pub fn alive(&self) -> bool {
        self.leader == Leader::Alive || self.stray
    }
}

/// Where a performed action puts what follows from it: after so many ms.
pub struct Later<'a> {
    pub now: Time,
    pub rng: &'a mut Rng,
    pub out: Vec<(u64, Msg)>,
}

impl Later<'_> {
    fn at(&mut self, ms: u64, msg: Msg) {
        self.out.push((ms, msg));
    }

    fn tell(&mut self, event: Event) {
        self.at(0, Msg::Event(event));
    }
}

/// One group's part of the host.
#[derive(Debug, Default)]
pub struct Model {
    pub runs: BTreeMap<Birth, Run>,
    /// What the next programs do: `a`, `a.pre`, `a.post`; then the usual thing, or with `wild` anything.
    pub script: BTreeMap<String, VecDeque<Behaviour>>,
    pub wild: bool,
    pub survivors: u32,
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
    /// What the group may know.
    pub ready: BTreeMap<ComponentName, Birth>,
    pub done: BTreeSet<ComponentName>,
    pub swept: bool,
    pub leased: bool,
    pub told_path_shut: bool,
    pub start_held: bool,
    pub start_queued: bool,
    pub restarts_queued: BTreeSet<ComponentName>,
}

impl Model {
    pub fn script(&mut self, of: &str, does: impl IntoIterator<Item = Behaviour>) {
        self.script.entry(of.into()).or_default().extend(does);
    }

    pub fn alive(&self) -> impl Iterator<Item = &Run> {
        self.runs.values().filter(|r| r.alive())
    }

    pub fn latest(&self, component: &ComponentName) -> Option<&Run> {
        self.runs.values().rev().find(|r| &r.component == component)
    }

    /// Nobody is in the way any more.
    pub fn heal(&mut self) {
        self.port_taken = false;
        self.survivors_until = Time(0);
        self.cgroup_fails = 0;
        self.busy = 0;
        self.intruders = 0;
        self.path_ms = 0;
        self.wild = false;
        for run in self.runs.values_mut() {
            run.behaviour.unkillable = 0;
        }
    }

    pub fn perform(&mut self, action: &Action, group: &Group, later: &mut Later<'_>) {
        match action {
            Action::ReapSurvivors => {
                (self.swept, self.leased, self.told_path_shut) = (false, false, false);
                (self.path_shut, self.path_shutting) = (false, false);
                self.done.clear();
                later.at(5, Msg::Reap);
            }
            Action::Lease => later.at(1, Msg::Lease),
            Action::Request { permit: Permit::Start } => self.start_queued = true,
            Action::Request { permit: Permit::Restart(c) } => drop(self.restarts_queued.insert(c.clone())),
            Action::Return { permit: Permit::Start } => (self.start_held, self.start_queued) = (false, false),
            Action::Return { permit: Permit::Restart(c) } => drop(self.restarts_queued.remove(c)),
            Action::MakeCgroup if self.cgroup_fails > 0 => {
                self.cgroup_fails -= 1;
                later.tell(Event::CgroupFailed { error: "no space".into() });
            }
            Action::MakeCgroup => later.tell(Event::CgroupMade),
            Action::Spawn { component, birth, role } => self.spawn(component, *birth, *role, group, later),
            Action::Probe { birth, what, .. } => self.probe(*birth, *what, later),
            Action::Signal { birth, .. } => self.signal(*birth, later),
            Action::AwaitEmpty { birth, .. } => self.empty(*birth, later),
            Action::KillCgroup { birth, .. } => {
                self.kill(*birth, later);
                self.empty(*birth, later);
            }
            Action::RemoveCgroup { birth, .. } if self.intruders > 0 && self.runs.contains_key(birth) => {
                self.intruders -= 1;
                self.runs.get_mut(birth).unwrap().stray = true;
            }
            Action::RemoveCgroup { component, birth } => {
                if let Some(run) = self.runs.get_mut(birth).filter(|r| !r.alive()) {
                    run.removed = true;
                    later.tell(Event::CgroupRemoved { component: component.clone(), birth: *birth });
                }
            }
            Action::RemoveGroup => later.at(1, Msg::RemoveGroup),
            Action::ShutPath if self.path_shut => later.tell(Event::PathShut),
            Action::ShutPath if !self.path_shutting => {
                self.path_shutting = true;
                later.at(self.path_ms, Msg::Path);
            }
            Action::ShutPath | Action::Release | Action::Publish { .. } | Action::Receipt { .. } => {}
        }
    }

    fn spawn(&mut self, component: &ComponentName, birth: Birth, role: Role, group: &Group, later: &mut Later<'_>) {
        let spec = group.component_spec(component);
        let ends = role != Role::Main || spec.is_some_and(|s| s.kind == Kind::OneShot);
        let key = match role {
            Role::Main => component.to_string(),
            Role::Pre(_) => format!("{component}.pre"),
            Role::Post(_) => format!("{component}.post"),
        };
        let behaviour = match self.script.get_mut(&key).and_then(VecDeque::pop_front) {
            Some(scripted) => scripted,
            None if self.wild => Behaviour::random(later.rng, role, ends),
            None => Behaviour::usual(role, ends),
        };
        let (kernel, ms, leader) = match behaviour.exec {
            Exec::Works(ms) => (Some(Kernel::Exec), ms, Leader::Alive),
            Exec::Late(ms) => (Some(Kernel::Exec), ms, Leader::Unborn),
            Exec::Fails(ms) => (Some(Kernel::ExecFails), ms, Leader::Alive),
            Exec::Hangs => (None, 0, Leader::Alive),
        };
        if let Some(kernel) = kernel {
            later.at(ms, Msg::Kernel(birth, kernel));
        }
        let rank = group.view().components.iter().find(|c| &c.name == component).map_or(Rank(0), |c| c.rank);
        let run = Run {
            component: component.clone(),
            birth,
            role,
            rank,
            behaviour,
            leader,
            exec: None,
            stray: false,
            killed: None,
            empty_asked: false,
            removed: false,
            probe: ProbeUse::Off,
            told_spawned: false,
            told_end: false,
            touched: false,
            well: false,
        };
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
        let (ms, kernel) = match (what, b.ready, b.hangs) {
            (ProbeUse::Readiness, Some(ms), _) => (wait(ms), Kernel::Holds),
            (ProbeUse::Readiness, None, _) => (100, Kernel::ProbeFails),
            (ProbeUse::Liveness, _, Some(ms)) => (wait(ms), Kernel::ProbeFails),
            _ => return,
        };
        later.at(ms, Msg::Kernel(birth, kernel));
        if what == ProbeUse::Readiness && b.progress {
            later.at(20_000, Msg::Kernel(birth, Kernel::Progress));
        }
    }

    fn signal(&mut self, birth: Birth, later: &mut Later<'_>) {
        let Some(run) = self.runs.get(&birth) else { return };
        if let (true, Some(ms)) = (run.exec.is_some(), run.behaviour.term) {
            later.at(ms, Msg::Kernel(birth, Kernel::Dies(ExitStatus::Code(0))));
        }
    }

    fn kill(&mut self, birth: Birth, later: &mut Later<'_>) {
        let Some(run) = self.runs.get_mut(&birth) else { return };
        let since = *run.killed.get_or_insert(later.now);
        let ms = (since.0 + run.behaviour.unkillable).saturating_sub(later.now.0);
        if run.leader == Leader::Alive {
            later.at(ms, Msg::Kernel(birth, Kernel::Dies(ExitStatus::Signal(9))));
        }
        if run.stray {
            later.at(ms, Msg::Kernel(birth, Kernel::StrayDies));
        }
    }

    fn empty(&mut self, birth: Birth, later: &mut Later<'_>) {
        match self.runs.get_mut(&birth) {
            Some(run) => run.empty_asked = true,
            None => return,
        }
        self.look(birth, later);
    }

    /// Tells when nothing of a run is left, if somebody asked.
    fn look(&mut self, birth: Birth, later: &mut Later<'_>) {
        let Some(run) = self.runs.get_mut(&birth).filter(|r| r.empty_asked && !r.alive()) else { return };
        run.empty_asked = false;
        let reaped = match (run.behaviour.stray && run.exec.is_some(), run.killed) {
            (true, Some(_)) => vec![Reaped {
                component: Some(run.component.clone()),
                pid: 100_000 + birth.0 as u32,
                start_time: 1,
                command: "stray".into(),
                by: ReapedBy::CgroupKill,
            }],
            _ => Vec::new(),
        };
        later.tell(Event::CgroupEmpty { component: run.component.clone(), birth, reaped });
    }

    pub fn kernel(&mut self, birth: Birth, kernel: Kernel, later: &mut Later<'_>) {
        let Some(run) = self.runs.get_mut(&birth) else { return };
        let component = run.component.clone();
        let serving = run.leader == Leader::Alive && run.exec.is_some();
        match kernel {
            Kernel::Exec if run.leader != Leader::Dead => {
                run.leader = Leader::Alive;
                run.exec = Some(later.now);
                run.stray = run.behaviour.stray;
                later.tell(Event::Spawned { component, birth, pid: birth.0 as u32 });
                if let Some((ms, code)) = run.behaviour.exits {
                    later.at(ms, Msg::Kernel(birth, Kernel::Dies(ExitStatus::Code(code))));
                }
            }
            Kernel::ExecFails if run.leader != Leader::Dead => {
                run.leader = Leader::Dead;
                later.tell(Event::SpawnFailed { component, birth, error: "no such file".into() });
                self.look(birth, later);
            }
            Kernel::Dies(status) if run.leader == Leader::Alive => {
                run.leader = Leader::Dead;
                later.tell(match run.exec {
                    Some(_) => Event::Exited { component, birth, status, traces: Default::default() },
                    None => Event::SpawnFailed { component, birth, error: "killed before exec".into() },
                });
                self.look(birth, later);
            }
            Kernel::StrayDies => {
                run.stray = false;
                self.look(birth, later);
            }
            Kernel::Holds if serving && run.probe == ProbeUse::Readiness => {
                later.tell(Event::Ready { component, birth })
            }
            Kernel::ProbeFails if serving && run.probe != ProbeUse::Off => {
                later.tell(Event::ProbeFailed { component, birth, why: "connection refused".into() });
                if run.probe == ProbeUse::Liveness {
                    later.at(1_000, Msg::Kernel(birth, Kernel::ProbeFails));
                }
            }
            Kernel::Progress if serving && run.probe == ProbeUse::Readiness => {
                later.tell(Event::Progress { component, birth });
                later.at(20_000, Msg::Kernel(birth, Kernel::Progress));
            }
            _ => {}
        }
    }

    /// What a question finds when somebody looks.
    pub fn answer(&mut self, msg: &Msg, now: Time) -> Option<Event> {
        match msg {
            Msg::Lease if self.port_taken => {
                Some(Event::LeaseTaken { role: "https".into(), port: 61000, holder: "nc (pid 7)".into() })
            }
            Msg::Lease => Some(Event::LeasesGranted),
            Msg::Reap if self.survivors > 0 && self.survivors_until > now => {
                Some(Event::SurvivorsStuck { what: "pid 8 waits in D".into() })
            }
            Msg::Reap => {
                let found = (0..std::mem::take(&mut self.survivors)).map(|n| Reaped {
                    component: Some(name("a")),
                    pid: 9_000 + n,
                    start_time: 1,
                    command: "old".into(),
                    by: ReapedBy::CgroupKill,
                });
                Some(Event::SurvivorsReaped { found: found.collect() })
            }
            Msg::Path => {
                self.path_shut = true;
                Some(Event::PathShut)
            }
            Msg::RemoveGroup if self.busy > 0 => {
                self.busy -= 1;
                Some(Event::GroupStuck { what: "pid 9 is inside".into() })
            }
            Msg::RemoveGroup => Some(match self.alive().next() {
                Some(run) => Event::GroupStuck { what: format!("{} is inside", run.component) },
                None => Event::GroupRemoved,
            }),
            _ => None,
        }
    }
}
