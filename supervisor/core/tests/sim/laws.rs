//! The laws, by name, checked after every step against what the model host knows to be true.

use super::model::{Model, Run};
use socialweb_core::{
    Action, Birth, ComponentName, Event, ExitStatus, Group, GroupView, Kind, Phase, Probe, Receipt, Restart, Role, Time,
};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

pub const L1: &str = "l1_starts_only_when_needs_are_ready";
pub const L2: &str = "l2_next_rank_untouched_until_above_is_gone";
pub const L2_ORDER: &str = "l2_receipt_is_the_reverse_of_the_ranks";
pub const L3: &str = "l3_nothing_alive_after_receipt";
pub const L3_REMOVE: &str = "l3_removes_only_what_is_empty_and_waited_for";
pub const L4: &str = "l4_no_spawn_before_sweep_answered";
pub const L5: &str = "l5_signals_only_a_current_birth";
pub const L6: &str = "l6_every_wait_has_a_deadline";
pub const L6_BUSY: &str = "l6_every_deadline_leads_on";
pub const L6_STOP: &str = "l6_a_stop_ends_in_bounded_time";
pub const L6_CANCEL: &str = "l6_a_stop_cancels_the_start";
pub const L8: &str = "l8_path_shut_before_first_touch";
pub const L9: &str = "l9_never_spawns_with_a_taken_port";
pub const L11: &str = "l11_restarts_bounded";
pub const L11_PERMIT: &str = "l11_permits_come_back";
pub const L14: &str = "l14_ready_only_if_observed";

/// A law that was broken.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Violation {
    pub law: &'static str,
    pub what: String,
}

fn broken<T>(law: &'static str, what: impl Into<String>) -> Result<T, Violation> {
    Err(Violation { law, what: what.into() })
}

/// What the laws remember of one group.
#[derive(Debug, Default)]
pub struct Memory {
    pub view: Option<GroupView>,
    /// Components when the stop began.
    stopping: Vec<ComponentName>,
    starts: BTreeMap<ComponentName, VecDeque<Time>>,
    ticks: (Time, u32),
}

/// Notes what an event tells, before the group sees it.
pub fn hear(model: &mut Model, memory: &mut Memory, group: &Group, event: &Event) {
    match event {
        Event::SurvivorsReaped { .. } => model.swept = true,
        Event::LeasesGranted => model.leased = true,
        Event::PathShut => model.told_path_shut = true,
        Event::Start { .. } | Event::Restart { .. } | Event::Declared { .. } => memory.starts.clear(),
        _ => {}
    }
    let Some((component, birth)) = event.birth() else { return };
    let spec = group.component_spec(component).cloned();
    let latest = model.latest(component).map(|r| r.birth) == Some(birth);
    let was_ready = model.ready.get(component) == Some(&birth);
    let Some(run) = model.runs.get_mut(&birth).filter(|r| &r.component == component) else { return };
    let service = run.role == Role::Main && spec.as_ref().is_some_and(|s| s.kind == Kind::Service);
    let serves = latest && service && !run.touched && !run.told_end;
    match event {
        Event::Spawned { .. } => {
            run.told_spawned = true;
            if serves && spec.is_some_and(|s| s.readiness.probe == Probe::Running) {
                model.ready.insert(component.clone(), birth);
            }
        }
        Event::Ready { .. } if serves => drop(model.ready.insert(component.clone(), birth)),
        Event::Exited { status, .. } if !run.told_end => {
            let never = spec.is_some_and(|s| s.restart == Restart::Never);
            let ends_well = if service { was_ready && never } else { run.role == Role::Main };
            run.well = ends_well && *status == ExitStatus::Code(0) && !run.touched;
            run.told_end = true;
            if was_ready {
                model.ready.remove(component);
            }
        }
        Event::SpawnFailed { .. } => run.told_end = true,
        Event::CgroupRemoved { .. } if run.well && latest => drop(model.done.insert(component.clone())),
        _ => {}
    }
}

