//! The recipes together, against the real programs: kine, OpenBao and the server, started as the recipes say, brought up
//! twice.
#![allow(clippy::unwrap_used)]

use reqwest::{Certificate, Client, Identity, StatusCode};
use serde_json::Value;
use socialweb_core::ComponentSpec;
use socialweb_credentials::{Layout, Pair, issuer};
use socialweb_k3s::{BringUp, Server, bring_up};
use socialweb_kine::{Endpoint, Kine};
use socialweb_openbao::{FirstStart, OpenBao, Ports, first_start};
use std::fs;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// Generous: two cores are shared with compilers.
const PATIENCE: Duration = Duration::from_secs(120);

fn find(variable: &str, names: &[&str]) -> Option<PathBuf> {
    let named = std::env::var_os(variable).map(PathBuf::from);
    let mut dirs: Vec<_> = std::env::split_paths(&std::env::var_os("PATH").unwrap_or_default()).collect();
    dirs.push(Path::new(env!("CARGO_MANIFEST_DIR")).join("../../build/bin"));
    let found = || names.iter().flat_map(|n| dirs.iter().map(move |d| d.join(n))).find(|p| p.is_file());
    named.or_else(found)
}

struct Programs {
    kine: PathBuf,
    bao: PathBuf,
    server: PathBuf,
}

fn programs(test: &str) -> Option<Programs> {
    let kine = find("SOCIALWEB_KINE", &["kine"]);
    let bao = find("SOCIALWEB_BAO", &["bao"]);
    let server = find("SOCIALWEB_K3S", &["k3s", "kube-server"]);
    if let (Some(kine), Some(bao), Some(server)) = (&kine, &bao, &server) {
        return Some(Programs { kine: kine.clone(), bao: bao.clone(), server: server.clone() });
    }
    println!(
        "SKIP: {test}: programs: on PATH or in build/bin are kine {kine:?}, bao {bao:?}, k3s or kube-server {server:?}"
    );
    None
}

/// `n` free ports in a row.
fn free_ports(n: u16) -> u16 {
    loop {
        let first = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        if first < u16::MAX - n && (first..first + n).all(|p| TcpListener::bind(("127.0.0.1", p)).is_ok()) {
            return first;
        }
    }
}

/// A running component; killed when dropped.
struct Running {
    child: Child,
    log: PathBuf,
}

impl Running {
    fn start(spec: &ComponentSpec, logs: &Path) -> Running {
        for dir in spec.launch.dirs.iter().chain([&spec.launch.cwd]) {
            fs::create_dir_all(dir).unwrap();
        }
        for file in &spec.launch.files {
            fs::write(&file.path, &file.content).unwrap();
        }
        let log = logs.join(spec.name.as_str());
        let out = fs::File::create(&log).unwrap();
        let child = Command::new(&spec.launch.argv[0])
            .args(&spec.launch.argv[1..])
            .env_clear()
            .envs(&spec.launch.env)
            .current_dir(&spec.launch.cwd)
            .stdin(Stdio::null())
            .stdout(out.try_clone().unwrap())
            .stderr(out)
            .spawn()
            .unwrap();
        Running { child, log }
    }

