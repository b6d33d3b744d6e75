//! What people and programs read, pinned: one file per answer and format. `UPDATE_GOLDEN=1 cargo test -p socialweb-ctl`
//! rewrites the files; the change is then read in review.
#![allow(clippy::unwrap_used)]

use serde::Serialize;
use socialweb_ctl::args::Format;
use socialweb_ctl::render;
use socialweb_wire::*;
use std::collections::BTreeMap;
use std::path::Path;

fn check(name: &str, text: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden").join(name);
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        std::fs::write(&path, text).unwrap();
    }
    let want = std::fs::read_to_string(&path).unwrap_or_default();
    assert_eq!(text, want, "{name} differs; if that is meant, run with UPDATE_GOLDEN=1");
}

/// All formats of one answer.
fn check_all<T: Serialize>(name: &str, value: &T, table: impl Fn(bool) -> String) {
    let formats = [(Format::Table, "txt"), (Format::Wide, "wide.txt"), (Format::Json, "json"), (Format::Yaml, "yaml")];
    for (format, ending) in formats {
        check(&format!("{name}.{ending}"), &render::whole(format, value, &table).unwrap());
    }
}

fn component(name: &str, rank: u16, state: &str) -> ComponentStatus {
    ComponentStatus {
        name: name.into(),
        rank,
        state: state.into(),
        detail: String::new(),
        pid: Some(4000 + u32::from(rank)),
        birth: Some(u64::from(rank)),
        since_s: 125,
        restarts: 0,
        last_exit: None,
        last_end: None,
        last_end_s: None,
        rss_bytes: Some(46 << 20),
        cpu_usec: Some(1_234_567),
        usage: Usage::default(),
        log: None,
    }
}

fn demo() -> GroupStatus {
    let mut kine = component("kine", 1, "Ready");
    kine.restarts = 2;
    kine.last_exit = Some(ExitStatus::Signal(9));
    let mut k3s = component("k3s", 2, "Starting");
    k3s.detail = "GET https://127.0.0.1:61000/readyz: connection refused".into();
    let mut bring_up = component("bring-up", 3, "Waiting");
    (bring_up.pid, bring_up.birth, bring_up.rss_bytes, bring_up.cpu_usec) = (None, None, None, None);
    bring_up.detail = "waits for k3s".into();
    GroupStatus {
        name: "demo".into(),
        phase: Phase::Starting,
        since_s: 12,
        reason: "waiting for k3s".into(),
        retry_in_s: None,
        generation: 3,
        declared: true,
        url: Some("https://127.0.0.1:61000".into()),
        kubeconfig: Some("/state/groups/demo/credentials/operator.kubeconfig".into()),
        ports: BTreeMap::from([("https".into(), 61000), ("ccm-secure-port".into(), 61002)]),
        last_start_ms: Some(4_260),
        datastore_bytes: Some(2 << 20),
        stop_deadline_s: 115,
        usage: Usage::default(),
        bounds: BTreeMap::new(),
        bounds_missing: Vec::new(),
        survivors: vec![Reaped {
            component: Some("kine".into()),
            pid: 99,
            start_time: 1,
            command: "kine".into(),
            by: ReapedBy::CgroupKill,
        }],
        components: vec![kine, k3s, bring_up],
    }
}

fn given_up() -> GroupStatus {
    GroupStatus {
        name: "other-tenant".into(),
        phase: Phase::Unavailable,
        since_s: 90_000,
        reason: "gave up: kine: no such file: /usr/bin/kine\x1b[31m".into(),
        retry_in_s: Some(600),
        declared: false,
        url: None,
        kubeconfig: None,
        last_start_ms: None,
        datastore_bytes: None,
        survivors: vec![],
        usage: Default::default(),
        bounds: Default::default(),
        bounds_missing: Vec::new(),
        components: vec![],
        ..demo()
    }
}

