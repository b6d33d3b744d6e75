//! Probes against real listeners on loopback and in temporary folders.
#![allow(clippy::unwrap_used)]

mod tls;

use super::*;
use socialweb_core::spec::TlsFiles;
use std::sync::Mutex;
use tempfile::TempDir;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, TcpSocket, UnixListener};
use tokio::sync::mpsc;

const FAST: Duration = Duration::from_millis(10);
/// Longer than any good attempt takes here, however slow the machine is.
const PATIENT: Duration = Duration::from_secs(120);

fn no_exec() -> Exec {
    Arc::new(|_| Box::pin(async { Err("no program is expected here".to_string()) }))
}

fn prober(probe: Probe) -> Prober {
    Prober::new(probe, Signalled::new(), no_exec())
}

/// All reports of a readiness probe until it holds.
async fn readiness(prober: Prober) -> Vec<Outcome> {
    let mut seen = Vec::new();
    prober.run_readiness(FAST, PATIENT, |outcome| seen.push(outcome)).await;
    seen
}

/// The first `n` reports of a probe that need not end.
async fn first(n: usize, prober: Prober, limit: Duration) -> Vec<String> {
    let (sender, mut reports) = mpsc::unbounded_channel();
    let run = prober.run_readiness(FAST, limit, move |outcome| drop(sender.send(outcome)));
    let mut seen = Vec::new();
    tokio::select! {
        () = run => {}
        () = async { while seen.len() < n { seen.push(reports.recv().await.unwrap()) } } => {}
    }
    while let Ok(more) = reports.try_recv() {
        seen.push(more);
    }
    seen.into_iter()
        .map(|outcome| match outcome {
            Outcome::Failed(why) => why,
            other => format!("{other:?}"),
        })
        .collect()
}

fn http(url: String, tls: Option<TlsFiles>) -> Probe {
    Probe::Http { url, expect: vec![200], tls }
}

/// Answers the n-th request with the n-th text, and further ones with the last.
async fn answer<S: AsyncRead + AsyncWrite + Unpin>(mut stream: S, text: &str) {
    let mut request = Vec::new();
    while !request.ends_with(b"\r\n\r\n") {
        match stream.read_u8().await {
            Ok(byte) => request.push(byte),
            Err(_) => return,
        }
    }
    let _ = stream.write_all(text.as_bytes()).await;
    let _ = stream.shutdown().await;
}

fn reply(status: u16, body: &str) -> String {
    format!("HTTP/1.1 {status} X\r\nConnection: close\r\nContent-Length: {}\r\n\r\n{body}", body.len())
}

async fn serve(answers: Vec<String>) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    tokio::spawn(async move {
        for n in 0.. {
            let (stream, _) = listener.accept().await.unwrap();
            answer(stream, &answers[n.min(answers.len() - 1)]).await;
        }
    });
    address
}

#[tokio::test(flavor = "current_thread")]
async fn http_reports_each_change_of_reason_once_and_then_ready() {
    let body = "[+]ping ok\n[-]etcd failed: reason withheld\n";
    let answers = vec![reply(503, body), reply(503, body), reply(500, ""), reply(503, body), reply(200, "ok")];
    let address = serve(answers).await;
    let url = format!("http://{address}/readyz");
    let refused = Outcome::Failed(format!("GET {url} answered 503 instead of 200: [-]etcd failed: reason withheld"));
    let bare = Outcome::Failed(format!("GET {url} answered 500 instead of 200"));
    assert_eq!(readiness(prober(http(url, None))).await, [refused.clone(), bare, refused, Outcome::Ready]);
}

#[tokio::test(flavor = "current_thread")]
async fn a_redirect_is_an_answer_and_not_followed() {
    let elsewhere = serve(vec![reply(200, "")]).await;
    let moved = format!("HTTP/1.1 302 X\r\nLocation: http://{elsewhere}/\r\nContent-Length: 0\r\n\r\n");
    let url = format!("http://{}/", serve(vec![moved]).await);
    let seen = first(1, prober(http(url.clone(), None)), PATIENT).await;
    assert_eq!(seen, [format!("GET {url} answered 302 instead of 200")]);
}

