use super::*;
use socialweb_wire::ComponentStatus;
use std::collections::BTreeMap;

fn accepted(operation: Operation) -> Accepted {
    let component = (operation == Operation::RestartComponent).then(|| "kine".to_string());
    Accepted {
        operation,
        group: Some("demo".into()),
        component,
        generation: 3,
        birth: Some(5),
        restarts: 0,
        phase: None,
        note: String::new(),
    }
}

fn component(state: &str, birth: Option<u64>) -> ComponentStatus {
    ComponentStatus {
        name: "kine".into(),
        rank: 1,
        state: state.into(),
        detail: if state == "Ready" { String::new() } else { "no answer".into() },
        pid: None,
        birth,
        since_s: 0,
        restarts: 0,
        last_exit: None,
        last_end: None,
        last_end_s: None,
        rss_bytes: None,
        cpu_usec: None,
        usage: Default::default(),
        log: None,
    }
}

fn group(phase: Phase, generation: u64, kine: ComponentStatus) -> GroupStatus {
    GroupStatus {
        name: "demo".into(),
        phase,
        since_s: 1,
        reason: if phase == Phase::Ready { String::new() } else { "the reason".into() },
        retry_in_s: None,
        generation,
        declared: true,
        url: None,
        kubeconfig: None,
        ports: BTreeMap::new(),
        last_start_ms: None,
        datastore_bytes: None,
        stop_deadline_s: 0,
        survivors: vec![],
        usage: Default::default(),
        bounds: Default::default(),
        bounds_missing: Vec::new(),
        components: vec![kine],
    }
}

/// One letter per verdict: d(one), f(ailed), w(aiting).
fn letter(verdict: &Verdict) -> char {
    match verdict {
        Verdict::Done => 'd',
        Verdict::Failed(_) => 'f',
        Verdict::Waiting(_) => 'w',
    }
}

/// The verdict on each phase, in the order of [`Phase::ALL`]:
/// Absent Sweeping Starting Ready Degraded Draining Stopping Parked Unavailable.
fn check_phases(operation: Operation, generation: u64, want: &str) {
    let mut goal = Goal::of(&accepted(operation)).unwrap();
    let phases = Phase::ALL.map(|phase| group(phase, generation, component("Ready", Some(5))));
    let seen: String = phases.iter().map(|group| letter(&goal.judge(Some(group)))).collect();
    assert_eq!(seen, want, "{operation:?}");
}

#[test]
fn a_start_is_done_when_ready_and_failed_when_given_up() {
    check_phases(Operation::Start, 3, "fwwdwwwff");
}

#[test]
fn a_restart_is_not_done_by_the_readiness_of_before() {
    check_phases(Operation::Restart, 3, "fwwwwwwff");
    check_phases(Operation::Restart, 4, "fwwdwwwff");
}

#[test]
fn a_restart_of_what_was_down_is_done_by_the_start_that_it_is() {
    let mut goal = Goal::of(&Accepted { phase: Some(Phase::Sweeping), ..accepted(Operation::Restart) }).unwrap();
    assert_eq!(letter(&goal.judge(Some(&group(Phase::Ready, 3, component("Ready", Some(5)))))), 'd');
}

#[test]
fn a_stop_is_done_when_parked_and_failed_when_somebody_starts_it_again() {
    check_phases(Operation::Stop, 3, "dffffwwdf");
}

#[test]
fn a_delete_is_done_when_nothing_is_known_of_the_group() {
    check_phases(Operation::Delete, 3, "dffffwwwf");
}

#[test]
fn a_group_that_vanishes_ends_each_wait() {
    let gone = |operation| letter(&Goal::of(&accepted(operation)).unwrap().judge(None));
    let operations =
        [Operation::Start, Operation::Stop, Operation::Restart, Operation::RestartComponent, Operation::Delete];
    assert_eq!(operations.map(gone), ['f', 'd', 'f', 'f', 'd']);
}

fn check_component(steps: &[(&str, Option<u64>)], want: &str) {
    let mut goal = Goal::of(&accepted(Operation::RestartComponent)).unwrap();
    let judge = |(state, birth): &(&str, Option<u64>)| {
        letter(&goal.judge(Some(&group(Phase::Degraded, 3, component(state, *birth)))))
    };
    assert_eq!(steps.iter().map(judge).collect::<String>(), want, "{steps:?}");
}

#[test]
fn a_component_restart_is_done_by_a_later_run_only() {
    check_component(&[("Ready", Some(5))], "w");
    check_component(&[("Ready", Some(6))], "d");
    check_component(&[("Stopping", Some(5)), ("Backoff", None), ("Starting", Some(6)), ("Ready", Some(6))], "wwwd");
    check_component(&[("Starting", Some(6)), ("Failed", None)], "wf");
    check_component(&[("Wedged", Some(5))], "f");
}

#[test]
fn a_one_shot_is_done_again_once_it_was_seen_undone() {
    check_component(&[("Starting", None), ("Done", None)], "wd");
    check_component(&[("Done", None)], "w");
}

#[test]
fn a_component_restart_ends_when_its_group_goes_down() {
    let mut goal = Goal::of(&accepted(Operation::RestartComponent)).unwrap();
    assert_eq!(letter(&goal.judge(Some(&group(Phase::Parked, 3, component("Idle", None))))), 'f');
}

#[test]
fn a_failure_says_why_and_when_it_is_tried_again() {
    let mut goal = Goal::of(&accepted(Operation::Start)).unwrap();
    let gave_up = GroupStatus { retry_in_s: Some(60), ..group(Phase::Unavailable, 3, component("Failed", None)) };
    let want = "demo is Unavailable: the reason; it is tried again in 60 s";
    assert_eq!(goal.judge(Some(&gave_up)), Verdict::Failed(want.into()));
}

#[test]
fn what_is_waited_for_names_the_reason_or_the_component() {
    let mut starting = group(Phase::Starting, 3, component("Starting", Some(6)));
    assert_eq!(waiting(&starting), "demo is Starting, 0 of 1 component up; the reason");
    starting.reason.clear();
    assert_eq!(waiting(&starting), "demo is Starting, 0 of 1 component up; kine is Starting: no answer");
}

#[test]
fn a_shutdown_names_what_is_still_up() {
    let stopping = group(Phase::Stopping, 3, component("Stopping", Some(5)));
    let parked = group(Phase::Parked, 3, component("Idle", None));
    let text = going_down(&[parked.clone(), stopping]);
    assert_eq!(text, "1 of 2 groups is not down yet; demo is Stopping, 1 of 1 component still there; the reason");
    assert_eq!(going_down(&[parked]), "all groups are down; the daemon ends");
}
