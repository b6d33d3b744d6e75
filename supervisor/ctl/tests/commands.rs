//! The verbs against a daemon of a few lines: what is asked, what is waited for, and how a command ends.
#![allow(clippy::unwrap_used)]

use clap::Parser;
use serde_json::{Value, json};
use socialweb_ctl::{Ctl, CtlError, Exit, commands};
use std::collections::VecDeque;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{UnixListener, UnixStream};

/// What the daemon answers to a request line, such as "GET /v1/status".
#[derive(Clone)]
enum Answer {
    /// A status and a body.
    Body(u16, Value),
    /// These lines, then the end.
    Lines(Vec<Value>),
    /// These lines, then silence.
    Hanging(Vec<Value>),
    /// A stream that is cut in the middle of a line.
    Cut,
    /// Accepts, and after the next watch nobody listens any more.
    Last(Value),
}

#[derive(Default)]
struct Script {
    answers: VecDeque<(String, Answer)>,
    asked: Vec<String>,
}

struct Daemon {
    dir: tempfile::TempDir,
    script: Arc<Mutex<Script>>,
}

impl Daemon {
    /// Answers in order; each request must be the one that is expected next.
    fn new(answers: Vec<(&str, Answer)>) -> Daemon {
        let _ = rustls::crypto::ring::default_provider().install_default();
        let dir = tempfile::tempdir().unwrap();
        let listener = UnixListener::bind(dir.path().join("admin.sock")).unwrap();
        let answers = answers.into_iter().map(|(line, answer)| (line.to_string(), answer)).collect();
        let script = Arc::new(Mutex::new(Script { answers, asked: vec![] }));
        let shared = script.clone();
        tokio::spawn(async move {
            let mut ending = false;
            while let Ok((stream, _)) = listener.accept().await {
                ending |= serve(stream, &shared).await;
                if ending && shared.lock().unwrap().answers.is_empty() {
                    return;
                }
            }
        });
        Daemon { dir, script }
    }

    fn socket(&self) -> PathBuf {
        self.dir.path().join("admin.sock")
    }

    async fn run(&self, line: &str) -> Result<Exit, CtlError> {
        let socket = self.socket();
        let argv = ["ctl", "--socket", socket.to_str().unwrap()].into_iter().chain(line.split(' '));
        commands::run(Ctl::try_parse_from(argv).unwrap()).await
    }

    /// Runs a command and returns its exit code and message.
    async fn check(&self, line: &str, exit: Exit) -> String {
        let (seen, message) = match self.run(line).await {
            Ok(seen) => (seen, String::new()),
            Err(error) => (error.exit(), error.to_string()),
        };
        let script = self.script.lock().unwrap();
        assert_eq!(seen, exit, "{line}: {message}; asked {:?}", script.asked);
        assert!(script.answers.is_empty(), "{line} did not ask for {:?}", script.answers.front().map(|(line, _)| line));
        message
    }
}

/// Serves one request; true when it was the last word.
async fn serve(mut stream: UnixStream, script: &Mutex<Script>) -> bool {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        match stream.read_u8().await {
            Ok(byte) => head.push(byte),
            // ctl only looked whether somebody is there.
            Err(_) => return false,
        }
    }
    let head = String::from_utf8(head).unwrap();
    let line = head.lines().next().unwrap().trim_end_matches(" HTTP/1.1").to_string();
    let answer = {
        let mut script = script.lock().unwrap();
        script.asked.push(line.clone());
        match script.answers.pop_front() {
            Some((want, answer)) if want == line => answer,
            other => Answer::Body(
                500,
                json!({"code": "failed", "error": format!("asked {line}, expected {:?}", other.map(|o| o.0))}),
            ),
        }
    };
    let mut last = false;
    match answer {
        Answer::Body(status, body) => respond(&mut stream, status, &body).await,
        Answer::Last(body) => {
            last = true;
            respond(&mut stream, 202, &body).await;
        }
        Answer::Lines(lines) => {
            begin(&mut stream).await;
            // Two lines in one piece, and a line in two: pieces mean nothing.
            let text: String = lines.iter().map(|line| format!("{line}\n")).collect();
            let (front, back) = text.split_at(text.len() / 3);
            for piece in [front, back] {
                chunk(&mut stream, piece).await;
            }
            let _ = stream.write_all(b"0\r\n\r\n").await;
        }
        Answer::Hanging(lines) => {
            begin(&mut stream).await;
            for line in lines {
                chunk(&mut stream, &format!("{line}\n")).await;
            }
            tokio::spawn(async move { stream.read_u8().await });
        }
        Answer::Cut => {
            begin(&mut stream).await;
            chunk(&mut stream, "{\"half\":").await;
        }
    }
    last
}

