//! The ladder against nasty processes: whatever a component's processes do, a stop ends, nothing of the group is left, nobody
//! else is touched, and the steady group beside it does not notice.
//!
//! A case runs in each world in which it makes sense: as root with cgroups, as an account without root in a subtree that was
//! handed over to it, and without cgroups. Each has a daemon and folders of its own. The programs are in `programs/`.
#![allow(clippy::unwrap_used, missing_docs)]

#[path = "../support/mod.rs"]
mod support;

mod bombs;
mod careless;
mod elsewhere;
mod exec;
mod frozen;
mod hoppers;
mod numbers;
mod stuck;
mod world;
