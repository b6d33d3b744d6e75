//! The group: phases, the order of the start and of the stop, and the rules between components.
//!
//! ```text
//!                 Start                  swept, ports free, permit, cgroup            all ready
//!  Absent/Parked --------> Sweeping --------------------------------------> Starting ----------> Ready <-> Degraded
//!        ^                    |                                                |                    |
//!        |                    | Stop                                     Stop, | gave up            | Stop
//!        |                    v                                                v                    v
//!        +---- receipt --- Stopping <------------- path seen shut ---------- Draining <-------------+
//!        |                    |                                           (path being shut)
//!        |                    +--- receipt, when the stop was a give-up ---> Unavailable(retry at) ---> Sweeping
//! ```
//!
//! The stop mirrors the start: a component that needs another starts after it and is proven gone before the other is
//! touched. Ranks carry that: a need has a lower rank, and the stop goes rank by rank from the highest.
//!
//! Phase x event (an empty cell: the event changes nothing there). Component events (Spawned, Ready, Exited,
//! CgroupEmpty, ...) are taken in Starting, Ready, Degraded, Draining and Stopping by the component and run they name;
//! those of earlier runs are ignored. See [`crate::component`].
//!
//! | phase       | Declared       | Start                | Stop        | Removed     | Restart (group) | Restart (component) |
//! |-------------|----------------|----------------------|-------------|-------------|-----------------|---------------------|
//! | Absent      | -> Parked      |                      |             | -> Parked   |                 |                     |
//! | Parked      | spec           | -> Sweeping          | Delete: -> Absent | not declared | as Start  |                     |
//! | Unavailable | -> Sweeping if it differs | -> Sweeping | -> Parked  | -> Parked   | as Start        |                     |
//! | Sweeping    | spec           | give-ups forgotten   | -> Stopping | -> Stopping | Stop, then Start |                    |
//! | Starting    | plan applied   | operator: waits and counts cleared | -> Draining | -> Draining | Stop, then Start | down and up |
//! | Ready       | plan applied   | the same             | -> Draining | -> Draining | Stop, then Start | down and up        |
//! | Degraded    | plan applied   | the same             | -> Draining | -> Draining | Stop, then Start | down and up        |
//! | Draining    | spec           | start after the stop | why; a start after it is off | the same | as Start |       |
//! | Stopping    | spec           | start after the stop | why; a start after it is off | the same | as Start |       |
//!
//! Start needs a declared group. A Delete of a group that is declared is a Stop.
//!
//! | phase       | answers to the sweep's question | Granted (start) | Granted (restart) | PathShut    | GroupRemoved, GroupStuck | Tick                |
//! |-------------|---------------------------------|-----------------|-------------------|-------------|--------------------------|---------------------|
//! | Absent      |                                 | returned        |                   |             |                          |                     |
//! | Parked      |                                 | returned        |                   |             |                          |                     |
//! | Unavailable |                                 | returned        |                   |             |                          | due: -> Sweeping    |
//! | Sweeping    | next question, or wait and ask again; the last: -> Starting; no cgroup: -> Stopping, Unavailable | if asked for: next; else returned | | | | ask again |
//! | Starting    |                                 | returned unless held | who waits for it starts |  |                        | deadlines, give up: -> Draining |
//! | Ready       |                                 | returned        | who waits for it starts |       |                          | deadlines           |
//! | Degraded    |                                 | returned        | who waits for it starts |       |                          | deadlines           |
//! | Draining    |                                 | returned        |                   | -> Stopping |                          | ask again; ladders that had begun |
//! | Stopping    |                                 | returned        |                   |             | after the last component: receipt, -> Parked, Unavailable, Sweeping or Absent; stuck: named, asked again | ladders that have begun, ask again |
//!
//! Each question of the group (sweep, path, removal) is answered once per asking and in order; those answers carry no
//! number. Answers about runs carry their birth and may come late, twice or in any order.

mod answers;
mod canon;
mod clock;
mod declare;
mod look;
mod running;
mod stop;
mod sweep;

