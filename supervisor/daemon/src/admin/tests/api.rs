//! What each route does.

use super::world::{Rig, event_line, group, log_line};
use crate::admin::Change;
use reqwest::StatusCode;
use socialweb_core::{ComponentName, GroupName};
use socialweb_wire as wire;
use std::sync::Arc;

fn demo() -> GroupName {
    GroupName::new("demo").unwrap()
}

async fn error(answer: reqwest::Response) -> wire::ApiError {
    assert!(!answer.status().is_success(), "{answer:?}");
    let status = answer.status();
    let error: wire::ApiError = answer.json().await.unwrap();
    assert_eq!(status.as_u16(), error.code.status());
    error
}

/// Reads whole lines of a stream.
struct Lines {
    answer: reqwest::Response,
    rest: Vec<u8>,
}

impl Lines {
    fn of(answer: reqwest::Response) -> Lines {
        assert_eq!(answer.headers()["content-type"], wire::NDJSON);
        Lines { answer, rest: vec![] }
    }

    async fn next<T: serde::de::DeserializeOwned>(&mut self) -> Option<wire::StreamLine<T>> {
        loop {
            if let Some(end) = self.rest.iter().position(|b| *b == b'\n') {
                let line: Vec<u8> = self.rest.drain(..=end).collect();
                return Some(serde_json::from_slice(&line).unwrap());
            }
            self.rest.extend_from_slice(&self.answer.chunk().await.unwrap()?);
        }
    }

    async fn item<T: serde::de::DeserializeOwned + std::fmt::Debug>(&mut self) -> T {
        match self.next().await {
            Some(wire::StreamLine::Item(item)) => item,
            other => panic!("no item: {other:?}"),
        }
    }
}

#[tokio::test]
async fn status_is_what_the_loop_says() {
    let rig = Rig::new();
    rig.world().groups.insert("other".into(), group("other", wire::Phase::Parked));
    let all: wire::HostStatus = rig.get("/v1/status").await.json().await.unwrap();
    assert_eq!(all.groups.len(), 2);
    let one: wire::HostStatus = rig.get("/v1/status?group=other").await.json().await.unwrap();
    assert_eq!(one.groups, vec![group("other", wire::Phase::Parked)]);
}

#[tokio::test]
async fn names_are_checked_before_the_loop_is_asked() {
    let rig = Rig::new();
    let unknown = error(rig.get("/v1/status?group=nobody").await).await;
    assert_eq!((unknown.code, unknown.error.contains("nobody")), (wire::ErrorCode::NotFound, true));
    let asked = rig.world().commands;
    for path in [
        "/v1/status?group=..",
        "/v1/status?grup=demo",
        "/v1/groups/Demo/logs",
        "/v1/groups/demo/logs?component=..",
        "/v1/groups/demo/logs?tail=-1",
        "/v1/groups/..%2f../tree",
        "/v1/groups/%ff/tree",
    ] {
        assert_eq!(error(rig.get(path).await).await.code, wire::ErrorCode::BadRequest, "{path}");
    }
    assert_eq!(rig.world().commands, asked);
}

#[tokio::test]
async fn each_change_becomes_one_command() {
    let rig = Rig::new();
    let kine = ComponentName::new("kine").unwrap();
    let table = [
        ("/v1/groups/demo/start", Change::Start(demo())),
        ("/v1/groups/demo/stop", Change::Stop(demo())),
        ("/v1/groups/demo/restart", Change::Restart(demo(), None)),
        ("/v1/groups/demo/components/kine/restart", Change::Restart(demo(), Some(kine))),
        ("/v1/groups/demo/delete", Change::Delete(demo())),
        ("/v1/shutdown", Change::Shutdown),
    ];
    for (path, change) in table {
        let answer = rig.post(path).await;
        assert_eq!(answer.status(), StatusCode::ACCEPTED, "{path}");
        let accepted: wire::Accepted = answer.json().await.unwrap();
        assert_eq!(accepted.group.is_none(), change == Change::Shutdown);
        assert_eq!(rig.world().changes.pop(), Some(change));
    }
    assert!(rig.world().changes.is_empty());
    assert_eq!(error(rig.post("/v1/groups/nobody/start").await).await.code, wire::ErrorCode::NotFound);
}

