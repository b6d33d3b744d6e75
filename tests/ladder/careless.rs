//! What a child gets, however carelessly the daemon was started.

use crate::support::hygiene::{Child, Expected};
use crate::support::{try_wait_for, wait_for};
use crate::world::*;
use socialweb_sys::process;
use socialweb_wire::Phase;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// The one process with this word among its arguments whose parent is the daemon.
fn child(daemon: u32, word: &str) -> Option<u32> {
    let line = |pid: &u32| std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    let has = |pid: &u32| line(pid).split(|b| *b == 0).any(|part| part == word.as_bytes());
    let ours = |pid: &u32| process::Stat::of(*pid).is_ok_and(|s| s.ppid == daemon);
    process::scan().unwrap().find(|pid| has(pid) && ours(pid))
}

fn assert_clean(pid: u32, expected: &Expected, log: &str) {
    let mut last = Vec::new();
    // The loader has a library open for a moment; what leaked would stay.
    let clean = try_wait_for(|| {
        last = Child::of(pid)?.violations(expected);
        last.is_empty().then_some(())
    });
    assert!(clean.is_some(), "{last:#?}\n{log}");
}

/// Files below the folder that another account could use.
fn open_to_others(folder: &Path) -> Vec<PathBuf> {
    let (mut open, mut folders) = (Vec::new(), vec![folder.to_owned()]);
    while let Some(folder) = folders.pop() {
        for path in std::fs::read_dir(folder).unwrap().flatten().map(|e| e.path()) {
            let meta = std::fs::symlink_metadata(&path).unwrap();
            folders.extend(meta.is_dir().then(|| path.clone()));
            open.extend((meta.permissions().mode() & 0o077 != 0).then_some(path));
        }
    }
    open
}

in_worlds!(children_of_a_carelessly_started_daemon_have_nothing_of_that:
    with_cgroups, as_nobody_in_a_delegated_subtree, without_cgroups);

fn children_of_a_carelessly_started_daemon_have_nothing_of_that(stage: Stage) {
    let text = r#"
kind = "exec"
[[component]]
name = "main"
argv = ["sleep", "100001"]
env = { GIVEN = "1" }
nofile = 128
oom_score_adj = 300
[[component]]
name = "probed"
argv = ["sleep", "100002"]
readiness = { kind = "exec", argv = ["sleep", "100003"], timeout = "100s" }
[[component]]
name = "prepared"
pre = [["sleep", "100004"]]
argv = ["sleep", "100005"]
"#;
    let confess = component(
        "confess",
        "python3 -c 'import ctypes; v = ctypes.c_int(7); ctypes.CDLL(None).prctl(2, ctypes.byref(v)); print(v.value, file=open(\"death-signal\", \"w\"), flush=True)'; exec sleep 100000",
        SHORT,
    );
    let mut stage = stage.wrapped(&["python3", &program("careless.py")]);
    for (key, value) in [("KUBECONFIG", "/poisoned"), ("BASH_ENV", "/poisoned"), ("IFS", "x"), ("GIVEN", "no")] {
        stage.daemon = stage.daemon.with_env(key, value);
    }
    let stage = stage.begun("strict", &format!("{text}\n{confess}"));
    let daemon = stage.daemon.pid();
    assert_eq!(Child::of(daemon).unwrap().oom_score_adj, 137, "the daemon was started carelessly");
    let plain = Expected { daemon, env: vec![], fds: vec![], nofile: None, oom_score_adj: None };
    let main = Expected { env: vec!["GIVEN"], nofile: Some("128"), oom_score_adj: Some(300), ..plain.clone() };
    for (word, expected) in [("100001", &main), ("100002", &plain), ("100003", &plain), ("100004", &plain)] {
        let pid = wait_for(&format!("sleep {word} runs"), || child(daemon, word));
        assert_clean(pid, expected, &stage.daemon.log());
    }
    let path = stage.dir("strict", "confess").join("death-signal");
    let signal = wait_for("it confesses", || std::fs::read_to_string(&path).ok().filter(|t| t.ends_with('\n')));
    assert_eq!(signal.trim(), "0", "no signal comes with the death of the daemon");
    stage.daemon.ctl_ok(&["stop", "strict"]);
    assert_eq!(stage.daemon.group("strict").phase, Phase::Parked);
    // Its files are nobody else's business either, and the signal that ends it arrives.
    let open = open_to_others(&stage.daemon.state());
    assert!(open.is_empty(), "{open:?}");
    stage.end();
}

#[test]
fn the_reader_sees_a_careless_child() {
    let mut command = Command::new("python3");
    command.arg(program("careless.py")).args(["/bin/sleep", "100006"]).env("EXTRA", "1").stdin(Stdio::piped());
    let mut careless = command.spawn().unwrap();
    let expected =
        Expected { daemon: std::process::id(), env: vec![], fds: vec![], nofile: Some("77"), oom_score_adj: Some(0) };
    wait_for("it sleeps", || process::comm(careless.id()).ok().filter(|c| c == "sleep"));
    let seen = Child::of(careless.id()).unwrap().violations(&expected).join("\n");
    careless.kill().unwrap();
    careless.wait().unwrap();
    let kinds = [
        "blocks",
        "ignores",
        "NoNewPrivs",
        "Umask",
        "descriptors",
        "input",
        "variables",
        "session",
        "OOM",
        "core",
        "open files",
    ];
    for kind in kinds {
        assert!(seen.contains(kind), "{kind} is not seen in:\n{seen}");
    }
}
