//! The state folder: what must survive the daemon, and the one way to write it.
//!
//! This room knows files, not policy: it starts nothing, stops nothing and decides nothing about a group. It never
//! deletes what it cannot read (such a record is moved aside), and it never writes outside the folder it has locked,
//! except through [`write_atomic`], which others use for their own files.
//!
//! Map:
//! - [`dir`] - opens, checks and locks the folder; one folder per group; deletion through a trash name.
//! - [`file`](mod@file): [`write_atomic`], versioned records, moving a bad one aside.
//! - [`append`] - bounded files that are only appended to (event logs, component logs).
//! - [`record`] - what the daemon remembers of a group, `groups/<cluster>/record.json`.
//! - [`leases`] - `leases.json`, sticky ports (law L9); [`ports`]: the ranges they come from.
//! - [`receipts`] - `groups/<cluster>/receipts/`, the last 20.
//! - [`events`] - `groups/<cluster>/events.jsonl` and the ring that `ctl events` reads.
//!
//! All calls block for as long as the disk does, an fsync at most a few per group and start.

pub mod append;
pub mod dir;
pub mod events;
pub mod file;
pub mod leases;
mod lock;
pub mod ports;
pub mod receipts;
pub mod record;

#[cfg(test)]
pub(crate) mod testing;
#[cfg(test)]
mod tests;

pub use append::RotatedFile;
pub use dir::{DeleteError, Layout, StateDir, StateError, Tmpfs};
pub use events::{EventLog, EventRing, Logged};
pub use file::{
    Fsync, LoadError, Loaded, Record, SetAside, WriteError, load_record, open_regular, read_regular, save_record,
    write_atomic,
};
pub use leases::{LeaseError, Leases};
pub use ports::{LeaseOptions, PortRole, port_is_bound};
pub use receipts::Receipts;
pub use record::{Desired, GroupRecord};

use std::time::{SystemTime, UNIX_EPOCH};

/// Wall clock in seconds since 1970, for names and records that people read. Never used to measure (law L12).
pub(crate) fn unix_now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| d.as_secs())
}
