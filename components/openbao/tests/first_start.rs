//! The first start against the real OpenBao: complete, killed in the middle, and what the finished vault does.
#![allow(clippy::unwrap_used)]

use socialweb_credentials::Layout;
use socialweb_openbao::{
    FirstStart, FirstStartError, Mint, MintError, OpenBao, Outcome, Ports, first_start, mint_as, mint_superuser,
};
use std::fs;
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// Generous: two cores are shared with compilers.
const PATIENCE: Duration = Duration::from_secs(120);

/// Names the folder for the test that is run as a process of its own, to be killed.
const CHILD: &str = "SOCIALWEB_TEST_FIRST_START";

fn bao(test: &str) -> Option<PathBuf> {
    let named = std::env::var_os("SOCIALWEB_BAO").map(PathBuf::from);
    let built = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../build/bin/bao");
    let on_path = std::env::split_paths(&std::env::var_os("PATH").unwrap_or_default())
        .map(|dir| dir.join("bao"))
        .find(|path| path.is_file());
    let found = named.or(on_path).or_else(|| built.is_file().then_some(built));
    if found.is_none() {
        println!("SKIP: {test}: programs: no bao; set SOCIALWEB_BAO, or have it on PATH or in build/bin");
    }
    found
}

/// A group with its credentials and two free ports.
struct Group {
    _tmp: tempfile::TempDir,
    task: FirstStart,
}

impl Group {
    fn new(binary: PathBuf) -> Group {
        let _ = rustls::crypto::ring::default_provider().install_default();
        let tmp = tempfile::tempdir().unwrap();
        let group_dir = tmp.path().join("demo");
        socialweb_credentials::ensure(&group_dir).unwrap();
        let (a, b) = (TcpListener::bind("127.0.0.1:0").unwrap(), TcpListener::bind("127.0.0.1:0").unwrap());
        let ports = Ports { api: a.local_addr().unwrap().port(), cluster: b.local_addr().unwrap().port() };
        Group { _tmp: tmp, task: FirstStart { binary, group_dir, ports } }
    }

    fn layout(&self) -> Layout {
        Layout::new(&self.task.group_dir)
    }

    fn mint(&self) -> Mint {
        Mint { group_dir: self.task.group_dir.clone(), api_port: self.task.ports.api }
    }

    fn ports_are_free(&self) -> bool {
        [self.task.ports.api, self.task.ports.cluster].iter().all(|p| TcpListener::bind(("127.0.0.1", *p)).is_ok())
    }

    /// Names in the openbao folder.
    fn names(&self) -> Vec<String> {
        let entries = fs::read_dir(self.layout().openbao()).unwrap();
        let mut names: Vec<_> = entries.map(|e| e.unwrap().file_name().to_string_lossy().into_owned()).collect();
        names.sort();
        names
    }

