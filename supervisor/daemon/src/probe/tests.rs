//! Probes against real listeners on loopback and in temporary folders.
#![allow(clippy::unwrap_used)]

use super::*;
use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
use socialweb_core::spec::TlsFiles;
use std::fs;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::Mutex;
use tempfile::TempDir;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, UnixListener};
use tokio::sync::mpsc;
use tokio_rustls::TlsAcceptor;

const FAST: Duration = Duration::from_millis(10);
/// Longer than any good attempt takes here.
const PATIENT: Duration = Duration::from_secs(20);

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
async fn tcp_holds_as_soon_as_somebody_listens() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    drop(listener);
    let probe = || prober(Probe::Tcp { address: address.clone() });
    let seen = first(1, probe(), PATIENT).await;
    assert!(seen[0].starts_with(&format!("tcp {address}: ")), "{seen:?}");
    let _listener = TcpListener::bind(&address).await.unwrap();
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
    let mut next = live.next().await;
    // One more interval may have passed before it was fed.
    if next != "Recovered" {
        next = live.next().await;
    }
    assert_eq!(next, "Recovered");
}

#[test]
fn a_probe_can_be_driven_from_any_task() {
    fn assert_send<T: Send>(_: T) {}
    assert_send(prober(Probe::Running).run_readiness(FAST, FAST, |_| {}));
    assert_send(prober(Probe::Running).run_liveness(FAST, FAST, |_| {}));
}

struct Pki {
    home: TempDir,
    issuer: Issuer<'static, KeyPair>,
}

impl Pki {
    fn new() -> Pki {
        let home = TempDir::new().unwrap();
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate().unwrap();
        fs::write(home.path().join("ca.pem"), params.self_signed(&key).unwrap().pem()).unwrap();
        Pki { home, issuer: Issuer::new(params, key) }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.home.path().join(name)
    }

    /// Writes NAME.pem and NAME.key.
    fn issue(&self, name: &str, sans: &[&str]) -> (PathBuf, PathBuf) {
        let sans: Vec<String> = sans.iter().map(|s| s.to_string()).collect();
        let key = KeyPair::generate().unwrap();
        let cert = CertificateParams::new(sans).unwrap().signed_by(&key, &self.issuer).unwrap();
        let paths = (self.path(&format!("{name}.pem")), self.path(&format!("{name}.key")));
        fs::write(&paths.0, cert.pem()).unwrap();
        fs::write(&paths.1, key.serialize_pem()).unwrap();
        paths
    }

    fn client(&self) -> TlsFiles {
        TlsFiles { ca: self.path("ca.pem"), identity: Some(self.issue("client", &["probe"])) }
    }

    /// A server that demands a client certificate of this CA.
    fn acceptor(&self) -> TlsAcceptor {
        use rustls::pki_types::pem::PemObject;
        use rustls::pki_types::{CertificateDer, PrivateKeyDer};
        let (cert, key) = self.issue("server", &["localhost", "127.0.0.1", "kine.sock"]);
        let read = |path| CertificateDer::pem_file_iter(path).unwrap().map(|c| c.unwrap()).collect::<Vec<_>>();
        let mut roots = rustls::RootCertStore::empty();
        roots.add(read(self.path("ca.pem")).remove(0)).unwrap();
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let verifier =
            rustls::server::WebPkiClientVerifier::builder_with_provider(Arc::new(roots), Arc::clone(&provider));
        let mut config = rustls::ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_client_cert_verifier(verifier.build().unwrap())
            .with_single_cert(read(cert), PrivateKeyDer::from_pem_file(key).unwrap())
            .unwrap();
        config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        TlsAcceptor::from(Arc::new(config))
    }
}

async fn serve_tls(acceptor: TlsAcceptor) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    tokio::spawn(async move {
        loop {
            let (stream, _) = listener.accept().await.unwrap();
            if let Ok(stream) = acceptor.accept(stream).await {
                answer(stream, &reply(200, "")).await;
            }
        }
    });
    format!("https://{address}/readyz")
}

#[tokio::test(flavor = "current_thread")]
async fn https_trusts_its_ca_only_and_shows_its_certificate() {
    let pki = Pki::new();
    let url = serve_tls(pki.acceptor()).await;
    let ask = |tls| first(1, prober(http(url.clone(), tls)), PATIENT);
    assert_eq!(ask(Some(pki.client())).await, ["Ready"]);
    let nameless = TlsFiles { identity: None, ..pki.client() };
    assert!(ask(Some(nameless)).await[0].starts_with(&format!("GET {url}: ")));
    let other = Pki::new();
    let seen = ask(Some(TlsFiles { ca: other.path("ca.pem"), ..pki.client() })).await;
    assert!(seen[0].contains("certificate"), "{seen:?}");
    assert!(ask(None).await[0].contains("certificate"), "no CA given means that nobody is trusted");
}