use crate::action::{Action, Permit};
use crate::component::{ASK_AGAIN, Component, State, Verdict};
use crate::event::{Event, Reaped, Why};
use crate::mutant;
use crate::name::{Birth, ComponentName, GroupName, Rank};
use crate::receipt::Stopped;
use crate::shared::Shared;
use crate::spec::{ComponentSpec, GroupSpec, Restart};
use crate::time::Time;
use crate::view::GroupView;
use answers::{became_ready, exited, probe_failed, spawned};
use running::{clear_waits, cycle_component};
use std::collections::BTreeMap;
use std::time::Duration;

/// A port that somebody else holds is looked at again this often: the wait is for a person or another program.
const LEASE_AGAIN: Duration = Duration::from_secs(2);
/// A sweep or a permit that nobody answered is asked for again.
const SWEEP_AGAIN: Duration = Duration::from_secs(60);

/// One group's machine. Feed it with [`Group::handle`]; call it again no later than [`Group::next_deadline`].
#[derive(Debug, Clone)]
pub struct Group {
    name: GroupName,
    rng: u64,
    next_birth: u64,
    spec: Option<GroupSpec>,
    declared: bool,
    wanted: bool,
    why: Why,
    state: GroupState,
    since: Time,
    generation: u64,
    gave_up: u32,
    /// A start was asked for while the group stops: it comes up again after the receipt, whatever the stop was for.
    again: bool,
    holds_permit: bool,
    survivors: Vec<Reaped>,
    /// Boxed: a map's node has room for eleven, and most groups have few.
    components: BTreeMap<ComponentName, Box<Component>>,
    shown: Option<Shared<GroupView>>,
}

#[derive(Debug, Clone)]
enum GroupState {
    Absent,
    Parked,
    Unavailable { retry_at: Time },
    Sweeping { step: Sweep, blocked: String, deadline: Time },
    Running { was_ready: bool, began: Time, progress: Time },
    Draining { began: Time, deadline: Time },
    Stopping(Box<Stopping>),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Sweep {
    Survivors,
    Lease,
    Permit,
    Cgroup,
}

#[derive(Debug, Clone)]
struct Stopping {
    began: Time,
    path_shut: bool,
    stopped: Vec<Stopped>,
    removing: bool,
    stuck: String,
    deadline: Option<Time>,
}

impl Group {
    /// A group of which nothing is known yet. `seed` feeds the jitter of its waits; `first_birth` must be above every
    /// birth whose cgroup may still exist.
    pub fn new(name: GroupName, seed: u64, first_birth: Birth) -> Self {
        Group {
            name,
            rng: seed,
            next_birth: first_birth.0,
            spec: None,
            declared: false,
            wanted: false,
            why: Why::Boot,
            state: GroupState::Absent,
            since: Time::default(),
            generation: 0,
            gave_up: 0,
            again: false,
            holds_permit: false,
            survivors: Vec::new(),
            components: BTreeMap::new(),
            shown: None,
        }
    }

    /// The same group after `generation` starts under earlier daemons: its next start is the one after.
    pub fn after(mut self, generation: u64) -> Self {
        self.generation = generation;
        self
    }

    /// The group's name.
    pub fn name(&self) -> &GroupName {
        &self.name
    }

    /// The declared spec, if any.
    pub fn spec(&self) -> Option<&GroupSpec> {
        self.spec.as_ref()
    }

    /// The spec that this generation's run of the component was started with.
    pub fn component_spec(&self, name: &ComponentName) -> Option<&Shared<ComponentSpec>> {
        self.components.get(name).map(|c| &c.spec)
    }

    /// The components of this generation, those on their way out included, by name.
    pub fn component_names(&self) -> impl Iterator<Item = &ComponentName> {
        self.components.keys()
    }

    /// The rank that this generation gave to the component (law L2).
    pub fn rank_of(&self, name: &ComponentName) -> Option<Rank> {
        self.components.get(name).map(|c| c.rank)
    }

    /// True while the source declares the group.
    pub fn is_declared(&self) -> bool {
        self.declared
    }

    /// True when the group is meant to run, whatever it does at the moment.
    pub fn is_wanted(&self) -> bool {
        self.wanted
    }

