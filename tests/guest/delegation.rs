//! What a plain account is given by units/system and Delegate=yes.

use crate::systemd::{cgroup, output, property};
use crate::unit::{Unit, steady};
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

const ALL_FIVE: [&str; 5] = ["cpu", "cpuset", "io", "memory", "pids"];

/// The words of a control file, in order.
fn words(file: &Path) -> Vec<String> {
    let text = fs::read_to_string(file).unwrap_or_else(|e| panic!("{}: {e}", file.display()));
    let mut words: Vec<String> = text.split_whitespace().map(str::to_string).collect();
    words.sort();
    words
}

#[test]
fn the_unit_of_a_lingering_account_has_five_controllers_and_the_daemon_hands_on_four() {
    let unit = Unit::started("", &[("steady", steady())]);
    unit.wait_ready("steady");
    assert_eq!(output("loginctl", &["show-user", "tester", "--value", "-p", "Linger"]).trim(), "yes");
    assert_eq!(property("Delegate"), "yes");
    let cgroup = cgroup();
    assert_eq!(words(&cgroup.join("cgroup.controllers")), ALL_FIVE, "{}", cgroup.display());
    assert_eq!(words(&cgroup.join("cgroup.subtree_control")), ["cpu", "io", "memory", "pids"]);
    let status = unit.status().unwrap();
    assert!(status.cgroups.ends_with("is ours, with cpu, io, memory, pids"), "{}", status.cgroups);
    // The daemon itself sits in a leaf: a cgroup with members hands nothing down.
    assert_eq!(words(&cgroup.join("supervisor/cgroup.procs")), [unit.main_pid().to_string()]);
    let tree = cgroup.join(format!("socialweb-{}", socialweb_daemon::state_id(&crate::unit::state())));
    for file in ["memory.max", "pids.max", "cpu.max", "io.stat", "cgroup.kill"] {
        let owner = fs::metadata(tree.join(file)).unwrap_or_else(|e| panic!("{file}: {e}")).uid();
        assert_eq!(owner, nix::unistd::geteuid().as_raw(), "{file}");
    }
    unit.stop();
}
