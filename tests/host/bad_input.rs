//! What a person can get wrong before anything runs.

use crate::support::{Daemon, PROGRAM, own_ports, wait_for};
use crate::{STEADY, SUPERVISOR, script};
use socialweb_wire::Phase;
use std::fs;
use std::net::TcpListener;
use std::os::unix::net::{UnixListener, UnixStream};
use std::process::Command;

/// `run` must end by itself, unsuccessfully, and say all of `expect`.
fn refused(daemon: &Daemon, expect: &[&str]) {
    let out = daemon.command().output().unwrap();
    let text = String::from_utf8_lossy(&out.stderr).into_owned();
    assert!(!out.status.success(), "it must refuse: {text}");
    for part in expect {
        assert!(text.contains(part), "{part:?} is not in: {text}");
    }
}

#[test]
fn an_unknown_key_is_named_with_its_place_and_a_suggestion() {
    let daemon = Daemon::new("stat_dir = \"x\"\n", &[]);
    refused(&daemon, &["supervisor.toml:1:1", "stat_dir", "state_dir"]);
    let out = Command::new(PROGRAM)
        .args(["config", "check", "-config"])
        .arg(daemon.dir.join("supervisor.toml"))
        .output()
        .unwrap();
    assert_eq!(out.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&out.stdout).contains("state_dir"), "{out:?}");
}

#[test]
fn a_broken_cluster_file_leaves_the_other_groups_alone() {
    let cycle = "kind = \"exec\"\n[[component]]\nname = \"a\"\nargv = [\"true\"]\nneeds = [\"b\"]\n[[component]]\nname = \"b\"\nargv = [\"true\"]\nneeds = [\"a\"]\n";
    let missing = "kind = \"exec\"\n[[component]]\nname = \"a\"\nargv = [\"true\"]\nneeds = [\"nobody\"]\n";
    let clusters =
        [("steady", STEADY), ("circle", cycle), ("lonely", missing), ("junk", "\u{0}\u{1}"), ("keys", "knid = 1\n")];
    let mut daemon = Daemon::started(SUPERVISOR, &clusters);
    daemon.wait_phase("steady", Phase::Ready);
    let status = daemon.status();
    for name in ["circle", "lonely", "junk", "keys"] {
        let group = status.group(name).unwrap_or_else(|| panic!("{name} is not listed: {status:?}"));
        assert!(group.phase == Phase::Absent && group.reason.contains(&format!("{name}.toml:")), "{group:?}");
    }
    let out = daemon.ctl(&["status", "keys"]);
    assert!(out.status.code() == Some(1) && String::from_utf8_lossy(&out.stdout).contains("keys.toml:1:1"), "{out:?}");
    let said = status.warnings.join("\n");
    for part in ["circle.toml", "a -> b -> a", "lonely.toml", "nobody", "junk.toml", "keys.toml", "kind"] {
        assert!(said.contains(part), "{part:?} is not in: {said}");
    }
    daemon.stop();
}

#[test]
fn a_state_folder_in_memory_is_refused_unless_it_is_allowed() {
    let shm = std::path::Path::new("/dev/shm");
    if !shm.is_dir() {
        return crate::support::skip("a_state_folder_in_memory", "tmpfs: none at /dev/shm");
    }
    let dir = shm.join(format!("sw-{}", std::process::id()));
    let mut daemon = Daemon::new(SUPERVISOR, &[]);
    let out = Command::new(PROGRAM)
        .args(["run", "-config"])
        .arg(daemon.dir.join("supervisor.toml"))
        .arg("-state-dir")
        .arg(&dir)
        .arg("-runtime-dir")
        .arg(&daemon.runtime)
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&out.stderr).into_owned();
    assert!(!out.status.success() && text.contains("tmpfs") && text.contains("allow-tmpfs"), "{text}");
    assert!(!dir.exists(), "a refusal leaves nothing behind");
    daemon = daemon.with_state(&dir).with_flags(&["-allow-tmpfs"]);
    daemon.start();
    assert_eq!(daemon.status().state_dir, dir.display().to_string());
    daemon.stop();
    fs::remove_dir_all(dir).unwrap();
}

#[test]
fn a_second_daemon_on_the_same_state_folder_is_refused_and_told_who_has_it() {
    let mut daemon = Daemon::started(SUPERVISOR, &[("steady", STEADY)]);
    daemon.wait_phase("steady", Phase::Ready);
    refused(&daemon, &["in use", &daemon.pid().to_string()]);
    assert_eq!(daemon.group("steady").phase, Phase::Ready);
    daemon.stop();
}