    /// Takes one event and says what to do. Never fails: what makes no sense in a phase changes nothing.
    pub fn handle(&mut self, now: Time, event: Event) -> Vec<Action> {
        let mut out = Vec::new();
        self.take(now, event, &mut out);
        self.settle(now, &mut out);
        if self.shown.as_ref().is_none_or(|shown| shown.phase != self.phase()) {
            self.since = if mutant!("l12-a-time-ahead") { now + ASK_AGAIN } else { now };
        }
        let view = self.view();
        if self.shown.as_deref() != Some(&view) {
            let view = Shared::from(view);
            self.shown = Some(view.clone());
            out.push(Action::Publish { view });
        }
        out
    }

    /// When the group wants an [`Event::Tick`] at the latest; `None` = it waits for events only.
    pub fn next_deadline(&self) -> Option<Time> {
        let own = match &self.state {
            GroupState::Absent | GroupState::Parked => None,
            GroupState::Unavailable { retry_at } => Some(*retry_at),
            GroupState::Sweeping { deadline, .. } | GroupState::Draining { deadline, .. } => Some(*deadline),
            GroupState::Stopping(s) => s.deadline,
            GroupState::Running { was_ready, began, progress } => match (was_ready, &self.spec) {
                (false, Some(spec)) => Some((*began + spec.bringup.cap).min(*progress + spec.bringup.no_progress)),
                _ => None,
            },
        };
        let one = match &self.state {
            GroupState::Running { .. } => Component::next_deadline,
            _ => Component::ladder_deadline,
        };
        self.components.values().filter_map(|c| one(c)).chain(own).min()
    }

    // ---- events -------------------------------------------------------------------------------------------------

    fn take(&mut self, now: Time, event: Event, out: &mut Vec<Action>) {
        match event {
            Event::Declared { spec } => self.declare(*spec, now, out),
            Event::Removed => {
                self.declared = false;
                if matches!(self.state, GroupState::Absent) {
                    // Its data is there and nobody declares it: to be seen, and to be deleted.
                    return self.enter(GroupState::Parked);
                }
                self.stop(Why::NotDeclared, now, out);
            }
            Event::Start { why } => self.start(why, now, out),
            Event::Stop { why } => self.stop(why, now, out),
            Event::Restart { component: None, why } => self.restart_group(why, now, out),
            Event::Restart { component: Some(name), .. } => self.restart_component(&name, now, out),
            Event::SurvivorsReaped { found } => self.swept(found, now, out),
            Event::SurvivorsStuck { .. } if mutant!("l4-stuck-counts-as-swept") => self.swept(Vec::new(), now, out),
            Event::SurvivorsStuck { what } => self.blocked(Sweep::Survivors, what, now + ASK_AGAIN),
            Event::LeasesGranted => self.step(Sweep::Lease, Sweep::Permit, now, out),
            Event::LeaseTaken { .. } if mutant!("l9-starts-on-a-taken-port") => {
                self.step(Sweep::Lease, Sweep::Permit, now, out);
            }
            Event::LeaseTaken { role, port, holder } => {
                let what =
                    format!("port {port} ({role}) is in use by {holder}; stop that program, the port stays leased");
                self.blocked(Sweep::Lease, what, now + LEASE_AGAIN);
            }
            Event::Granted { permit: Permit::Start } => self.granted(now, out),
            Event::Granted { permit: Permit::Restart(name) } => self.restart_granted(&name, now, out),
            Event::CgroupMade => self.run(now, out),
            Event::CgroupFailed { error } => {
                if matches!(self.state, GroupState::Sweeping { step: Sweep::Cgroup, .. }) {
                    self.give_up(format!("cannot make the group's cgroup: {error}"), now, out);
                }
            }
            Event::PathShut => self.path_shut(),
            Event::GroupRemoved => self.removed(now, out),
            Event::GroupStuck { what } => {
                if let GroupState::Stopping(s) = &mut self.state
                    && s.removing
                {
                    s.stuck = what;
                    s.deadline = Some(now + LEASE_AGAIN);
                }
            }
            Event::Tick => self.tick(now, out),
            other => self.component_event(other, now, out),
        }
    }

