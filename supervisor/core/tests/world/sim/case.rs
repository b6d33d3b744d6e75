//! A life of a host as data: what is declared, what programs do, who presses which button when. A case that broke a law is
//! shrunk and kept as a small JSON file.

use super::behave::Behaviour;
use super::laws::{L6_STOP, Violation};
use super::spec;
use super::world::{Chaos, World};
use serde::{Deserialize, Serialize};
use socialweb_core::budget::{Limits, Rate};
use socialweb_core::{Birth, ComponentSpec, Event, ExitStatus, GroupSpec, Kind, Phase, Probe, Restart, Time, Why};
use std::collections::BTreeMap;
use std::time::Duration;

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Case {
    /// Why it is kept.
    #[serde(skip_serializing_if = "usual")]
    pub note: String,
    /// The law that it broke, and the deliberate fault with which it breaks it still.
    #[serde(skip_serializing_if = "usual")]
    pub law: String,
    #[serde(skip_serializing_if = "usual")]
    pub mutant: String,
    /// Feeds the order of answers and the jitter of waits.
    pub seed: u64,
    /// Groups that may come up at the same time; restarts of all groups: burst, per minute.
    #[serde(skip_serializing_if = "usual")]
    pub starts: Option<u32>,
    #[serde(skip_serializing_if = "usual")]
    pub restarts: Option<(u32, u32)>,
    #[serde(skip_serializing_if = "usual")]
    pub chaos: Chaos,
    /// The host has no cgroups: the weaker fallback.
    #[serde(skip_serializing_if = "usual")]
    pub no_cgroups: bool,
    /// Numbers of processes come back at once.
    #[serde(skip_serializing_if = "usual")]
    pub tight_pids: bool,
    pub groups: Vec<GroupCase>,
    #[serde(skip_serializing_if = "usual")]
    pub presses: Vec<Press>,
}

/// A file names only what is not as usual.
pub fn usual<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

/// One group and what is in its way.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct GroupCase {
    /// `a b:a`: components and their needs.
    pub shape: String,
    #[serde(skip_serializing_if = "usual")]
    pub traits: Vec<(String, Trait)>,
    /// What the programs of `a`, `a.pre`, `a.post` do, run by run; then the usual thing.
    #[serde(skip_serializing_if = "usual")]
    pub programs: BTreeMap<String, Vec<Behaviour>>,
    #[serde(skip_serializing_if = "usual")]
    pub survivors: u32,
    #[serde(skip_serializing_if = "usual")]
    pub survivors_until: u64,
    #[serde(skip_serializing_if = "usual")]
    pub port_taken: bool,
    #[serde(skip_serializing_if = "usual")]
    pub path_ms: u64,
    #[serde(skip_serializing_if = "usual")]
    pub intruders: u32,
    #[serde(skip_serializing_if = "usual")]
    pub busy: u32,
    #[serde(skip_serializing_if = "usual")]
    pub cgroup_fails: u32,
}

/// How a component differs from a service that is restarted alone.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Trait {
    OneShot,
    StopGroup,
    Never,
    WithDependents,
    Pre,
    Post,
    Liveness,
    /// exec is its readiness.
    Running,
    LongRestartGrace,
}

/// So many steps after the one before, something happens to a group.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Press {
    pub after: u32,
    #[serde(default, skip_serializing_if = "usual")]
    pub group: usize,
    pub what: Button,
}

/// What a person, a source, another program or the host does.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum Button {
    Start,
    Stop,
    Restart,
    RestartOne(String),
    /// The same spec again, and a start.
    Reload,
    Edit(Edit),
    Removed,
    Port(bool),
    /// kill -9 of a main program by somebody else.
    Crash(String),
    /// The kernel ends a main program, out of memory.
    Oom(String),
    /// Somebody freezes the run's cgroup.
    Freeze(String),
    /// SIGSTOP of a main program.
    Sigstop(String),
    /// An old run's end is told once more.
    Late(String, u64),
    /// kill -9 of the daemon; with a number, after so many actions of one of its next lists.
    KillDaemon(Option<usize>),
    DiskFull(bool),
    /// The daemon does nothing for so many ms: stopped, or starved.
    Stall(u64),
    /// The wall clock jumps by so many seconds.
    Wall(i64),
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum Edit {
    Argv(String),
    Drop(String),
    /// A new component that needs this one.
    Above(String, String),
    /// A new component between this one and the next in the spec.
    Below(String, String),
    ClearNeeds(String),
    Toggle(String, Trait),
}

