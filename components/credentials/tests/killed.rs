//! `ensure` in a process of its own, killed at any moment: the next run completes it.
#![allow(clippy::unwrap_used)]

use std::process::{Command, Stdio};
use std::time::Duration;

/// Names the group's folder for the test that is run as a process of its own.
const CHILD: &str = "SOCIALWEB_TEST_ENSURE";

#[test]
#[ignore = "the process that the next test kills"]
fn ensure_as_its_own_process() {
    if let Some(dir) = std::env::var_os(CHILD) {
        socialweb_credentials::ensure(dir.as_ref()).unwrap();
    }
}

#[test]
fn a_kill_at_any_moment_is_harmless() {
    let mut unfinished = 0;
    for moment in 0..40 {
        let tmp = tempfile::tempdir().unwrap();
        let dir = tmp.path().join("demo");
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "ensure_as_its_own_process", "--ignored"])
            .env(CHILD, &dir)
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        while !dir.exists() && child.try_wait().unwrap().is_none() {
            std::thread::sleep(Duration::from_micros(50));
        }
        // No state to wait for: the moments in between are the point. All of it takes a few milliseconds.
        std::thread::sleep(Duration::from_micros(moment * 250));
        child.kill().unwrap();
        child.wait().unwrap();
        unfinished += u32::from(!dir.join("credentials/openbao-server").exists());
        socialweb_credentials::ensure(&dir).unwrap();
        let report = socialweb_credentials::ensure(&dir).unwrap();
        assert!(report.created.is_empty() && report.renewed.is_empty(), "{report:?}");
    }
    assert!(unfinished > 0, "no run was killed before its end");
}
