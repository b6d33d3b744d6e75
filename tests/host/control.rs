//! What an operator does: reload, restart, delete, park, watch.

use crate::support::{Daemon, wait_for};
use crate::{STEADY, SUPERVISOR, script};
use nix::sys::signal::Signal;
use socialweb_wire::Phase;

const TWO: &str = r#"
kind = "exec"
[[component]]
name = "a"
argv = ["sleep", "100000"]
[[component]]
name = "b"
needs = ["a"]
argv = ["sleep", "100001"]
"#;

fn pids(daemon: &Daemon, group: &str) -> Vec<Option<u32>> {
    daemon.group(group).components.iter().map(|c| c.pid).collect()
}

#[test]
fn an_edit_restarts_one_component_and_a_policy_edit_none() {
    // Supervisor/supervisor 1154 and 1637.
    let mut daemon = Daemon::started(SUPERVISOR, &[("two", TWO), ("steady", STEADY)]);
    daemon.wait_phase("two", Phase::Ready);
    let before = pids(&daemon, "two");
    daemon.write_cluster("two", &format!("{TWO}restart = \"never\"\n"));
    let plan = daemon.ctl_ok(&["reload", "--dry-run"]);
    assert!(plan.contains("restart") && plan.contains("two.toml:10"), "the plan names key, file and line: {plan}");
    daemon.ctl_ok(&["reload"]);
    assert_eq!(pids(&daemon, "two"), before, "a policy edit restarts nothing");
    daemon.write_cluster("two", &TWO.replace("100001", "100002"));
    let plan = daemon.ctl_ok(&["reload", "--dry-run"]);
    assert!(plan.contains("argv"), "{plan}");
    assert_eq!(pids(&daemon, "two"), before, "a dry run changes nothing");
    daemon.signal(Signal::SIGHUP);
    wait_for("only b is another process", || {
        let now = daemon.group("two");
        let pids: Vec<_> = now.components.iter().map(|c| c.pid).collect();
        (now.phase == Phase::Ready && pids[0] == before[0] && pids[1].is_some() && pids[1] != before[1]).then_some(())
    });
    daemon.stop();
}

#[test]
fn a_file_that_is_gone_parks_its_group_and_only_delete_destroys_data() {
    let mut daemon = Daemon::started(SUPERVISOR, &[("two", TWO), ("steady", STEADY)]);
    daemon.wait_phase("two", Phase::Ready);
    let refused = daemon.ctl(&["delete", "two", "--yes"]);
    assert_eq!(refused.status.code(), Some(1), "a declared group is not deleted: {refused:?}");
    daemon.remove_cluster("two");
    daemon.ctl_ok(&["reload"]);
    let group = daemon.wait_phase("two", Phase::Parked);
    assert!(!group.declared);
    assert!(daemon.state().join("groups/two").is_dir(), "parking destroys nothing");
    daemon.stop();
    daemon.start();
    assert!(!daemon.wait_phase("two", Phase::Parked).declared, "it is still shown after a restart");
    daemon.ctl_ok(&["delete", "two", "--yes"]);
    assert!(!daemon.state().join("groups/two").exists());
    assert!(daemon.status().group("two").is_none());
    daemon.wait_phase("steady", Phase::Ready);
    daemon.stop();
}

#[test]
fn a_source_that_cannot_be_read_changes_nothing() {
    let mut daemon = Daemon::started(SUPERVISOR, &[("two", TWO), ("steady", STEADY)]);
    daemon.wait_phase("two", Phase::Ready);
    let before = pids(&daemon, "two");
    let (folder, away) = (daemon.dir.join("clusters.d"), daemon.dir.join("away"));
    std::fs::rename(&folder, &away).unwrap();
    let out = daemon.ctl(&["reload"]);
    assert_eq!(out.status.code(), Some(1), "the problem is told: {out:?}");
    std::fs::create_dir(&folder).unwrap();
    daemon.ctl(&["reload"]);
    assert_eq!(pids(&daemon, "two"), before, "an empty folder after a lost mount parks nobody");
    assert_eq!(daemon.group("steady").phase, Phase::Ready);
    std::fs::remove_dir(&folder).unwrap();
    std::fs::rename(&away, &folder).unwrap();
    daemon.stop();
}

#[test]
fn the_last_group_is_parked_and_deleted_when_an_empty_folder_is_said_to_be_meant() {
    let mut daemon = Daemon::started(SUPERVISOR, &[("steady", STEADY)]);
    daemon.wait_phase("steady", Phase::Ready);
    std::fs::remove_file(daemon.dir.join("clusters.d/steady.toml")).unwrap();
    let refused = daemon.ctl(&["reload"]);
    let said = String::from_utf8_lossy(&refused.stdout) + String::from_utf8_lossy(&refused.stderr);
    assert!(refused.status.code() == Some(1) && said.contains("ctl reload --allow-empty"), "{refused:?}");
    assert_eq!(daemon.group("steady").phase, Phase::Ready);
    daemon.ctl_ok(&["reload", "--allow-empty"]);
    daemon.wait_phase("steady", Phase::Parked);
    daemon.ctl_ok(&["reload"]);
    daemon.ctl_ok(&["delete", "--yes", "steady"]);
    wait_for("nothing of it is left", || (!daemon.state().join("groups/steady").exists()).then_some(()));
    daemon.ctl_ok(&["reload"]);
    daemon.stop();
}