fn host(groups: Vec<GroupStatus>, warnings: Vec<String>) -> HostStatus {
    HostStatus {
        schema: SCHEMA,
        version: "0.1.0".into(),
        pid: 4242,
        started_at_ms: 1_700_000_000_000,
        uptime_s: 3_725,
        cgroups: "each run in its own cgroup below /sys/fs/cgroup/unified/socialweb; no controllers, so no limits"
            .into(),
        state_dir: "/state".into(),
        config: "/etc/socialweb/supervisor.toml".into(),
        server: "kube-server".into(),
        max_tenants: 3_520,
        rss_bytes: 9 << 20,
        dropped_log_lines: 12,
        dropped_events: 0,
        warnings,
        groups,
    }
}

#[test]
fn status_of_all_groups() {
    let warning = "clusters.d/b.toml:2:1: unknown key `acount`; did you mean `account`?".to_string();
    let status = host(vec![demo(), given_up()], vec![warning]);
    check_all("status", &status, |wide| render::status::host(&status, wide));
}

#[test]
fn a_group_that_is_not_to_run_has_nothing_to_count() {
    let mut parked = GroupStatus { phase: Phase::Parked, reason: "asked by the operator".into(), ..demo() };
    parked.components.iter_mut().for_each(|c| c.state = "Idle".into());
    let bare = GroupStatus { components: vec![], name: "bare".into(), ..parked.clone() };
    let all = host(vec![parked.clone(), bare], vec![]);
    let text = render::status::host(&all, false) + &render::status::group(&host(vec![parked], vec![]), false);
    check("status-parked.txt", &text);
    assert!(!text.contains("0/0") && !text.contains(" up, generation"), "{text}");
}

#[test]
fn a_group_whose_component_fails_says_why_at_its_first_failure() {
    let mut group = demo();
    group.reason = "kine is Backoff: waiting before the next try; last: exit status 3".into();
    group.components[0].state = "Backoff".into();
    assert!(render::status::host(&host(vec![group], vec![]), false).contains("exit status 3"));
}

#[test]
fn a_report_of_what_was_looked_at() {
    let checks = vec![
        Check::ok("daemon", "pid 42 answers"),
        Check::warn("controllers", "/sys/fs/cgroup/a lacks io", "install the drop-in"),
        Check::fail("linger", "off for kcp\x1b[2J", "`loginctl enable-linger kcp`"),
        Check::ok("fork-bomb", "43 processes gone, by cgroup kill").in_ms(1_234),
    ];
    let report = Report::new("the daemon, pid 42", checks);
    check_all("report", &report, |_| render::check::report(&report));
}

#[test]
fn status_of_one_group() {
    let status = host(vec![demo()], vec![]);
    check_all("status-group", &status, |wide| render::status::group(&status, wide));
}

#[test]
fn status_of_an_empty_host() {
    let status = HostStatus { server: String::new(), dropped_log_lines: 0, ..host(vec![], vec![]) };
    check("status-empty.txt", &render::status::host(&status, false));
}

fn process(pid: u32, ppid: u32, comm: &str) -> Process {
    Process { pid, ppid, comm: comm.into(), state: "S".into(), rss_bytes: 46 << 20, cpu_usec: 1_500_000 }
}

#[test]
fn the_tree_of_a_group() {
    let tree = GroupTree {
        group: "demo".into(),
        components: vec![ComponentTree {
            name: "k3s".into(),
            birth: Some(7),
            cgroup: Some("demo/k3s/7".into()),
            processes: vec![
                process(10, 1, "k3s"),
                process(12, 11, "pause\x1b[2J"),
                process(11, 10, "containerd"),
                process(13, 10, "sh"),
                // Two that name each other as parents: read in different moments.
                process(20, 21, "loop"),
                process(21, 20, "loop"),
            ],
        }],
        strays: vec![process(30, 1, "stray")],
    };
    check_all("tree", &tree, |_| render::tree::group(&tree));
}