/// Judges one action before the model performs it.
pub fn judge(
    model: &mut Model,
    memory: &mut Memory,
    group: &Group,
    action: &Action,
    now: Time,
) -> Result<(), Violation> {
    match action {
        Action::Spawn { component, role, .. } => judge_spawn(model, memory, group, component, *role, now),
        Action::Signal { component, birth, .. } => {
            let current = model.latest(component).is_some_and(|r| r.birth == *birth);
            match model.runs.get(birth) {
                Some(run) if current && run.told_spawned && !run.told_end && !run.removed => {}
                _ => return broken(L5, format!("{component}/{birth} is signalled")),
            }
            touch(model, group, *birth)
        }
        Action::KillCgroup { birth, .. } => touch(model, group, *birth),
        Action::RemoveCgroup { component, birth } => match model.runs.get(birth) {
            Some(run) if run.told_end => Ok(()),
            _ => broken(L3_REMOVE, format!("{component}/{birth} was not waited for")),
        },
        Action::RemoveGroup => match model.runs.values().find(|r| !r.removed) {
            Some(run) => broken(L3_REMOVE, format!("the group is removed, {} is there", run.component)),
            None => Ok(()),
        },
        Action::ShutPath => {
            let view = group.view();
            memory.stopping = view.components.into_iter().map(|c| c.name).collect();
            Ok(())
        }
        Action::Publish { view } => {
            memory.view = Some((**view).clone());
            judge_view(model, group, view)
        }
        Action::Receipt { receipt } => judge_receipt(model, memory, receipt),
        _ => Ok(()),
    }
}

fn judge_spawn(
    model: &Model,
    memory: &mut Memory,
    group: &Group,
    component: &ComponentName,
    role: Role,
    now: Time,
) -> Result<(), Violation> {
    if matches!(role, Role::Post(_)) {
        return Ok(());
    }
    if !model.swept || model.survivors > 0 {
        return broken(L4, format!("{component} is spawned, {} survivors", model.survivors));
    }
    if !model.leased {
        return broken(L9, format!("{component} is spawned, its ports were not seen free"));
    }
    if matches!(group.phase(), Phase::Draining | Phase::Stopping | Phase::Parked | Phase::Unavailable) {
        return broken(L6_CANCEL, format!("{component} is spawned in {}", group.phase().as_str()));
    }
    let needs = group.component_spec(component).map(|s| s.needs.clone()).unwrap_or_default();
    if let Some(need) = needs.iter().find(|n| !is_ready(model, group, n)) {
        return broken(L1, format!("{component} is spawned, {need} is not ready"));
    }
    if let Some(last) = model.latest(component).filter(|r| !r.removed) {
        return broken(L3, format!("{component} is spawned next to its run {}", last.birth));
    }
    if role == Role::Main {
        let starts = memory.starts.entry(component.clone()).or_default();
        starts.push_back(now);
        starts.retain(|t| now.since(*t) < Duration::from_secs(60));
        if starts.len() > 12 {
            return broken(L11, format!("{component} was started {} times within a minute", starts.len()));
        }
    }
    Ok(())
}

/// The first time that a living main program or pre task is touched.
fn touch(model: &mut Model, group: &Group, birth: Birth) -> Result<(), Violation> {
    let Some(run) = model.runs.get_mut(&birth) else { return Ok(()) };
    let first = !std::mem::replace(&mut run.touched, true) && !run.told_end && !matches!(run.role, Role::Post(_));
    let run = run.clone();
    if model.ready.get(&run.component) == Some(&birth) {
        model.ready.remove(&run.component);
    }
    if !first || !matches!(group.phase(), Phase::Draining | Phase::Stopping) {
        return Ok(());
    }
    if !model.path_shut || !model.told_path_shut {
        return broken(L8, format!("{} is touched before the path is shut", run.component));
    }
    let above = |other: &&Run| other.rank > run.rank && (!other.removed || other.alive());
    match model.runs.values().find(above) {
        Some(other) => broken(L2, format!("{} is touched while {} is there", run.component, other.component)),
        None => Ok(()),
    }
}

