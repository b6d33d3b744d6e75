//! Core's views as the wire's types. What core cannot know (urls, memory, lease numbers) is left for the caller to fill
//! in.

use socialweb_core::event::{Reaped, ReapedBy};
use socialweb_core::receipt::{Rung, Stopped};
use socialweb_core::{Cause, ComponentView, End, ExitStatus, GroupView, Phase, Receipt, Time, Why};
use socialweb_wire as wire;
use std::collections::BTreeMap;

/// A group's view. Empty: url, kubeconfig, ports, last_start_ms, stop_deadline_s, and each component's rss and cpu.
pub fn group_status(view: &GroupView, now: Time) -> wire::GroupStatus {
    wire::GroupStatus {
        name: view.name.to_string(),
        phase: phase(view.phase),
        since_s: now.since(view.since).as_secs(),
        reason: view.reason.clone(),
        // Rounded up, so that "in 0 s" means now.
        retry_in_s: view.retry_at.map(|at| at.since(now).as_millis().div_ceil(1000) as u64),
        generation: view.generation,
        declared: view.declared,
        url: None,
        kubeconfig: None,
        ports: BTreeMap::new(),
        last_start_ms: None,
        datastore_bytes: None,
        stop_deadline_s: 0,
        survivors: view.survivors.iter().map(reaped).collect(),
        usage: wire::Usage::default(),
        bounds: BTreeMap::new(),
        bounds_missing: Vec::new(),
        components: view.components.iter().map(|c| component_status(c, now)).collect(),
    }
}

fn component_status(view: &ComponentView, now: Time) -> wire::ComponentStatus {
    wire::ComponentStatus {
        name: view.name.to_string(),
        rank: view.rank.0,
        state: view.state.clone(),
        detail: view.detail.clone(),
        pid: view.pid,
        birth: view.birth.map(|b| b.0),
        since_s: now.since(view.since).as_secs(),
        restarts: view.restarts,
        last_exit: view.last_exit.map(exit_status),
        last_end: view.last_end.map(end),
        last_end_s: view.last_end_at.map(|at| now.since(at).as_secs()),
        rss_bytes: None,
        cpu_usec: None,
        usage: wire::Usage::default(),
        log: None,
    }
}

/// The phase under its wire name.
pub fn phase(phase: Phase) -> wire::Phase {
    match phase {
        Phase::Absent => wire::Phase::Absent,
        Phase::Sweeping => wire::Phase::Sweeping,
        Phase::Starting => wire::Phase::Starting,
        Phase::Ready => wire::Phase::Ready,
        Phase::Degraded => wire::Phase::Degraded,
        Phase::Draining => wire::Phase::Draining,
        Phase::Stopping => wire::Phase::Stopping,
        Phase::Parked => wire::Phase::Parked,
        Phase::Unavailable => wire::Phase::Unavailable,
    }
}

/// A receipt; its JSON is the same on both sides, but for the moment of writing, which core does not know.
pub fn receipt(receipt: &Receipt, written_at_ms: Option<u64>) -> wire::Receipt {
    wire::Receipt {
        schema: receipt.schema,
        group: receipt.group.to_string(),
        generation: receipt.generation,
        why: why(&receipt.why),
        began: receipt.began.0,
        ended: receipt.ended.0,
        elapsed_ms: receipt.elapsed_ms,
        path_shut: receipt.path_shut,
        components: receipt.components.iter().map(stopped).collect(),
        strays: receipt.strays.iter().map(reaped).collect(),
        removed: receipt.removed,
        written_at_ms,
    }
}

fn stopped(stopped: &Stopped) -> wire::Stopped {
    wire::Stopped {
        component: stopped.component.to_string(),
        rank: stopped.rank.0,
        birth: stopped.birth.map(|b| b.0),
        pid: stopped.pid,
        status: stopped.status.map(exit_status),
        end: stopped.end.map(end),
        rung: rung(stopped.rung),
        began: stopped.began.0,
        gone: stopped.gone.0,
        others: stopped.others.iter().map(reaped).collect(),
    }
}

/// Why a stop was asked for.
pub fn why(why: &Why) -> wire::Why {
    let (name, detail) = match why {
        Why::Operator => ("operator", None),
        Why::Boot => ("boot", None),
        Why::Shutdown => ("shutdown", None),
        Why::Reload => ("reload", None),
        Why::NotDeclared => ("not-declared", None),
        Why::Delete => ("delete", None),
        Why::ComponentEnded(component) => ("component-ended", Some(component.to_string())),
        Why::GaveUp(what) => ("gave-up", Some(what.clone())),
        Why::Retry => ("retry", None),
        Why::Survivors => ("survivors", None),
    };
    wire::Why { why: name.into(), detail }
}

fn rung(rung: Rung) -> wire::Rung {
    match rung {
        Rung::None => wire::Rung::None,
        Rung::Signal => wire::Rung::Signal,
        Rung::Kill => wire::Rung::Kill,
        Rung::Wedged => wire::Rung::Wedged,
    }
}