#[tokio::test(flavor = "current_thread")]
async fn what_hangs_is_a_failure_that_names_it() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/", listener.local_addr().unwrap());
    let seen = first(1, prober(http(url.clone(), None)), Duration::from_millis(50)).await;
    assert_eq!(seen, [format!("GET {url} did not answer within 50ms")]);
}

#[tokio::test(flavor = "current_thread")]
async fn an_answer_without_end_is_given_up_after_a_part_of_it() {
    // hyper reads on while heads of class 1xx come, so the time limit alone lets them fill the loop.
    for head in ["HTTP/1.1 100 Continue\r\n\r\n", "HTTP/1.1 102 Processing\r\nX: y\r\n\r\n"] {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/", listener.local_addr().unwrap());
        let flood = tokio::spawn(async move {
            let (mut stream, _) = listener.accept().await.unwrap();
            // What is there before the request is no answer to it.
            stream.read_exact(&mut [0; 4]).await.unwrap();
            while stream.write_all(head.repeat(100).as_bytes()).await.is_ok() {}
        });
        let seen = first(1, prober(http(url.clone(), None)), PATIENT).await;
        assert!(seen[0].starts_with(&format!("GET {url}: ")) && seen[0].contains("far more"), "{seen:?}");
        flood.await.unwrap();
    }
}

#[tokio::test(flavor = "current_thread")]
async fn tcp_holds_as_soon_as_somebody_listens() {
    // The port is ours from the beginning, so that nobody else takes it meanwhile.
    let socket = TcpSocket::new_v4().unwrap();
    socket.bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let address = socket.local_addr().unwrap().to_string();
    let probe = || prober(Probe::Tcp { address: address.clone() });
    let seen = first(1, probe(), PATIENT).await;
    assert!(seen[0].starts_with(&format!("tcp {address}: ")), "{seen:?}");
    let _listener = socket.listen(8).unwrap();
    assert_eq!(readiness(probe()).await, [Outcome::Ready]);
}

#[tokio::test(flavor = "current_thread")]
async fn a_unix_socket_counts_only_while_somebody_listens() {
    let home = TempDir::new().unwrap();
    let path = home.path().join("s");
    let listener = UnixListener::bind(&path).unwrap();
    let probe = || prober(Probe::Unix { path: path.clone() });
    assert_eq!(readiness(probe()).await, [Outcome::Ready]);
    drop(listener);
    // A child that another test has just made holds the listener until its exec.
    while std::os::unix::net::UnixStream::connect(&path).is_ok() {
        tokio::time::sleep(FAST).await;
    }
    let stale = first(1, probe(), PATIENT).await;
    assert!(stale[0].contains("Connection refused"), "{stale:?}");
}

#[tokio::test(flavor = "current_thread")]
async fn running_holds_at_once() {
    assert_eq!(readiness(prober(Probe::Running)).await, [Outcome::Ready]);
}

/// A program that ends as `ends` say, one after the other; `None` = never. Tells how many were dropped unfinished.
fn program_that(ends: Vec<Option<Result<ExitStatus, String>>>) -> (Prober, Arc<Mutex<usize>>) {
    struct Dropped(Arc<Mutex<usize>>);
    impl Drop for Dropped {
        fn drop(&mut self) {
            *self.0.lock().unwrap() += 1;
        }
    }
    let dropped = Arc::new(Mutex::new(0));
    let (ends, count) = (Mutex::new(ends.into_iter()), Arc::clone(&dropped));
    let exec: Exec = Arc::new(move |launch| {
        assert_eq!(launch.argv, ["/bin/check"]);
        let end = ends.lock().unwrap().next().unwrap();
        let guard = Dropped(Arc::clone(&count));
        Box::pin(async move {
            match end {
                Some(end) => {
                    std::mem::forget(guard);
                    end
                }
                None => {
                    let _guard = guard;
                    std::future::pending().await
                }
            }
        })
    });
    let launch = Box::new(Launch::new(vec!["/bin/check".into()], "/"));
    (Prober::new(Probe::Exec { launch }, Signalled::new(), exec), dropped)
}

