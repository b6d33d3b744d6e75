//! The world tests of core: the machine against a model of a host, every law checked by name after every step.
//!
//! The laws of the design that core can break are in [`sim::laws`]. What is proven, from the narrow to the wide:
//! - [`table`], [`laws`], [`stops`], [`changes`], [`permits`], [`bugs`]: scenarios, one sentence each.
//! - [`replay`]: a recorded log is a bug report.
//! - [`schedules`]: random lives of hosts, 100,000 of them, each named by its seed. `SIM_SEED=n` replays one and shrinks what
//!   breaks it to a small case; `SIM_BASE=n` begins at another seed, `SIM_RUNS=n` sets how many.
//! - [`anything`]: any event in any phase.
//! - [`explore`]: every state that a group of two components can reach.
//! - [`regressions`]: the cases that were kept; [`mutants`]: each deliberate fault of core is caught by the law that it breaks.
#![allow(clippy::unwrap_used)]

mod anything;
mod bugs;
mod changes;
mod explore;
mod laws;
#[cfg(debug_assertions)]
mod mutants;
mod permits;
mod regressions;
mod replay;
mod schedules;
mod sim;
mod stops;
mod table;
