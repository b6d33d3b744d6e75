//! One group with its part of the host: an event in, its actions judged and performed, the laws checked.

use super::judge::judge;
use super::kernel::Kernel;
use super::laws::{self, Memory, Violation};
use super::run::Msg;
use super::shell::{Later, Shell};
use socialweb_core::record::{self, Entry, Header};
use socialweb_core::{Action, Birth, Event, Group, GroupName, GroupSpec, Receipt, Time, Why};
use std::sync::Arc;

#[derive(Debug, Clone)]
pub struct Held {
    pub machine: Group,
    pub model: Shell,
    pub memory: Memory,
    pub record: Record,
    pub header: Header,
    /// Whether `log` and `actions` are kept.
    pub keeps: bool,
    pub log: Vec<Entry>,
    pub actions: Vec<Vec<Action>>,
    pub receipts: Vec<Receipt>,
    /// The daemon dies after so many actions of the next list that has more.
    pub cut: Option<usize>,
}

/// What a daemon's file and its source say of a group: all that outlives the daemon.
#[derive(Debug, Clone, Default)]
pub struct Record {
    pub generation: u64,
    pub parked: bool,
    pub declared: Option<Arc<GroupSpec>>,
}

/// What one event led to.
#[derive(Default)]
pub struct Step {
    pub actions: Vec<Action>,
    pub out: Vec<(u64, Msg)>,
    pub broken: Option<Violation>,
    /// The daemon died before the last action.
    pub died: bool,
}

impl Held {
    pub fn new(name: GroupName, seed: u64, n: usize) -> Self {
        let header = Header { schema: record::SCHEMA, group: name, seed, first_birth: Birth(1), generation: 0 };
        Held {
            machine: machine(&header),
            model: Shell::new(n),
            memory: Memory::default(),
            record: Record::default(),
            header,
            keeps: true,
            log: Vec::new(),
            actions: Vec::new(),
            receipts: Vec::new(),
            cut: None,
        }
    }

    pub fn take(&mut self, now: Time, event: Event, kernel: &mut Kernel) -> Step {
        let tick = event == Event::Tick;
        self.remember(&event, kernel);
        if self.keeps {
            self.log.push(Entry { at: now, event: event.clone() });
        }
        laws::hear(&mut self.model, &mut self.memory, &self.machine, &event, now);
        let actions = self.machine.handle(now, event);
        let mut step = Step::default();
        let mut later = Later { now, kernel, out: Vec::new() };
        let cut = self.cut.filter(|n| *n < actions.len());
        for action in actions.iter().take(cut.unwrap_or(usize::MAX)) {
            let judged = judge(&mut self.model, &mut self.memory, &self.machine, action, later.kernel, now);
            step.broken = step.broken.or(judged.err());
            self.model.perform(action, &self.machine, &mut later);
            match action {
                Action::Receipt { receipt } if self.keeps => self.receipts.push((**receipt).clone()),
                Action::Publish { view } if !later.kernel.disk_full => self.record.generation = view.generation,
                _ => {}
            }
        }
        step.out = later.out;
        step.died = cut.is_some();
        if !step.died {
            let rested = laws::rest(&self.model, &mut self.memory, &self.machine, kernel, tick, now);
            step.broken = step.broken.or(rested.err());
        }
        if self.keeps {
            self.actions.push(actions.clone());
        }
        step.actions = actions;
        step
    }

    fn remember(&mut self, event: &Event, kernel: &Kernel) {
        match event {
            Event::Declared { spec } => self.record.declared = Some(Arc::new((**spec).clone())),
            Event::Removed => self.record.declared = None,
            Event::Start { why: Why::Operator } if !kernel.disk_full => self.record.parked = false,
            Event::Stop { why: Why::Operator } if !kernel.disk_full => self.record.parked = true,
            _ => {}
        }
    }

    /// A new daemon: the machine from the record, the first birth above every cgroup that is there. Returns what it is told
    /// first.
    pub fn reborn(&mut self, kernel: &Kernel) -> Vec<Event> {
        let births = kernel.homes.keys().filter(|id| id.group == self.model.group).map(|id| id.birth.0);
        let births = births.chain(kernel.of_group(self.model.group).map(|p| p.of.birth.0));
        self.header.first_birth = Birth(births.max().unwrap_or(0) + 1);
        self.header.generation = self.record.generation;
        self.machine = machine(&self.header);
        self.model.forget();
        self.memory = Memory::default();
        (self.cut, self.log, self.actions) = (None, Vec::new(), Vec::new());
        match &self.record.declared {
            Some(spec) => {
                let start = (!self.record.parked).then_some(Event::Start { why: Why::Boot });
                [Event::Declared { spec: Box::new((**spec).clone()) }].into_iter().chain(start).collect()
            }
            None => vec![Event::Removed],
        }
    }

    /// The events as a log that can be replayed.
    pub fn text(&self) -> String {
        let mut text = serde_json::to_string(&self.header).unwrap() + "\n";
        for entry in &self.log {
            text += &(serde_json::to_string(entry).unwrap() + "\n");
        }
        text
    }
}

fn machine(header: &Header) -> Group {
    Group::new(header.group.clone(), header.seed, header.first_birth).after(header.generation)
}
