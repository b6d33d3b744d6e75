//! The supervisor dies, and what it left meets the next one.

use crate::support::{Daemon, send, wait_for};
use crate::{SHORT, SUPERVISOR, component, group, ready, stop_leaves_nothing, wait_sleeps};
use socialweb_wire::Phase;
use std::path::Path;
use std::process::{Command, Stdio};

/// k0sproject/k0s#7901: the child is respawned for ever because an older copy of it holds the port, and a restart of the
/// service does not help.
#[test]
fn a_survivor_that_holds_a_port_is_gone_before_its_successor_asks_for_it() {
    let server = "exec python3 -c 'import socket,time; s=socket.socket(); s.bind((\"127.0.0.1\",{port.web})); s.listen(); time.sleep(100000)'";
    let more = format!(
        "ports = [\"web\"]\nreadiness = {{ kind = \"tcp\", address = \"127.0.0.1:{{port.web}}\", interval = \"50ms\" }}\n{SHORT}"
    );
    let mut daemon = ready(server, &more);
    let before = daemon.group("g");
    daemon.kill_9();
    daemon.start();
    let after = daemon.wait_phase("g", Phase::Ready);
    assert_eq!(after.ports, before.ports);
    assert_ne!(after.components[0].pid, before.components[0].pid);
    assert_eq!(after.components[0].restarts, 0, "it never met the older copy: {after:#?}");
    assert!(after.survivors.iter().any(|s| Some(s.pid) == before.components[0].pid), "who held it is told: {after:#?}");
    stop_leaves_nothing(daemon);
}

/// hashicorp/nomad#5593: a task leaks when it is stopped after a restart of its agent.
#[test]
fn a_stop_after_a_crash_stops_as_well_as_any() {
    let mut daemon = ready("(setsid sleep 100000 &) ; exec sleep 100001", SHORT);
    wait_sleeps(&daemon, 2);
    for _ in 0..2 {
        daemon.kill_9();
        daemon.start();
        daemon.wait_phase("g", Phase::Ready);
    }
    wait_sleeps(&daemon, 2);
    stop_leaves_nothing(daemon);
}

/// containerd/containerd#6771: a child exits while the daemon is down; its task stays stopped, its shim stays.
#[test]
fn what_ended_while_the_daemon_was_down_is_no_riddle_to_the_next_one() {
    let mut daemon = ready("(sleep 100000 &) ; exec sleep 100001", SHORT);
    let before = wait_sleeps(&daemon, 2);
    let leader = daemon.group("g").components[0].pid.unwrap();
    daemon.kill_9();
    send(leader, 9);
    daemon.start();
    let group = daemon.wait_phase("g", Phase::Ready);
    assert_eq!(group.components[0].restarts, 0);
    let after = wait_sleeps(&daemon, 2);
    assert!(after.iter().all(|pid| !before.contains(pid)), "{before:?} {after:?}");
    stop_leaves_nothing(daemon);
}

/// jdx/pitchfork PR#878: after a reboot the recorded pid belongs to a system agent, which is stopped. hashicorp/nomad#17960,
/// #23969, nomad-driver-exec2#9: the same after the number was used again. No file of ours is believed about a pid.
#[test]
fn no_pid_that_is_written_down_is_believed() {
    let mut daemon = ready("exec sleep 100000", SHORT);
    daemon.ctl_ok(&["stop", "g"]);
    daemon.ctl_ok(&["start", "g"]);
    let ours = daemon.wait_phase("g", Phase::Ready).components[0].pid.unwrap();
    let daemons = daemon.pid();
    daemon.kill_9();
    send(ours, 9);
    let mut agent = Command::new("sleep").arg("100000").stdin(Stdio::null()).spawn().unwrap();
    for old in [ours, daemons] {
        replace_everywhere(&daemon.state(), &old.to_string(), &agent.id().to_string());
    }
    daemon.start();
    daemon.wait_phase("g", Phase::Ready);
    stop_leaves_nothing(daemon);
    assert!(agent.try_wait().unwrap().is_none(), "a stranger's process was ended");
    agent.kill().unwrap();
    agent.wait().unwrap();
}

fn replace_everywhere(folder: &Path, from: &str, to: &str) {
    for entry in std::fs::read_dir(folder).unwrap().flatten() {
        if entry.path().is_dir() {
            replace_everywhere(&entry.path(), from, to);
        } else if let Ok(text) = std::fs::read_to_string(entry.path())
            && text.contains(from)
        {
            std::fs::write(entry.path(), replace_number(&text, from, to)).unwrap();
        }
    }
}

/// Not where it is a part of a longer number, such as a time.
fn replace_number(text: &str, from: &str, to: &str) -> String {
    let mut parts = text.split(from);
    let mut all = parts.next().unwrap_or_default().to_string();
    for part in parts {
        let within = all.ends_with(|c: char| c.is_ascii_digit()) || part.starts_with(|c: char| c.is_ascii_digit());
        all += if within { from } else { to };
        all += part;
    }
    all
}

/// habitat-sh/habitat#5687: a supervisor that was told to reload forgets its children, and a later stop leaves them.
#[test]
fn after_a_hangup_the_children_are_still_ours() {
    let daemon = ready("(setsid sleep 100000 &) ; exec sleep 100001", SHORT);
    let before = wait_sleeps(&daemon, 2);
    for _ in 0..3 {
        daemon.signal(nix::sys::signal::Signal::SIGHUP);
    }
    // Answered after the signals were: one loop does both.
    daemon.ctl_ok(&["reload"]);
    assert_eq!(wait_sleeps(&daemon, 2), before);
    stop_leaves_nothing(daemon);
}

/// manaflow-ai/cmux#5835, bruceg/daemontools-encore#8: a descriptor leaks into a child, and whoever reads its other end
/// waits for ever.
#[test]
fn no_descriptor_of_the_daemon_is_held_by_a_component() {
    let plain = group(&[component("c", "exec sleep 100000", SHORT)]);
    let mut daemon = Daemon::new(SUPERVISOR, &[("g", &plain)]);
    let fifo = daemon.dir.join("held");
    nix::unistd::mkfifo(&fifo, nix::sys::stat::Mode::S_IRWXU).unwrap();
    let reader = std::thread::spawn({
        let fifo = fifo.clone();
        move || std::fs::read_to_string(fifo)
    });
    daemon = daemon.with_prelude(&format!("exec 9>'{}'", fifo.display()));
    daemon.start();
    daemon.wait_phase("g", Phase::Ready);
    let pid = daemon.group("g").components[0].pid.unwrap();
    daemon.kill_9();
    assert!(socialweb_sys::process::start_time(pid).is_ok(), "the component lives, or this proves nothing");
    wait_for("the reader sees the end", || reader.is_finished().then_some(()));
    daemon = daemon.with_prelude("true");
    daemon.start();
    daemon.wait_phase("g", Phase::Ready);
    stop_leaves_nothing(daemon);
}
