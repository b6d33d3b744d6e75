//! What components say is in the account's own journal, with our fields.

use crate::systemd::{UNIT, entries, wait_for};
use crate::unit::{Unit, group, script};

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
