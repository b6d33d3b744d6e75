//! The daemon under a real systemd: as a user unit of an account without root that lingers, installed as README says.
//!
//! Runs inside the guest, one test after the other; `cargo x guest systemd` boots it. Every test brings its own groups and
//! leaves the unit stopped. The first part of a test's name may name a scene with boots of its own (`reboot`, `power`): see
//! tests/xtask/src/guest/scene.rs. Waits are for states and take minutes before they give up: the machine is emulated.
#![allow(clippy::unwrap_used)]

#[path = "../support/mod.rs"]
mod support;

mod crash;
mod delegation;
mod journal;
mod limits;
mod ops;
mod power;
mod reboot;
mod release;
mod reload;
mod session;
mod stop;
mod systemd;
mod tenant;
mod unit;
