//! What a person who waits sees: changes only, one line each, and the receipt at the end.

use crate::run::seconds;
use socialweb_wire::{GroupStatus, Phase, Receipt};
use std::fmt::Write as _;
use std::time::{Duration, Instant};

/// Remembers the last line, so that only news are printed.
pub struct Progress {
    began: Instant,
    last: String,
}

impl Progress {
    /// Time counts from here.
    pub fn new() -> Progress {
        Progress { began: Instant::now(), last: String::new() }
    }

    /// Prints the group's line when it is a new one.
    pub fn show(&mut self, group: Option<&GroupStatus>) {
        let line = group.map_or_else(|| "waiting for the daemon to answer".to_string(), line);
        if line != self.last {
            println!("    {:>7}  {line}", seconds(self.began.elapsed()));
            self.last = line;
        }
    }

    /// Time since the beginning.
    pub fn elapsed(&self) -> Duration {
        self.began.elapsed()
    }
}

/// One line: the phase, and who is still not up and why.
fn line(group: &GroupStatus) -> String {
    let waiting: Vec<String> = group
        .components
        .iter()
        .filter(|component| !component.is_up() && component.state != "Waiting")
        .map(|component| format!("{} {}", component.name, component.state))
        .collect();
    match group.phase {
        Phase::Ready => "Ready".to_string(),
        Phase::Unavailable => format!("Unavailable: {}", group.reason),
        Phase::Stopping | Phase::Draining => format!("{}: {}", group.phase, up_now(group)),
        phase if waiting.is_empty() => format!("{phase}: {}", group.reason),
        phase => format!("{phase}: {}", waiting.join(", ")),
    }
}

fn up_now(group: &GroupStatus) -> String {
    let up: Vec<&str> = group.components.iter().filter(|c| c.pid.is_some()).map(|c| c.name.as_str()).collect();
    if up.is_empty() { "nothing runs any more".to_string() } else { format!("still running {}", up.join(", ")) }
}

/// The receipt as a table, in the order in which the components were proven gone.
pub fn receipt(receipt: &Receipt) -> String {
    let mut text = format!(
        "receipt of {} (generation {}): {}, stopped in {}\n",
        receipt.group,
        receipt.generation,
        receipt.why,
        seconds(Duration::from_millis(receipt.elapsed_ms))
    );
    let _infallible =
        writeln!(text, "  {:<28} {:>4} {:>8}  {:<12} {:<10} took", "component", "rank", "pid", "by", "left");
    for part in &receipt.components {
        let pid = part.pid.map_or_else(|| "-".to_string(), |pid| pid.to_string());
        let left = part.status.map_or_else(|| "-".to_string(), |status| status.to_string());
        let took = seconds(Duration::from_millis(part.gone.saturating_sub(part.began)));
        let _infallible =
            writeln!(text, "  {:<28} {:>4} {pid:>8}  {:<12} {left:<10} {took}", part.component, part.rank, part.rung);
        for other in &part.others {
            let _infallible = writeln!(text, "    {} (pid {}): {}", other.command, other.pid, other.by);
        }
    }
    for stray in &receipt.strays {
        let _infallible = writeln!(text, "  stray {} (pid {}): {}", stray.command, stray.pid, stray.by);
    }
    text + if receipt.removed { "  cgroup removed: nothing is left" } else { "  NOT removed: something is left" }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn group(phase: &str, components: &[(&str, &str, Option<u32>)]) -> GroupStatus {
        let components: Vec<_> = components
            .iter()
            .map(|(name, state, pid)| {
                serde_json::json!({"name": name, "rank": 1, "state": state, "detail": "", "pid": pid, "birth": null, "since_s": 0,
                    "restarts": 0, "last_exit": null, "rss_bytes": null, "cpu_usec": null})
            })
            .collect();
        serde_json::from_value(serde_json::json!({"name": "demo", "phase": phase, "since_s": 0, "reason": "because",
            "retry_in_s": null, "generation": 1, "declared": true, "url": null, "kubeconfig": null, "ports": {},
            "last_start_ms": null, "stop_deadline_s": 60, "survivors": [], "components": components}))
        .unwrap()
    }

    fn check(phase: &str, components: &[(&str, &str, Option<u32>)], want: &str) {
        assert_eq!(line(&group(phase, components)), want);
    }

    #[test]
    fn who_waits_sees_what_is_being_waited_for() {
        let starting = [("kine", "Ready", Some(1)), ("openbao", "Starting", Some(2)), ("k3s", "Waiting", None)];
        check("Starting", &starting, "Starting: openbao Starting");
        check("Starting", &[("kine", "Ready", Some(1)), ("k3s", "Waiting", None)], "Starting: because");
        check("Unavailable", &[], "Unavailable: because");
        check("Stopping", &starting, "Stopping: still running kine, openbao");
        check("Stopping", &[("kine", "Idle", None)], "Stopping: nothing runs any more");
    }

    #[test]
    fn a_receipt_that_does_not_prove_the_end_says_so() {
        let mut proof: Receipt = serde_json::from_value(serde_json::json!({"schema": 1, "group": "demo", "generation": 2,
            "why": {"why": "shutdown"}, "began": 0, "ended": 1500, "elapsed_ms": 1500, "path_shut": true, "removed": true,
            "strays": [], "components": [{"component": "kine", "rank": 1, "birth": 3, "pid": 77, "status": {"code": 0},
            "rung": "signal", "began": 0, "gone": 200, "others": [{"component": "kine", "pid": 78, "start_time": 5,
            "command": "helper", "by": "cgroup-kill"}]}]}))
        .unwrap();
        let text = receipt(&proof);
        for part in ["generation 2", "1.5 s", "kine", "77", "stop signal", "helper (pid 78)", "nothing is left"] {
            assert!(text.contains(part), "{part} in {text}");
        }
        proof.removed = false;
        assert!(receipt(&proof).contains("NOT removed"));
    }
}