#[tokio::test]
async fn a_change_is_never_made_by_a_get() {
    let rig = Rig::new();
    for path in ["/v1/groups/demo/stop", "/v1/shutdown", "/v1/reload", "/v1/groups/demo/components/kine/restart"] {
        assert_eq!(error(rig.get(path).await).await.code, wire::ErrorCode::WrongMethod, "{path}");
    }
    assert_eq!(error(rig.post("/v1/status").await).await.code, wire::ErrorCode::WrongMethod);
    assert_eq!(error(rig.post("/v1/groups/demo/explode").await).await.code, wire::ErrorCode::NotFound);
    assert_eq!(error(rig.get("/v2/status").await).await.code, wire::ErrorCode::NotFound);
    assert_eq!(rig.world().commands, 0);
}

#[tokio::test]
async fn a_dry_run_is_told_from_a_reload() {
    let rig = Rig::new();
    for (path, applied) in
        [("/v1/reload", true), ("/v1/reload?dry_run=true", false), ("/v1/reload?dry_run=false", true)]
    {
        let plan: wire::ReloadPlan = rig.post(path).await.json().await.unwrap();
        assert_eq!(plan.applied, applied, "{path}");
    }
}

#[tokio::test]
async fn tree_and_receipts_are_asked_of_a_known_group() {
    let rig = Rig::new();
    let tree: wire::GroupTree = rig.get("/v1/groups/demo/tree").await.json().await.unwrap();
    assert!(tree.is_empty());
    let receipts: Vec<wire::Receipt> = rig.get("/v1/groups/demo/receipts").await.json().await.unwrap();
    assert!(receipts.is_empty());
    assert_eq!(error(rig.get("/v1/groups/nobody/receipts").await).await.code, wire::ErrorCode::NotFound);
}

#[tokio::test]
async fn metrics_are_prometheus_text() {
    let rig = Rig::new();
    let answer = rig.get("/metrics").await;
    assert_eq!(answer.headers()["content-type"], "text/plain; version=0.0.4");
    let text = answer.text().await.unwrap();
    for line in [
        "socialweb_group_phase{group=\"demo\",phase=\"Ready\"} 1",
        "socialweb_group_last_start_seconds{group=\"demo\"} 4.2",
        "socialweb_component_up{group=\"demo\",component=\"kine\"} 1",
        "socialweb_component_restarts_total{group=\"demo\",component=\"kine\"} 1",
        "socialweb_component_cpu_seconds_total{group=\"demo\",component=\"kine\"} 1.5",
        "socialweb_log_lines_dropped_total 2",
        "socialweb_resident_memory_bytes 4096",
        "socialweb_groups{phase=\"Parked\"} 0",
        "socialweb_admin_connections_total 1",
    ] {
        assert!(text.lines().any(|l| l == line), "{line} is missing in\n{text}");
    }
    for line in text.lines().filter(|l| !l.starts_with('#')) {
        let (name, value) = line.rsplit_once(' ').unwrap();
        assert!(name.starts_with("socialweb_") && value.parse::<f64>().is_ok(), "{line}");
    }
}

#[tokio::test]
async fn a_watch_begins_with_what_is_and_goes_on_with_what_changes() {
    let rig = Rig::new();
    let mut watch = Lines::of(rig.get("/v1/watch?group=demo").await);
    assert_eq!(watch.item::<wire::HostStatus>().await.groups[0].phase, wire::Phase::Ready);
    rig.world().groups.insert("demo".into(), group("demo", wire::Phase::Stopping));
    rig.changed.notify_one();
    assert_eq!(watch.item::<wire::HostStatus>().await.groups[0].phase, wire::Phase::Stopping);
    rig.world().groups.clear();
    rig.changed.notify_one();
    let last = watch.next::<wire::HostStatus>().await;
    assert!(matches!(last, Some(wire::StreamLine::Error(e)) if e.code == wire::ErrorCode::NotFound));
    assert_eq!(watch.next::<wire::HostStatus>().await, None);
    assert_eq!(error(rig.get("/v1/watch?group=nobody").await).await.code, wire::ErrorCode::NotFound);
}

#[tokio::test]
async fn many_changes_make_few_statuses() {
    let rig = Rig::new();
    let mut watch = Lines::of(rig.get("/v1/watch").await);
    watch.item::<wire::HostStatus>().await;
    let asked = rig.world().commands;
    for _ in 0..1_000 {
        rig.changed.notify_one();
        tokio::task::yield_now().await;
    }
    watch.item::<wire::HostStatus>().await;
    assert!(rig.world().commands - asked <= 3, "{} statuses", rig.world().commands - asked);
}

