//! systemctl, journalctl and loginctl, as the account calls them.

use std::process::{Command, Output, Stdio};
use std::time::Duration;

/// The supervisor's unit.
pub const UNIT: &str = "socialweb-computer-gateway.service";

/// What a slow machine may take for one state. An emulated one on two busy cores is some thirty times slower than a real one.
const PATIENCE: Duration = Duration::from_secs(480);
/// Each look costs a program or two, which the machine has better uses for.
const BETWEEN_LOOKS: Duration = Duration::from_millis(300);

/// Runs a program that must succeed; gives back what it printed.
pub fn output(program: &str, args: &[&str]) -> String {
    let out = try_output(program, args);
    let said = String::from_utf8_lossy(&out.stderr);
    assert!(out.status.success(), "{program} {args:?}: {}: {said}", out.status);
    String::from_utf8_lossy(&out.stdout).into_owned()
}

pub fn try_output(program: &str, args: &[&str]) -> Output {
    let started = Command::new(program).args(args).stdin(Stdio::null()).output();
    started.unwrap_or_else(|error| panic!("{program}: {error}"))
}

/// `systemctl --user`, which must succeed.
pub fn systemctl(args: &[&str]) -> String {
    output("systemctl", &[&["--user"], args].concat())
}

/// A property of the unit, as the manager knows it now.
pub fn property(name: &str) -> String {
    systemctl(&["show", UNIT, "--value", "-p", name]).trim().to_string()
}

/// The same as a number; 0 where it has none.
pub fn number(name: &str) -> u32 {
    property(name).parse().unwrap_or(0)
}

/// The cgroup of the unit, as a folder.
pub fn cgroup() -> std::path::PathBuf {
    format!("/sys/fs/cgroup{}", property("ControlGroup")).into()
}

/// What the manager and the daemon said of the unit in this boot.
pub fn unit_journal() -> String {
    output("journalctl", &["--user", "-b", "-u", UNIT, "-o", "cat", "--no-pager"])
}

/// Journal entries of this boot with these fields, oldest first.
pub fn entries(matches: &[&str]) -> Vec<serde_json::Value> {
    let text = output("journalctl", &[&["--user", "-b", "-o", "json", "--no-pager"], matches].concat());
    text.lines().map(|line| serde_json::from_str(line).unwrap_or_else(|e| panic!("{e}: {line}"))).collect()
}

/// Waits for a state.
pub fn wait_for<T>(what: &str, look: impl FnMut() -> Option<T>) -> T {
    try_wait_for(look).unwrap_or_else(|| panic!("waited {} s for: {what}", PATIENCE.as_secs()))
}

/// The same for who has more to say when it does not come.
pub fn try_wait_for<T>(look: impl FnMut() -> Option<T>) -> Option<T> {
    crate::support::try_wait_within(PATIENCE, BETWEEN_LOOKS, look)
}
