//! Who may ask, with an injected check and with the kernel's own answers.

use super::world::{Rig, read_all};
use crate::admin::{Limits, Peer, PeerPolicy};
use socialweb_sys::Tree;
use std::ffi::OsStr;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Arc, Mutex};
use tokio::io::AsyncWriteExt;

/// For a child of a test: where to ask, and the cgroup.procs to enter before.
const ASK: &str = "SOCIALWEB_TEST_ASK";
const ENTER: &str = "SOCIALWEB_TEST_ENTER";

#[tokio::test]
async fn a_refused_peer_is_told_why_whatever_it_sends() {
    let seen: Arc<Mutex<Vec<(u32, u32)>>> = Arc::default();
    let noted = seen.clone();
    let check = Arc::new(move |peer: &Peer| {
        noted.lock().unwrap().push((peer.uid, peer.pid));
        Err("you are not of this house".to_string())
    });
    let rig = Rig::with(Limits::default(), check);
    let answer = rig.raw(b"").await;
    assert!(answer.starts_with("HTTP/1.1 403 ") && answer.contains("not of this house"), "{answer}");
    let polite = rig.post("/v1/shutdown").await;
    assert_eq!(polite.status(), 403);
    let error: socialweb_wire::ApiError = polite.json().await.unwrap();
    assert_eq!(error.code, socialweb_wire::ErrorCode::Refused);
    // More than the socket's buffer holds: it must be taken, or the peer never comes to read the reason.
    let mut chatty = rig.connect().await;
    chatty.write_all(&vec![b'x'; 1 << 20]).await.unwrap();
    assert!(read_all(&mut chatty).await.starts_with("HTTP/1.1 403 "));
    assert_eq!(rig.world().commands, 0);
    assert_eq!(seen.lock().unwrap()[0], (nix::unistd::getuid().as_raw(), std::process::id()));
}

/// Not a test of its own: the child that the tests below start.
#[test]
fn child_asks() {
    use std::io::{Read, Write};
    let Some(socket) = std::env::var_os(ASK) else { return };
    if let Some(procs) = std::env::var_os(ENTER) {
        std::fs::write(procs, std::process::id().to_string()).unwrap();
    }
    let mut stream = std::os::unix::net::UnixStream::connect(socket).unwrap();
    let _ = stream.write_all(b"GET /v1/status HTTP/1.1\r\nhost: a\r\n\r\n");
    let mut answer = String::new();
    let _ = stream.read_to_string(&mut answer);
    println!("ANSWER {answer}");
}

/// Runs [`child_asks`] in another process and returns what it was answered.
async fn ask_from(program: &Path, socket: PathBuf, env: &[(&str, &OsStr)], uid: Option<u32>) -> String {
    let mut command = Command::new(program);
    command.args(["--exact", "--nocapture", "admin::tests::peers::child_asks"]).env(ASK, socket);
    command.envs(env.iter().copied());
    if let Some(uid) = uid {
        command.uid(uid).gid(uid);
    }
    #[expect(clippy::disallowed_methods, reason = "a test has a thread for this")]
    let output = tokio::task::spawn_blocking(move || command.output()).await.unwrap().unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    match text.split_once("ANSWER ") {
        Some((_, answer)) => answer.to_string(),
        None => panic!("the child did not ask: {text} {}", String::from_utf8_lossy(&output.stderr)),
    }
}

/// Marks a child of these tests.
const MARKER: &str = "SOCIALWEB_TEST_MARKER";

fn own_policy(groups: Option<Tree>) -> PeerPolicy {
    PeerPolicy { uid: nix::unistd::getuid().as_raw(), groups, marker: MARKER.into() }
}

#[tokio::test]
async fn another_user_is_refused_by_its_uid_even_where_the_mode_lets_it_connect() {
    if !nix::unistd::getuid().is_root() {
        eprintln!("SKIP: a_peer_of_another_uid_is_refused: root: only root can start a process of another uid");
        return;
    }
    let rig = Rig::with(Limits::default(), own_policy(None).into_check());
    let open = |path: &Path, mode| std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
    open(rig.dir.path(), 0o755);
    open(&rig.socket(), 0o666);
    // The test's own binary may be where the other user cannot go.
    let program = rig.dir.path().join("asks");
    // By a process of its own: a child that another test has just made holds our descriptors until its exec, and a program
    // that is open for writing is not run.
    let copied = std::process::Command::new("cp").arg(std::env::current_exe().unwrap()).arg(&program).status().unwrap();
    assert!(copied.success());
    open(&program, 0o755);
    let answer = ask_from(&program, rig.socket(), &[], Some(65_534)).await;
    assert!(answer.starts_with("HTTP/1.1 403 ") && answer.contains("65534"), "{answer}");
    assert_eq!(rig.world().commands, 0);
    let answer = ask_from(&program, rig.socket(), &[], None).await;
    assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
}

/// A subtree of this test alone, removed at its end.
struct Scratch(Tree);

impl Scratch {
    fn new() -> Option<Scratch> {
        let mounts = std::fs::read_to_string("/proc/self/mounts").ok()?;
        let own = socialweb_sys::process::cgroup(std::process::id()).ok()??;
        let mount = mounts.lines().find_map(|l| {
            let mut fields = l.split(' ');
            let (_, at, kind) = (fields.next()?, fields.next()?, fields.next()?);
            (kind == "cgroup2").then(|| at.to_string())
        })?;
        let root = PathBuf::from(format!("{mount}{own}"));
        let tree = Tree::new(&root, &format!("admin-test-{}", std::process::id())).ok()?;
        tree.child("demo").create().ok()?;
        Some(Scratch(tree))
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        for cgroup in [self.0.child("demo"), self.0.top().clone()] {
            let _ = cgroup.remove();
        }
    }
}

#[tokio::test]
async fn a_process_of_a_group_is_refused_by_its_cgroup() {
    let Some(scratch) = Scratch::new() else {
        eprintln!("SKIP: a_process_of_a_group_is_refused: cgroup2: no writable tree");
        return;
    };
    let rig = Rig::with(Limits::default(), own_policy(Some(scratch.0.clone())).into_check());
    let program = std::env::current_exe().unwrap();
    let procs = scratch.0.child("demo").path().join("cgroup.procs");
    let answer = ask_from(&program, rig.socket(), &[(ENTER, procs.as_os_str())], None).await;
    assert!(answer.starts_with("HTTP/1.1 403 ") && answer.contains("/demo"), "{answer}");
    assert_eq!(rig.world().commands, 0);
    let answer = ask_from(&program, rig.socket(), &[], None).await;
    assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
}

#[tokio::test]
async fn a_process_of_a_group_is_refused_by_its_marker() {
    let rig = Rig::with(Limits::default(), own_policy(None).into_check());
    let program = std::env::current_exe().unwrap();
    let answer = ask_from(&program, rig.socket(), &[(MARKER, "demo/kine/4".as_ref())], None).await;
    assert!(answer.starts_with("HTTP/1.1 403 ") && answer.contains("demo/kine/4"), "{answer}");
    let answer = ask_from(&program, rig.socket(), &[], None).await;
    assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
}