impl Case {
    fn limits(&self) -> Limits {
        let restarts = self.restarts.map(|(burst, per_minute)| Rate { burst, per_minute });
        Limits { concurrent_starts: self.starts, restarts, ..Limits::default() }
    }

    /// The whole life, to the end of every group; the world as it is then, with the broken law if there is one. `keeps`: with the
    /// logs, which cost time.
    pub fn run(&self, keeps: bool) -> World {
        let mut world = World::new(self.seed, self.limits());
        world.keeps = keeps;
        world.chaos = self.chaos;
        (world.kernel.cgroups, world.kernel.tight_pids) = (!self.no_cgroups, self.tight_pids);
        for (n, group) in self.groups.iter().enumerate() {
            group.begin(&mut world, n);
        }
        for press in &self.presses {
            for _ in 0..press.after {
                if !world.step() {
                    break;
                }
            }
            if press.group < world.held.len() {
                press.what.apply(&mut world, press.group);
            }
            if world.violation.is_some() {
                return world;
            }
        }
        for _ in 0..20 {
            world.step();
        }
        for n in 0..world.held.len() {
            end(&mut world, n);
        }
        world
    }
}

impl GroupCase {
    pub fn spec(&self) -> GroupSpec {
        let mut spec = spec::group(&self.shape);
        for (of, one) in &self.traits {
            if let Some(c) = spec.components.iter_mut().find(|c| c.name.as_str() == of) {
                one.toggle(c);
            }
        }
        spec
    }

    fn begin(&self, world: &mut World, n: usize) {
        world.add(["demo", "other", "third"][n.min(2)], self.spec());
        world.survivors(n, self.survivors, Time(self.survivors_until));
        let model = &mut world.held[n].model;
        for (key, programs) in &self.programs {
            model.script(key, programs.iter().copied());
        }
        model.port_taken = self.port_taken;
        model.path_ms = self.path_ms;
        model.intruders = self.intruders;
        model.busy = self.busy;
        model.cgroup_fails = self.cgroup_fails;
        world.start(n);
    }
}

impl Trait {
    pub fn toggle(self, c: &mut ComponentSpec) {
        let restart = |c: &mut ComponentSpec, law| c.restart = if c.restart == law { Restart::Alone } else { law };
        match self {
            Trait::OneShot => c.kind = if c.kind == Kind::OneShot { Kind::Service } else { Kind::OneShot },
            Trait::StopGroup => restart(c, Restart::StopGroup),
            Trait::Never => restart(c, Restart::Never),
            Trait::WithDependents => restart(c, Restart::WithDependents),
            Trait::Pre if c.pre.len() < 2 => c.pre.push(spec::task()),
            Trait::Pre => c.pre.clear(),
            Trait::Post if c.post.len() < 2 => c.post.push(spec::task()),
            Trait::Post => c.post.clear(),
            Trait::Liveness => c.liveness = if c.liveness.is_some() { None } else { Some(spec::liveness()) },
            Trait::Running => c.readiness.probe = Probe::Running,
            Trait::LongRestartGrace => c.stop.grace_restart = Duration::from_secs(75),
        }
    }
}

