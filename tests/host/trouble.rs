//! Components that misbehave. Each test has a steady group beside the troubled one, which must not notice.

use crate::support::{Daemon, cgroup2_mount, own_ports, send, skip, wait_for};
use crate::{STEADY, SUPERVISOR, script};
use socialweb_wire::Phase;
use std::fs;

/// A daemon with the troubled group and a steady one that is Ready.
fn beside(troubled: &str) -> (Daemon, Option<u32>) {
    let daemon = Daemon::started(SUPERVISOR, &[("troubled", troubled), ("steady", STEADY)]);
    let pid = daemon.wait_phase("steady", Phase::Ready).components[0].pid;
    (daemon, pid)
}

fn end(mut daemon: Daemon, steady: Option<u32>) {
    let group = daemon.group("steady");
    assert_eq!((group.phase, group.components[0].pid, group.components[0].restarts), (Phase::Ready, steady, 0));
    daemon.stop();
    daemon.assert_nothing_left();
}

#[test]
fn a_component_that_exits_at_once_is_restarted_with_growing_waits_and_then_given_up() {
    // It never becomes ready, so the bring-up as a whole is given up.
    let more = "backoff = { base = \"10ms\", max = \"50ms\", limit = 4 }\nreadiness = { kind = \"tcp\", address = \"127.0.0.1:1\" }";
    let (daemon, steady) = beside(&script("brief", "exit 3", more));
    let group = daemon.wait_phase("troubled", Phase::Unavailable);
    assert!(
        group.reason.contains("brief") && group.reason.contains("4 times") && group.reason.contains("exit status 3"),
        "{group:?}"
    );
    assert!(group.retry_in_s.is_some(), "it says when it tries again");
    end(daemon, steady);
}

#[test]
fn a_component_that_was_ready_and_then_keeps_dying_is_failed_loudly_and_its_group_degraded() {
    let more = "backoff = { base = \"10ms\", max = \"50ms\", limit = 4 }";
    let (daemon, steady) = beside(&script("brief", "exit 3", more));
    wait_for("the component is Failed", || {
        let group = daemon.group("troubled");
        let failed = group.components[0].state == "Failed" && group.phase == Phase::Degraded;
        (failed && group.reason.contains("gave up for now")).then_some(())
    });
    assert!(daemon.ctl_ok(&["events", "troubled"]).contains("Failed"));
    end(daemon, steady);
}

#[test]
fn an_operators_start_clears_a_give_up() {
    // systemd/systemd 10529: after the cause is fixed, a start by hand must work.
    let dir = std::env::temp_dir().join(format!("sw-fixed-{}", std::process::id()));
    let _ = std::fs::remove_file(&dir);
    let text = format!("test -e {} || exit 3; exec sleep 100000", dir.display());
    let (daemon, steady) = beside(&script("brief", &text, "backoff = { base = \"10ms\", limit = 2 }\nreadiness = { kind = \"exec\", argv = [\"test\", \"-e\", \"FLAG\"], interval = \"50ms\" }").replace("FLAG", &dir.display().to_string()));
    daemon.wait_phase("troubled", Phase::Unavailable);
    std::fs::write(&dir, "").unwrap();
    daemon.ctl_ok(&["start", "troubled"]);
    daemon.wait_phase("troubled", Phase::Ready);
    std::fs::remove_file(&dir).unwrap();
    end(daemon, steady);
}

#[test]
fn a_component_that_is_never_ready_is_given_up_and_what_it_waited_for_is_told() {
    let readiness = "readiness = { kind = \"tcp\", address = \"127.0.0.1:1\", interval = \"50ms\", deadline = \"1s\", cap = \"1s\" }\nbackoff = { base = \"10ms\", limit = 2 }";
    let (daemon, steady) = beside(&script("never", "exec sleep 100000", readiness));
    wait_for("what is awaited is shown", || {
        let reason = daemon.group("troubled").reason;
        reason.contains("127.0.0.1:1").then_some(())
    });
    let group = daemon.wait_phase("troubled", Phase::Unavailable);
    assert!(group.reason.contains("not ready within"), "{}", group.reason);
    end(daemon, steady);
}

#[test]
fn a_component_that_closes_its_output_and_lives_stays_ready() {
    let (daemon, steady) = beside(&script("mute", "exec >&- 2>&-; exec sleep 100000", ""));
    let group = daemon.wait_phase("troubled", Phase::Ready);
    let pid = group.components[0].pid;
    daemon.ctl_ok(&["restart", "steady"]);
    let again = daemon.group("troubled");
    assert_eq!((again.phase, again.components[0].pid), (Phase::Ready, pid));
    let mut daemon = daemon;
    let _ = steady;
    daemon.stop();
    daemon.assert_nothing_left();
}

