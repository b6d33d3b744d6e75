//! When two states are the same.

use super::node::{Node, is_in_order};
use crate::sim::kernel::{Life, Proc};
use crate::sim::run::{Fate, Msg, Run};
use socialweb_core::{ComponentName, Event};
use std::fmt::Write;

impl Node {
    pub fn key(&self) -> String {
        let model = &self.held.model;
        let mut text = self.held.machine.canonical(self.now);
        let flags = [
            model.swept,
            model.leased,
            model.told_path_shut,
            model.path_shut,
            model.start_held,
            model.queued_at.is_some(),
            self.held.memory.deleted && !self.held.machine.is_declared(),
            self.kernel.groups.contains(&0),
        ];
        text.push('|');
        flags.iter().for_each(|on| text.push(if *on { '1' } else { '0' }));
        let names: Vec<ComponentName> = self.held.machine.component_names().cloned().collect();
        for component in &names {
            let _ = write!(
                text,
                "|{}{}{}",
                model.done.contains(component) as u8,
                model.ready.contains_key(component) as u8,
                model.restarts_queued.contains(component) as u8
            );
            model.runs.values().filter(|r| &r.component == component).for_each(|run| self.key_of(run, &mut text));
        }
        let old = model.survivors(&self.kernel).count();
        let _ = write!(text, "|{old}");
        self.key_of_pool(&mut text);
        text
    }

    fn key_of(&self, run: &Run, text: &mut String) {
        let flags = [
            run.born,
            run.exec.is_some(),
            run.empty_asked,
            run.removed,
            run.told_spawned,
            run.told_end,
            run.told_empty,
            run.touched,
            run.well,
        ];
        text.push(';');
        flags.iter().for_each(|on| text.push(if *on { '1' } else { '0' }));
        let _ = write!(text, "{}", run.probe as u8);
        let counts = self.status_counts(run);
        let id = self.held.model.id(run.birth);
        let mut procs: Vec<char> = self.kernel.procs.iter().filter(|p| p.of == id).map(|p| letter(p, counts)).collect();
        procs.sort();
        text.extend(procs);
    }

    fn key_of_pool(&self, text: &mut String) {
        let mut free = Vec::new();
        for msg in &self.pool {
            if is_in_order(msg) {
                let _ = write!(text, "+{}", label(msg, self));
            } else {
                free.push(label(msg, self));
            }
        }
        free.sort();
        free.dedup();
        free.iter().for_each(|label| {
            let _ = write!(text, "~{label}");
        });
    }
}

fn letter(p: &Proc, status_counts: bool) -> char {
    match (p.leader, p.life) {
        (true, Life::Zombie(status)) if status_counts && status.success() => 'k',
        (true, Life::Zombie(_)) => 'l',
        (true, _) => 'L',
        (false, Life::Zombie(_)) => 's',
        (false, _) => 'S',
    }
}

/// A message in words that do not depend on numbers.
pub fn label(msg: &Msg, node: &Node) -> String {
    let of = |birth| node.held.model.runs.get(&birth).map_or("old", |r| r.component.as_str());
    let process = |pid: u32, start: u64| {
        let p = node.kernel.procs.iter().find(|p| (p.pid, p.start) == (pid, start));
        p.map_or(String::new(), |p| format!("{}{}", of(p.of.birth), if p.leader { "" } else { "'" }))
    };
    match msg {
        Msg::Event(event) => match event.birth() {
            Some((component, _)) => format!("{component}{}", kind(event)),
            None => kind(event),
        },
        Msg::Wait { pid, start } => format!("wait {}", process(*pid, *start)),
        Msg::Kernel(_, Fate::Slain { pid, start }) => format!("slain {}", process(*pid, *start)),
        Msg::Kernel(birth, Fate::Dies(status)) => {
            let counts = node.held.model.runs.get(birth).is_some_and(|run| node.status_counts(run));
            format!("{}Dies{}", of(*birth), if counts && status.success() { "Well" } else { "" })
        }
        Msg::Kernel(birth, fate) => format!("{}{fate:?}", of(*birth)),
        other => format!("{other:?}"),
    }
}

fn kind(event: &Event) -> String {
    match event {
        Event::Granted { permit } => format!("{permit:?}"),
        Event::Exited { status, .. } => format!("{status:?}"),
        other => {
            let text = format!("{other:?}");
            text.split([' ', '{']).next().unwrap_or_default().to_string()
        }
    }
}
