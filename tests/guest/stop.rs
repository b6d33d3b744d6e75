//! `systemctl --user stop`: the order is the daemon's, and systemd's time limit is no obstacle to it.

use crate::systemd::{cgroup, property};
use crate::unit::{Unit, group, script, state};
use socialweb_wire::Rung;
use std::fs;

/// Told to stop, it says so, takes `seconds`, and says that it is gone. Its words are the witness of the order: were all
/// told at once, as systemd would do it, they would lie between each other.
fn witness(name: &str, needs: &str, seconds: u32, grace: &str) -> String {
    let told = format!("echo {name} told >> {{dir}}/trace");
    let gone = format!("echo {name} gone >> {{dir}}/trace");
    let text = format!(
        "trap '{told}; sleep {seconds}; {gone}; kill $!; exit 0' TERM; touch {{dir}}/up.{name}; while :; do sleep 1000 & wait; done"
    );
    let ready = format!(
        "readiness = {{ kind = \"exec\", argv = [\"test\", \"-e\", \"{{dir}}/up.{name}\"], deadline = \"5m\" }}"
    );
    script(name, &text, &format!("{needs}\nstop = {{ grace = \"{grace}\" }}\n{ready}"))
}

fn trace(group: &str) -> Vec<String> {
    let text = fs::read_to_string(state().join("groups").join(group).join("trace")).unwrap();
    text.lines().map(str::to_string).collect()
}

#[test]
fn the_ranks_go_down_one_by_one_and_nothing_is_left() {
    // TERM means nothing to it, and its grandchild is in a session of its own.
    let stubborn = script(
        "stubborn",
        "trap '' TERM; (setsid sleep 100001 &); while :; do sleep 100000; done",
        "needs = [\"b\"]\nstop = { grace = \"2s\" }",
    );
    let parts = [witness("a", "", 2, "5m"), witness("b", "needs = [\"a\"]", 2, "5m"), stubborn];
    let unit = Unit::started("", &[("demo", group(&parts))]);
    let status = unit.wait_ready("demo");
    assert_eq!(property("KillMode"), "mixed");
    assert!(unit.marked().len() >= 4, "the eyes that see nothing in the end see something now: {:?}", unit.marked());
    let folder = cgroup();
    unit.stop();
    assert_eq!(trace("demo"), ["b told", "b gone", "a told", "a gone"]);
    assert_eq!(unit.marked(), []);
    assert!(!folder.exists(), "the unit's cgroup is gone");
    assert_eq!((property("Result").as_str(), property("ExecMainStatus").as_str()), ("success", "0"));
    let receipt = unit.receipts("demo").pop().expect("a receipt");
    assert!(receipt.removed && receipt.why.why == "shutdown", "{receipt:#?}");
    let order: Vec<(&str, Rung)> = receipt.components.iter().map(|c| (c.component.as_str(), c.rung)).collect();
    assert_eq!(order, [("stubborn", Rung::Kill), ("b", Rung::Signal), ("a", Rung::Signal)]);
    assert_eq!(receipt.components[0].pid, status.component("stubborn").unwrap().pid);
    assert!(receipt.components[0].others.iter().any(|other| other.command == "sleep"), "{receipt:#?}");
}

#[test]
fn a_stop_that_takes_longer_than_timeoutstopsec_is_waited_for() {
    let unit = Unit::installed("", &[("slow", group(&[witness("slow", "", 45, "10m")]))]);
    // systemd would kill everything after these; the daemon tells it again and again that it needs longer.
    unit.drop_in("[Service]\nTimeoutStopSec=25\n");
    unit.start();
    unit.wait_ready("slow");
    unit.stop();
    assert_eq!(property("Result"), "success", "{}", crate::systemd::unit_journal());
    assert_eq!(trace("slow"), ["slow told", "slow gone"]);
    let receipt = unit.receipts("slow").pop().expect("a receipt");
    assert_eq!(receipt.components[0].rung, Rung::Signal, "{receipt:#?}");
}
