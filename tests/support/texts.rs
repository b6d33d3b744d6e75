//! Configurations that many tests begin with.

/// No journal, so that a machine with one and a machine without one behave alike.
pub const SUPERVISOR: &str = "[log]\njournal = \"never\"\n";

/// A group that just runs.
pub const STEADY: &str = r#"
kind = "exec"
[[component]]
name = "steady"
argv = ["sleep", "100000"]
stop = { grace = "1s" }
"#;
