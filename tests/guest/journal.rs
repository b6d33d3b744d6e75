//! What components say is in the account's own journal, with our fields.

use crate::systemd::{UNIT, entries, wait_for};
use crate::unit::{Unit, group, script};
use socialweb_wire::LogCounts;
use std::process::{Command, Stdio};

/// Far above the burst that this machine's journald lets a service have.
const BURST: u64 = 3000;

#[test]
fn a_line_of_a_component_is_found_by_its_cluster_with_priority_and_birth() {
    let talk = "echo plain words; echo '<3>it burns' >&2; exec sleep 100000";
    let unit = Unit::started("", &[("demo", group(&[script("talk", talk, "")]))]);
    let status = unit.wait_ready("demo");
    // Both lines of this very run, and nobody else's.
    let birth = format!("SOCIALWEB_BIRTH={}", status.component("talk").unwrap().birth.unwrap());
    let lines = wait_for("both lines in the journal", || {
        let found = entries(&["SOCIALWEB_CLUSTER=demo", "SOCIALWEB_COMPONENT=talk", &birth]);
        (found.len() >= 2).then_some(found)
    });
    let has = |text: &str, priority: &str| {
        let line = lines.iter().find(|entry| entry["MESSAGE"] == text);
        let line = line.unwrap_or_else(|| panic!("no line {text:?}: {lines:#?}"));
        assert_eq!(line["PRIORITY"], priority, "{line:#}");
        assert_eq!(line["SYSLOG_IDENTIFIER"], "demo/talk", "{line:#}");
        assert_eq!(line["_SYSTEMD_USER_UNIT"], UNIT, "{line:#}");
        assert_eq!(line["_UID"], nix::unistd::geteuid().to_string(), "{line:#}");
    };
    has("plain words", "6");
    has("it burns", "3");
    unit.stop();
}

/// How many of these lines are in the journal, when all of them were sent.
fn arrived(matches: &[&str]) -> u64 {
    entries(matches).iter().filter(|e| e["MESSAGE"].as_str().is_some_and(|m| m.starts_with("line "))).count() as u64
}

#[test]
fn a_burst_is_in_the_journal_whole_by_the_drop_in_and_cut_by_journald_without() {
    // These tests are a service of their own, for which there is no drop-in.
    let talk = format!("seq -f 'line %g' {BURST}; echo the-end; exec sleep 100000");
    let mut plain = Command::new("systemd-cat");
    plain.args(["-t", "plain-burst", "seq", "-f", "line %g", &BURST.to_string()]).stdin(Stdio::null());
    assert!(plain.status().unwrap().success());
    let unit = Unit::started("", &[("burst", group(&[script("talk", &talk, "")]))]);
    let status = unit.wait_ready("burst");
    let birth = format!("SOCIALWEB_BIRTH={}", status.component("talk").unwrap().birth.unwrap());
    let counts = || unit.status()?.group("burst")?.component("talk")?.log;
    let end: LogCounts =
        wait_for("every line was taken or dropped", || counts().filter(|c| c.lines > BURST && c.waiting == 0));
    let of_daemon = wait_for("what journald took can be read", || {
        let found = arrived(&["SOCIALWEB_CLUSTER=burst", &birth]);
        (found + end.dropped >= BURST).then_some(found)
    });
    let plain = arrived(&["SYSLOG_IDENTIFIER=plain-burst"]);
    println!(
        "in the journal of {BURST} lines: {of_daemon} of a component (the daemon dropped {}), {plain} of a plain service",
        end.dropped
    );
    // Whatever the daemon could not hand over it counted; journald threw none away.
    assert!(of_daemon <= BURST && of_daemon + end.dropped >= BURST, "{of_daemon} {end:?}");
    assert!(plain < BURST / 2, "journald's limit was not reached: {plain}");
    unit.stop();
}
