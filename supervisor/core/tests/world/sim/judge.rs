//! The laws about actions: each is judged before the shell performs it.

use super::kernel::Kernel;
use super::laws::{
    L1, L2, L2_ORDER, L2_RANK, L3, L3_REMOVE, L4, L5, L6_CANCEL, L8, L9, L11, L11_WAIT, L12, L14, L14_CAUSE,
    L14_RECEIPT, Memory, Violation, broken,
};
use super::run::Ender;
use super::shell::Shell;
use socialweb_core::end::Cause;
use socialweb_core::receipt::Stopped;
use socialweb_core::{Action, Birth, ComponentName, Group, GroupView, Phase, Probe, Receipt, Role, Time, Why};
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

/// Judges one action before the model performs it.
pub fn judge(
    model: &mut Shell,
    memory: &mut Memory,
    group: &Group,
    action: &Action,
    kernel: &Kernel,
    now: Time,
) -> Result<(), Violation> {
    match action {
        // A new generation counts anew.
        Action::ReapSurvivors => {
            memory.fails.clear();
            Ok(())
        }
        Action::Spawn { component, role, .. } => {
            let spawn = Spawn { component, role: *role, now };
            judge_spawn(model, memory, group, &spawn, kernel)?;
            judge_restart(memory, group, &spawn)
        }
        Action::Signal { component, birth, .. } => {
            let current = model.latest(component).is_some_and(|r| r.birth == *birth);
            match model.runs.get(birth) {
                Some(run) if current && run.told_spawned && !run.told_end && !run.removed => {}
                _ => return broken(L5, format!("{component}/{birth} is signalled")),
            }
            touch(model, group, *birth, kernel)
        }
        Action::KillCgroup { birth, .. } => touch(model, group, *birth, kernel),
        Action::RemoveCgroup { component, birth } => match model.runs.get(birth) {
            Some(run) if run.told_end && run.told_empty => Ok(()),
            _ => broken(L3_REMOVE, format!("{component}/{birth} was not waited for, or not seen empty")),
        },
        Action::RemoveGroup => match model.runs.values().find(|r| !r.removed) {
            Some(run) => broken(L3_REMOVE, format!("the group is removed, {} is there", run.component)),
            None => Ok(()),
        },
        Action::ShutPath => {
            memory.stopping = group.component_names().cloned().collect();
            Ok(())
        }
        Action::Publish { view } => {
            let before = memory.view.replace(Arc::new((**view).clone()));
            judge_ranks(memory, view)?;
            judge_times(view, before.as_deref(), now)?;
            judge_view(model, group, view)
        }
        Action::Receipt { receipt } => judge_receipt(model, memory, receipt, kernel),
        _ => Ok(()),
    }
}

struct Spawn<'a> {
    component: &'a ComponentName,
    role: Role,
    now: Time,
}

fn judge_spawn(
    model: &Shell,
    memory: &mut Memory,
    group: &Group,
    spawn: &Spawn<'_>,
    kernel: &Kernel,
) -> Result<(), Violation> {
    let component = spawn.component;
    if !kernel.groups.contains(&model.group) {
        return broken(L3, format!("{component} is spawned without the group's cgroup"));
    }
    if matches!(spawn.role, Role::Post(_)) {
        return Ok(());
    }
    if !model.swept || model.survivors(kernel).next().is_some() {
        return broken(L4, format!("{component} is spawned before the sweep's answer"));
    }
    if !model.leased {
        return broken(L9, format!("{component} is spawned, its ports were not seen free"));
    }
    if matches!(group.phase(), Phase::Draining | Phase::Stopping | Phase::Parked | Phase::Unavailable) {
        return broken(L6_CANCEL, format!("{component} is spawned in {}", group.phase().as_str()));
    }
    let needs = group.component_spec(component).map_or(&[][..], |s| &s.needs);
    if let Some(need) = needs.iter().find(|n| !is_ready(model, group, n)) {
        return broken(L1, format!("{component} is spawned, {need} is not ready"));
    }
    if let Some(last) = model.latest(component).filter(|r| !r.removed) {
        return broken(L3, format!("{component} is spawned next to its run {}", last.birth));
    }
    if spawn.role == Role::Main {
        let starts = memory.starts.entry(component.clone()).or_default();
        starts.push_back(spawn.now);
        starts.retain(|t| spawn.now.since(*t) < Duration::from_secs(60));
        if starts.len() > 12 {
            return broken(L11, format!("{component} was started {} times within a minute", starts.len()));
        }
    }
    Ok(())
}

/// The first restart is immediate; the next wait at least half of their backoff, and after the limit much longer.
fn judge_restart(memory: &mut Memory, group: &Group, spawn: &Spawn<'_>) -> Result<(), Violation> {
    let Some(&(failures, since)) = memory.fails.get(spawn.component) else { return Ok(()) };
    let Some(policy) = group.component_spec(spawn.component).map(|s| s.backoff) else { return Ok(()) };
    let waited = spawn.now.since(since);
    if waited >= policy.give_up {
        memory.fails.remove(spawn.component);
        return Ok(());
    }
    if matches!(spawn.role, Role::Post(_)) || failures < 2 {
        return Ok(());
    }
    let least = match failures >= policy.limit {
        true => policy.give_up,
        false => policy.base.saturating_mul(1 << (failures - 2)).min(policy.max) / 2,
    };
    if waited < least {
        return broken(
            L11_WAIT,
            format!("{} after {failures} failures, {waited:?} and not {least:?}", spawn.component),
        );
    }
    Ok(())
}

