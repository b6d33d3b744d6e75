use crate::common::*;
use nix::sys::signal::{SigHandler, SigSet, Signal, signal};
use socialweb_sys::{Command, Output, PidFd, process, reap::Status, spawn::SpawnError, spawn::Stage};
use std::collections::BTreeMap;
use std::fs;
use std::io::{Read, Write};
use std::os::fd::{AsRawFd, OwnedFd};

/// Descriptors of a process and what they lead to. In our own process other tests close theirs meanwhile.
fn descriptors(pid: u32) -> BTreeMap<i32, String> {
    let fds = fs::read_dir(format!("/proc/{pid}/fd")).unwrap().map(Result::unwrap);
    let leads_to = |e: &fs::DirEntry| fs::read_link(e.path()).ok().map(|l| l.display().to_string());
    fds.filter_map(|e| Some((e.file_name().to_str().unwrap().parse().unwrap(), leads_to(&e)?))).collect()
}

#[test]
fn a_child_has_what_it_was_given_and_nothing_else() {
    // procServ issue 48: what we block and ignore must not reach the child. Rust ignores SIGPIPE itself.
    let mut blocked = SigSet::empty();
    blocked.add(Signal::SIGTERM);
    blocked.add(Signal::SIGUSR2);
    blocked.thread_block().unwrap();
    ignore(Signal::SIGUSR1);
    // manaflow-ai/cmux issue 5835: descriptors without close-on-exec must not leak either.
    let leaky: Vec<OwnedFd> = (0..20).map(|_| nix::unistd::pipe().unwrap().1).collect();
    let (_read, write) = pipe();
    let (extra_read, extra_write) = pipe();
    let pipe_name = fs::read_link(format!("/proc/self/fd/{}", write.as_raw_fd())).unwrap().display().to_string();
    let extra_name = fs::read_link(format!("/proc/self/fd/{}", extra_write.as_raw_fd())).unwrap().display().to_string();

    let dir = tempfile::tempdir().unwrap();
    let mut command = Command::new(vec!["/bin/sleep".into(), "60".into()], dir.path());
    command.env = vec![("B".into(), "2 = two".into()), ("A".into(), "".into())];
    command.output = Output::Merged(write);
    command.extra_fds = vec![(extra_read, 9), (extra_write, 5)];
    command.nofile = Some(123);
    command.core_limit = Some(0);
    command.oom_score_adj = Some(700);
    let spawned = command.spawn(None).unwrap();
    exec_ok(&spawned);
    blocked.thread_unblock().unwrap();
    let pid = spawned.pid;

    let stat = process::Stat::of(pid).unwrap();
    assert_eq!(
        (stat.session, stat.pgrp, stat.ppid, stat.start_time),
        (pid, pid, std::process::id(), spawned.start_time)
    );
    for (key, want) in [("SigBlk", "0000000000000000"), ("SigIgn", "0000000000000000"), ("SigCgt", "0000000000000000")]
    {
        assert_eq!(status_field(pid, key), want, "{key}");
    }
    assert_eq!(status_field(pid, "NoNewPrivs"), "1");
    assert_eq!(status_field(pid, "Umask"), "0077");
    let want = [
        (0, "/dev/null".to_string()),
        (1, pipe_name.clone()),
        (2, pipe_name),
        (5, extra_name.clone()),
        (9, extra_name),
    ];
    // The loader has a library open for a moment; what leaked would stay.
    let want = BTreeMap::from(want);
    until(&format!("only these descriptors: {want:?}"), || descriptors(pid) == want);
    assert_eq!(fs::read(format!("/proc/{pid}/environ")).unwrap(), b"B=2 = two\0A=\0");
    assert_eq!(fs::read_link(format!("/proc/{pid}/cwd")).unwrap(), dir.path().canonicalize().unwrap());
    let limits = fs::read_to_string(format!("/proc/{pid}/limits")).unwrap();
    let limit = |name: &str| {
        limits.lines().find_map(|l| l.strip_prefix(name)).unwrap().split_whitespace().take(2).collect::<Vec<_>>()
    };
    assert_eq!((limit("Max open files"), limit("Max core file size")), (vec!["123", "123"], vec!["0", "0"]));
    assert_eq!(fs::read_to_string(format!("/proc/{pid}/oom_score_adj")).unwrap().trim(), "700");
    drop(leaky);

    spawned.pidfd.send(libc::SIGTERM).unwrap();
    assert_eq!(wait_for(pid), Status::Killed { signal: libc::SIGTERM, core: false });
}

