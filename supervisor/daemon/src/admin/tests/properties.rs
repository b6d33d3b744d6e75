//! For any request: an answer that blames the client, or none; only a whole, valid request reaches the loop.

use super::world::{Rig, read_all};
use socialweb_property::holds;
use socialweb_property::proptest::collection::vec;
use socialweb_property::proptest::prelude::*;
use tokio::io::AsyncWriteExt;

fn target() -> impl Strategy<Value = String> {
    let word = prop::sample::select(vec![
        "v1",
        "status",
        "groups",
        "demo",
        "kine",
        "start",
        "stop",
        "restart",
        "components",
        "tree",
        "logs",
        "events",
        "reload",
        "shutdown",
        "metrics",
        "healthz",
        "receipts",
        "delete",
        "..",
        ".",
        "",
        "%00",
        "%2f",
        "%2e%2e",
        "%ff",
        "%zz",
        "*",
        "Demo",
        "a%20b",
    ]);
    let segment = prop_oneof![6 => word.prop_map(str::to_string), 1 => "[!-~]{0,8}", 1 => Just("a".repeat(300))];
    let query = prop_oneof![
        4 => Just(String::new()),
        1 => "\\?(group|tail|follow|dry_run|component)=[!-~]{0,8}",
        1 => Just("?tail=99999999999999999999999".to_string()),
        1 => Just("?tail=18446744073709551615&follow=false".to_string()),
    ];
    let path = vec(segment, 0..5).prop_map(|segments| format!("/{}", segments.join("/")));
    let known = prop::sample::select(vec![
        "/v1/status",
        "/v1/groups/demo/stop",
        "/v1/groups/demo/logs",
        "/v1/shutdown",
        "/v1/reload",
        "/v1/events",
        "/metrics",
    ]);
    let path = prop_oneof![2 => path, 1 => known.prop_map(str::to_string), 1 => "[ -~]{0,20}"];
    (path, query).prop_map(|(path, query)| path + &query)
}

fn request() -> impl Strategy<Value = Vec<u8>> {
    let method = prop_oneof![
        4 => prop::sample::select(vec!["GET", "POST", "DELETE", "PUT", "HEAD", "OPTIONS", "CONNECT", "get"]).prop_map(str::to_string),
        1 => "[ -~]{0,6}",
    ];
    let header = prop_oneof![
        3 => Just("host: a".to_string()),
        1 => Just("content-type: application/json".to_string()),
        1 => prop::sample::select(vec!["content-length: 2", "content-length: 0", "content-length: -1", "content-length: 99999999999", "transfer-encoding: chunked", "connection: upgrade", "upgrade: websocket", "expect: 100-continue"]).prop_map(str::to_string),
        1 => "[ -~]{0,20}",
        1 => Just(format!("x: {}", "y".repeat(2000))),
    ];
    let body = prop_oneof![3 => Just(Vec::new()), 1 => Just(b"{}".to_vec()), 2 => vec(any::<u8>(), 0..60), 1 => Just(b"ffffffffffffffff\r\nx".to_vec())];
    let version = prop_oneof![6 => Just("HTTP/1.1"), 1 => Just("HTTP/1.0"), 1 => Just("HTTP/2"), 1 => Just("")];
    let whole =
        (method, target(), version, vec(header, 0..5), body).prop_map(|(method, target, version, headers, body)| {
            let head: String = headers.iter().map(|h| format!("{h}\r\n")).collect();
            [format!("{method} {target} {version}\r\n{head}\r\n").as_bytes(), &body].concat()
        });
    prop_oneof![5 => whole, 1 => vec(any::<u8>(), 0..100)]
}

#[test]
fn any_request_gets_an_answer_that_is_none_of_the_servers_own_failures() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let rig = runtime.block_on(async { Rig::new() });
    holds((request(), 1usize..200), |(bytes, piece)| {
        runtime.block_on(async {
            let mut stream = rig.connect().await;
            for part in bytes.chunks(piece) {
                // A server that has heard enough hangs up; that is an answer too.
                if stream.write_all(part).await.is_err() {
                    break;
                }
            }
            let _ = stream.shutdown().await;
            let answer = read_all(&mut stream).await;
            let code =
                answer.strip_prefix("HTTP/1.1 ").or(answer.strip_prefix("HTTP/1.0 ")).and_then(|rest| rest.get(..3));
            let fine = answer.is_empty() || code.is_some_and(|code| !code.starts_with('5'));
            prop_assert!(fine, "answered with {answer:?}");
            let well = rig.client.get("http://admin/healthz").send().await;
            prop_assert!(well.is_ok_and(|answer| answer.status() == 200), "the server does not answer any more");
            Ok(())
        })
    });
    // What the requests asked for was allowed to come through only as what it is.
    assert!(rig.world().changes.iter().all(|change| !format!("{change:?}").contains('%')), "{:?}", rig.world().changes);
}
