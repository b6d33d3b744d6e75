//! A full disk, and a host without room for a thread: the daemon goes on, says so, and writes what it owes when there is
//! room. No group goes down for it.

use crate::scene::{GROUP, Manners, Scene};
use crate::support::{Daemon, long, own_ports, skip, wait_for};
use crate::{STEADY, SUPERVISOR};
use nix::mount::{MsFlags, mount, umount};
use nix::sys::signal::Signal;
use socialweb_wire::Phase;
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};

fn warnings(daemon: &Daemon) -> String {
    daemon.status().warnings.join("\n")
}

fn json(path: &Path) -> serde_json::Value {
    serde_json::from_slice(&fs::read(path).unwrap()).unwrap()
}

#[test]
fn records_and_leases_that_find_no_room_are_written_later_and_the_group_starts_then() {
    let scene = Scene::new("no-room", Manners::Follows);
    let mut daemon = Daemon::new(SUPERVISOR, &[(GROUP, &scene.config(1)), ("steady", STEADY)]);
    daemon.set_env("SOCIALWEB_FAILPOINT", Some("disk-record:5=enospc,disk-leases:3=enospc"));
    daemon.start();
    let port = daemon.wait_phase(GROUP, Phase::Ready).ports["web"];
    daemon.wait_phase("steady", Phase::Ready);
    scene.wait_starts(&daemon, 0, 1);
    let log = daemon.log();
    assert!(log.contains("it is tried again") && log.contains("free some space"), "{log}");
    wait_for("that all is written is told", || daemon.log().contains("nothing is owed").then_some(()));
    assert_eq!(json(&daemon.state().join("leases.json"))["leases"][port.to_string()]["group"], GROUP);
    assert_eq!(json(&daemon.state().join(format!("groups/{GROUP}/record.json")))["ports"]["web"], port);
    assert_eq!(warnings(&daemon), "");
    daemon.stop();
    daemon.assert_nothing_left();
}

#[test]
fn a_receipt_that_finds_no_room_is_kept_until_there_is_some() {
    let mut daemon = Daemon::new(SUPERVISOR, &[("steady", STEADY)]);
    daemon.set_env("SOCIALWEB_FAILPOINT", Some("disk-receipt:4=enospc"));
    daemon.start();
    daemon.wait_phase("steady", Phase::Ready);
    daemon.ctl_ok(&["restart", "steady"]);
    daemon.ctl_ok(&["restart", "steady"]);
    wait_for("both proofs are there", || (daemon.receipts("steady").len() == 2).then_some(()));
    let order: Vec<u64> = daemon.receipts("steady").iter().map(|r| r.generation).collect();
    assert_eq!(order, [1, 2], "in their order");
    assert!(daemon.log().contains("the receipt is not kept yet"), "{}", daemon.log());
    daemon.stop();
    assert_eq!(daemon.receipts("steady").len(), 3);
    daemon.assert_nothing_left();
}

#[test]
fn recorded_events_that_find_no_room_are_all_in_the_log_later_and_it_replays() {
    let supervisor = format!("record_events = true\n{SUPERVISOR}");
    let mut daemon = Daemon::new(&supervisor, &[("steady", STEADY)]);
    daemon.set_env("SOCIALWEB_FAILPOINT", Some("disk-events:12=enospc"));
    daemon.start();
    daemon.wait_phase("steady", Phase::Ready);
    daemon.ctl_ok(&["restart", "steady"]);
    assert_eq!(daemon.status().dropped_events, 0);
    daemon.stop();
    let log = daemon.state().join("groups/steady/events.jsonl");
    let mut replay = std::process::Command::new(crate::support::PROGRAM);
    let out = replay.args(["internal", "replay"]).arg(&log).output().unwrap();
    let text = String::from_utf8_lossy(&out.stdout).into_owned();
    assert!(out.status.success() && text.contains("Ready") && text.contains("Parked"), "{out:?}\n{}", daemon.log());
    daemon.assert_nothing_left();
}

