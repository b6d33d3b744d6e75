//! A real tenant over an orderly reboot of its host: Ready again by itself, at the same address, with its credentials.

use crate::support::try_wait_within;
use crate::systemd::{UNIT, systemctl};
use crate::unit::{Unit, files, home, state};
use socialweb_wire::{GroupStatus, Phase};
use std::collections::BTreeMap;
use std::fs;
use std::time::Duration;

/// An emulated API server takes minutes for what takes seconds elsewhere.
const HOUR: Duration = Duration::from_secs(3600);

/// The programs come with the guest's disk; every limit is what an emulated machine may need.
fn supervisor() -> String {
    let parts = ["credentials", "kine", "openbao", "k3s", "bring-up"];
    let limits = parts.map(|part| format!("[defaults.timeouts.{part}]\ndeadline = \"40m\"\ncap = \"50m\"\n"));
    format!("[binaries]\nsearch = [\"/in/bin\"]\n[budgets]\nstart_hold = \"50m\"\n{}", limits.concat())
}

fn wait_ready(unit: &Unit) -> GroupStatus {
    let mut last = None;
    let seen = try_wait_within(HOUR, Duration::from_secs(5), || {
        last = unit.status()?.group("demo").cloned();
        last.clone().filter(|group| group.phase == Phase::Ready)
    });
    seen.unwrap_or_else(|| panic!("the tenant is not Ready: {last:#?}"))
}

/// What must not change in a cluster's whole life: its ports, and the certificates of its authorities.
fn lasting(group: &GroupStatus) -> (BTreeMap<String, u16>, BTreeMap<String, String>) {
    let mut authorities = BTreeMap::new();
    for file in files(&state().join("groups/demo/pki")) {
        let text = fs::read_to_string(&file).unwrap();
        if text.contains("BEGIN CERTIFICATE") {
            authorities.insert(file.display().to_string(), text);
        }
    }
    assert!(!authorities.is_empty());
    (group.ports.clone(), authorities)
}

mod first_boot {
    use super::*;

    #[test]
    fn a_tenant_comes_up() {
        let unit = Unit::installed(&supervisor(), &[("demo", "account = \"demo\"\n".into())]);
        systemctl(&["enable", "--now", UNIT]);
        let group = wait_ready(&unit);
        fs::write(home("lasting.json"), serde_json::to_vec(&lasting(&group)).unwrap()).unwrap();
        unit.keep();
    }
}

mod second_boot {
    use super::*;

    #[test]
    fn the_tenant_is_ready_again_with_the_same_ports_and_authorities() {
        let unit = Unit::of_earlier_boot();
        let group = wait_ready(&unit);
        let before: (BTreeMap<String, u16>, BTreeMap<String, String>) =
            serde_json::from_slice(&fs::read(home("lasting.json")).unwrap()).unwrap();
        assert_eq!(lasting(&group), before);
        let stopped = unit.receipts("demo").into_iter().find(|receipt| receipt.why.why == "shutdown");
        assert!(stopped.is_some_and(|receipt| receipt.removed), "the reboot stopped it in order");
    }
}