#[test]
fn an_operators_stop_outlives_the_daemon_and_a_start_ends_it() {
    let mut daemon = Daemon::started(SUPERVISOR, &[("two", TWO)]);
    daemon.wait_phase("two", Phase::Ready);
    daemon.ctl_ok(&["stop", "two"]);
    assert_eq!(daemon.group("two").phase, Phase::Parked);
    daemon.stop();
    daemon.start();
    assert_eq!(daemon.group("two").phase, Phase::Parked);
    daemon.ctl_ok(&["start", "two"]);
    assert_eq!(daemon.group("two").phase, Phase::Ready);
    daemon.stop();
}

#[test]
fn a_group_that_was_being_stopped_when_the_daemon_was_killed_is_ended_by_the_next_one() {
    let stubborn = script(
        "stubborn",
        "trap '' TERM; echo set; while :; do sleep 1; done",
        "readiness = { kind = \"log-line\", contains = \"set\" }",
    )
    .replace("\"1s\"", "\"10m\"");
    let mut daemon = Daemon::started(SUPERVISOR, &[("stubborn", &stubborn), ("steady", STEADY)]);
    let pid = daemon.wait_phase("stubborn", Phase::Ready).components[0].pid.unwrap();
    daemon.ctl_ok(&["stop", "stubborn", "--no-wait"]);
    daemon.wait_phase("stubborn", Phase::Stopping);
    daemon.kill_9();
    daemon.start();
    assert_eq!(daemon.group("stubborn").phase, Phase::Parked, "the operator's stop still counts");
    wait_for("the survivor is gone", || (!daemon.marked().iter().any(|(p, _)| *p == pid)).then_some(()));
    wait_for("its end has a receipt", || {
        let receipts = daemon.receipts("stubborn");
        receipts.iter().any(|r| r.why.why == "survivors" && r.strays.iter().any(|s| s.pid == pid)).then_some(())
    });
    daemon.stop();
    daemon.assert_nothing_left();
}

#[test]
fn a_file_that_is_broken_at_the_start_is_no_absent_file() {
    let mut daemon = Daemon::started(SUPERVISOR, &[("two", TWO), ("steady", STEADY)]);
    daemon.wait_phase("two", Phase::Ready);
    daemon.stop();
    daemon.write_cluster("two", "this is no toml");
    daemon.start();
    daemon.wait_phase("steady", Phase::Ready);
    assert_eq!(
        daemon.ctl(&["delete", "two", "--yes"]).status.code(),
        Some(1),
        "it is declared, though nobody knows as what"
    );
    assert!(daemon.state().join("groups/two").is_dir());
    daemon.write_cluster("two", TWO);
    daemon.ctl_ok(&["reload"]);
    daemon.wait_phase("two", Phase::Ready);
    daemon.stop();
}

#[test]
fn a_recorded_log_replays_also_after_another_start() {
    let mut daemon = Daemon::started(&format!("record_events = true\n{SUPERVISOR}"), &[("two", TWO)]);
    for _ in 0..2 {
        daemon.wait_phase("two", Phase::Ready);
        daemon.ctl_ok(&["reload"]);
        daemon.stop();
        let log = daemon.state().join("groups/two/events.jsonl");
        let out = std::process::Command::new(crate::support::PROGRAM)
            .args(["internal", "replay"])
            .arg(&log)
            .output()
            .unwrap();
        let text = String::from_utf8_lossy(&out.stdout).into_owned();
        assert!(out.status.success() && text.contains("Ready") && text.contains("Parked"), "{out:?}");
        daemon.start();
    }
    daemon.stop();
}

#[test]
fn tree_metrics_logs_events_and_receipt_say_what_is_true() {
    let mut daemon =
        Daemon::started(SUPERVISOR, &[("two", TWO), ("talk", &script("talk", "echo hello; sleep 100000 & wait", ""))]);
    daemon.wait_phase("two", Phase::Ready);
    daemon.wait_phase("talk", Phase::Ready);
    wait_for("the line is kept", || daemon.ctl_ok(&["logs", "talk"]).contains("hello").then_some(()));
    wait_for("both processes are in the tree", || {
        let tree = daemon.ctl_ok(&["tree", "talk"]);
        (tree.contains("sh") && tree.contains("sleep")).then_some(())
    });
    let metrics = daemon.ctl_ok(&["metrics"]);
    assert!(metrics.contains("socialweb_group_ready{group=\"two\"} 1"), "{metrics}");
    assert!(daemon.ctl_ok(&["events", "two"]).contains("Ready"));
    daemon.ctl_ok(&["restart", "two/b"]);
    daemon.ctl_ok(&["stop", "two"]);
    let receipt = daemon.ctl_ok(&["receipt", "two", "-o", "json"]);
    let receipt: serde_json::Value = serde_json::from_str(&receipt).unwrap();
    let latest = receipt.as_array().map_or(&receipt, |all| &all[0]);
    let order: Vec<_> =
        latest["components"].as_array().unwrap().iter().map(|c| c["component"].as_str().unwrap()).collect();
    assert_eq!(order, ["b", "a"]);
    daemon.stop();
}

#[test]
fn ctl_without_a_daemon_says_so_with_exit_code_3() {
    let daemon = Daemon::new(SUPERVISOR, &[]);
    let out = daemon.ctl(&["status"]);
    assert_eq!(out.status.code(), Some(3), "{out:?}");
    assert_eq!(daemon.ctl(&["no-such-verb"]).status.code(), Some(2));
}
