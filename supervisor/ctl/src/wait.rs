//! Is it done? Pure: a goal, and what each new status says about it.

use socialweb_wire::{Accepted, GroupStatus, Operation, Phase, counted};

/// What is being waited for.
#[derive(Debug, Clone)]
pub struct Goal {
    accepted: Accepted,
    group: String,
    /// A status since then showed the component not up.
    was_down: bool,
}

/// What a status says about a goal.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    /// Seen done.
    Done,
    /// It will not happen by itself.
    Failed(String),
    /// Not yet: this is being waited for.
    Waiting(String),
}

impl Goal {
    /// The goal of a change that the daemon has taken on; none for a shutdown, whose end no status shows.
    pub fn of(accepted: &Accepted) -> Option<Goal> {
        let group = accepted.group.clone()?;
        Some(Goal { accepted: accepted.clone(), group, was_down: false })
    }

    /// As in "waited for ...".
    pub fn text(&self) -> String {
        let name = match &self.accepted.component {
            Some(component) => format!("{}/{component}", self.group),
            None => self.group.clone(),
        };
        format!("the {} of {name}", self.accepted.operation)
    }

    /// The group's name.
    pub fn group(&self) -> &str {
        &self.group
    }

    /// Judges the group's next status; none when the daemon does not know the group any more.
    pub fn judge(&mut self, group: Option<&GroupStatus>) -> Verdict {
        match (self.accepted.operation, group) {
            (Operation::Delete, None) => Verdict::Done,
            (Operation::Delete, Some(group)) => judge_delete(group),
            (Operation::Stop, None) => Verdict::Done,
            (_, None) => Verdict::Failed("the group does not exist any more".into()),
            (Operation::Start, Some(group)) => judge_up(group, true),
            (Operation::Restart, Some(group)) => judge_up(group, self.is_new(group)),
            (Operation::Stop, Some(group)) => judge_stop(group),
            (Operation::RestartComponent, Some(group)) => self.judge_component(group),
            (Operation::Shutdown, Some(group)) => Verdict::Waiting(waiting(group)),
        }
    }

    /// True when the group runs anew: what was taken on was its start already, or the old generation is over.
    fn is_new(&self, group: &GroupStatus) -> bool {
        let began = matches!(self.accepted.phase, Some(Phase::Sweeping | Phase::Starting));
        began || group.generation > self.accepted.generation
    }

    fn judge_component(&mut self, group: &GroupStatus) -> Verdict {
        let name = self.accepted.component.clone().unwrap_or_default();
        let Some(component) = group.component(&name) else {
            return Verdict::Failed(format!("{} has no component {name} any more", self.group));
        };
        if matches!(group.phase, Phase::Parked | Phase::Absent | Phase::Unavailable) {
            return Verdict::Failed(format!("{} is {}{}", self.group, group.phase, because(&group.reason)));
        }
        if matches!(component.state.as_str(), "Failed" | "Wedged") {
            return Verdict::Failed(format!("{name} is {}{}", component.state, because(&component.detail)));
        }
        if !component.is_up() {
            self.was_down = true;
            return Verdict::Waiting(format!("{name} is {}{}", component.state, because(&component.detail)));
        }
        let again = component.birth > self.accepted.birth || component.restarts > self.accepted.restarts;
        if self.was_down || again {
            Verdict::Done
        } else {
            Verdict::Waiting(format!("{name} is {} as before", component.state))
        }
    }
}

fn judge_up(group: &GroupStatus, is_new: bool) -> Verdict {
    match group.phase {
        Phase::Ready if is_new => Verdict::Done,
        Phase::Unavailable | Phase::Parked | Phase::Absent => {
            let retry = group.retry_in_s.map(|s| format!("; it is tried again in {s} s")).unwrap_or_default();
            Verdict::Failed(format!("{} is {}{}{retry}", group.name, group.phase, because(&group.reason)))
        }
        _ => Verdict::Waiting(waiting(group)),
    }
}

fn judge_stop(group: &GroupStatus) -> Verdict {
    match group.phase {
        Phase::Parked | Phase::Absent => Verdict::Done,
        Phase::Draining | Phase::Stopping | Phase::Unknown => Verdict::Waiting(waiting(group)),
        // A stop that meets a give-up parks the group; seen here, it is what the stop ended in.
        _ => Verdict::Failed(format!("{} is {}{}", group.name, group.phase, because(&group.reason))),
    }
}

fn judge_delete(group: &GroupStatus) -> Verdict {
    match group.phase {
        Phase::Absent => Verdict::Done,
        Phase::Draining | Phase::Stopping | Phase::Parked | Phase::Unknown => Verdict::Waiting(waiting(group)),
        _ => Verdict::Failed(format!("{} is {}{}", group.name, group.phase, because(&group.reason))),
    }
}

/// How far a shutdown is, in one sentence.
pub fn going_down(groups: &[GroupStatus]) -> String {
    let up: Vec<&GroupStatus> =
        groups.iter().filter(|g| !matches!(g.phase, Phase::Parked | Phase::Absent | Phase::Unavailable)).collect();
    match up.first() {
        Some(first) => {
            let (left, all) = (up.len(), counted(groups.len(), "group"));
            format!("{left} of {all} {} not down yet; {}", if left == 1 { "is" } else { "are" }, waiting(first))
        }
        None => "all groups are down; the daemon ends".into(),
    }
}

/// What a group waits for, in one sentence.
pub fn waiting(group: &GroupStatus) -> String {
    let all = counted(group.components.len(), "component");
    let mut text = match group.phase {
        Phase::Draining | Phase::Stopping => {
            let there = group.components.iter().filter(|c| c.pid.is_some() || c.state == "Stopping").count();
            format!("{} is {}, {there} of {all} still there", group.name, group.phase)
        }
        _ => {
            let up = group.components.iter().filter(|c| c.is_up()).count();
            format!("{} is {}, {up} of {all} up", group.name, group.phase)
        }
    };
    if !group.reason.is_empty() {
        text.push_str(&format!("; {}", group.reason));
        return text;
    }
    let busy = group.components.iter().find(|c| !c.is_up() && c.state != "Waiting" && c.state != "Idle");
    if let Some(component) = busy {
        text.push_str(&format!("; {} is {}{}", component.name, component.state, because(&component.detail)));
    }
    text
}

fn because(reason: &str) -> String {
    if reason.is_empty() { String::new() } else { format!(": {reason}") }
}

#[cfg(test)]
#[path = "wait_tests.rs"]
mod tests;
