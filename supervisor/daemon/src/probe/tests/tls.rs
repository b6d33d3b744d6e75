//! Probes that trust files: HTTPS, and the etcd range query.

use super::*;
use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
use std::fs;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use tokio_rustls::TlsAcceptor;

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
