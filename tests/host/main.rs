//! The daemon as its operator meets it, with real processes: bad input, trouble in one group, crashes. In every case the
//! message names the thing and the way out, and the other groups are untouched.
#![allow(clippy::unwrap_used)]

#[path = "../support/mod.rs"]
mod support;

mod bad_input;
mod control;
mod flood;
mod limits;
mod ops;
mod trouble;

pub use support::texts::{STEADY, SUPERVISOR};

/// An exec group of one shell script.
pub fn script(name: &str, script: &str, more: &str) -> String {
    format!(
        "kind = \"exec\"\n[[component]]\nname = \"{name}\"\nargv = [\"sh\", \"-c\", '''{script}''']\nenv = {{ PATH = \"/usr/bin:/bin\" }}\nstop = {{ grace = \"1s\" }}\n{more}\n"
    )
}