    fn component_event(&mut self, event: Event, now: Time, out: &mut Vec<Action>) {
        let running = matches!(self.state, GroupState::Running { .. });
        let Some((name, birth)) = event.birth().map(|(n, b)| (n.clone(), b)) else { return };
        let Some(c) = self.components.get_mut(&name).filter(|c| c.is_current(birth)) else { return };
        match event {
            Event::Spawned { pid, .. } => spawned(c, pid, now, out),
            // A process that was reported to run cannot have failed to come to be.
            Event::SpawnFailed { .. } if c.run().is_some_and(|run| run.pid.is_some()) => {}
            Event::SpawnFailed { error, .. } => c.leader_ended(None, Verdict::Failure(error), now, out),
            Event::Ready { .. } => {
                became_ready(c, now, out);
                self.progressed(now);
            }
            // While the group stops, nothing is touched before its rank's turn (laws L2 and L8).
            Event::ProbeFailed { why, .. } if running || mutant!("l8-liveness-ends-runs-while-draining") => {
                probe_failed(c, why, now, out)
            }
            Event::ProbeRecovered { .. } => c.missed = 0,
            Event::Progress { .. } => {
                if let State::Starting { deadline, cap, .. } = &mut c.state {
                    *deadline = (now + c.spec.readiness.deadline).min(*cap);
                    self.progressed(now);
                }
            }
            Event::Exited { status, traces, .. } => exited(c, c.end_of(status, traces), now, out),
            Event::CgroupEmpty { reaped, .. } => c.emptied(reaped, now, out),
            Event::Lingers { what, .. } => c.lingers(what),
            Event::CgroupRemoved { .. } => self.run_gone(&name, now, out),
            _ => {}
        }
    }

    // ---- wanted -----------------------------------------------------------------------------------------------

    fn start(&mut self, why: Why, now: Time, out: &mut Vec<Action>) {
        if self.spec.is_none() || !self.declared {
            return;
        }
        self.wanted = true;
        self.gave_up = if why == Why::Retry { self.gave_up } else { 0 };
        match &self.state {
            GroupState::Parked | GroupState::Unavailable { .. } => {
                self.why = why;
                self.sweep(now, out);
            }
            GroupState::Running { .. } if why == Why::Operator => {
                for c in self.components.values_mut() {
                    clear_waits(c, now, out);
                }
            }
            GroupState::Draining { .. } | GroupState::Stopping(_) => self.again = true,
            _ => {}
        }
    }

    fn stop(&mut self, why: Why, now: Time, out: &mut Vec<Action>) {
        self.wanted = false;
        self.again = false;
        match &self.state {
            GroupState::Absent => {}
            GroupState::Parked if mutant!("l7-a-stop-forgets-the-group") => self.enter(GroupState::Absent),
            GroupState::Parked if why == Why::Delete && !self.declared => self.enter(GroupState::Absent),
            GroupState::Parked => {}
            GroupState::Unavailable { .. } => {
                let gone = why == Why::Delete && !self.declared;
                self.why = why;
                self.enter(if gone { GroupState::Absent } else { GroupState::Parked });
            }
            _ => {
                self.why = why;
                self.begin_stop(now, out);
            }
        }
    }

    fn restart_group(&mut self, why: Why, now: Time, out: &mut Vec<Action>) {
        match &self.state {
            GroupState::Running { .. } | GroupState::Sweeping { .. } => {
                self.stop(why, now, out);
                self.wanted = true;
                self.again = true;
                self.gave_up = 0;
            }
            _ => self.start(why, now, out),
        }
    }

    fn restart_component(&mut self, name: &ComponentName, now: Time, out: &mut Vec<Action>) {
        if !matches!(self.state, GroupState::Running { .. }) {
            return;
        }
        let Some(c) = self.components.get_mut(name) else { return };
        clear_waits(c, now, out);
        if matches!(c.state, State::Done) {
            c.restarts += 1;
            c.enter(State::Idle, now);
        }
        cycle_component(c, now);
        if c.spec.restart == Restart::WithDependents {
            self.cycle_dependents(name, now);
        }
    }
}
