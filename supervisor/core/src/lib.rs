//! The group state machine: what starts when, what stops when, and what counts as proof of either.
//!
//! This room is pure. It does no IO, reads no clock, draws no random number that was not given to it, and knows nothing
//! of processes, sockets or files: [`Group::handle`] takes an [`Event`] and the current [`Time`] and returns
//! [`Action`]s; whoever performs them reports every outcome back as another event. Same events, same actions, so a
//! recorded log ([`record`]) replays to the same states and a bug report is a file.
//!
//! Map:
//! - [`name`] - the typed names (group, component, birth, port).
//! - [`time`] - monotonic time, handed in by the caller.
//! - [`spec`] - what a component is and how it wants to be run; recipes build these.
//! - [`graph`] - ranks and needs; refuses cycles, missing needs and rank inversions.
//! - [`limits`] - what a group and a component may take of the host, core dumps and the order out of memory.
//! - [`end`] - how a run ended and who ended it.
//! - [`event`], [`action`] - the two languages between core and shell.
//! - [`group`] - the machine itself, with its phase x event table and diagram.
//! - [`component`] - one component's state and how it moves.
//! - [`plan`] - what a changed spec means, per component and key.
//! - [`budget`] - host-wide limits on concurrent starts and on restarts.
//! - [`view`] - what people see.
//! - [`receipt`] - the proof of a stop.
//! - [`record`] - recorded event logs and their replay.
//! - [`shared`] - what several hold and is in memory once.
//! - [`mod@mutant`] - deliberate faults, switched on by tests of debug builds only.
#![forbid(unsafe_code)]

pub mod action;
pub mod budget;
pub mod component;
pub mod end;
pub mod event;
pub mod graph;
pub mod group;
pub mod limits;
pub mod mutant;
pub mod name;
pub mod plan;
pub mod receipt;
pub mod record;
pub mod shared;
pub mod spec;
pub mod time;
pub mod view;

pub use action::{Action, Permit, ProbeUse, Role};
pub use end::{Cause, End, Traces};
pub use event::{Event, ExitStatus, Reaped, Why};
pub use group::Group;
pub use limits::{CoreBudget, Limits};
pub use name::{Birth, ComponentName, GroupName, NameError, Rank};
pub use receipt::Receipt;
pub use shared::Shared;
pub use spec::{ComponentSpec, GroupSpec, Kind, Launch, Probe, Restart};
pub use time::Time;
pub use view::{ComponentView, GroupView, Phase};
