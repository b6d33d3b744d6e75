//! What is handed down in a unit's cgroup by a daemon that died: in the way of the next one, unless it is taken back.

use crate::systemd::{output, systemctl, wait_for};
use crate::unit::{Unit, home};
use std::fs;

/// Stands in for a daemon: hands memory down over two levels, leaves a survivor below, and dies as of kill -9. Its second
/// run stays.
const DAEMON: &str = r#"
cd /sys/fs/cgroup$(sed -n s/^0:://p /proc/self/cgroup)
[ -e inner ] && exec sleep 100000
mkdir -p own inner/leaf
echo $$ >own/cgroup.procs
echo +memory >cgroup.subtree_control
echo +memory >inner/cgroup.subtree_control
setsid sleep 100001 &
echo $! >inner/leaf/cgroup.procs
kill -9 $$
"#;

/// The state that a restart of such a unit comes to, when what it left is not killed.
fn restarted(name: &str, stop_post: &str) -> (String, String) {
    let service = format!(
        "[Service]\nDelegate=yes\nKillMode=none\nRestart=on-failure\nRestartSec=100ms\n{stop_post}\nExecStart=/bin/bash {}\n",
        home("stand-in").display()
    );
    fs::write(home("stand-in"), DAEMON).unwrap();
    fs::write(home(&format!(".config/systemd/user/{name}")), service).unwrap();
    systemctl(&["daemon-reload"]);
    systemctl(&["start", "--no-block", name]);
    let show = |what: &str| systemctl(&["show", name, "--value", "-p", what]).trim().to_string();
    let seen = wait_for("the restart", || {
        let now = (show("ActiveState"), show("ExecMainStatus"), show("NRestarts"));
        (now.2 != "0" && (now.1 == "219" || now.0 == "active")).then_some((now.0, now.1))
    });
    systemctl(&["kill", "--signal=KILL", name]);
    systemctl(&["stop", name]);
    fs::remove_file(home(&format!(".config/systemd/user/{name}"))).unwrap();
    seen
}

#[test]
fn a_unit_starts_again_beside_survivors_when_its_controllers_were_taken_back() {
    let unit = Unit::installed("", &[]);
    let (_, status) = restarted("without.service", "");
    assert_eq!(status, "219", "without it systemd cannot put the next process into the unit's cgroup");
    let (state, _) =
        restarted("with.service", "ExecStopPost=%h/.local/bin/socialweb-computer internal release-controllers");
    assert_eq!(state, "active", "{}", output("journalctl", &["--user", "-b", "-u", "with.service", "--no-pager"]));
    drop(unit);
}
