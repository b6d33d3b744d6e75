//! doctor and drill where they matter: on a host as it should be.

use crate::support::long;
use crate::unit::{Unit, steady};
use socialweb_wire::{Health, Report};

fn report(unit: &Unit, verb: &str) -> Report {
    let out = unit.ctl(&[verb, "-o", "json"]);
    serde_json::from_slice(&out.stdout).unwrap_or_else(|error| panic!("no report ({error}): {out:?}"))
}

#[test]
fn doctor_finds_nothing_wrong_with_an_installation_by_the_book() {
    if !long("ops::doctor_finds_nothing_wrong") {
        return;
    }
    let unit = Unit::started("", &[("steady", steady())]);
    unit.wait_ready("steady");
    let found = report(&unit, "doctor");
    for name in ["daemon", "delegation", "linger", "journal", "configuration", "leftovers"] {
        let check = found.checks.iter().find(|check| check.name == name);
        assert!(check.is_some_and(|check| check.health == Health::Ok), "{name}: {found:#?}");
    }
    // What the drop-in says, as journald was told it.
    assert!(found.checks.iter().any(|check| check.name == "journal" && check.text.contains("1000000")), "{found:#?}");
    unit.stop();
}

#[test]
fn the_drill_passes_with_delegated_controllers_and_touches_no_other_group() {
    if !long("ops::the_drill_passes") {
        return;
    }
    let unit = Unit::started("", &[("steady", steady())]);
    let before = unit.wait_ready("steady");
    let found = report(&unit, "drill");
    assert_eq!(found.health, Health::Ok, "{found:#?}");
    assert_eq!(unit.wait_ready("steady").components[0].pid, before.components[0].pid);
    assert!(unit.status().unwrap().group("socialweb-drill").is_none());
    unit.stop();
    assert_eq!(unit.marked(), []);
}
