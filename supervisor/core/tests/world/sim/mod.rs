//! A deterministic host in a box: groups, the processes that they ask for, virtual time, and answers that come late, twice,
//! in any order or never. After every step the laws are checked by name.
//!
//! - [`kernel`]: what is true: processes, zombies, sessions, cgroups, the disk, the wall clock.
//! - [`shell`]: performs actions on it and knows what the group was told of each [`run`]; [`fate`]: what happens to processes;
//!   [`behave`]: what programs do.
//! - [`held`]: one group with its part of the host; [`world`]: time, the queue of what is on its way, and the steps.
//! - [`laws`], [`judge`]: the invariants.
//! - [`case`]: a life as data, so that it can be kept and shrunk; [`chance`] draws one from a seed, [`shrink`] makes it small.
//! - [`spec`], [`rng`]: groups in one line, chance from a seed.

pub mod behave;
pub mod case;
pub mod chance;
pub mod fate;
pub mod held;
pub mod judge;
pub mod kernel;
pub mod laws;
pub mod rng;
pub mod run;
pub mod shell;
pub mod shrink;
pub mod spec;
pub mod world;

pub use behave::{Behaviour, Exec};
pub use world::{Chaos, World};
