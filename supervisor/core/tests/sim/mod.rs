//! A deterministic host in a box: groups, a model of the processes that they ask for, virtual time, and answers that
//! come late, twice, in any order or never. After every step the laws are checked by name.
//!
//! - [`world`]: time, the queue of what is on its way, and the steps.
//! - [`model`]: what is true on the host; [`behave`]: what programs do.
//! - [`laws`]: the invariants.
//! - [`drive`]: random schedules.
//! - [`spec`], [`rng`]: groups in one line, chance from a seed.
#![allow(dead_code, unused_imports)] // each test program uses a part

pub mod behave;
pub mod drive;
pub mod laws;
pub mod model;
pub mod rng;
pub mod spec;
pub mod world;

pub use behave::{Behaviour, Exec};
pub use laws::Violation;
pub use world::{Chaos, Machine, World, Wrong};
