//! One state with all that can happen next.

use crate::sim::behave::Behaviour;
use crate::sim::held::Held;
use crate::sim::kernel::Kernel;
use crate::sim::laws::Violation;
use crate::sim::run::{Fate, Msg, Run};
use crate::sim::shell::Later;
use socialweb_core::{Action, Event, ExitStatus, GroupName, GroupSpec, Kind, Permit, Phase, Restart, Role, Time, Why};

#[derive(Debug, Clone)]
pub struct Node {
    pub held: Held,
    pub kernel: Kernel,
    pub pool: Vec<Msg>,
    pub now: Time,
}

#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Choice {
    /// The message at this place arrives; `bool`: with the other outcome that it can have.
    Arrives(usize, bool),
    Tick,
    Press(Button),
    /// `bool`: the operator had stopped the group, so that the next daemon does not start it.
    KillDaemon(bool),
}

#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Button {
    Start,
    Stop,
    Restart,
    RestartFirst,
    Removed,
    Delete,
    Declared,
}

const BUTTONS: [Button; 7] = [
    Button::Start,
    Button::Stop,
    Button::Restart,
    Button::RestartFirst,
    Button::Removed,
    Button::Delete,
    Button::Declared,
];

impl Node {
    pub fn new(spec: &GroupSpec, every: Behaviour) -> Self {
        let mut held = Held::new(GroupName::new("demo").unwrap(), 1, 0);
        held.keeps = false;
        held.model.every = Some(every);
        let mut node = Node { held, kernel: Kernel::default(), pool: Vec::new(), now: Time(1_000) };
        node.give(Event::Declared { spec: Box::new(spec.clone()) }).unwrap();
        node
    }

    pub fn give(&mut self, event: Event) -> Result<(), Violation> {
        let step = self.held.take(self.now, event, &mut self.kernel);
        self.held.memory.calm();
        for action in &step.actions {
            match action {
                Action::Request { permit } => self.push(Msg::Event(Event::Granted { permit: permit.clone() })),
                Action::Return { permit } => {
                    let granted = Msg::Event(Event::Granted { permit: permit.clone() });
                    self.pool.retain(|msg| *msg != granted);
                }
                _ => {}
            }
        }
        step.out.into_iter().for_each(|(_, msg)| self.push(msg));
        step.broken.map_or(Ok(()), Err)
    }

    pub fn push(&mut self, msg: Msg) {
        let msg = match msg {
            // That a probe will hold and that it was seen to hold are one message.
            Msg::Kernel(birth, Fate::Holds) => match self.held.model.runs.get(&birth) {
                Some(run) => Msg::Event(Event::Ready { component: run.component.clone(), birth }),
                None => return,
            },
            msg => msg,
        };
        if !self.pool.contains(&msg) {
            self.pool.push(msg);
        }
    }

    pub fn choices(&self) -> Vec<Choice> {
        let mut all = Vec::new();
        let first = self.pool.iter().position(is_in_order);
        for (n, msg) in self.pool.iter().enumerate() {
            if is_in_order(msg) && Some(n) != first {
                continue;
            }
            all.push(Choice::Arrives(n, false));
            if self.has_other_outcome(msg) {
                all.push(Choice::Arrives(n, true));
            }
        }
        let permit = self.pool.iter().any(|msg| matches!(msg, Msg::Event(Event::Granted { .. })));
        if !permit && self.held.machine.next_deadline().is_some() {
            all.push(Choice::Tick);
        }
        all.extend(BUTTONS.into_iter().filter(|button| self.does_something(*button)).map(Choice::Press));
        all.extend([Choice::KillDaemon(false), Choice::KillDaemon(true)]);
        all
    }

    fn has_other_outcome(&self, msg: &Msg) -> bool {
        match msg {
            Msg::Lease | Msg::RemoveGroup | Msg::Event(Event::CgroupMade) | Msg::Kernel(_, Fate::Exec) => true,
            Msg::Kernel(birth, Fate::Dies(ExitStatus::Code(_))) => {
                self.held.model.runs.get(birth).is_some_and(|run| self.status_counts(run))
            }
            _ => false,
        }
    }

    /// Whether it makes a difference with which status this run ends.
    pub fn status_counts(&self, run: &Run) -> bool {
        let spec = self.held.machine.component_spec(&run.component);
        run.role != Role::Main || spec.is_some_and(|s| s.kind == Kind::OneShot || s.restart == Restart::Never)
    }

    /// Not: what is declared is declared again, what is not is removed.
    fn does_something(&self, button: Button) -> bool {
        let declared = self.held.machine.is_declared();
        match button {
            Button::Start | Button::Restart | Button::Removed => declared,
            Button::Delete | Button::Declared => !declared,
            Button::RestartFirst => {
                matches!(self.held.machine.phase(), Phase::Starting | Phase::Ready | Phase::Degraded)
            }
            Button::Stop => true,
        }
    }

    pub fn apply(&mut self, choice: Choice) -> Result<(), Violation> {
        match choice {
            Choice::Arrives(n, other) => {
                let msg = self.pool.remove(n);
                self.arrive(msg, other)?;
            }
            Choice::Tick => {
                self.now = self.now.max(self.held.machine.next_deadline().unwrap_or(self.now));
                self.give(Event::Tick)?;
            }
            Choice::Press(button) => self.press(button)?,
            Choice::KillDaemon(parked) => self.kill_daemon(parked)?,
        }
        self.tidy();
        Ok(())
    }