#[allow(unsafe_code)]
fn ignore(which: Signal) {
    // SAFETY: SIG_IGN runs no code.
    unsafe { signal(which, SigHandler::SigIgn) }.unwrap();
}

#[test]
fn descriptors_reach_their_numbers_even_when_these_are_in_use_crosswise() {
    // Each source's number is another one's target.
    let (a, mut a_in) = pipe_with(b"from-a");
    let (b, mut b_in) = pipe_with(b"from-b");
    let (na, nb) = (a.as_raw_fd(), b.as_raw_fd());
    // Read by path: the shell's own redirections know one-digit numbers only.
    let (mut command, mut out) = sh_with_pipe(&format!("cat /proc/self/fd/{nb} /proc/self/fd/{na}"));
    a_in.flush().unwrap();
    b_in.flush().unwrap();
    drop((a_in, b_in));
    command.extra_fds = vec![(a, nb), (b, na)];
    let spawned = command.spawn(None).unwrap();
    let mut text = String::new();
    out.read_to_string(&mut text).unwrap();
    assert_eq!(text, "from-afrom-b");
    wait_for(spawned.pid);
}

fn pipe_with(text: &[u8]) -> (OwnedFd, fs::File) {
    let (read, write) = pipe();
    let mut write = fs::File::from(write);
    write.write_all(text).unwrap();
    (read, write)
}

#[test]
fn output_is_merged_in_order_and_the_pipe_ends_with_the_child() {
    let (command, mut out) = sh_with_pipe("echo one; echo two >&2; echo three; read x || echo no input");
    let spawned = command.spawn(None).unwrap();
    let mut text = String::new();
    // Returns only because our own copy of the write end was closed by the spawn.
    out.read_to_string(&mut text).unwrap();
    assert_eq!(text, "one\ntwo\nthree\nno input\n");
    assert_eq!(wait_for(spawned.pid), Status::Exited(0));

    let ((out, stdout), (err, stderr)) = (pipe(), pipe());
    let mut command = sh("echo out; echo err >&2");
    command.output = Output::Split { stdout, stderr };
    let spawned = command.spawn(None).unwrap();
    let mut texts = [String::new(), String::new()];
    fs::File::from(out).read_to_string(&mut texts[0]).unwrap();
    fs::File::from(err).read_to_string(&mut texts[1]).unwrap();
    assert_eq!(texts, ["out\n", "err\n"]);
    wait_for(spawned.pid);
}

#[test]
fn every_way_to_fail_before_the_program_runs_names_its_stage_and_the_fix() {
    let dir = tempfile::tempdir().unwrap();
    let file = |name: &str, mode: u32, text: &[u8]| {
        use std::os::unix::fs::PermissionsExt;
        let (draft, path) = (dir.path().join("draft"), dir.path().join(name));
        fs::write(&draft, text).unwrap();
        // Copied by a process of its own: a child that another test has just made holds our descriptors until its exec, and
        // what is open for writing is refused for that.
        let copied = std::process::Command::new("cp").arg(&draft).arg(&path).status().unwrap();
        assert!(copied.success());
        fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
        path.display().to_string()
    };
    let check = |stage: Stage, want: &str, change: &dyn Fn(&mut Command)| {
        let mut command = Command::new(vec!["/bin/true".into()], dir.path());
        change(&mut command);
        let program = command.argv[0].clone();
        let spawned = command.spawn(None).unwrap();
        assert_eq!(wait_for(spawned.pid), Status::Exited(127), "{stage:?}");
        let error = spawned.exec.read_result().unwrap().unwrap_err();
        let text = error.to_string();
        assert_eq!(error.stage, stage, "{text}");
        assert!(text.contains(&program) && text.contains(want), "{text}");
    };
    let program = |path: String| move |c: &mut Command| c.argv[0] = path.clone();
    check(Stage::Exec, "no such file", &program(dir.path().join("missing").display().to_string()));
    check(Stage::Exec, "chmod +x", &program(file("plain", 0o600, b"#!/bin/sh\n")));
    check(Stage::Exec, "/no/interpreter", &program(file("script", 0o700, b"#!/no/interpreter -x\n")));
    check(Stage::Exec, "another processor", &program(file("junk", 0o700, b"no format\n")));
    check(Stage::Exec, "is a folder", &program(dir.path().display().to_string()));
    check(Stage::Exec, "too long", &|c| c.env = vec![("LONG".into(), "x".repeat(200 << 10))]);
    check(Stage::Chdir, "does not exist", &|c| c.cwd = "/no/such/folder".into());
    check(Stage::Chdir, "not a folder", &|c| c.cwd = "/dev/null".into());
    check(Stage::NoFile, "LimitNOFILE=", &|c| c.nofile = Some(1 << 40));
    check(Stage::OomScore, "between -1000 and 1000", &|c| c.oom_score_adj = Some(5000));
}

