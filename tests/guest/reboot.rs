//! Three groups over an orderly reboot of the host: stopped in order, back by themselves, one after the other, on their ports.

use crate::unit::{Unit, group, home, script};
use socialweb_wire::GroupStatus;
use std::collections::BTreeMap;
use std::fs;

pub const GROUPS: [&str; 3] = ["one", "three", "two"];

/// Only one group may be coming up at any time, and keeps that place for as long as an emulated machine may need.
pub const ONE_AT_A_TIME: &str = "[budgets]\nmax_concurrent_starts = 1\nstart_hold = \"20m\"\n";

/// A group of two ranks; the upper one writes when its start begins and when it is up, into one file per boot for all groups.
pub fn clusters() -> Vec<(&'static str, String)> {
    let order = home("order.$(cat /proc/sys/kernel/random/boot_id)");
    let order = order.display();
    let text = format!(
        "trap 'kill $!; exit 0' TERM; echo begin {{group}} >> {order}; sleep 2; echo up {{group}} >> {order}; echo serves on {{port.web}}; while :; do sleep 1000 & wait; done"
    );
    let ready = "readiness = { kind = \"log-line\", contains = \"serves on\", deadline = \"10m\", cap = \"15m\" }";
    let web = format!("needs = [\"base\"]\nports = [\"web\"]\n{ready}");
    let one = group(&[script("base", "exec sleep 100000", ""), script("web", &text, &web)]);
    GROUPS.iter().map(|name| (*name, one.clone())).collect()
}

/// What this boot's file says: pairs of `begin` and `up`, none within another.
pub fn assert_one_after_the_other() {
    let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap();
    let text = fs::read_to_string(home(&format!("order.{}", boot.trim()))).unwrap();
    let words: Vec<(&str, &str)> = text.lines().filter_map(|line| line.split_once(' ')).collect();
    let mut started: Vec<&str> = words.iter().map(|(_, group)| *group).step_by(2).collect();
    assert!(words.chunks(2).all(|p| p.len() == 2 && p[0] == ("begin", p[0].1) && p[1] == ("up", p[0].1)), "{text}");
    started.sort_unstable();
    assert_eq!(started, GROUPS, "each started once");
}

/// Ports by group, in a file for the next boot.
pub fn write_ports(groups: &[GroupStatus]) {
    fs::write(home("ports.json"), serde_json::to_vec(&ports(groups)).unwrap()).unwrap();
}

pub fn ports(groups: &[GroupStatus]) -> BTreeMap<String, u16> {
    groups.iter().map(|group| (group.name.clone(), group.ports["web"])).collect()
}

pub fn read_ports() -> BTreeMap<String, u16> {
    serde_json::from_slice(&fs::read(home("ports.json")).unwrap()).unwrap()
}

mod first_boot {
    use super::*;
    use crate::systemd::{UNIT, systemctl};

    #[test]
    fn three_groups_come_up_one_after_the_other_each_with_a_port() {
        let unit = Unit::installed(ONE_AT_A_TIME, &clusters());
        systemctl(&["enable", "--now", UNIT]);
        let groups = GROUPS.map(|group| unit.wait_ready(group));
        assert_one_after_the_other();
        assert_eq!(ports(&groups).len(), 3);
        write_ports(&groups);
        unit.keep();
    }
}

mod second_boot {
    use super::*;
    use crate::systemd::wait_for;
    use socialweb_wire::Rung;

    #[test]
    fn the_groups_were_stopped_in_order_and_are_back_one_after_the_other_on_the_same_ports() {
        let unit = Unit::of_earlier_boot();
        // Nobody starts it: the account lingers and the unit is enabled.
        wait_for("the daemon answers", || unit.status());
        let groups = GROUPS.map(|group| unit.wait_ready(group));
        assert_one_after_the_other();
        assert_eq!(ports(&groups), read_ports());
        for group in GROUPS {
            let receipt = unit.receipts(group).into_iter().find(|r| r.why.why == "shutdown").expect("of the reboot");
            assert!(receipt.removed, "{receipt:#?}");
            let order: Vec<(&str, Rung)> = receipt.components.iter().map(|c| (c.component.as_str(), c.rung)).collect();
            assert_eq!(order, [("web", Rung::Signal), ("base", Rung::Signal)], "{receipt:#?}");
        }
    }
}