fn judge_view(model: &Model, group: &Group, view: &GroupView) -> Result<(), Violation> {
    for c in &view.components {
        let observed = match c.state.as_str() {
            "Ready" => model.ready.get(&c.name).copied() == c.birth || runs_by_law(model, group, &c.name),
            "Done" => model.done.contains(&c.name),
            _ if view.phase == Phase::Ready => false,
            _ => true,
        };
        if !observed {
            return broken(L14, format!("{} is shown {}, the group {}", c.name, c.state, view.phase.as_str()));
        }
    }
    Ok(())
}

fn is_ready(model: &Model, group: &Group, component: &ComponentName) -> bool {
    model.ready.contains_key(component) || model.done.contains(component) || runs_by_law(model, group, component)
}

/// A policy edit can make exec the proof of readiness after exec happened.
fn runs_by_law(model: &Model, group: &Group, component: &ComponentName) -> bool {
    let by_exec = group.component_spec(component).is_some_and(|s| s.readiness.probe == Probe::Running);
    by_exec && model.latest(component).is_some_and(|r| r.told_spawned && !r.told_end && !r.touched)
}

fn judge_receipt(model: &Model, memory: &Memory, receipt: &Receipt) -> Result<(), Violation> {
    if let Some(run) = model.runs.values().find(|r| r.alive() || !r.removed || !r.told_end) {
        return broken(L3, format!("receipt while {}/{} is there", run.component, run.birth));
    }
    if !receipt.components.is_sorted_by_key(|c| std::cmp::Reverse(c.rank)) {
        return broken(L2_ORDER, format!("{:?}", receipt.components));
    }
    let listed: Vec<_> = receipt.components.iter().map(|c| c.component.clone()).collect();
    let once: BTreeSet<_> = listed.iter().cloned().collect();
    let expected: BTreeSet<_> = memory.stopping.iter().cloned().collect();
    // A stop in the sweep has nothing to list.
    if once.len() != listed.len() || !(once == expected || listed.is_empty() && !receipt.path_shut) {
        return broken(L2_ORDER, format!("listed {listed:?}, there were {expected:?}"));
    }
    if !receipt.components.iter().all(|c| c.began <= c.gone && c.gone <= receipt.ended && c.gone >= receipt.began) {
        return broken(L14, "a time of the receipt lies outside its stop");
    }
    match receipt.path_shut && !model.told_path_shut {
        true => broken(L14, "the receipt says that the path was shut"),
        false => Ok(()),
    }
}

/// Judges the state after a step.
pub fn rest(
    model: &Model,
    memory: &mut Memory,
    group: &Group,
    deadline: Option<Time>,
    tick: bool,
    now: Time,
) -> Result<(), Violation> {
    let phase = group.phase();
    let idle = matches!(phase, Phase::Absent | Phase::Parked | Phase::Unavailable);
    if idle && let Some(run) = model.alive().next() {
        return broken(L3, format!("{} lives in a group that is {}", run.component, phase.as_str()));
    }
    if (idle || phase == Phase::Ready) && (model.start_held || model.start_queued) {
        return broken(L11_PERMIT, format!("{} and the start permit is not back", phase.as_str()));
    }
    if idle && !model.restarts_queued.is_empty() {
        return broken(L11_PERMIT, "a restart permit is asked for by a group that does not run");
    }
    let passing = |state: &str| matches!(state, "Preparing" | "Starting" | "Stopping" | "Wedged" | "Backoff");
    let waits = matches!(phase, Phase::Sweeping | Phase::Draining | Phase::Stopping | Phase::Unavailable)
        || memory.view.as_ref().is_some_and(|v| v.components.iter().any(|c| passing(&c.state)));
    if waits && deadline.is_none() {
        return broken(L6, format!("{} and no deadline", phase.as_str()));
    }
    memory.ticks = match (tick, memory.ticks) {
        (true, (at, n)) if at == now => (now, n + 1),
        (true, _) => (now, 1),
        (false, ticks) => ticks,
    };
    if tick && memory.ticks.1 > 40 {
        return broken(L6_BUSY, format!("the deadline stays at {now:?}"));
    }
    Ok(())
}