#[test]
fn a_component_that_floods_its_output_blocks_nobody_and_its_last_line_is_there() {
    let flood = "yes 0123456789012345678901234567890123456789 | head -c 30000000; echo the-end; exec sleep 100000";
    let readiness = "readiness = { kind = \"log-line\", contains = \"the-end\" }";
    let (daemon, steady) = beside(&script("loud", flood, readiness));
    daemon.wait_phase("troubled", Phase::Ready);
    let tail = daemon.ctl_ok(&["logs", "troubled", "-n", "5"]);
    assert!(tail.contains("the-end"), "{tail}");
    end(daemon, steady);
}

#[test]
fn a_component_that_dies_is_restarted_alone_and_its_group_is_ready_again() {
    let (daemon, steady) = beside(&script("mortal", "exec sleep 100000", ""));
    let pid = daemon.wait_phase("troubled", Phase::Ready).components[0].pid.unwrap();
    send(pid, 9);
    wait_for("another process is ready", || {
        let group = daemon.group("troubled");
        let c = group.components.first()?;
        (group.phase == Phase::Ready && c.pid.is_some_and(|p| p != pid) && c.restarts == 1).then_some(())
    });
    assert!(daemon.ctl_ok(&["events", "troubled"]).contains("signal 9"));
    end(daemon, steady);
}

#[test]
fn a_hanging_component_is_found_by_its_liveness_probe() {
    let flag = std::env::temp_dir().join(format!("sw-hang-{}", std::process::id()));
    std::fs::write(&flag, "").unwrap();
    let probes = format!(
        "readiness = {{ kind = \"exec\", argv = [\"test\", \"-e\", \"{0}\"], interval = \"50ms\" }}\nliveness = {{ interval = \"100ms\", failures = 2 }}",
        flag.display()
    );
    let (daemon, steady) = beside(&script("hang", "exec sleep 100000", &probes));
    let pid = daemon.wait_phase("troubled", Phase::Ready).components[0].pid;
    std::fs::remove_file(&flag).unwrap();
    daemon.wait_phase("troubled", Phase::Degraded);
    std::fs::write(&flag, "").unwrap();
    let group = daemon.wait_phase("troubled", Phase::Ready);
    assert_ne!(group.components[0].pid, pid);
    std::fs::remove_file(&flag).unwrap();
    end(daemon, steady);
}

#[test]
fn each_kind_of_readiness_holds_when_the_program_says_so_and_not_before() {
    // Each program waits for the file `go` in its folder before it does what makes it ready.
    let gate = "while [ ! -e go ]; do sleep 0.05; done; ";
    let socket = "exec python3 -c 'import socket,time; s=socket.socket(socket.AF_UNIX); s.bind(\"probe.sock\"); s.listen(); time.sleep(100000)'";
    let server = "exec python3 -m http.server --bind 127.0.0.1 {port.web}";
    let notify = "exec python3 -c 'import socket,os,time; s=socket.socket(socket.AF_UNIX,socket.SOCK_DGRAM); s.sendto(b\"READY=1\",os.environ[\"NOTIFY_SOCKET\"]); time.sleep(100000)'";
    let kinds = [
        ("log-line", "echo now-ready; exec sleep 100000", "contains = \"now-ready\""),
        ("notification-fd", "echo >&3; exec 3>&-; exec sleep 100000", "fd = 3"),
        ("unix", socket, "path = \"{dir}/c/probe.sock\", interval = \"50ms\""),
        ("tcp", server, "address = \"127.0.0.1:{port.web}\", interval = \"50ms\""),
        ("http", server, "url = \"http://127.0.0.1:{port.web}/\", interval = \"50ms\""),
        ("notify", notify, ""),
        ("exec", "touch here; exec sleep 100000", "argv = [\"test\", \"-e\", \"{dir}/c/here\"], interval = \"50ms\""),
    ];
    let text = |(kind, text, keys): &(&str, &str, &str)| {
        let comma = if keys.is_empty() { "" } else { ", " };
        let more = format!("ports = [\"web\"]\nreadiness = {{ kind = \"{kind}\"{comma}{keys} }}");
        (format!("k-{kind}"), script("c", &format!("{gate}{text}"), &more))
    };
    let texts: Vec<(String, String)> = kinds.iter().map(text).collect();
    let clusters: Vec<(&str, &str)> = texts.iter().map(|(n, t)| (n.as_str(), t.as_str())).collect();
    // All of them start at once and wait.
    let supervisor = format!("{SUPERVISOR}{}[budgets]\nmax_concurrent_starts = \"off\"\n", own_ports());
    let mut daemon = Daemon::started(&supervisor, &clusters);
    for (name, _) in &clusters {
        wait_for("the program runs", || daemon.group(name).components.first()?.pid);
        let component = &daemon.group(name).components[0];
        assert_eq!(component.state, "Starting", "{name} has said nothing yet: {component:?}");
    }
    for (name, _) in &clusters {
        std::fs::write(daemon.state().join(format!("groups/{name}/c/go")), "").unwrap();
        daemon.wait_phase(name, Phase::Ready);
    }
    daemon.stop();
    daemon.assert_nothing_left();
}