#[test]
fn a_daemon_that_may_make_no_thread_goes_on() {
    let scene = Scene::new("no-thread", Manners::Follows);
    let mut daemon =
        Daemon::new(&format!("{SUPERVISOR}{}", own_ports()), &[(GROUP, &scene.config(1)), ("steady", STEADY)]);
    daemon.set_env("SOCIALWEB_FAILPOINT", Some("no-thread:1000000=enospc"));
    daemon.start();
    let port = daemon.wait_phase(GROUP, Phase::Ready).ports["web"];
    let lines = daemon.state().join(format!("groups/{GROUP}/logs/a.log"));
    wait_for("its lines are kept", || fs::read_to_string(&lines).is_ok_and(|text| text.contains("up")).then_some(()));
    daemon.ctl_ok(&["stop", GROUP]);
    let holder = std::net::TcpListener::bind(("127.0.0.1", port)).unwrap();
    daemon.ctl_ok(&["start", GROUP, "--no-wait"]);
    wait_for("the holder of its port is named", || {
        daemon.group(GROUP).reason.contains(&std::process::id().to_string()).then_some(())
    });
    drop(holder);
    daemon.wait_phase(GROUP, Phase::Ready);
    daemon.remove_cluster(GROUP);
    daemon.ctl_ok(&["reload"]);
    daemon.wait_phase(GROUP, Phase::Parked);
    daemon.ctl_ok(&["delete", GROUP, "--yes"]);
    wait_for("its data is gone", || (fs::read_dir(daemon.state().join("groups")).unwrap().count() == 1).then_some(()));
    assert!(daemon.log().contains("no thread can be made"), "{}", daemon.log());
    daemon.stop();
    daemon.assert_nothing_left();
}

#[test]
fn many_new_groups_cost_a_few_flushes_of_the_leases_and_not_one_each() {
    let text = STEADY.replace("argv", "ports = [\"web\"]\nargv");
    let names: Vec<String> = (0..24).map(|n| format!("many{n}")).collect();
    let clusters: Vec<(&str, &str)> = names.iter().map(|name| (name.as_str(), text.as_str())).collect();
    let mut daemon = Daemon::new(SUPERVISOR, &clusters);
    // A flush for each of them would come to the eighth, and the daemon would die of it.
    daemon.set_env("SOCIALWEB_FAILPOINT", Some("leases-written:8=kill"));
    daemon.start();
    for name in &names {
        daemon.wait_phase(name, Phase::Ready);
    }
    let leases = json(&daemon.state().join("leases.json"))["leases"].clone();
    assert_eq!(leases.as_object().map(|l| l.len()), Some(names.len()), "{leases}");
    daemon.stop();
    daemon.assert_nothing_left();
}

/// Its flush of the leases never ends; groups are stopped and proven empty all the same, and the daemon does not wait for ever.
#[test]
fn a_disk_that_answers_no_more_holds_up_neither_a_stop_nor_the_end() {
    if !long("a_disk_that_answers_no_more_holds_up_neither_a_stop_nor_the_end") {
        return;
    }
    let text = STEADY.replace("argv", "ports = [\"web\"]\nargv");
    let mut daemon = Daemon::new(SUPERVISOR, &[("steady", &text)]);
    daemon.set_env("SOCIALWEB_FAILPOINT", Some("leases-written:2=hang"));
    daemon.start();
    daemon.wait_phase("steady", Phase::Ready);
    daemon.write_cluster("late", &text);
    daemon.ctl_ok(&["reload"]);
    daemon.ctl_ok(&["restart", "steady"]);
    daemon.ctl_ok(&["stop", "steady"]);
    let late = daemon.group("late");
    assert!(late.phase != Phase::Ready && late.components.iter().all(|c| c.pid.is_none()), "{late:#?}");
    daemon.signal(Signal::SIGTERM);
    assert!(!daemon.wait_status().success(), "{}", daemon.log());
    assert!(daemon.log().contains("does not answer"), "{}", daemon.log());
    daemon.set_env("SOCIALWEB_FAILPOINT", None);
    daemon.start();
    daemon.wait_phase("late", Phase::Ready);
    daemon.stop();
    daemon.assert_nothing_left();
}