    /// OpenBao in service, as the recipe says.
    fn serve(&self) -> Serving {
        let spec = OpenBao {
            binary: self.task.binary.clone(),
            program: "/nonexistent".into(),
            group_dir: self.task.group_dir.clone(),
            ports: self.task.ports,
        }
        .component();
        for file in &spec.launch.files {
            fs::write(&file.path, &file.content).unwrap();
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
        Serving(child)
    }
}

struct Serving(Child);

impl Drop for Serving {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

async fn until<T>(what: &str, mut look: impl AsyncFnMut() -> Option<T>) -> T {
    let began = Instant::now();
    loop {
        if let Some(found) = look().await {
            return found;
        }
        assert!(began.elapsed() < PATIENCE, "waited in vain: {what}");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

#[tokio::test]
async fn a_complete_first_start_mints_the_superuser_and_nobody_else_and_unseals_itself_ever_after() {
    let Some(binary) = bao("complete first start") else { return };
    let group = Group::new(binary);
    let began = Instant::now();
    assert_eq!(first_start(&group.task).await.unwrap(), Outcome::Made);
    println!("first start: {:?}", began.elapsed());
    assert_eq!(group.names(), ["data", "seal.key"]);
    assert!(group.ports_are_free());
    assert_eq!(first_start(&group.task).await.unwrap(), Outcome::AlreadyDone, "a finished vault is only looked at");
    let data = group.layout().openbao_data();
    for secret in ["mint-credential.json", "recovery-key"] {
        assert_eq!(fs::metadata(data.join(secret)).unwrap().permissions().mode() & 0o777, 0o600, "{secret}");
    }

    for run in ["first", "after kill -9"] {
        let began = Instant::now();
        let mut serving = group.serve();
        let mint = group.mint();
        let superuser = until("the superuser", async || mint_superuser(&mint).await.ok()).await;
        println!("{run}: served and minted after {:?}", began.elapsed());
        assert!(superuser.key_pem.contains("PRIVATE KEY"));
        let life = superuser.not_after.unix_timestamp() - unix_now();
        assert!(life > 23 * 3600 && life <= 24 * 3600, "{life} s");
        for other in ["gitlab-runner", "system:admin", "a.socialweb-operator", "*", "localhost"] {
            let refused = mint_as(&mint, other).await;
            assert!(matches!(refused, Err(MintError::OnlySuperuser { .. })), "{other}: {refused:?}");
        }
        serving.0.kill().unwrap();
        serving.0.wait().unwrap();
    }
}

fn unix_now() -> i64 {
    std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_secs().cast_signed()
}

#[tokio::test]
#[ignore = "the process that the next test kills"]
async fn a_first_start_as_its_own_process() {
    let Some(dir) = std::env::var_os(CHILD) else { return };
    let _ = rustls::crypto::ring::default_provider().install_default();
    let text = fs::read_to_string(Path::new(&dir).join("task")).unwrap();
    let [binary, api, cluster] = text.lines().collect::<Vec<_>>().try_into().unwrap();
    let ports = Ports { api: api.parse().unwrap(), cluster: cluster.parse().unwrap() };
    first_start(&FirstStart { binary: binary.into(), group_dir: dir.into(), ports }).await.unwrap();
}

/// An OpenBao that was killed inside its initialization can never be unsealed. Whatever the moment, the next run must do.
#[tokio::test]
#[expect(clippy::disallowed_methods, reason = "the process group is our own unwaited child's")]
async fn a_kill_at_any_moment_is_harmless() {
    let Some(binary) = bao("kill -9 in the first start") else { return };
    let group = Group::new(binary.clone());
    let Ports { api, cluster } = group.task.ports;
    fs::write(group.task.group_dir.join("task"), format!("{}\n{api}\n{cluster}\n", binary.display())).unwrap();
    for moment in ["config.json", "storage/vault.db", "storage/raft", "recovery-key", "mint-credential.json"] {
        // Its own process group, killed as a whole: what the cgroup does in service.
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "a_first_start_as_its_own_process", "--ignored"])
            .env(CHILD, &group.task.group_dir)
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .process_group(0)
            .spawn()
            .unwrap();
        let side = group.layout().openbao().join(format!("first-start.{}", child.id()));
        // The last file is there for a moment only, before the rename takes it away.
        let data = group.layout().openbao_data();
        until(moment, async || (side.join(moment).exists() || data.exists()).then_some(())).await;
        nix::sys::signal::killpg(
            nix::unistd::Pid::from_raw(child.id().cast_signed()),
            nix::sys::signal::Signal::SIGKILL,
        )
        .unwrap();
        child.wait().unwrap();
        until("free ports", async || group.ports_are_free().then_some(())).await;
        if moment != "mint-credential.json" {
            assert!(!group.layout().openbao_data().exists(), "killed at {moment}");
        }
    }
    // Between the last file and the rename the kill may come too late; both outcomes are good.
    first_start(&group.task).await.unwrap();
    assert_eq!(group.names(), ["data", "seal.key"]);
    let _serving = group.serve();
    until("the superuser", async || mint_superuser(&group.mint()).await.ok()).await;
}

#[tokio::test]
async fn a_program_that_ends_at_once_is_named_and_leaves_nothing() {
    let group = Group::new("/bin/false".into());
    let failed = first_start(&group.task).await;
    assert!(matches!(failed, Err(FirstStartError::Ended { .. })), "{failed:?}");
    assert_eq!(group.names(), ["seal.key"]);
    let absent = Group::new("/nonexistent/bao".into());
    assert!(matches!(first_start(&absent.task).await, Err(FirstStartError::Spawn { .. })));
    assert_eq!(absent.names(), ["seal.key"]);
}

#[tokio::test]
async fn a_taken_port_is_named() {
    let group = Group::new("/bin/false".into());
    let _holder = TcpListener::bind(("127.0.0.1", group.task.ports.cluster)).unwrap();
    let failed = first_start(&group.task).await.unwrap_err();
    assert!(failed.to_string().contains(&group.task.ports.cluster.to_string()), "{failed}");
}

#[tokio::test]
async fn a_vault_that_lost_a_part_is_an_error_and_stays_as_it_is() {
    let group = Group::new("/bin/false".into());
    let data = group.layout().openbao_data();
    fs::create_dir_all(data.join("storage")).unwrap();
    let failed = first_start(&group.task).await;
    assert!(matches!(failed, Err(FirstStartError::Incomplete { .. })), "{failed:?}");
    assert!(data.join("storage").exists());
}