async fn respond(stream: &mut UnixStream, status: u16, body: &Value) {
    let body = body.to_string();
    let head = format!("HTTP/1.1 {status} X\r\ncontent-length: {}\r\nconnection: close\r\n\r\n", body.len());
    let _ = stream.write_all((head + &body).as_bytes()).await;
}

async fn begin(stream: &mut UnixStream) {
    let _ = stream.write_all(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\nconnection: close\r\n\r\n").await;
}

async fn chunk(stream: &mut UnixStream, text: &str) {
    let _ = stream.write_all(format!("{:x}\r\n{text}\r\n", text.len()).as_bytes()).await;
}

fn status(phase: &str, generation: u64) -> Value {
    let group = json!({
        "name": "demo", "phase": phase, "since_s": 1, "reason": "the reason", "retry_in_s": null, "generation": generation,
        "declared": true, "url": "https://127.0.0.1:61000", "kubeconfig": null, "ports": {}, "last_start_ms": null,
        "stop_deadline_s": 5, "survivors": [],
        "components": [{"name": "kine", "rank": 1, "state": "Ready", "detail": "", "pid": 7, "birth": generation,
            "since_s": 1, "restarts": 0, "last_exit": null, "rss_bytes": null, "cpu_usec": null}]
    });
    host(json!([group]))
}

fn host(groups: Value) -> Value {
    json!({
        "schema": 1, "version": "0.1.0", "pid": 1, "started_at_ms": 0, "uptime_s": 1, "cgroups": "none", "state_dir": "/s",
        "config": "/c", "server": "", "max_tenants": 1, "rss_bytes": 1, "dropped_log_lines": 0, "dropped_events": 0,
        "warnings": [], "groups": groups
    })
}

fn accepted(operation: &str) -> Answer {
    let component = (operation == "restart-component").then_some("kine");
    let group = (operation != "shutdown").then_some("demo");
    Answer::Body(
        202,
        json!({"operation": operation, "group": group, "component": component, "generation": 3, "birth": 3,
               "phase": "Stopping", "note": ""}),
    )
}

fn error(status: u16, code: &str, text: &str) -> Answer {
    Answer::Body(status, json!({"code": code, "error": text, "hint": "the hint"}))
}

const WATCH: &str = "GET /v1/watch?group=demo";

#[tokio::test]
async fn without_a_daemon_the_code_is_3_and_the_message_says_how_to_start_one() {
    let dir = tempfile::tempdir().unwrap();
    let stale = dir.path().join("stale.sock");
    drop(UnixListener::bind(&stale).unwrap());
    for socket in [stale, dir.path().join("absent.sock")] {
        let ctl = Ctl::try_parse_from(["ctl", "--socket", socket.to_str().unwrap(), "status"]).unwrap();
        let error = commands::run(ctl).await.unwrap_err();
        assert_eq!((error.exit(), error.exit().code()), (Exit::NotReachable, 3), "{error}");
        let text = error.to_string();
        assert!(text.contains(socket.to_str().unwrap()) && text.contains("systemctl --user start"), "{text}");
    }
}

#[tokio::test]
async fn a_refusal_is_told_with_its_hint() {
    let daemon = Daemon::new(vec![("GET /v1/status?group=nobody", error(404, "not-found", "there is no such group"))]);
    let message = daemon.check("status nobody", Exit::Failed).await;
    assert_eq!(message, "there is no such group; the hint");
}

#[tokio::test]
async fn an_answer_that_is_no_api_is_told_as_such() {
    let daemon = Daemon::new(vec![("GET /v1/status", Answer::Body(200, json!({"hello": "world"})))]);
    assert!(daemon.check("status", Exit::Failed).await.contains("same version"));
    let daemon = Daemon::new(vec![("GET /v1/status", Answer::Body(502, json!("bad gateway")))]);
    assert!(daemon.check("status", Exit::Failed).await.contains("502"));
}

#[tokio::test]
async fn a_start_waits_until_it_is_seen_ready() {
    let lines = vec![status("Sweeping", 4), status("Starting", 4), status("Ready", 4)];
    for ending in [Answer::Lines(lines.clone()), Answer::Hanging(lines)] {
        let daemon = Daemon::new(vec![("POST /v1/groups/demo/start", accepted("start")), (WATCH, ending)]);
        daemon.check("start demo", Exit::Done).await;
    }
}

#[tokio::test]
async fn a_restart_is_not_done_by_the_old_generation() {
    let lines = vec![status("Ready", 3), status("Stopping", 3), status("Starting", 4), status("Ready", 4)];
    let steps = vec![("POST /v1/groups/demo/restart", accepted("restart")), (WATCH, Answer::Lines(lines))];
    Daemon::new(steps).check("restart demo", Exit::Done).await;
    let only_old = Answer::Hanging(vec![status("Ready", 3)]);
    let daemon = Daemon::new(vec![("POST /v1/groups/demo/restart", accepted("restart")), (WATCH, only_old)]);
    daemon.check("restart demo --timeout 100ms", Exit::TimedOut).await;
}

#[tokio::test]
async fn a_component_restarts_alone() {
    let steps = vec![
        ("POST /v1/groups/demo/components/kine/restart", accepted("restart-component")),
        (WATCH, Answer::Lines(vec![status("Ready", 3), status("Ready", 4)])),
    ];
    Daemon::new(steps).check("restart demo/kine", Exit::Done).await;
}

#[tokio::test]
async fn a_start_that_is_given_up_fails_with_the_reason() {
    let steps = vec![
        ("POST /v1/groups/demo/start", accepted("start")),
        (WATCH, Answer::Lines(vec![status("Starting", 4), status("Unavailable", 4)])),
    ];
    let message = Daemon::new(steps).run("start demo").await;
    assert_eq!(message.unwrap(), Exit::Failed);
}

#[tokio::test]
async fn a_wait_ends_in_time_with_code_4() {
    let steps =
        vec![("POST /v1/groups/demo/start", accepted("start")), (WATCH, Answer::Hanging(vec![status("Starting", 4)]))];
    let daemon = Daemon::new(steps);
    daemon.check("start demo --timeout 100ms", Exit::TimedOut).await;
    assert_eq!(Exit::TimedOut.code(), 4);
}

#[tokio::test]
async fn a_daemon_that_dies_during_a_wait_is_code_3() {
    let steps = vec![("POST /v1/groups/demo/start", accepted("start")), (WATCH, Answer::Cut)];
    Daemon::new(steps).check("start demo", Exit::NotReachable).await;
}

#[tokio::test]
async fn without_waiting_nothing_is_watched() {
    let steps = vec![("POST /v1/groups/demo/stop", accepted("stop"))];
    Daemon::new(steps).check("stop demo --no-wait", Exit::Done).await;
}

#[tokio::test]
async fn what_is_done_when_its_turn_comes_is_seen_done_though_the_time_is_up() {
    let steps =
        vec![("POST /v1/groups/demo/stop", accepted("stop")), (WATCH, Answer::Hanging(vec![status("Parked", 3)]))];
    Daemon::new(steps).check("stop demo --timeout 0s", Exit::Done).await;
}

#[tokio::test]
async fn what_was_taken_on_is_asked_for_where_there_is_no_place_to_follow_it() {
    let busy = || error(503, "busy", "too many logs, events and watches are being followed");
    let ask = "GET /v1/status?group=demo";
    let steps = vec![
        ("POST /v1/groups/demo/stop", accepted("stop")),
        (WATCH, busy()),
        (ask, Answer::Body(200, status("Stopping", 3))),
        (ask, busy()),
        (ask, Answer::Body(200, status("Parked", 3))),
    ];
    Daemon::new(steps).check("stop demo", Exit::Done).await;
}

#[tokio::test]
async fn trouble_with_one_group_does_not_keep_the_others_from_being_stopped() {
    let steps = vec![
        ("POST /v1/groups/nobody/stop", error(404, "not-found", "there is no such group")),
        ("POST /v1/groups/demo/stop", accepted("stop")),
        (WATCH, Answer::Lines(vec![status("Stopping", 3), status("Parked", 3)])),
    ];
    Daemon::new(steps).check("stop nobody demo", Exit::Failed).await;
}

#[tokio::test]
async fn all_means_the_groups_that_the_daemon_names() {
    let steps = vec![
        ("GET /v1/status", Answer::Body(200, status("Ready", 3))),
        ("POST /v1/groups/demo/stop", accepted("stop")),
        (WATCH, Answer::Lines(vec![status("Parked", 3)])),
    ];
    Daemon::new(steps).check("stop --all", Exit::Done).await;
}

#[tokio::test]
async fn a_delete_is_done_when_the_daemon_does_not_know_the_group() {
    let gone = json!({"code": "not-found", "error": "there is no group"});
    let steps = vec![
        ("POST /v1/groups/demo/delete", accepted("delete")),
        (WATCH, Answer::Lines(vec![status("Stopping", 3), gone])),
    ];
    Daemon::new(steps).check("delete demo --yes", Exit::Done).await;
    let at_once = vec![
        ("POST /v1/groups/demo/delete", accepted("delete")),
        (WATCH, error(404, "not-found", "there is no group")),
    ];
    Daemon::new(at_once).check("delete demo --yes", Exit::Done).await;
    let declared = vec![("POST /v1/groups/demo/delete", error(409, "conflict", "demo is still declared"))];
    Daemon::new(declared).check("delete demo --yes", Exit::Failed).await;
}

#[tokio::test]
async fn wrong_usage_is_told_without_a_daemon() {
    for line in [&["ctl", "start", "demo/kine"][..], &["ctl", "stop", "demo:kine"]] {
        let error = commands::run(Ctl::try_parse_from(line).unwrap()).await.unwrap_err();
        assert_eq!(error.exit(), Exit::Usage);
        assert!(error.to_string().contains("ctl restart"), "{error}");
    }
}

#[tokio::test]
async fn a_shutdown_is_done_when_nobody_answers_any_more() {
    let last = json!({"operation": "shutdown", "group": null, "component": null, "generation": 0, "birth": null,
                      "phase": null, "note": ""});
    let steps = vec![
        ("POST /v1/shutdown", Answer::Last(last)),
        ("GET /v1/watch", Answer::Lines(vec![status("Stopping", 3), status("Parked", 3)])),
    ];
    Daemon::new(steps).check("shutdown", Exit::Done).await;
    let stays = vec![
        ("POST /v1/shutdown", accepted("shutdown")),
        ("GET /v1/watch", Answer::Hanging(vec![status("Stopping", 3)])),
    ];
    // Long enough that a busy machine has asked by then.
    Daemon::new(stays).check("shutdown --timeout 2s", Exit::TimedOut).await;
}

#[tokio::test]
async fn logs_and_events_ask_for_what_was_named() {
    let line =
        json!({"time_ms": 1, "group": "demo", "component": "kine", "birth": 1, "level": "info", "text": "hello"});
    let steps = vec![(
        "GET /v1/groups/demo/logs?component=kine&follow=false&tail=5",
        Answer::Lines(vec![line, json!({"missed": 3})]),
    )];
    Daemon::new(steps).check("logs demo/kine -n 5", Exit::Done).await;
    let steps = vec![("GET /v1/events?follow=true&group=demo&tail=100", Answer::Lines(vec![]))];
    // A stream that is followed ends only because the daemon does.
    Daemon::new(steps).check("events -f demo", Exit::NotReachable).await;
}

#[tokio::test]
async fn names_with_slashes_stay_one_part_of_the_path() {
    let steps = vec![("GET /v1/groups/..%2F../receipts", error(400, "bad-request", "no label"))];
    Daemon::new(steps).check("receipt ../..", Exit::Failed).await;
}

#[tokio::test]
async fn a_reload_with_problems_fails_after_showing_the_plan() {
    let problem = json!({"file": "f", "line": 1, "column": 1, "message": "bad", "hint": ""});
    let plan = |problems: Value| Answer::Body(200, json!({"applied": true, "groups": [], "problems": problems}));
    let steps = vec![("POST /v1/reload?dry_run=true", plan(json!([problem])))];
    Daemon::new(steps).check("reload --dry-run", Exit::Failed).await;
    let steps = vec![("POST /v1/reload?dry_run=false", plan(json!([])))];
    Daemon::new(steps).check("reload", Exit::Done).await;
}

#[tokio::test]
async fn a_group_never_stopped_has_no_receipt() {
    let steps = vec![("GET /v1/groups/demo/receipts", Answer::Body(200, json!([])))];
    assert!(Daemon::new(steps).check("receipt demo", Exit::Failed).await.contains("never stopped"));
}

#[tokio::test]
async fn the_tree_of_all_asks_for_each_group() {
    let tree = json!({"group": "demo", "components": [], "strays": []});
    let all = ("GET /v1/status", Answer::Body(200, status("Ready", 3)));
    let steps = vec![all, ("GET /v1/groups/demo/tree", Answer::Body(200, tree))];
    Daemon::new(steps).check("tree -o json", Exit::Done).await;
}