/// How a run ended and who ended it.
pub fn end(end: End) -> wire::End {
    wire::End {
        status: exit_status(end.status),
        by: match end.by {
            Cause::Itself => wire::Cause::Itself,
            Cause::Stop(by) => wire::Cause::Stop(rung(by)),
            Cause::Liveness(by) => wire::Cause::Liveness(rung(by)),
            Cause::OutOfMemory => wire::Cause::OutOfMemory,
            Cause::Unknown => wire::Cause::Unknown,
        },
        core_dumped: end.traces.core_dumped,
        oom_kills: end.traces.oom_kills,
    }
}

/// How a process ended.
pub fn exit_status(status: ExitStatus) -> wire::ExitStatus {
    match status {
        ExitStatus::Code(n) => wire::ExitStatus::Code(n),
        ExitStatus::Signal(n) => wire::ExitStatus::Signal(n),
        ExitStatus::Unknown => wire::ExitStatus::Unknown,
    }
}

/// A process that a sweep or a ladder ended.
pub fn reaped(reaped: &Reaped) -> wire::Reaped {
    wire::Reaped {
        component: reaped.component.as_ref().map(ToString::to_string),
        pid: reaped.pid,
        start_time: reaped.start_time,
        command: reaped.command.clone(),
        by: match reaped.by {
            ReapedBy::Itself => wire::ReapedBy::Itself,
            ReapedBy::Signal => wire::ReapedBy::Signal,
            ReapedBy::CgroupKill => wire::ReapedBy::CgroupKill,
            ReapedBy::MarkerKill => wire::ReapedBy::MarkerKill,
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use socialweb_core::{Birth, ComponentName, GroupName, Rank, Traces};

    fn component() -> ComponentName {
        ComponentName::new("kine").unwrap()
    }

    fn stray(by: ReapedBy) -> Reaped {
        Reaped { component: Some(component()), pid: 9, start_time: 8, command: "sleep".into(), by }
    }

    #[test]
    fn a_receipt_has_the_same_json_on_disk_and_on_the_wire() {
        let rungs = [Rung::None, Rung::Signal, Rung::Kill, Rung::Wedged];
        let ends = [ExitStatus::Code(1), ExitStatus::Signal(9), ExitStatus::Unknown];
        let causes = [Cause::OutOfMemory, Cause::Stop(Rung::Kill), Cause::Unknown];
        let hows = [ReapedBy::Itself, ReapedBy::Signal, ReapedBy::CgroupKill, ReapedBy::MarkerKill];
        let whys = [
            Why::Operator,
            Why::Boot,
            Why::Shutdown,
            Why::Reload,
            Why::NotDeclared,
            Why::Delete,
            Why::ComponentEnded(component()),
            Why::GaveUp("kine was never ready".into()),
            Why::Retry,
            Why::Survivors,
        ];
        for why in whys {
            let stopped = |(i, rung): (usize, &Rung)| Stopped {
                component: component(),
                rank: Rank(1),
                birth: Some(Birth(4)),
                pid: Some(42),
                status: ends.get(i).copied(),
                end: ends.get(i).map(|status| End {
                    status: *status,
                    by: causes[i],
                    traces: Traces { core_dumped: i == 1, oom_kills: i as u64 },
                }),
                rung: *rung,
                began: Time(10),
                gone: Time(20),
                others: hows.map(stray).to_vec(),
            };
            let core = Receipt {
                schema: socialweb_core::receipt::SCHEMA,
                group: GroupName::new("demo").unwrap(),
                generation: 3,
                why,
                began: Time(10),
                ended: Time(30),
                elapsed_ms: 20,
                path_shut: true,
                components: rungs.iter().enumerate().map(stopped).collect(),
                strays: vec![Reaped { component: None, ..stray(ReapedBy::Itself) }],
                removed: true,
            };
            let on_disk = serde_json::to_value(&core).unwrap();
            assert_eq!(serde_json::to_value(receipt(&core, None)).unwrap(), on_disk);
            assert_eq!(serde_json::from_value::<wire::Receipt>(on_disk).unwrap(), receipt(&core, None));
        }
    }

    #[test]
    fn times_of_a_view_become_ages() {
        let view = GroupView {
            name: GroupName::new("demo").unwrap(),
            phase: Phase::Unavailable,
            since: Time(1_000),
            reason: "kine was never ready".into(),
            retry_at: Some(Time(9_001)),
            generation: 2,
            declared: true,
            survivors: vec![],
            components: vec![ComponentView {
                name: component(),
                rank: Rank(1),
                state: "Failed".into(),
                detail: "exit status 1".into(),
                birth: Some(Birth(7)),
                pid: None,
                since: Time(4_000),
                restarts: 8,
                last_exit: Some(ExitStatus::Code(1)),
                last_end: None,
                last_end_at: Some(Time(2_000)),
            }],
        };
        let status = group_status(&view, Time(6_000));
        assert_eq!((status.since_s, status.retry_in_s, status.components[0].since_s), (5, Some(4), 2));
        assert_eq!((status.phase.as_str(), status.components[0].birth), (view.phase.as_str(), Some(7)));
        assert_eq!(status.components[0].last_end_s, Some(4));
    }
}