#[test]
fn a_flood_of_notify_datagrams_keeps_nobody_from_stopping() {
    let flood = "exec python3 -c 'import socket,os\ns=socket.socket(socket.AF_UNIX,socket.SOCK_DGRAM)\nwhile True: s.sendto(b\"READY=1\",os.environ[\"NOTIFY_SOCKET\"])'";
    let (daemon, steady) = beside(&script("loud", flood, "readiness = { kind = \"notify\" }"));
    daemon.wait_phase("troubled", Phase::Ready);
    daemon.ctl_ok(&["restart", "troubled"]);
    end(daemon, steady);
}

#[test]
fn who_leaves_its_group_without_a_trace_ends_with_the_daemon() {
    let Some(root) = crate::support::cgroup2_mount() else {
        return crate::support::skip("who_leaves_its_group", "cgroup2: there is none to hide in");
    };
    let mark = format!("sw-trace-{}", std::process::id());
    let hide = format!(
        "(setsid env -i PATH=/usr/bin:/bin sh -c 'trap \"\" TERM; echo $$ > {}/cgroup.procs; while :; do sleep 1; done' {mark} &) ; exec sleep 100000",
        root.display()
    );
    let mut daemon = Daemon::started(SUPERVISOR, &[("hiding", &script("hide", &hide, ""))]);
    daemon.wait_phase("hiding", Phase::Ready);
    let hidden = wait_for("it hides", || {
        find(&mark).into_iter().find(|pid| socialweb_sys::process::environ_value(*pid, "SOCIALWEB_BIRTH").is_none())
    });
    daemon.stop();
    assert!(!find(&mark).contains(&hidden), "{}", daemon.log());
}

#[test]
fn a_leader_that_left_its_cgroup_and_ignores_the_stop_signal_is_killed() {
    let Some(root) = crate::support::cgroup2_mount() else {
        return crate::support::skip("a_leader_that_left", "cgroup2: there is none to leave");
    };
    let text = format!("trap '' TERM; echo $$ > {}/cgroup.procs; while :; do sleep 1; done", root.display());
    let (daemon, steady) = beside(&script("leaver", &text, ""));
    let pid = daemon.wait_phase("troubled", Phase::Ready).components[0].pid.unwrap();
    wait_for("it has left", || {
        let cgroup = socialweb_sys::process::cgroup(pid).unwrap().unwrap();
        (!cgroup.contains("troubled")).then_some(())
    });
    daemon.ctl_ok(&["stop", "troubled"]);
    assert!(socialweb_sys::process::start_time(pid).is_err(), "pid {pid} is still there");
    end(daemon, steady);
}

#[test]
fn a_fifo_in_place_of_a_log_holds_up_nobody() {
    let fifo = "cd ../logs 2>/dev/null && rm -f pipe.log && mkfifo pipe.log; echo a line; exec sleep 100000";
    let (daemon, steady) = beside(&script("pipe", &format!("echo first; sleep 0.2; {fifo}"), ""));
    daemon.wait_phase("troubled", Phase::Ready);
    let log = daemon.state().join("groups/troubled/logs/pipe.log");
    wait_for("the fifo is there", || {
        use std::os::unix::fs::FileTypeExt;
        std::fs::metadata(&log).is_ok_and(|m| m.file_type().is_fifo()).then_some(())
    });
    daemon.ctl(&["logs", "troubled", "-n", "5000"]);
    end(daemon, steady);
}

