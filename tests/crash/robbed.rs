//! What belongs to a daemon is taken away, copied or found again elsewhere.

use crate::scene::{GROUP, Manners, Scene};
use crate::support::{Daemon, PROGRAM, cgroup2_mount, skip, wait_for};
use crate::{STEADY, SUPERVISOR};
use socialweb_wire::Phase;
use std::fs;

#[test]
fn sockets_whose_files_are_gone_are_bound_again() {
    let talk = "exec python3 -c 'import socket,os,time; s=socket.socket(socket.AF_UNIX,socket.SOCK_DGRAM); s.sendto(b\"READY=1\",os.environ[\"NOTIFY_SOCKET\"]); time.sleep(100000)'";
    let notify = format!(
        "kind = \"exec\"\n[[component]]\nname = \"c\"\nargv = [\"sh\", \"-c\", '''{talk}''']\nenv = {{ PATH = \"/usr/bin:/bin\" }}\nreadiness = {{ kind = \"notify\" }}\n"
    );
    let mut daemon = Daemon::started(SUPERVISOR, &[("talker", &notify), ("steady", STEADY)]);
    let pid = daemon.wait_phase("talker", Phase::Ready).components[0].pid;
    fs::remove_file(daemon.runtime.join("admin.sock")).unwrap();
    fs::remove_file(daemon.runtime.join("notify.sock")).unwrap();
    wait_for("the daemon answers again", || daemon.try_status().map(|_| ()));
    wait_for("its notify socket is back", || daemon.runtime.join("notify.sock").exists().then_some(()));
    daemon.ctl_ok(&["restart", "talker"]);
    assert_ne!(daemon.wait_phase("talker", Phase::Ready).components[0].pid, pid);
    daemon.stop();
    daemon.assert_nothing_left();
}

#[test]
fn a_state_folder_that_is_moved_away_is_told_and_brings_no_second_daemon() {
    let mut daemon = Daemon::started(SUPERVISOR, &[("steady", STEADY)]);
    let pid = daemon.wait_phase("steady", Phase::Ready).components[0].pid;
    let (state, away) = (daemon.state(), daemon.dir.join("away"));
    fs::rename(&state, &away).unwrap();
    let told = |daemon: &Daemon| daemon.status().warnings.iter().any(|w| w.contains("moved away"));
    wait_for("it is told", || told(&daemon).then_some(()));
    // A second daemon on a new folder of the old name, with sockets elsewhere: it would end all that the first one runs.
    let mut second = std::process::Command::new(PROGRAM);
    second.args(["run", "-config"]).arg(daemon.dir.join("supervisor.toml")).arg("-state-dir").arg(&state);
    let out = second.arg("-runtime-dir").arg(daemon.dir.join("run")).output().unwrap();
    let text = String::from_utf8_lossy(&out.stderr).into_owned();
    assert!(!out.status.success(), "{text}");
    assert!(text.contains("same name") && text.contains(&format!("pid {}", daemon.pid())), "{text}");
    assert_eq!(daemon.group("steady").components[0].pid, pid, "the first one's processes are left alone");
    let _ = fs::remove_dir_all(&state);
    fs::rename(&away, &state).unwrap();
    wait_for("it is back", || (!told(&daemon)).then_some(()));
    daemon.stop();
    daemon.assert_nothing_left();
}

#[test]
fn what_runs_under_the_old_name_of_a_moved_state_folder_is_ended_with_a_receipt() {
    let scene = Scene::new("moved", Manners::Follows);
    let mut daemon = Daemon::started(SUPERVISOR, &[(GROUP, &scene.config(1)), ("steady", STEADY)]);
    let ports = daemon.wait_phase(GROUP, Phase::Ready).ports;
    scene.wait_starts(&daemon, 0, 1);
    let left = daemon.marked();
    let cgroups = daemon.cgroups();
    daemon.kill_9();
    let mark = Scene::mark();
    let moved = daemon.dir.join("moved");
    fs::rename(daemon.state(), &moved).unwrap();
    let mut daemon = daemon.with_state(&moved);
    daemon.start();
    assert_eq!(daemon.wait_phase(GROUP, Phase::Ready).ports, ports);
    scene.wait_starts(&daemon, mark, 1);
    for (pid, comm) in left {
        let named = |group| daemon.receipts(group).iter().any(|r| r.strays.iter().any(|s| s.pid == pid));
        assert!(named(GROUP) || named("steady"), "pid {pid} ({comm}) was ended without a receipt\n{}", daemon.log());
    }
    daemon.stop();
    daemon.assert_nothing_left();
    assert!(cgroups.iter().all(|c| !c.exists()), "the old subtree is left: {cgroups:?}");
}

#[test]
fn a_subtree_at_an_old_place_is_emptied_group_by_group_with_a_receipt() {
    let name = "a_subtree_at_an_old_place_is_emptied_group_by_group_with_a_receipt";
    let Some(root) = cgroup2_mount() else { return skip(name, "cgroup2: there is none") };
    let place = root.join(format!("sw-old-place-{}", std::process::id()));
    if fs::create_dir(&place).is_err() {
        return skip(name, "cgroup2: it is not writable here");
    }
    // One without a marker: only its cgroup tells whose it is.
    let text = "kind = \"exec\"\n[[component]]\nname = \"c\"\nargv = [\"sh\", \"-c\", '''env -i /bin/sleep 100003 & exec sleep 100000''']\nenv = { PATH = \"/usr/bin:/bin\" }\nstop = { grace = \"1s\" }\n";
    let mut daemon =
        Daemon::new(SUPERVISOR, &[("unmarked", text)]).with_flags(&["-cgroup", &place.display().to_string()]);
    daemon.start();
    daemon.wait_phase("unmarked", Phase::Ready);
    let id = socialweb_daemon::state_id(&daemon.state());
    let group = socialweb_sys::Cgroup::at(place.join(format!("socialweb-{id}/unmarked")));
    let inside = wait_for("both processes are there", || Some(group.pids().unwrap()).filter(|p| p.len() == 2));
    daemon.kill_9();
    let mut daemon = daemon.without_flags();
    daemon.start();
    daemon.wait_phase("unmarked", Phase::Ready);
    let receipts = daemon.receipts("unmarked");
    for pid in inside {
        let named = receipts.iter().any(|r| r.why.why == "survivors" && r.strays.iter().any(|s| s.pid == pid));
        assert!(named, "pid {pid} has no receipt: {receipts:#?}\n{}", daemon.log());
    }
    daemon.stop();
    daemon.assert_nothing_left();
    wait_for("the old place is empty", || fs::remove_dir(&place).ok());
}