#[test]
fn what_cannot_be_asked_of_the_kernel_is_refused_before_a_process_exists() {
    let error = |change: &dyn Fn(&mut Command)| {
        let mut command = Command::new(vec!["/bin/true".into()], "/");
        change(&mut command);
        command.spawn(None).unwrap_err()
    };
    let null = || OwnedFd::from(fs::File::open("/dev/null").unwrap());
    assert!(matches!(error(&|c| c.argv.clear()), SpawnError::NoProgram));
    assert!(matches!(error(&|c| c.argv[0] = "true".into()), SpawnError::NotAPath { .. }));
    assert!(matches!(error(&|c| c.argv.push("a\0b".into())), SpawnError::Nul { .. }));
    assert!(matches!(error(&|c| c.env.push(("A=B".into(), "".into()))), SpawnError::EnvKey { .. }));
    assert!(matches!(error(&|c| c.extra_fds.push((null(), 2))), SpawnError::FdTarget { target: 2 }));
    assert!(matches!(error(&|c| c.extra_fds = vec![(null(), 4), (null(), 4)]), SpawnError::FdTarget { target: 4 }));
    let gone = socialweb_sys::Cgroup::at("/no/such/cgroup");
    let error = Command::new(vec!["/bin/true".into()], "/").spawn(Some(&gone)).unwrap_err();
    assert!(matches!(error, SpawnError::Cgroup { .. }) && error.to_string().contains("/no/such/cgroup"), "{error}");
}

#[test]
fn a_hung_exec_holds_nobody_up_and_can_be_killed() {
    let Some(place) = Place::new("a_hung_exec_holds_nobody_up_and_can_be_killed") else { return };
    // In a frozen cgroup the child stops before its first step: as good as an exec that hangs.
    let cgroup = place.cgroup("frozen");
    cgroup.freeze().unwrap();
    let hung = |c: &socialweb_sys::Spawned| c.exec.read_result().unwrap_err().kind() == std::io::ErrorKind::WouldBlock;
    let first = sh("exit 7").spawn(Some(&cgroup)).unwrap();
    let second = sh("exit 8").spawn(Some(&cgroup)).unwrap();
    assert!(hung(&first) && hung(&second));
    assert!(cgroup.populated().unwrap(), "a member from its first moment");
    second.pidfd.send(libc::SIGKILL).unwrap();
    assert_eq!(wait_for(second.pid), Status::Killed { signal: libc::SIGKILL, core: false });
    assert!(hung(&first));
    cgroup.thaw().unwrap();
    exec_ok(&first);
    assert_eq!(wait_for(first.pid), Status::Exited(7));
    assert!(!first.pidfd.exists().unwrap());
}

#[test]
fn the_kernels_refusal_of_a_cgroup_is_explained() {
    const TEST: &str = "the_kernels_refusal_of_a_cgroup_is_explained";
    let Some(place) = Place::new(TEST) else { return };
    // A threaded sister makes the parent a threaded domain and this one invalid (ZelAnton/ProcessKit-rs issue 39).
    let (threaded, invalid) = (place.cgroup("threaded"), place.cgroup("invalid"));
    if let Err(e) = fs::write(threaded.path().join("cgroup.type"), "threaded") {
        return skip(TEST, &format!("threaded: no threaded cgroups here ({e})"));
    }
    let error = sh("exit 0").spawn(Some(&invalid)).unwrap_err();
    assert!(matches!(error, SpawnError::IntoCgroup { .. }), "{error}");
    assert!(
        error.to_string().contains("threaded") && error.to_string().contains(invalid.path().to_str().unwrap()),
        "{error}"
    );
}

#[test]
fn a_spawn_leaves_no_descriptor_behind_in_the_parent() {
    // Counted in a child of its own would be cleaner, but other tests run in this process: so by what ours lead to.
    let (read, write) = pipe();
    let name = fs::read_link(format!("/proc/self/fd/{}", write.as_raw_fd())).unwrap().display().to_string();
    let mut command = sh("exit 0");
    command.output = Output::Merged(write);
    let spawned = command.spawn(None).unwrap();
    let ours = descriptors(std::process::id()).into_values().filter(|l| *l == name).count();
    assert_eq!(ours, 1, "only the read end is left");
    drop(read);
    let pid = spawned.pid;
    wait_for(pid);
    assert!(PidFd::open_same(pid, spawned.start_time).unwrap().is_none());
}
