//! The state folder: what must survive the daemon, and the one way to write it.
//!
//! This room knows files, not policy: it starts nothing, stops nothing and decides nothing about a group. It never
//! deletes what it cannot read (such a record is moved aside), and it never writes outside the folder it has locked,
//! except through [`write_atomic`], which others use for their own files.
//!
//! Map:
//! - [`dir`] - opens, checks and locks the folder; one folder per group; deletion through a trash name.
//! - [`file`](mod@file): [`write_atomic`], versioned records, moving a bad one aside.
//! - [`claim`] - one daemon per name and per cgroup tree.
//! - [`append`] - bounded files that are only appended to (event logs, component logs).
//! - [`record`] - what the daemon remembers of a group, `groups/<cluster>/record.json`.
//! - [`leases`] - `leases.json`, sticky ports (law L9); [`flush`](mod@flush): its way to the disk; [`ports`]: their ranges.
//! - `tree` - removes a folder whatever a component made of it.
//! - [`receipts`] - `groups/<cluster>/receipts/`, the last 20.
//! - [`events`] - `groups/<cluster>/events.jsonl` and the ring that `ctl events` reads.
//!
//! All calls block for as long as the disk does. Those that flush (a [`flush::Flush`], [`flush`](fn@flush), [`empty_trash`]) are
//! made beside the loop.

pub mod append;
pub mod claim;
pub mod dir;
pub mod events;
pub mod file;
pub mod flush;
pub mod leases;
mod lock;
pub mod ports;
pub mod receipts;
pub mod record;
mod trash;
mod tree;

#[cfg(test)]
pub(crate) mod testing;
#[cfg(test)]
mod tests;

pub use append::RotatedFile;
pub use claim::{ClaimError, NameClaim, TreeClaim};
pub use dir::{DeleteError, Layout, StateDir, StateError, Tmpfs};
pub use events::{EventLog, EventRing, Logged};
pub(crate) use file::must_be_own_folder;
pub use file::{
    Fsync, LoadError, Loaded, Record, SetAside, WriteError, flush, load_record, open_regular, read_regular,
    save_record, write_atomic,
};
pub use leases::{LeaseError, Leases};
pub use ports::{LeaseOptions, PortRole, PortSet, port_is_bound};
pub use receipts::Receipts;
pub use record::{Desired, GroupRecord};
pub use trash::{drop_trash, empty_trash};
pub(crate) use tree::remove as remove_tree;

use std::time::{SystemTime, UNIX_EPOCH};

/// Wall clock in seconds since 1970, for names and records that people read. Never used to measure (law L12).
pub(crate) fn unix_now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| d.as_secs())
}
