//! The account lingers: its unit is no part of anybody's login.

use crate::systemd::{UNIT, output, wait_for};
use crate::unit::{Unit, steady};
use std::process::{Command, Stdio};

/// State of the account and its sessions, as logind knows them.
fn login() -> (String, String) {
    let ask = |what: &str| output("loginctl", &["show-user", "tester", "--value", "-p", what]).trim().to_string();
    (ask("State"), ask("Sessions"))
}

#[test]
fn what_was_started_in_a_login_survives_the_logout() {
    let unit = Unit::installed("", &[("steady", steady())]);
    assert_eq!(login(), ("lingering".into(), String::new()), "nobody is logged in");
    // Logs in, starts the unit, and stays until its input ends. Whatever else the session starts is killed with it.
    let script = format!("XDG_RUNTIME_DIR=/run/user/$(id -u) systemctl --user start {UNIT}; cat");
    let mut session = Command::new("su");
    session.args(["-l", "tester", "-c", &script]).stdin(Stdio::piped());
    let mut session = session.spawn().expect("su");
    wait_for("a login", || Some(login()).filter(|(_, sessions)| !sessions.is_empty()));
    let before = unit.wait_ready("steady");
    let main = unit.main_pid();
    drop(session.stdin.take());
    session.wait().unwrap();
    wait_for("the logout", || Some(login()).filter(|(state, sessions)| state == "lingering" && sessions.is_empty()));
    let after = unit.wait_ready("steady");
    assert_eq!(unit.main_pid(), main);
    assert_eq!(after.components[0].pid, before.components[0].pid);
    unit.stop();
}
