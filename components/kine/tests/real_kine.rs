//! The recipe against the real kine: who gets in, and where a DSN is seen.
#![allow(clippy::unwrap_used)]

use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};
use socialweb_credentials::{Layout, Pair};
use socialweb_kine::{Endpoint, Kine, exec_with_dsn};
use std::io::{Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

fn kine_binary(test: &str) -> Option<PathBuf> {
    let built = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../build/bin/kine");
    let path = std::env::var_os("PATH").unwrap_or_default();
    let found = std::env::var_os("SOCIALWEB_KINE")
        .map(PathBuf::from)
        .or_else(|| std::env::split_paths(&path).map(|d| d.join("kine")).find(|p| p.is_file()))
        .or_else(|| built.is_file().then_some(built));
    if found.is_none() {
        println!("SKIP: {test}: programs: no kine; set SOCIALWEB_KINE, or have it on PATH or in build/bin");
    }
    found
}

struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The first bytes that a gRPC server says to an HTTP/2 client, or why it says nothing.
fn greeting(socket: &Path, ca: &Path, pair: Option<&Pair>) -> std::io::Result<usize> {
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_file(ca).unwrap()).unwrap();
    let config = ClientConfig::builder().with_root_certificates(roots);
    let mut config = match pair {
        None => config.with_no_client_auth(),
        Some(pair) => config
            .with_client_auth_cert(
                vec![CertificateDer::from_pem_file(&pair.cert).unwrap()],
                PrivateKeyDer::from_pem_file(&pair.key).unwrap(),
            )
            .unwrap(),
    };
    config.alpn_protocols = vec![b"h2".to_vec()];
    let connection = ClientConnection::new(Arc::new(config), ServerName::try_from("localhost").unwrap()).unwrap();
    let socket = UnixStream::connect(socket)?;
    socket.set_read_timeout(Some(Duration::from_secs(10)))?;
    let mut stream = StreamOwned::new(connection, socket);
    stream.write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0")?;
    stream.read(&mut [0; 64])
}

#[test]
fn only_a_client_of_the_groups_own_kine_ca_gets_in() {
    let Some(binary) = kine_binary("client certificate on kine's socket") else { return };
    let _ = rustls::crypto::ring::default_provider().install_default();
    let tmp = tempfile::tempdir().unwrap();
    let (group_dir, other_dir) = (tmp.path().join("demo"), tmp.path().join("other"));
    for dir in [&group_dir, &other_dir] {
        socialweb_credentials::ensure(dir).unwrap();
    }
    let (layout, other) = (Layout::new(&group_dir), Layout::new(&other_dir));
    let recipe = Kine { binary, group_dir, runtime_dir: tmp.path().join("run"), endpoint: Endpoint::Sqlite };
    let spec = recipe.component();
    for dir in spec.launch.dirs.iter().chain([&spec.launch.cwd]) {
        std::fs::create_dir_all(dir).unwrap();
    }
    let child = Command::new(&spec.launch.argv[0])
        .args(&spec.launch.argv[1..])
        .env_clear()
        .envs(&spec.launch.env)
        .current_dir(&spec.launch.cwd)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let mut kine = Running(child);
    let (socket, ca) = (recipe.socket(), layout.kine_ca().cert);
    let began = Instant::now();
    while greeting(&socket, &ca, Some(&layout.kine_client())).is_err() {
        assert!(kine.0.try_wait().unwrap().is_none(), "kine ended");
        assert!(began.elapsed() < Duration::from_secs(120), "kine does not answer");
        std::thread::sleep(Duration::from_millis(20));
    }
    assert!(greeting(&socket, &ca, None).is_err(), "no certificate");
    assert!(greeting(&socket, &ca, Some(&other.kine_client())).is_err(), "another cluster's certificate");
    assert!(greeting(&socket, &ca, Some(&layout.probe())).is_err(), "a user of the API server");
    assert!(greeting(&socket, &other.kine_ca().cert, Some(&layout.kine_client())).is_err(), "another cluster's server");
    assert!(layout.kine_database().exists());
}

/// Names the DSN file for the test that becomes another program.
const CHILD: &str = "SOCIALWEB_TEST_DSN";

#[test]
#[ignore = "the process that the next test starts"]
fn exec_as_its_own_process() {
    if let Some(file) = std::env::var_os(CHILD) {
        let argv = ["/bin/sh", "-c", "printf 'dsn=%s\n' \"$KINE_ENDPOINT\""].map(str::to_owned);
        panic!("{}", exec_with_dsn(file.as_ref(), &argv));
    }
}

#[test]
fn the_program_finds_the_dsn_in_its_environment() {
    let tmp = tempfile::tempdir().unwrap();
    let file = tmp.path().join("dsn");
    std::fs::write(&file, "postgres://u:p@h/db\n").unwrap();
    std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o600)).unwrap();
    let out = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "exec_as_its_own_process", "--ignored", "--nocapture"])
        .env(CHILD, &file)
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&out.stdout);
    assert!(text.lines().any(|line| line.ends_with("dsn=postgres://u:p@h/db")), "{text}");
}