fn judge_ranks(memory: &mut Memory, view: &GroupView) -> Result<(), Violation> {
    if memory.generation != view.generation {
        memory.generation = view.generation;
        memory.ranks.clear();
    }
    memory.ranks.retain(|name, _| view.components.iter().any(|c| &c.name == name));
    for c in &view.components {
        let fixed = *memory.ranks.entry(c.name.clone()).or_insert(c.rank);
        if fixed != c.rank {
            return broken(L2_RANK, format!("{} had rank {fixed} and has {}", c.name, c.rank));
        }
    }
    Ok(())
}

fn judge_times(view: &GroupView, before: Option<&GroupView>, now: Time) -> Result<(), Violation> {
    let ahead = view.since > now || view.components.iter().any(|c| c.since > now);
    match ahead || before.is_some_and(|b| b.since > view.since) {
        true => broken(L12, format!("{:?} at {now:?}", view.since)),
        false => Ok(()),
    }
}

/// The first time that a living main program or pre task is touched.
fn touch(model: &mut Shell, group: &Group, birth: Birth, kernel: &Kernel) -> Result<(), Violation> {
    let Some(run) = model.runs.get_mut(&birth) else { return Ok(()) };
    let first = !std::mem::replace(&mut run.touched, true) && !run.told_end && !matches!(run.role, Role::Post(_));
    let (component, rank) = (run.component.clone(), run.rank);
    if model.ready.get(&component) == Some(&birth) {
        model.ready.remove(&component);
    }
    if !first || !matches!(group.phase(), Phase::Draining | Phase::Stopping) {
        return Ok(());
    }
    if !model.path_shut || !model.told_path_shut {
        return broken(L8, format!("{component} is touched before the path is shut"));
    }
    let is_there = |birth: &Birth| kernel.alive(model.id(*birth));
    match model.runs.values().find(|other| other.rank > rank && (!other.removed || is_there(&other.birth))) {
        Some(other) => broken(L2, format!("{component} is touched while {} is there", other.component)),
        None => Ok(()),
    }
}

fn judge_view(model: &Shell, group: &Group, view: &GroupView) -> Result<(), Violation> {
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

fn is_ready(model: &Shell, group: &Group, component: &ComponentName) -> bool {
    model.ready.contains_key(component) || model.done.contains(component) || runs_by_law(model, group, component)
}

/// A policy edit can make exec the proof of readiness after exec happened.
fn runs_by_law(model: &Shell, group: &Group, component: &ComponentName) -> bool {
    let by_exec = group.component_spec(component).is_some_and(|s| s.readiness.probe == Probe::Running);
    by_exec && model.latest(component).is_some_and(|r| r.told_spawned && !r.told_end && !r.touched)
}

fn judge_receipt(model: &Shell, memory: &mut Memory, receipt: &Receipt, kernel: &Kernel) -> Result<(), Violation> {
    if let Some(p) = kernel.of_group(model.group).next() {
        return broken(L3, format!("receipt while pid {} of {} is there", p.pid, p.of.birth));
    }
    if receipt.why == Why::Survivors {
        return Ok(());
    }
    let left = model.runs.values().find(|r| !r.removed || !r.told_end);
    if left.is_some() || kernel.groups.contains(&model.group) {
        return broken(L3, format!("receipt while a cgroup is there: {:?}", left.map(|r| &r.component)));
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
    judge_sights(model, memory, receipt)
}

fn judge_sights(model: &Shell, memory: &mut Memory, receipt: &Receipt) -> Result<(), Violation> {
    if let Some(c) = receipt.components.iter().find(|c| !is_laid_to_its_cause(model, c)) {
        return broken(L14_CAUSE, format!("{} ended by {:?}", c.component, c.end));
    }
    if !receipt.components.iter().all(|c| c.began <= c.gone && c.gone <= receipt.ended && c.gone >= receipt.began) {
        return broken(L14_RECEIPT, "a time of the receipt lies outside its stop");
    }
    if receipt.path_shut && !model.told_path_shut {
        return broken(L14_RECEIPT, "the receipt says that the path was shut");
    }
    let others = receipt.components.iter().flat_map(|c| &c.others).map(|r| (r.pid, r.start_time));
    let (others, told) = (others.collect::<BTreeSet<_>>(), std::mem::take(&mut memory.told));
    match told.is_subset(&others) || receipt.components.is_empty() {
        true => Ok(()),
        false => broken(L14_RECEIPT, format!("ended were {told:?}, listed are {others:?}")),
    }
}

/// What truly ended a leader against what is said of it. Once the kill was sent, nobody can tell whose kill it was.
fn is_laid_to_its_cause(model: &Shell, stopped: &Stopped) -> bool {
    let Some(run) = stopped.birth.and_then(|birth| model.runs.get(&birth)) else { return true };
    let (Some(end), Some(by)) = (stopped.end, run.ended_by) else { return true };
    let ours = matches!(end.by, Cause::Stop(_) | Cause::Liveness(_));
    match by {
        _ if run.killed_first => ours,
        Ender::Kill => ours,
        Ender::OutOfMemory => end.by == Cause::OutOfMemory,
        Ender::Other => end.by == Cause::Unknown,
        Ender::Itself if run.signalled_first => ours,
        Ender::Itself => end.by == Cause::Itself,
    }
}