#[tokio::test]
async fn logs_are_the_past_then_the_present_of_what_was_asked_for() {
    let rig = Rig::new();
    let (past, log) = {
        let mut world = rig.world();
        world.past =
            vec![log_line("demo", "kine", "one"), log_line("demo", "k3s", "two"), log_line("demo", "kine", "three")];
        (world.past.clone(), world.log.clone())
    };
    let text = rig.get("/v1/groups/demo/logs?tail=2").await.text().await.unwrap();
    assert_eq!(text.lines().count(), 2);
    let mut kine = Lines::of(rig.get("/v1/groups/demo/logs?component=kine&follow=true").await);
    for want in [&past[0], &past[2]] {
        assert_eq!(kine.item::<wire::LogLine>().await, **want);
    }
    for line in [log_line("other", "kine", "x"), log_line("demo", "k3s", "y"), log_line("demo", "kine", "four")] {
        log.send(line).unwrap();
    }
    assert_eq!(kine.item::<wire::LogLine>().await.text, "four");
    assert_eq!(error(rig.get("/v1/groups/nobody/logs").await).await.code, wire::ErrorCode::NotFound);
}

#[tokio::test]
async fn events_of_one_group_leave_the_others_out() {
    let rig = Rig::new();
    let all = rig.get("/v1/events").await.text().await.unwrap();
    assert_eq!(all.lines().count(), 2);
    let mut demo = Lines::of(rig.get("/v1/events?group=demo&follow=true").await);
    assert_eq!(demo.item::<wire::EventLine>().await.seq, 2);
    let events = rig.world().events.clone();
    events.send(event_line(3, Some("other"))).unwrap();
    events.send(event_line(4, None)).unwrap();
    events.send(event_line(5, Some("demo"))).unwrap();
    assert_eq!(demo.item::<wire::EventLine>().await.seq, 5);
}

#[tokio::test]
async fn a_follower_that_lags_is_told_how_much_it_missed() {
    let rig = Rig::new();
    let answer = rig.get("/v1/groups/demo/logs?follow=true").await;
    let log = rig.world().log.clone();
    // The connection's task does not run in between: the channel of 64 overflows, whatever the socket's buffer takes.
    for n in 0..100 {
        log.send(log_line("demo", "kine", n.to_string())).unwrap();
    }
    let mut lines = Lines::of(answer);
    let first = lines.next::<wire::LogLine>().await;
    assert_eq!(first, Some(wire::StreamLine::Missed(wire::Missed { missed: 36 })));
    assert_eq!(lines.item::<wire::LogLine>().await.text, "36");
}

#[tokio::test]
async fn a_follower_that_hangs_up_gives_its_place_back() {
    let rig = Rig::new();
    let streams = || rig.handle.counters.streams.load(std::sync::atomic::Ordering::Relaxed);
    let quiet = rig.get("/v1/groups/demo/logs?follow=true").await;
    let watching = rig.get("/v1/watch").await;
    assert_eq!(streams(), 2);
    drop((quiet, watching));
    while streams() > 0 {
        tokio::time::sleep(std::time::Duration::from_millis(5)).await;
    }
}

#[tokio::test]
async fn a_loop_that_ends_is_a_503_that_says_so() {
    let rig = Rig::new();
    rig.world().mute = true;
    let error = error(rig.get("/v1/status").await).await;
    assert_eq!((error.code, error.error.as_str()), (wire::ErrorCode::Busy, "the daemon is going down"));
    assert_eq!(rig.get("/healthz").await.status(), 200);
}

#[tokio::test]
async fn the_stream_of_a_daemon_that_ends_ends() {
    let rig = Rig::new();
    let mut lines = Lines::of(rig.get("/v1/groups/demo/logs?follow=true").await);
    let log = std::mem::replace(&mut rig.world().log, tokio::sync::broadcast::channel(1).0);
    log.send(log_line("demo", "kine", "last words")).unwrap();
    drop(log);
    assert_eq!(lines.item::<wire::LogLine>().await.text, "last words");
    assert_eq!(lines.next::<wire::LogLine>().await, None);
    let _keep: Arc<_> = rig.world.clone();
}