impl Button {
    fn apply(&self, world: &mut World, n: usize) {
        let why = Why::Operator;
        match self {
            Button::Start => world.start(n),
            Button::Stop => world.stop(n),
            Button::Restart => world.give(n, Event::Restart { component: None, why }),
            Button::RestartOne(of) => world.give(n, Event::Restart { component: Some(spec::name(of)), why }),
            Button::Removed => world.give(n, Event::Removed),
            Button::Reload => {
                if let Some(spec) = world.group(n).spec().cloned() {
                    world.give(n, Event::Declared { spec: Box::new(spec) });
                    world.give(n, Event::Start { why: Why::Reload });
                }
            }
            Button::Edit(edit) => {
                if let Some(old) = world.group(n).spec().cloned() {
                    world.give(n, Event::Declared { spec: Box::new(edit.apply(&old)) });
                }
            }
            Button::Port(taken) => world.held[n].model.port_taken = *taken,
            Button::Crash(of) => world.crash(n, of),
            Button::Oom(of) => world.out_of_memory(n, of),
            Button::Freeze(of) => world.freeze(n, of),
            Button::Sigstop(of) => world.sigstop(n, of),
            Button::Late(of, birth) => {
                let (component, birth, status) = (spec::name(of), Birth(*birth), ExitStatus::Code(0));
                if world.held[n].model.latest(&component).is_none_or(|r| r.birth != birth) {
                    world.give(n, Event::Exited { component, birth, status, traces: Default::default() });
                }
            }
            Button::KillDaemon(None) => world.kill_daemon(),
            Button::KillDaemon(cut) => world.held[n].cut = *cut,
            Button::DiskFull(full) => world.kernel.disk_full = *full,
            Button::Stall(ms) => world.stall(*ms),
            Button::Wall(seconds) => world.kernel.wall += seconds,
        }
    }
}

impl Edit {
    fn apply(&self, old: &GroupSpec) -> GroupSpec {
        let mut new = old.clone();
        let at = |of: &str| old.components.iter().position(|c| c.name.as_str() == of);
        match self {
            Edit::Argv(of) => at(of).iter().for_each(|at| new.components[*at].launch.argv.push("-v".into())),
            Edit::Toggle(of, one) => at(of).iter().for_each(|at| one.toggle(&mut new.components[*at])),
            Edit::ClearNeeds(of) => at(of).iter().for_each(|at| new.components[*at].needs.clear()),
            Edit::Drop(of) if new.components.len() > 1 => {
                new.components.retain(|c| c.name.as_str() != of);
                new.components.iter_mut().for_each(|c| c.needs.retain(|n| n.as_str() != of));
            }
            Edit::Above(of, name) => drop(add(&mut new, at(of), name)),
            Edit::Below(of, name) => {
                if let Some(next) = add(&mut new, at(of), name).filter(|next| *next < old.components.len()) {
                    new.components[next].needs.push(spec::name(name));
                }
            }
            Edit::Drop(_) => {}
        }
        spec::ranked(new).unwrap_or_else(|| old.clone())
    }
}

/// Adds a component that needs the one at `at`; returns the place after that one.
fn add(spec: &mut GroupSpec, at: Option<usize>, name: &str) -> Option<usize> {
    let at = at.filter(|_| spec.components.iter().all(|c| c.name.as_str() != name))?;
    let mut c = spec::group(name).components.remove(0);
    c.needs = vec![spec.components[at].name.clone()];
    spec.components.push(c);
    Some(at + 1)
}

/// Whatever it was doing: with nobody in the way a stop ends it within the time that is shown for it, and then it can be
/// deleted.
pub fn end(world: &mut World, n: usize) {
    world.heal(n);
    // What was asked for before and got lost, or found somebody in the way, is asked for again; the longest such wait.
    let (lossy, chaos) = (world.chaos.lost > 0, world.chaos.jitter + world.chaos.twice);
    world.chaos = Chaos::default();
    let again = if lossy { 120 } else { 45 };
    let margin = Duration::from_secs(again) + Duration::from_millis(chaos);
    world.stop(n);
    let limit = world.group(n).stop_deadline() + margin;
    let began = world.now;
    let parked = world.until(7_200, |w| matches!(w.phase(n), Phase::Parked | Phase::Absent));
    let took = world.now.since(began);
    if world.violation.is_none() && (!parked || took > limit) {
        let what = format!("after {took:?}, allowed {limit:?}: {:#?}", world.view(n));
        world.violation = Some(Violation { law: L6_STOP, what });
    }
    if world.group(n).spec().is_none() {
        return;
    }
    world.give(n, Event::Removed);
    world.give(n, Event::Stop { why: Why::Delete });
    if world.violation.is_none() && world.phase(n) != Phase::Absent {
        let what = "a parked group cannot be deleted".into();
        world.violation = Some(Violation { law: L6_STOP, what });
    }
}
