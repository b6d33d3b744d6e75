//! The laws, by name, checked after every step against what the model host knows to be true; [`super::judge`] judges the
//! actions.

use super::kernel::Kernel;
use super::shell::Shell;
use socialweb_core::budget::Limits;
use socialweb_core::{
    ComponentName, Event, ExitStatus, Group, GroupView, Kind, Permit, Phase, Probe, Rank, Restart, Role, Time, Why,
};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

pub const L1: &str = "l1_starts_only_when_needs_are_ready";
pub const L2: &str = "l2_next_rank_untouched_until_above_is_gone";
pub const L2_RANK: &str = "l2_ranks_are_fixed_for_a_generation";
pub const L2_ORDER: &str = "l2_receipt_is_the_reverse_of_the_ranks";
pub const L3: &str = "l3_nothing_alive_after_receipt";
pub const L3_REMOVE: &str = "l3_removes_only_what_is_empty_and_waited_for";
pub const L4: &str = "l4_no_spawn_before_sweep_answered";
pub const L5: &str = "l5_signals_only_a_current_birth";
pub const L6: &str = "l6_every_wait_has_a_deadline";
pub const L6_BUSY: &str = "l6_every_deadline_leads_on";
pub const L6_STOP: &str = "l6_a_stop_ends_in_bounded_time";
pub const L6_CANCEL: &str = "l6_a_stop_cancels_the_start";
pub const L7: &str = "l7_only_a_delete_forgets_a_group";
pub const L8: &str = "l8_path_shut_before_first_touch";
pub const L9: &str = "l9_never_spawns_with_a_taken_port";
pub const L10: &str = "l10_one_groups_trouble_delays_no_other";
pub const L11: &str = "l11_restarts_bounded";
pub const L11_WAIT: &str = "l11_failures_in_a_row_wait_longer";
pub const L11_BUDGET: &str = "l11_restarts_of_the_host_are_bounded";
pub const L11_PERMIT: &str = "l11_permits_come_back";
pub const L12: &str = "l12_no_time_lies_ahead_or_goes_back";
pub const L14: &str = "l14_ready_only_if_observed";
pub const L14_CAUSE: &str = "l14_an_end_is_laid_to_who_caused_it";
pub const L14_RECEIPT: &str = "l14_a_receipt_tells_what_was_seen";

/// A law that was broken.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Violation {
    pub law: &'static str,
    pub what: String,
}

pub fn broken<T>(law: &'static str, what: impl Into<String>) -> Result<T, Violation> {
    Err(Violation { law, what: what.into() })
}

/// What the laws remember of one group.
#[derive(Debug, Clone, Default)]
pub struct Memory {
    pub view: Option<Arc<GroupView>>,
    /// Components when the stop began.
    pub stopping: Vec<ComponentName>,
    pub starts: BTreeMap<ComponentName, VecDeque<Time>>,
    /// Main programs that ended by themselves in a row, and when the last did.
    pub fails: BTreeMap<ComponentName, (u32, Time)>,
    /// The ranks of this generation.
    pub ranks: BTreeMap<ComponentName, Rank>,
    pub generation: u64,
    /// Processes other than leaders that the group was told of since its stop began.
    pub told: BTreeSet<(u32, u64)>,
    pub deleted: bool,
    phase: Option<Phase>,
    ticks: (Time, u32),
}

/// Notes what an event tells, before the group sees it.
pub fn hear(model: &mut Shell, memory: &mut Memory, group: &Group, event: &Event, now: Time) {
    match event {
        Event::SurvivorsReaped { .. } => model.swept = true,
        Event::LeasesGranted => model.leased = true,
        Event::PathShut => model.told_path_shut = true,
        Event::Start { .. } | Event::Restart { .. } | Event::Declared { .. } => {
            memory.starts.clear();
            memory.fails.clear();
        }
        _ => {}
    }
    match event {
        Event::Stop { why } => memory.deleted = *why == Why::Delete && !group.is_declared(),
        Event::Declared { .. } => memory.deleted = false,
        _ => {}
    }
    let Some((component, birth)) = event.birth() else { return };
    let spec = group.component_spec(component);
    let latest = model.latest(component).map(|r| r.birth) == Some(birth);
    let was_ready = model.ready.get(component) == Some(&birth);
    let Some(run) = model.runs.get_mut(&birth).filter(|r| &r.component == component) else { return };
    let service = run.role == Role::Main && spec.is_some_and(|s| s.kind == Kind::Service);
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
            (run.signalled_first, run.killed_first) = (run.signalled, run.killed.is_some());
            if was_ready {
                model.ready.remove(component);
            }
            memory.ended(component, run.role, run.touched || run.well, run.exec, now);
        }
        Event::SpawnFailed { .. } if !run.told_end => {
            run.told_end = true;
            memory.ended(component, run.role, run.touched, None, now);
        }
        Event::CgroupEmpty { reaped, .. } if latest && !run.removed => {
            run.told_empty = true;
            memory.told.extend(reaped.iter().map(|r| (r.pid, r.start_time)));
        }
        Event::CgroupRemoved { .. } if run.well && latest => drop(model.done.insert(component.clone())),
        _ => {}
    }
}