#[test]
fn a_receipt() {
    let stopped = |component: &str, rank, rung, status| Stopped {
        end: None,
        component: component.into(),
        rank,
        birth: Some(4),
        pid: Some(42),
        status,
        rung,
        began: 100,
        gone: 340,
        others: vec![],
    };
    let mut k3s = stopped("k3s", 2, Rung::Kill, Some(ExitStatus::Signal(9)));
    k3s.others = vec![Reaped {
        component: Some("k3s".into()),
        pid: 43,
        start_time: 7,
        command: "containerd-shim".into(),
        by: ReapedBy::CgroupKill,
    }];
    let receipt = Receipt {
        schema: 1,
        group: "demo".into(),
        generation: 3,
        why: Why { why: "component-ended".into(), detail: Some("k3s".into()) },
        began: 100,
        ended: 1_350,
        elapsed_ms: 1_250,
        path_shut: true,
        components: vec![
            k3s,
            stopped("kine", 1, Rung::Signal, Some(ExitStatus::Code(0))),
            Stopped { pid: None, birth: None, ..stopped("openbao", 1, Rung::None, None) },
        ],
        strays: vec![Reaped {
            component: None,
            pid: 44,
            start_time: 0,
            command: "sh".into(),
            by: ReapedBy::MarkerKill,
        }],
        removed: true,
        written_at_ms: Some(1_700_000_000_000),
    };
    check_all("receipt", &receipt, |_| render::receipt::receipt(&receipt));
}

#[test]
fn a_plan() {
    let change = |component: Option<&str>, key: &str, line, effect| PlannedChange {
        component: component.map(str::to_string),
        key: key.into(),
        file: Some("clusters.d/demo.toml".into()),
        line,
        effect,
    };
    let plan = ReloadPlan {
        applied: true,
        groups: vec![
            GroupPlan {
                group: "demo".into(),
                effect: Effect::Restart,
                changes: vec![
                    change(Some("kine"), "env", Some(7), Effect::Restart),
                    change(Some("k3s"), "", None, Effect::Stop),
                    change(None, "retry", Some(9), Effect::InPlace),
                ],
            },
            GroupPlan { group: "new".into(), effect: Effect::Start, changes: vec![] },
            GroupPlan { group: "old".into(), effect: Effect::Park, changes: vec![] },
            GroupPlan { group: "quiet".into(), effect: Effect::StaysStopped, changes: vec![] },
        ],
        problems: vec![Problem {
            file: "clusters.d/b.toml".into(),
            line: Some(2),
            column: Some(1),
            severity: socialweb_wire::Severity::Error,
            message: "unknown key `acount`".into(),
            hint: "did you mean `account`?".into(),
        }],
    };
    check_all("plan", &plan, |_| render::plan::plan(&plan));
    let nothing = ReloadPlan { applied: true, groups: vec![], problems: vec![] };
    assert_eq!(render::plan::plan(&nothing), "nothing changed\n");
}

#[test]
fn streams_are_one_line_or_one_document_each() {
    let line = LogLine {
        time_ms: 1_700_000_000_123,
        group: "demo".into(),
        component: "kine".into(),
        birth: Some(4),
        level: Level::Warning,
        text: "slow \x1b[1mquery".into(),
    };
    let event = EventLine {
        seq: 7,
        time_ms: 1_700_000_000_123,
        group: Some("demo".into()),
        component: Some("kine".into()),
        birth: Some(4),
        level: Level::Error,
        text: "exit status 1".into(),
    };
    let bare = EventLine { group: None, component: None, level: Level::Info, text: "reloaded".into(), ..event.clone() };
    let mut all = String::new();
    for format in [Format::Table, Format::Wide, Format::Json, Format::Yaml] {
        all += &render::one_of_many(format, &line, || render::lines::log(&line, true)).unwrap();
        all += &render::one_of_many(format, &line, || render::lines::log(&line, false)).unwrap();
        for event in [&event, &bare] {
            all += &render::one_of_many(format, event, || render::lines::event(event)).unwrap();
        }
    }
    check("streams.txt", &all);
}
