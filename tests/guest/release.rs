//! What is handed down in a unit's cgroup by a daemon that died: in the way of the next one, unless it is taken back.

use crate::systemd::{output, systemctl, wait_for};
use crate::unit::{Unit, home};
use std::fs;

/// Stands in for a daemon: hands memory down over two levels, leaves a survivor below, and dies as of kill -9. Its second
/// run says so and stays.
const DAEMON: &str = r#"
cd /sys/fs/cgroup$(sed -n s/^0:://p /proc/self/cgroup)
[ -e inner ] && { touch ~/again; exec sleep 100000; }
mkdir -p own inner/leaf
echo $$ >own/cgroup.procs
echo +memory >cgroup.subtree_control
echo +memory >inner/cgroup.subtree_control
setsid sleep 100001 &
echo $! >inner/leaf/cgroup.procs
kill -9 $$
"#;

/// What becomes of the restart of such a unit, when what it left is not killed.
#[derive(Debug, PartialEq)]
enum Restart {
    /// The second run is there.
    Runs,
    /// systemd could not put it into the unit's cgroup.
    Refused,
}

fn restart_of(name: &str, stop_post: &str) -> Restart {
    let service = format!(
        "[Service]\nDelegate=yes\nKillMode=none\nRestart=on-failure\nRestartSec=1\n{stop_post}\nExecStart=/bin/bash {}\n",
        home("stand-in").display()
    );
    let _of_another = fs::remove_file(home("again"));
    fs::write(home("stand-in"), DAEMON).unwrap();
    fs::write(home(&format!(".config/systemd/user/{name}")), service).unwrap();
    systemctl(&["daemon-reload"]);
    systemctl(&["start", "--no-block", name]);
    // EXIT_CGROUP of systemd.exec(5).
    let refused = || systemctl(&["show", name, "--value", "-p", "ExecMainStatus"]).trim() == "219";
    let seen = wait_for("the restart", || match home("again").exists() {
        true => Some(Restart::Runs),
        false => refused().then_some(Restart::Refused),
    });
    systemctl(&["kill", "--signal=KILL", name]);
    systemctl(&["stop", name]);
    fs::remove_file(home(&format!(".config/systemd/user/{name}"))).unwrap();
    seen
}

#[test]
fn a_unit_starts_again_beside_survivors_when_its_controllers_were_taken_back() {
    if !crate::support::long("release::a_unit_starts_again_beside_survivors") {
        return;
    }
    let _program = Unit::installed("", &[]);
    assert_eq!(restart_of("without.service", ""), Restart::Refused, "or nothing needs to be taken back");
    let release = "ExecStopPost=%h/.local/bin/socialweb-computer internal release-controllers";
    let restart = restart_of("with.service", release);
    assert_eq!(
        restart,
        Restart::Runs,
        "{}",
        output("journalctl", &["--user", "-b", "-u", "with.service", "--no-pager"])
    );
}