#[test]
fn what_a_hanging_probe_forks_is_ended_with_it() {
    // Its forked process is known by how long it sleeps, and never forks itself: a copy of it, not yet another program,
    // would be counted too.
    let mark = format!("0.7{}", std::process::id());
    let probe = format!(
        "readiness = {{ kind = \"exec\", argv = [\"sh\", \"-c\", '''trap \"\" TERM; sleep 1000 {mark} & wait'''], interval = \"50ms\", timeout = \"200ms\" }}"
    );
    let (daemon, steady) = beside(&script("slow", "exec sleep 100000", &probe));
    let mut seen = std::collections::BTreeSet::new();
    wait_for("several probes have hung", || {
        let now = find(&mark);
        assert!(now.len() <= 1, "earlier probes are left: {now:?}");
        seen.extend(now);
        (seen.len() >= 3).then_some(())
    });
    end(daemon, steady);
    assert_eq!(find(&mark), Vec::<u32>::new());
}

#[test]
fn cgroups_that_are_nested_without_end_do_not_make_a_group_immortal() {
    let Some(point) = crate::support::cgroup2_mount_point() else {
        return crate::support::skip("cgroups_that_are_nested", "cgroup2: there is none");
    };
    let nest = format!(
        "cd {}$(sed -n s/^0:://p /proc/self/cgroup); n=$(printf %0250d 0); for i in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20; do mkdir $n && cd $n; done; exec sleep 100000",
        point.display()
    );
    let (daemon, steady) = beside(&script("deep", &nest, ""));
    daemon.wait_phase("troubled", Phase::Ready);
    daemon.ctl_ok(&["stop", "troubled"]);
    end(daemon, steady);
}

/// Processes with this word in their command line.
fn find(word: &str) -> Vec<u32> {
    let line = |pid: &u32| std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    let has = |pid: &u32| line(pid).split(|b| *b == 0).any(|part| part == word.as_bytes());
    socialweb_sys::process::scan().unwrap().filter(has).collect()
}

#[test]
fn one_shots_and_hooks_run_in_their_places() {
    let text = r#"
kind = "exec"
[[component]]
name = "once"
kind = "one-shot"
argv = ["sh", "-c", "echo once >> ../trace"]
[[component]]
name = "main"
needs = ["once"]
argv = ["sh", "-c", "echo main >> ../trace; exec sleep 100000"]
env = { PATH = "/usr/bin:/bin" }
pre = [["sh", "-c", "echo pre1 >> ../trace"], ["sh", "-c", "echo pre2 >> ../trace"]]
post = [["sh", "-c", "echo post >> ../trace"]]
"#;
    let mut daemon = Daemon::started(SUPERVISOR, &[("hooks", text)]);
    daemon.wait_phase("hooks", Phase::Ready);
    wait_for("the main program wrote", || {
        std::fs::read_to_string(daemon.state().join("groups/hooks/trace")).ok().filter(|t| t.contains("main"))
    });
    daemon.stop();
    let trace = std::fs::read_to_string(daemon.state().join("groups/hooks/trace")).unwrap();
    assert_eq!(trace.split_whitespace().collect::<Vec<_>>(), ["once", "pre1", "pre2", "main", "post"]);
    daemon.assert_nothing_left();
}

#[test]
fn a_frozen_daemon_is_told_as_a_stopped_one_is() {
    let name = "a_frozen_daemon_is_told_as_a_stopped_one_is";
    let Some(outside) = cgroup2_mount() else { return skip(name, "cgroup2: there is none") };
    let own = socialweb_sys::Cgroup::at(outside.join(format!("sw-frozen-{}", std::process::id())));
    if own.create().is_err() {
        return skip(name, "cgroup2: it is not writable here");
    }
    let mut daemon = Daemon::started(SUPERVISOR, &[("steady", STEADY)]);
    daemon.wait_phase("steady", Phase::Ready);
    let freeze = |on: &str| fs::write(own.path().join("cgroup.freeze"), on).unwrap();
    fs::write(own.path().join("cgroup.procs"), daemon.pid().to_string()).unwrap();
    freeze("1");
    let out = daemon.ctl(&["status"]);
    freeze("0");
    let text = String::from_utf8_lossy(&out.stderr).into_owned();
    assert_eq!(out.status.code(), Some(3), "{out:?}");
    assert!(text.contains(&format!("pid {}, frozen by its cgroup", daemon.pid())), "{text}");
    daemon.wait_phase("steady", Phase::Ready);
    daemon.stop();
    daemon.assert_nothing_left();
    wait_for("its cgroup is gone", || own.remove().ok());
}
