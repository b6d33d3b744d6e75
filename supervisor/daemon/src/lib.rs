//! The daemon: reads declarations, owns one machine per group, performs what the machines ask for, and tells people.
//!
//! It decides nothing about a group (that is core's) and calls the kernel only through sys. Everything that belongs to
//! one daemon hangs on one task, `host`; the other tasks (probes, logs, admin connections, sweeps) send it messages.
//!
//! Map:
//! - `run`: from the command line to the loop, and the way out.
//! - `host`: the loop and what it performs.
//! - `aside`: what waits for a disk, on other threads.
//! - [`config`] - files to specs.
//! - [`state`] - the state folder: lock, leases, records, receipts, event logs.
//! - [`logs`] - what components write.
//! - [`probe`] - readiness and liveness.
//! - [`admin`] - the admin server.
//! - [`doctor`] - what is wrong with this host. [`drill`] - the nasty cases, tried. [`bundle`] - what a bug report needs.
//! - [`manager`] - the service manager above us.
//! - [`failpoint`] - where tests kill the daemon; empty in a release build.

#![forbid(unsafe_code)]

pub mod admin;
mod aside;
pub mod bundle;
mod chain;
pub mod config;
pub mod doctor;
pub mod drill;
pub mod failpoint;
mod fd;
mod host;
pub mod logs;
pub mod manager;
pub mod probe;
mod run;
pub mod state;

pub use run::{RunOptions, run, state_id};
