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

pub use support::texts::{STEADY, SUPERVISOR};