#[test]
fn a_stale_socket_is_replaced_and_anything_else_in_its_place_is_not_touched() {
    let mut daemon = Daemon::new(SUPERVISOR, &[]);
    fs::create_dir_all(&daemon.runtime).unwrap();
    drop(UnixListener::bind(daemon.runtime.join("admin.sock")).unwrap());
    // A child that another test has just made holds the listener until its exec, and so somebody still listens.
    let listens = || UnixStream::connect(daemon.runtime.join("admin.sock")).is_ok();
    wait_for("nobody listens", || (!listens()).then_some(()));
    daemon.start();
    daemon.stop();
    fs::create_dir_all(&daemon.runtime).unwrap();
    fs::write(daemon.runtime.join("admin.sock"), "precious").unwrap();
    refused(&daemon, &["admin.sock"]);
    assert_eq!(fs::read_to_string(daemon.runtime.join("admin.sock")).unwrap(), "precious");
}

#[test]
fn corrupt_leases_and_records_are_kept_aside_and_no_port_moves() {
    let web = script("web", "exec sleep 100000", "ports = [\"web\"]");
    let mut daemon = Daemon::started(SUPERVISOR, &[("web", &web), ("steady", STEADY)]);
    let port = daemon.wait_phase("web", Phase::Ready).ports["web"];
    for file in ["leases.json", "groups/web/record.json"] {
        daemon.stop();
        fs::write(daemon.state().join(file), "{ not json").unwrap();
        daemon.start();
        assert_eq!(daemon.wait_phase("web", Phase::Ready).ports["web"], port, "after a corrupt {file}");
        let folder = daemon.state().join(file).parent().unwrap().to_owned();
        let aside =
            fs::read_dir(folder).unwrap().flatten().any(|e| e.file_name().to_string_lossy().contains("corrupt"));
        assert!(aside, "{file} is kept aside");
    }
    daemon.stop();
}

#[test]
fn a_taken_sticky_port_names_its_holder_and_does_not_move() {
    let web = script("web", "exec sleep 100000", "ports = [\"web\"]");
    // Others of these tests have servers on the ports that every daemon leases.
    let supervisor = format!("{SUPERVISOR}{}", own_ports());
    let mut daemon = Daemon::started(&supervisor, &[("web", &web), ("steady", STEADY)]);
    let port = daemon.wait_phase("web", Phase::Ready).ports["web"];
    daemon.stop();
    let holder = TcpListener::bind(("127.0.0.1", port)).unwrap();
    daemon.start();
    let own = std::process::id().to_string();
    wait_for("the holder is named", || {
        let group = daemon.group("web");
        let named = group.reason.contains(&port.to_string()) && group.reason.contains(&own);
        (named && group.phase == Phase::Sweeping).then_some(())
    });
    daemon.wait_phase("steady", Phase::Ready);
    drop(holder);
    assert_eq!(daemon.wait_phase("web", Phase::Ready).ports["web"], port);
    daemon.stop();
}

#[test]
fn a_used_up_port_range_refuses_one_group_and_says_what_to_do() {
    let three = script("web", "exec sleep 100000", "ports = [\"a\", \"b\", \"c\"]");
    let supervisor = format!("{SUPERVISOR}[ports]\nranges = [\"61990-61991\"]\n");
    let mut daemon = Daemon::started(&supervisor, &[("greedy", &three), ("steady", STEADY)]);
    daemon.wait_phase("steady", Phase::Ready);
    let said = daemon.status().warnings.join("\n");
    assert!(said.contains("no port is left") && said.contains("greedy") && said.contains("widen"), "{said}");
    daemon.stop();
}

#[test]
fn a_name_too_long_for_a_socket_path_is_refused_with_the_way_out() {
    let long = std::env::temp_dir().join("x".repeat(100));
    let daemon = Daemon::new(&format!("{SUPERVISOR}\n"), &[]);
    let out = Command::new(PROGRAM)
        .args(["run", "-config"])
        .arg(daemon.dir.join("supervisor.toml"))
        .arg("-state-dir")
        .arg(daemon.state())
        .arg("-runtime-dir")
        .arg(&long)
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&out.stderr).into_owned();
    assert!(!out.status.success() && text.contains("107") && text.contains("shorter"), "{text}");
}

#[test]
fn a_missing_program_fails_one_group_and_is_named() {
    let missing = "kind = \"exec\"\n[[component]]\nname = \"gone\"\nargv = [\"/no/such/program\"]\nbackoff = { base = \"10ms\", limit = 2 }\n";
    let mut daemon = Daemon::started(SUPERVISOR, &[("gone", missing), ("steady", STEADY)]);
    daemon.wait_phase("steady", Phase::Ready);
    wait_for("the missing program is named", || {
        let status = daemon.status();
        let reason = status.group("gone").map(|g| g.reason.clone()).unwrap_or_default();
        let said = format!("{reason}\n{}", status.warnings.join("\n"));
        said.contains("/no/such/program").then_some(())
    });
    daemon.stop();
}
