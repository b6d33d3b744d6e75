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
    assert!(daemon.ctl_ok(&["metrics"]).contains("two"));
    assert!(daemon.ctl_ok(&["events", "two"]).contains("Ready"));
    daemon.ctl_ok(&["restart", "two/b"]);
    daemon.ctl_ok(&["stop", "two"]);
    let receipt = daemon.ctl_ok(&["receipt", "two"]);
    assert!(receipt.find(" b ").or(receipt.find("b")).is_some() && receipt.contains("a"), "{receipt}");
    daemon.stop();
}

#[test]
fn ctl_without_a_daemon_says_so_with_exit_code_3() {
    let daemon = Daemon::new(SUPERVISOR, &[]);
    let out = daemon.ctl(&["status"]);
    assert_eq!(out.status.code(), Some(3), "{out:?}");
    assert_eq!(daemon.ctl(&["no-such-verb"]).status.code(), Some(2));
}
