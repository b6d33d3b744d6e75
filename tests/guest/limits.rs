//! Bounds where controllers are delegated: in force, and the kernel's kill is told as the cause of a death.

use crate::systemd::{cgroup, number, property};
use crate::unit::{Unit, group, script, state, steady};
use socialweb_wire::{Cause, Phase};
use std::fs;

const MIB: u64 = 1 << 20;

/// Eats memory when it is told to, once; its second run is content.
fn eater() -> String {
    let text = "[ -e {dir}/eaten ] && exec sleep 100000; until [ -e {dir}/go ]; do sleep 1; done; touch {dir}/eaten; exec tail /dev/zero";
    let eater = script("eater", text, "limits = { memory_max = \"48MiB\" }");
    let beside = script("beside", "exec sleep 100001", "");
    group(&["[limits]\nmemory_max = \"256MiB\"\npids_max = 100\n".into(), eater, beside])
}

#[test]
fn out_of_memory_is_the_end_of_one_component_and_told_as_its_cause() {
    let unit = Unit::started("", &[("hungry", eater()), ("steady", steady())]);
    let before = unit.wait_ready("hungry");
    let steady = unit.wait_ready("steady");
    let bounds: Vec<(&str, u64)> = before.bounds.iter().map(|(name, value)| (name.as_str(), *value)).collect();
    assert_eq!(bounds, [("eater.memory_max", 48 * MIB), ("memory_max", 256 * MIB), ("pids_max", 100)]);
    assert_eq!(before.bounds_missing, Vec::<String>::new());
    let tree = cgroup().join(format!("socialweb-{}", socialweb_daemon::state_id(&state())));
    let bound = |file: &str| fs::read_to_string(tree.join("hungry").join(file)).unwrap().trim().to_string();
    assert_eq!((bound("memory.max"), bound("pids.max")), ((256 * MIB).to_string(), "100".into()));
    fs::write(state().join("groups/hungry/go"), "").unwrap();
    let after = unit.wait_group("the eater is dead and back", "hungry", |now| {
        now.phase == Phase::Ready && now.component("eater").unwrap().restarts > 0
    });
    let end = after.component("eater").unwrap().last_end.expect("how it ended");
    assert_eq!(end.by, Cause::OutOfMemory, "{end:?}");
    assert!(end.oom_kills >= 1, "{end:?}");
    let pid = |status: &socialweb_wire::GroupStatus, name: &str| status.component(name).unwrap().pid;
    assert_eq!(pid(&after, "beside"), pid(&before, "beside"), "the bound is one component's");
    assert_eq!(pid(&unit.wait_ready("steady"), "steady"), pid(&steady, "steady"));
    assert_eq!((property("ActiveState").as_str(), number("NRestarts")), ("active", 0), "OOMPolicy=continue");
    unit.stop();
}
