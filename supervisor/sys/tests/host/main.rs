//! Real processes, real cgroups.
#![allow(clippy::unwrap_used, reason = "in tests a panic is the report")]

mod cgroup;
#[path = "../common/mod.rs"]
mod common;
mod identity;
mod spawn;
mod unprivileged;
