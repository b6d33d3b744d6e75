//! What a peer may cost.

use super::world::{Rig, anyone, group, log_line, read_all};
use crate::admin::Limits;
use socialweb_wire::Phase;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

const STATUS: &[u8] = b"GET /v1/status HTTP/1.1\r\nhost: a\r\n\r\n";

fn tight() -> Limits {
    Limits {
        connections: 2,
        streams: 1,
        head: Duration::from_millis(200),
        whole: Duration::from_millis(600),
        ..Limits::default()
    }
}

/// The same places, and all the time that a slow machine takes.
fn few() -> Limits {
    let long = Duration::from_secs(600);
    Limits { head: long, whole: long, ..tight() }
}

/// A world whose status does not fit into a socket's buffer.
fn crowd(rig: &Rig) {
    let mut world = rig.world();
    for n in 0..3_000 {
        let name = format!("g{n}");
        world.groups.insert(name.clone(), group(&name, Phase::Ready));
    }
}

#[tokio::test]
async fn a_head_that_does_not_arrive_ends_the_connection() {
    // Long before the limit of the whole.
    let rig = Rig::with(Limits { whole: Duration::from_secs(600), ..tight() }, anyone());
    for begun in [&b""[..], b"GET /v1/sta", b"GET /v1/status HTTP/1.1\r\nhost: a\r\n"] {
        let mut stream = rig.connect().await;
        stream.write_all(begun).await.unwrap();
        let answer = read_all(&mut stream).await;
        assert!(!answer.contains(" 200 "), "{answer}");
    }
    assert_eq!(rig.world().commands, 0);
    rig.is_well().await;
}

#[tokio::test]
async fn a_body_that_does_not_arrive_ends_the_connection() {
    let rig = Rig::with(tight(), anyone());
    let mut stream = rig.connect().await;
    stream.write_all(b"POST /v1/shutdown HTTP/1.1\r\nhost: a\r\ncontent-length: 10\r\n\r\n123").await.unwrap();
    let answer = read_all(&mut stream).await;
    assert!(!answer.contains(" 202 "), "{answer}");
    assert!(rig.world().changes.is_empty());
}

#[tokio::test]
async fn a_peer_that_does_not_read_its_answer_loses_its_place() {
    let rig = Rig::with(tight(), anyone());
    crowd(&rig);
    let mut idle = (rig.connect().await, rig.connect().await);
    idle.0.write_all(STATUS).await.unwrap();
    idle.1.write_all(STATUS).await.unwrap();
    rig.is_well().await;
}

#[tokio::test]
async fn who_comes_too_many_is_turned_away_at_once() {
    let rig = Rig::with(few(), anyone());
    let held = (rig.connect().await, rig.connect().await);
    let answer = rig.raw(b"").await;
    assert!(answer.starts_with("HTTP/1.1 503 ") && answer.contains("too many admin connections"), "{answer}");
    drop(held);
    rig.is_well().await;
}

#[tokio::test]
async fn followers_cannot_lock_short_requests_out() {
    let rig = Rig::with(few(), anyone());
    let follower = rig.get("/v1/watch").await;
    assert_eq!(follower.status(), 200);
    for path in ["/v1/watch", "/v1/events?follow=true", "/v1/groups/demo/logs"] {
        let refused = rig.get(path).await;
        assert_eq!(refused.status(), 503, "{path}");
        // Read to its end, its connection serves the next one; it would hold a place for a moment otherwise.
        refused.bytes().await.unwrap();
    }
    assert_eq!(rig.get("/v1/status").await.status(), 200);
    drop(follower);
}

#[tokio::test]
async fn a_stream_may_outlive_the_time_of_a_request() {
    let rig = Rig::with(tight(), anyone());
    let mut follower = rig.get("/v1/groups/demo/logs?follow=true").await;
    tokio::time::sleep(tight().whole + Duration::from_millis(200)).await;
    let log = rig.world().log.clone();
    log.send(log_line("demo", "kine", "late")).unwrap();
    assert!(follower.chunk().await.unwrap().is_some());
}

#[tokio::test]
async fn a_follower_that_never_reads_holds_nobody_up() {
    let rig = Rig::new();
    let mut stalled = rig.connect().await;
    stalled.write_all(b"GET /v1/groups/demo/logs?follow=true HTTP/1.1\r\nhost: a\r\n\r\n").await.unwrap();
    let mut head = [0; 12];
    stalled.read_exact(&mut head).await.unwrap();
    assert_eq!(&head, b"HTTP/1.1 200");
    let log = rig.world().log.clone();
    let text = "x".repeat(1_000);
    for n in 0..20_000 {
        log.send(log_line("demo", "kine", &text)).unwrap();
        if n % 50 == 0 {
            tokio::task::yield_now().await;
        }
    }
    assert_eq!(rig.get("/v1/status").await.status(), 200);
}

#[tokio::test]
async fn a_large_body_is_refused_and_a_small_one_ignored() {
    let rig = Rig::new();
    let post = |size: usize| rig.client.post("http://admin/v1/reload").body("x".repeat(size)).send();
    assert_eq!(post(10).await.unwrap().status(), 200);
    let asked = rig.world().commands;
    // The peer may still be sending when the answer comes, and then see the connection end instead.
    if let Ok(answer) = post(Limits::default().body + 1).await {
        assert_eq!(answer.status(), 413);
    }
    assert_eq!(rig.world().commands, asked);
}
