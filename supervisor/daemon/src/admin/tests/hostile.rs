//! Bytes that no client of ours sends. None may do anything, hang the server, or make it panic.

use super::world::Rig;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Sends `bytes`; the answer is an error of the client's or nothing, no command reached the loop, and the server is well.
async fn check(rig: &Rig, bytes: &[u8]) {
    let shown = String::from_utf8_lossy(&bytes[..bytes.len().min(60)]).into_owned();
    let mut stream = rig.connect().await;
    let _ = tokio::io::AsyncWriteExt::write_all(&mut stream, bytes).await;
    let _ = tokio::io::AsyncWriteExt::shutdown(&mut stream).await;
    let answer = super::world::read_all(&mut stream).await;
    let harmless = answer.is_empty() || answer.starts_with("HTTP/1.1 4") || answer.starts_with("HTTP/1.0 4");
    assert!(harmless, "{shown:?} was answered with {answer:?}");
    assert_eq!(rig.world().commands, 0, "{shown:?} reached the loop");
    rig.is_well().await;
}

#[tokio::test]
async fn nonsense_is_refused_and_changes_nothing() {
    static PANICS: AtomicUsize = AtomicUsize::new(0);
    let before = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |info| {
        if info.location().is_some_and(|l| l.file().contains("/admin/") && !l.file().contains("/tests/")) {
            PANICS.fetch_add(1, Ordering::Relaxed);
        }
        before(info);
    }));
    let rig = Rig::new();
    let endless = format!("GET /{} HTTP/1.1\r\nhost: a\r\n\r\n", "a".repeat(1 << 20));
    let headers = format!("GET /v1/status HTTP/1.1\r\n{}\r\n", "x: y\r\n".repeat(10_000));
    let long_header = format!("GET /v1/status HTTP/1.1\r\nx: {}\r\n\r\n", "y".repeat(1 << 20));
    let long_name = format!("POST /v1/groups/{}/stop HTTP/1.1\r\nhost: a\r\n\r\n", "a".repeat(4_000));
    let payloads: &[&[u8]] = &[
        b"",
        b"\0\0\0\0\0\0\0\0",
        b"\r\n\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        b"GET\r\n\r\n",
        b"GET /v1/status\r\n\r\n",
        b"GET /v1/status HTTP/9.9\r\n\r\n",
        b"GET /v1/st\xff\xfetus HTTP/1.1\r\nhost: a\r\n\r\n",
        b"GET /v1/../v1/status HTTP/1.1\r\nhost: a\r\n\r\n",
        b"GET /v1/groups/..%2f..%2fetc/tree HTTP/1.1\r\nhost: a\r\n\r\n",
        b"GET /v1/groups/%00/tree HTTP/1.1\r\nhost: a\r\n\r\n",
        b"GET /v1/groups/%zz/tree HTTP/1.1\r\nhost: a\r\n\r\n",
        b"GET /v1/groups/demo/logs?tail=99999999999999999999 HTTP/1.1\r\nhost: a\r\n\r\n",
        b"GET /v1/status?group=a&group=b HTTP/1.1\r\nhost: a\r\n\r\n",
        b"GET /v1/status?group=%f0%28%8c%28 HTTP/1.1\r\nhost: a\r\n\r\n",
        b"DELETE /v1/groups/demo HTTP/1.1\r\nhost: a\r\n\r\n",
        b"CONNECT 127.0.0.1:22 HTTP/1.1\r\nhost: a\r\n\r\n",
        b"OPTIONS * HTTP/1.1\r\nhost: a\r\n\r\n",
        b"POST /v1/shutdown HTTP/1.1\r\nhost: a\r\ncontent-length: 18446744073709551615\r\n\r\n",
        b"POST /v1/shutdown HTTP/1.1\r\nhost: a\r\ncontent-length: -1\r\n\r\n",
        b"POST /v1/shutdown HTTP/1.1\r\nhost: a\r\ncontent-length: 5\r\ncontent-length: 6\r\n\r\nabcde",
        b"POST /v1/shutdown HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\n\r\nffffffffffffffff\r\nx",
        b"POST /v1/shutdown HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\n\r\nzz\r\n",
        b"POST /v1/shutdown HTTP/1.1\r\nhost: a\r\ntransfer-encoding: gzip\r\n\r\n",
        endless.as_bytes(),
        headers.as_bytes(),
        long_header.as_bytes(),
        long_name.as_bytes(),
    ];
    for payload in payloads {
        check(&rig, payload).await;
    }
    assert_eq!(PANICS.load(Ordering::Relaxed), 0);
}

#[tokio::test]
async fn a_second_request_on_a_connection_is_not_served() {
    let rig = Rig::new();
    let smuggled = b"GET /healthz HTTP/1.1\r\nhost: a\r\n\r\nPOST /v1/shutdown HTTP/1.1\r\nhost: a\r\n\r\n";
    let answer = rig.raw(smuggled).await;
    assert_eq!(answer.matches("HTTP/1.1 ").count(), 1, "{answer}");
    assert_eq!(rig.world().commands, 0);
}