#[tokio::test(flavor = "current_thread")]
async fn certificates_that_appear_or_change_later_are_picked_up() {
    let pki = Pki::new();
    let url = serve_tls(pki.acceptor()).await;
    let good = pki.client();
    let ca = pki.path("late.pem");
    let probe = prober(http(url, Some(TlsFiles { ca: ca.clone(), ..good.clone() })));
    let (sender, mut reports) = mpsc::unbounded_channel();
    let run = probe.run_readiness(FAST, PATIENT, move |outcome| drop(sender.send(outcome)));
    let script = async {
        let Some(Outcome::Failed(why)) = reports.recv().await else { panic!("ready without a CA") };
        assert!(why.contains("late.pem"), "{why}");
        fs::copy(Pki::new().path("ca.pem"), &ca).unwrap();
        let Some(Outcome::Failed(why)) = reports.recv().await else { panic!("ready with a wrong CA") };
        assert!(why.contains("certificate"), "{why}");
        fs::copy(&good.ca, pki.path("new.pem")).unwrap();
        fs::rename(pki.path("new.pem"), &ca).unwrap();
        assert_eq!(reports.recv().await, Some(Outcome::Ready));
    };
    timeout(PATIENT, async { tokio::join!(run, script) }).await.unwrap();
}

/// Speaks enough gRPC to answer a Range, with a header or without.
async fn serve_etcd(listener: UnixListener, acceptor: TlsAcceptor, header: bool) {
    use prost::Message;
    loop {
        let (stream, _) = listener.accept().await.unwrap();
        let Ok(stream) = acceptor.accept(stream).await else { continue };
        let Ok(mut connection) = h2::server::handshake(stream).await else { continue };
        while let Some(Ok((request, mut respond))) = connection.accept().await {
            assert_eq!(request.uri().path(), etcd::METHOD);
            let header = header.then_some(etcd::ResponseHeader { revision: 7 });
            let message = etcd::RangeResponse { header, more: false, count: 0 }.encode_to_vec();
            let length = u32::try_from(message.len()).unwrap().to_be_bytes();
            let head = ::http::Response::builder().header("content-type", "application/grpc").body(()).unwrap();
            let mut body = respond.send_response(head, false).unwrap();
            body.send_data([&[0], &length[..], &message].concat().into(), false).unwrap();
            let trailers = [("grpc-status", "0")].map(|(k, v)| (k.parse().unwrap(), v.parse().unwrap()));
            body.send_trailers(trailers.into_iter().collect()).unwrap();
        }
    }
}

#[tokio::test(flavor = "current_thread")]
async fn an_etcd_range_holds_only_when_a_real_answer_comes() {
    let pki = Pki::new();
    let socket = pki.path("kine.sock");
    let probe = || prober(Probe::EtcdRange { socket: socket.clone(), tls: pki.client() });
    assert!(first(1, probe(), PATIENT).await[0].contains("kine.sock: No such file"));
    for (header, want) in [(true, "Ready"), (false, "no etcd")] {
        let listener = UnixListener::bind(&socket).unwrap();
        let server = tokio::spawn(serve_etcd(listener, pki.acceptor(), header));
        let seen = first(1, probe(), PATIENT).await;
        assert!(seen[0].ends_with(want), "{seen:?}");
        server.abort();
        let _ = server.await;
        fs::remove_file(&socket).unwrap();
    }
    let _silent = UnixListener::bind(&socket).unwrap();
    let hung = first(1, probe(), Duration::from_millis(50)).await;
    assert_eq!(hung, [format!("the etcd range query on {} did not answer within 50ms", socket.display())]);
}

struct Kine(Child);

impl Drop for Kine {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn kine_binary() -> Option<PathBuf> {
    let built = PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../../build/bin/kine"));
    std::env::var_os("SOCIALWEB_KINE").map(PathBuf::from).or(Some(built)).filter(|p| p.is_file())
}

#[tokio::test(flavor = "current_thread")]
async fn the_real_kine_is_ready_only_with_a_client_certificate() {
    let Some(binary) = kine_binary() else {
        println!("SKIP: the_real_kine_is_ready_only_with_a_client_certificate: programs: no kine; set SOCIALWEB_KINE");
        return;
    };
    let pki = Pki::new();
    let socket = pki.path("kine.sock");
    let (cert, key) = pki.issue("server", &["localhost", "kine.sock"]);
    let argument = |name: &str, path: &Path| format!("--{name}={}", path.display());
    let child = Command::new(binary)
        .arg(format!("--listen-address=unix://{}", socket.display()))
        .arg(format!("--endpoint=sqlite://{}", pki.path("state.db").display()))
        .args([argument("server-cert-file", &cert), argument("server-key-file", &key)])
        .args([argument("trusted-ca-file", &pki.path("ca.pem")), "--metrics-bind-address=0".into()])
        .current_dir(pki.home.path())
        .env_clear()
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn();
    let _kine = Kine(child.unwrap());
    let probe = |tls| prober(Probe::EtcdRange { socket: socket.clone(), tls });
    let seen = readiness(probe(pki.client())).await;
    assert_eq!(seen.last(), Some(&Outcome::Ready));
    let nameless = first(1, probe(TlsFiles { identity: None, ..pki.client() }), PATIENT).await;
    assert_ne!(nameless, ["Ready"]);
}