#[tokio::test(flavor = "current_thread")]
async fn a_program_is_asked_until_it_ends_with_zero_and_dropped_when_it_hangs() {
    let ends = vec![
        Some(Err("no such file".into())),
        Some(Ok(ExitStatus::Code(3))),
        None,
        Some(Ok(ExitStatus::Signal(9))),
        Some(Ok(ExitStatus::Code(0))),
    ];
    let (prober, dropped) = program_that(ends);
    let seen = first(9, prober, Duration::from_millis(50)).await;
    assert_eq!(
        seen,
        [
            "the program /bin/check did not start: no such file",
            "the program /bin/check ended with exit status 3",
            "the program /bin/check did not answer within 50ms",
            "the program /bin/check ended with signal 9",
            "Ready"
        ]
    );
    assert_eq!(*dropped.lock().unwrap(), 1);
}

#[tokio::test(flavor = "current_thread")]
async fn a_signal_counts_whether_it_comes_before_or_after_the_question() {
    let kinds = [Probe::Notify, Probe::NotificationFd { fd: 3 }, Probe::LogLine { contains: "up".into() }];
    for probe in kinds {
        let early = Signalled::new();
        early.raise();
        assert_eq!(readiness(Prober::new(probe.clone(), early, no_exec())).await, [Outcome::Ready]);
        let late = Signalled::new();
        let waiting = Prober::new(probe.clone(), late.clone(), no_exec());
        let (seen, ()) = tokio::join!(readiness(waiting), async { late.raise() });
        assert!(matches!(&seen[..], [Outcome::Failed(why), Outcome::Ready] if why.contains("it has not")), "{seen:?}");
    }
}

/// The next reports of a liveness probe.
struct Liveness(mpsc::UnboundedReceiver<Outcome>, tokio::task::JoinHandle<()>);

impl Liveness {
    fn start(prober: Prober, interval: Duration) -> Liveness {
        let (sender, reports) = mpsc::unbounded_channel();
        let run = prober.run_liveness(interval, PATIENT, move |outcome| drop(sender.send(outcome)));
        Liveness(reports, tokio::spawn(run))
    }
    async fn next(&mut self) -> String {
        match self.0.recv().await.unwrap() {
            Outcome::Failed(why) => why,
            other => format!("{other:?}"),
        }
    }
}

impl Drop for Liveness {
    fn drop(&mut self) {
        self.1.abort();
    }
}

#[tokio::test(flavor = "current_thread")]
async fn liveness_reports_each_failure_and_one_recovery() {
    let (good, bad) = (|| Some(Ok(ExitStatus::Code(0))), || Some(Ok(ExitStatus::Code(1))));
    let (prober, _) = program_that(vec![good(), bad(), bad(), good(), good(), bad(), None]);
    let mut live = Liveness::start(prober, FAST);
    let failed = "the program /bin/check ended with exit status 1";
    for want in [failed, failed, "Recovered", failed] {
        assert_eq!(live.next().await, want);
    }
}

#[tokio::test(flavor = "current_thread")]
async fn a_watchdog_that_is_not_fed_barks_each_interval_until_it_is_fed() {
    let fed = Signalled::new();
    let mut live = Liveness::start(Prober::new(Probe::Notify, fed.clone(), no_exec()), Duration::from_millis(30));
    assert_eq!(live.next().await, "no WATCHDOG=1 within 30ms");
    assert_eq!(live.next().await, "no WATCHDOG=1 within 30ms");
    fed.raise();
    // More intervals may have passed before it was fed.
    let next = loop {
        match live.next().await {
            late if late == "no WATCHDOG=1 within 30ms" => {}
            other => break other,
        }
    };
    assert_eq!(next, "Recovered");
}

#[test]
fn a_probe_can_be_driven_from_any_task() {
    fn assert_send<T: Send>(_: T) {}
    assert_send(prober(Probe::Running).run_readiness(FAST, FAST, |_| {}));
    assert_send(prober(Probe::Running).run_liveness(FAST, FAST, |_| {}));
}