    fn arrive(&mut self, msg: Msg, other: bool) -> Result<(), Violation> {
        let msg = if other { other_outcome(msg, &mut self.held) } else { msg };
        let mut later = Later { now: self.now, kernel: &mut self.kernel, out: Vec::new() };
        let model = &mut self.held.model;
        let answer = match msg {
            Msg::Kernel(birth, fate) => {
                model.fate(birth, fate, &mut later);
                None
            }
            Msg::Event(Event::Granted { permit }) => {
                match &permit {
                    Permit::Start => (model.start_held, model.queued_at) = (true, None),
                    Permit::Restart(c) => drop(model.restarts_queued.remove(c)),
                }
                Some(Event::Granted { permit })
            }
            msg => model.answer(&msg, &mut later),
        };
        let out = later.out;
        (self.held.model.port_taken, self.held.model.busy) = (false, 0);
        if let Some(event) = answer {
            self.give(event)?;
        }
        for (_, msg) in out {
            match msg {
                // The daemon hears of an exec at once.
                Msg::Event(event @ Event::Spawned { .. }) => self.give(event)?,
                msg => self.push(msg),
            }
        }
        Ok(())
    }

    fn press(&mut self, button: Button) -> Result<(), Violation> {
        let why = Why::Operator;
        let first = self.held.machine.component_names().next().cloned();
        self.give(match button {
            Button::Start => Event::Start { why },
            Button::Stop => Event::Stop { why },
            Button::Restart => Event::Restart { component: None, why },
            Button::RestartFirst => match first {
                Some(component) => Event::Restart { component: Some(component), why },
                None => return Ok(()),
            },
            Button::Removed => Event::Removed,
            Button::Delete => Event::Stop { why: Why::Delete },
            Button::Declared => match self.held.machine.spec().cloned() {
                Some(spec) => Event::Declared { spec: Box::new(spec) },
                None => return Ok(()),
            },
        })
    }

    fn kill_daemon(&mut self, parked: bool) -> Result<(), Violation> {
        self.held.record.parked = parked;
        self.pool.retain(|msg| matches!(msg, Msg::Kernel(_, fate) if fate.is_the_kernels()));
        self.kernel.orphan();
        for event in self.held.reborn(&self.kernel) {
            self.give(event)?;
        }
        if matches!(self.held.machine.phase(), Phase::Parked | Phase::Absent) {
            let mut later = Later { now: self.now, kernel: &mut self.kernel, out: Vec::new() };
            self.held.model.sweep(&mut later);
            let out = later.out;
            out.into_iter().filter(|(_, msg)| *msg != Msg::Reap).for_each(|(_, msg)| self.push(msg));
        }
        Ok(())
    }

    /// Drops what can have no effect any more.
    fn tidy(&mut self) {
        let (held, kernel) = (&self.held, &self.kernel);
        self.pool.retain(|msg| matters(msg, held, kernel));
        let pool = &self.pool;
        let told = |run: &Run| {
            !pool.iter().any(|msg| matches!(msg, Msg::Event(e) if e.birth() == Some((&run.component, run.birth))))
        };
        self.held.model.runs.retain(|_, run| !(run.removed && told(run)));
    }
}

/// The group's own questions and their answers keep their order.
pub fn is_in_order(msg: &Msg) -> bool {
    match msg {
        Msg::Lease | Msg::Reap | Msg::Path | Msg::RemoveGroup => true,
        Msg::Event(Event::Granted { .. }) => false,
        Msg::Event(event) => event.birth().is_none(),
        Msg::Wait { .. } | Msg::Kernel(..) => false,
    }
}

fn other_outcome(msg: Msg, held: &mut Held) -> Msg {
    match msg {
        Msg::Lease => held.model.port_taken = true,
        Msg::RemoveGroup => held.model.busy = 1,
        Msg::Event(Event::CgroupMade) => return Msg::Event(Event::CgroupFailed { error: "no space".into() }),
        Msg::Kernel(birth, Fate::Exec) => return Msg::Kernel(birth, Fate::ExecFails),
        Msg::Kernel(birth, Fate::Dies(ExitStatus::Code(n))) => {
            return Msg::Kernel(birth, Fate::Dies(ExitStatus::Code(1 - n)));
        }
        _ => {}
    }
    msg
}

fn matters(msg: &Msg, held: &Held, kernel: &Kernel) -> bool {
    match msg {
        Msg::Event(Event::Granted { .. }) => true,
        msg if is_in_order(msg) => match held.machine.phase() {
            Phase::Sweeping | Phase::Stopping => !matches!(msg, Msg::Path | Msg::Event(Event::PathShut)),
            Phase::Draining => matches!(msg, Msg::Path | Msg::Event(Event::PathShut)),
            _ => false,
        },
        Msg::Event(event) => {
            event.birth().is_none_or(|(component, birth)| held.machine.current_birth(component) == Some(birth))
        }
        Msg::Kernel(_, Fate::Slain { pid, start }) => {
            kernel.procs.iter().any(|p| (p.pid, p.start) == (*pid, *start) && p.alive())
        }
        Msg::Kernel(birth, fate) => {
            let Some(run) = held.model.runs.get(birth) else { return false };
            let leader = kernel.leader(held.model.id(*birth)).is_some_and(|p| p.alive());
            match fate {
                Fate::Exec | Fate::ExecFails => run.exec.is_none() && leader,
                Fate::Dies(_) => run.exec.is_some() && leader,
                _ => leader,
            }
        }
        Msg::Wait { pid, start } => kernel.procs.iter().any(|p| (p.pid, p.start) == (*pid, *start)),
        Msg::Lease | Msg::Reap | Msg::Path | Msg::RemoveGroup => true,
    }
}
