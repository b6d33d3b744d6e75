//! The daemon is killed, stopped, told to go twice, starved of disk and threads, and robbed of its files: the next daemon,
//! or the same one, loses nothing, starts everything once, and leaves nothing.
#![allow(clippy::unwrap_used)]

#[path = "../support/mod.rs"]
mod support;

mod disk;
mod points;
mod robbed;
mod scene;
mod signals;

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