    fn must_live(&mut self) {
        if let Some(status) = self.child.try_wait().unwrap() {
            panic!("ended with {status}:\n{}", fs::read_to_string(&self.log).unwrap());
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn client(ca: &Path, pair: &Pair) -> Client {
    let pem = [fs::read(&pair.cert).unwrap(), fs::read(&pair.key).unwrap()].concat();
    Client::builder()
        .no_proxy()
        .tls_certs_only([Certificate::from_pem(&fs::read(ca).unwrap()).unwrap()])
        .identity(Identity::from_pem(&pem).unwrap())
        .timeout(Duration::from_secs(60))
        .build()
        .unwrap()
}

async fn status(client: &Client, url: String) -> Option<StatusCode> {
    client.get(url).send().await.ok().map(|a| a.status())
}

#[tokio::test]
async fn a_tenant_comes_up_with_its_five_namespaces_and_a_second_bring_up_changes_nothing() {
    let Some(programs) = programs("control plane") else { return };
    let _ = rustls::crypto::ring::default_provider().install_default();
    let tmp = tempfile::tempdir().unwrap();
    let (group_dir, runtime_dir) = (tmp.path().join("groups/demo"), tmp.path().join("run"));
    let layout = Layout::new(&group_dir);
    socialweb_credentials::ensure(&group_dir).unwrap();
    let port = free_ports(5);
    let ports = Ports { api: port + 3, cluster: port + 4 };
    first_start(&FirstStart { binary: programs.bao.clone(), group_dir: group_dir.clone(), ports }).await.unwrap();

    let kine = Kine { binary: programs.kine, group_dir: group_dir.clone(), runtime_dir, endpoint: Endpoint::Sqlite };
    let vault = OpenBao { binary: programs.bao, program: "/none".into(), group_dir: group_dir.clone(), ports };
    let server = Server {
        binary: programs.server,
        group_dir: group_dir.clone(),
        datastore_socket: kine.socket(),
        https_port: port,
        ccm_port: port + 2,
        issuer: issuer("demo", "demo"),
        extra_sans: Vec::new(),
    };
    let began = Instant::now();
    let mut running: Vec<Running> = Vec::new();
    for spec in [kine.component(), vault.component()] {
        running.push(Running::start(&spec, tmp.path()));
    }
    while !kine.socket().exists() {
        running[0].must_live();
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    running.push(Running::start(&server.component(), tmp.path()));
    let probe = client(&layout.server_ca().cert, &layout.probe());
    while status(&probe, format!("{}/readyz", server.url())).await != Some(StatusCode::OK) {
        running.iter_mut().for_each(Running::must_live);
        assert!(began.elapsed() < PATIENCE, "{}", fs::read_to_string(&running[2].log).unwrap());
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    println!("{} ready after {:?}", server.flavour().as_str(), began.elapsed());
    let listed = format!("{}/api/v1/namespaces", server.url());
    assert_eq!(status(&probe, listed.clone()).await, Some(StatusCode::FORBIDDEN), "the probe may do nothing else");

    let task = BringUp {
        program: "/none".into(),
        group_dir: group_dir.clone(),
        cluster: "demo".into(),
        https_port: port,
        openbao_port: ports.api,
    };
    let began = Instant::now();
    let done = bring_up(&task).await.unwrap();
    println!("brought up after {:?}", began.elapsed());
    assert_eq!(done.namespaces, ["default", "kube-node-lease", "kube-public", "kube-system", "users"]);
    let operator = Pair { cert: layout.operator().join("tls.crt"), key: layout.operator().join("tls.key") };
    let list = async || -> Value {
        let client = client(&layout.operator().join("ca.crt"), &operator);
        let text = client.get(&listed).send().await.unwrap().text().await.unwrap();
        serde_json::from_str(&text).unwrap()
    };
    let first = list().await;
    for item in first["items"].as_array().unwrap() {
        let metadata = &item["metadata"];
        let mark = metadata["annotations"]["socialweb.computer/applied-by"].as_str();
        assert_eq!(mark, (metadata["name"] == "users").then_some("control-plane"), "{metadata}");
    }
    bring_up(&task).await.unwrap();
    let versions = |list: &Value| -> Vec<String> {
        list["items"].as_array().unwrap().iter().map(|i| i["metadata"]["resourceVersion"].to_string()).collect()
    };
    assert_eq!(versions(&list().await), versions(&first), "the second bring-up writes nothing");
    kubectl_lists(&done.kubeconfig);
    let again = socialweb_credentials::ensure(&group_dir).unwrap();
    assert!(again.created.is_empty() && again.renewed.is_empty(), "the programs took the CAs as they are: {again:?}");
    // Another CA's clients do not get in: the kine client's certificate is no user.
    let stranger = client(&layout.server_ca().cert, &layout.kine_client());
    assert_ne!(status(&stranger, format!("{}/readyz", server.url())).await, Some(StatusCode::OK));
}

fn kubectl_lists(kubeconfig: &Path) {
    let Some(kubectl) = find("SOCIALWEB_KUBECTL", &["kubectl"]) else {
        println!("SKIP: kubectl_lists: programs: no kubectl on PATH");
        return;
    };
    let home = kubeconfig.parent().unwrap();
    let out = Command::new(kubectl)
        .env_clear()
        .env("HOME", home)
        .args(["--cache-dir", "/dev/null", "--kubeconfig"])
        .arg(kubeconfig)
        .args(["get", "namespaces", "-o", "name"])
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&out.stdout).into_owned();
    assert_eq!(text.lines().count(), 5, "{text} {}", String::from_utf8_lossy(&out.stderr));
}