/// A file system of a megabyte.
struct SmallDisk {
    path: PathBuf,
}

impl SmallDisk {
    fn mount(name: &str) -> Option<SmallDisk> {
        let path = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("disk-{}-{name}", std::process::id()));
        fs::create_dir_all(&path).unwrap();
        let options = "size=1024k,mode=700";
        mount(Some("tmpfs"), &path, Some("tmpfs"), MsFlags::empty(), Some(options)).ok()?;
        Some(SmallDisk { path })
    }

    fn fill(&self) {
        let mut file = fs::File::create(self.path.join("filler")).unwrap();
        while file.write_all(&[0; 4096]).is_ok() {}
        while file.write_all(&[0; 1]).is_ok() {}
    }

    fn free(&self) {
        fs::remove_file(self.path.join("filler")).unwrap();
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let _ = crate::support::try_wait_for(|| umount(&self.path).ok());
        let _ = fs::remove_dir(&self.path);
    }
}

#[test]
fn on_a_disk_that_is_really_full_nothing_goes_down_nothing_is_lost_and_a_new_daemon_comes_up() {
    let name = "on_a_disk_that_is_really_full_nothing_goes_down_nothing_is_lost_and_a_new_daemon_comes_up";
    let Some(disk) = SmallDisk::mount("full") else {
        return skip(name, "mount: no small file system can be mounted here");
    };
    let scene = Scene::new("full", Manners::Follows);
    let daemon = Daemon::new(SUPERVISOR, &[(GROUP, &scene.config(1)), ("steady", STEADY)]);
    let mut daemon = daemon.with_state(&disk.path.join("state")).with_flags(&["-allow-tmpfs"]);
    daemon.start();
    let ports = daemon.wait_phase(GROUP, Phase::Ready).ports;
    let steady = daemon.wait_phase("steady", Phase::Ready).components[0].pid;
    scene.wait_starts(&daemon, 0, 1);
    disk.fill();

    // An operator's stop that cannot be kept is refused, with the way out, and nothing is stopped.
    let refused = daemon.ctl(&["stop", GROUP]);
    let text = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(!refused.status.success() && text.contains("free"), "{refused:?}");
    assert_eq!(daemon.group(GROUP).phase, Phase::Ready);
    // A restart needs no room: its receipt waits.
    daemon.ctl_ok(&["restart", GROUP]);
    // A new group waits, and the others do not notice.
    daemon.write_cluster("late", &STEADY.replace("argv", "ports = [\"web\"]\nargv"));
    daemon.ctl(&["reload"]);
    wait_for("what waits is told", || warnings(&daemon).contains("What waits").then_some(()));
    assert_eq!(daemon.group("steady").components[0].pid, steady);

    // The daemon is killed on the full disk, and the next one comes up on it.
    daemon.kill_9();
    let mark = Scene::mark();
    daemon.start();
    assert_eq!(daemon.wait_phase(GROUP, Phase::Ready).ports, ports);
    scene.wait_starts(&daemon, mark, 1);
    daemon.wait_phase("steady", Phase::Ready);

    disk.free();
    daemon.wait_phase("late", Phase::Ready);
    wait_for("nothing waits any more", || (!warnings(&daemon).contains("What waits")).then_some(()));
    wait_for("the sweep's receipt is kept", || {
        daemon.receipts(GROUP).iter().any(|r| r.why.why == "survivors").then_some(())
    });
    daemon.ctl_ok(&["stop", GROUP]);
    daemon.stop();
    daemon.assert_nothing_left();
    let leases = json(&daemon.state().join("leases.json"))["leases"].clone();
    assert_eq!(leases.as_object().map(|l| l.len()), Some(2), "{leases}");
    drop(daemon);
}