impl Memory {
    /// Forgets what counts over time, for who judges each step by itself.
    pub fn calm(&mut self) {
        self.starts.clear();
        self.fails.clear();
        self.told.clear();
        self.ticks = Default::default();
    }

    /// A run that was touched, ended well or was up for long is no failure in a row.
    fn ended(&mut self, component: &ComponentName, role: Role, excused: bool, exec: Option<Time>, now: Time) {
        if role != Role::Main {
            return;
        }
        let long = exec.is_some_and(|at| now.since(at) > Duration::from_secs(50));
        let count = self.fails.get(component).map_or(0, |(n, _)| *n);
        self.fails.insert(component.clone(), (if excused || long { 0 } else { count + 1 }, now));
    }
}

/// Judges the state after a step.
pub fn rest(
    model: &Shell,
    memory: &mut Memory,
    group: &Group,
    kernel: &Kernel,
    tick: bool,
    now: Time,
) -> Result<(), Violation> {
    let phase = group.phase();
    let idle = matches!(phase, Phase::Absent | Phase::Parked | Phase::Unavailable);
    if idle && let Some(run) = model.runs.values().find(|r| kernel.alive(model.id(r.birth))) {
        return broken(L3, format!("{} lives in a group that is {}", run.component, phase.as_str()));
    }
    let was = memory.phase.replace(phase);
    if phase == Phase::Absent && was.is_some_and(|was| was != phase) && !memory.deleted {
        return broken(L7, "it is forgotten, and nobody deleted it");
    }
    if phase == Phase::Draining && was != memory.phase {
        memory.told.clear();
    }
    if (idle || phase == Phase::Ready) && (model.start_held || model.queued_at.is_some()) {
        return broken(L11_PERMIT, format!("{} and the start permit is not back", phase.as_str()));
    }
    if idle && !model.restarts_queued.is_empty() {
        return broken(L11_PERMIT, "a restart permit is asked for by a group that does not run");
    }
    let passing = |state: &str| matches!(state, "Preparing" | "Starting" | "Stopping" | "Wedged" | "Backoff");
    let waits = matches!(phase, Phase::Sweeping | Phase::Draining | Phase::Stopping | Phase::Unavailable)
        || memory.view.as_ref().is_some_and(|v| v.components.iter().any(|c| passing(&c.state)));
    if waits && group.next_deadline().is_none() {
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

/// What the laws remember of the host-wide allowances.
#[derive(Debug, Default)]
pub struct Grants {
    restarts: VecDeque<Time>,
}

impl Grants {
    pub fn judge(&mut self, permit: &Permit, limits: &Limits, now: Time) -> Result<(), Violation> {
        let (Permit::Restart(_), Some(rate)) = (permit, limits.restarts) else { return Ok(()) };
        self.restarts.push_back(now);
        self.restarts.retain(|t| now.since(*t) < Duration::from_secs(60));
        match self.restarts.len() > (rate.burst + rate.per_minute) as usize {
            true => broken(L11_BUDGET, format!("{} restarts within a minute", self.restarts.len())),
            false => Ok(()),
        }
    }
}

/// No group waits for its turn longer than all others together may take.
pub fn waits(groups: usize, queued_at: Time, limits: &Limits, now: Time) -> Result<(), Violation> {
    let longest = limits.start_hold * groups as u32 + Duration::from_secs(60);
    match now.since(queued_at) > longest {
        true => broken(L10, format!("it waits for its start since {queued_at:?}")),
        false => Ok(()),
    }
}
