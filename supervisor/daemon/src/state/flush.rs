//! `leases.json` on its way to the disk: a copy of what is held is written and flushed beside the loop, one at a time, and
//! serves all that changed before it. A group starts when its own change is durable.

use super::Layout;
use super::file::{Fsync, save_record, sync_folder};
use super::leases::{LeaseError, LeaseFile, Leases};
use crate::failpoint;
use socialweb_core::GroupName;
use std::collections::BTreeMap;

/// Which changes of the leases are on disk.
#[derive(Debug, Default)]
pub(super) struct Disk {
    /// Counts the changes.
    pub version: u64,
    /// The version that `leases.json` has.
    durable: u64,
    /// A [`Flush`] is under way.
    writing: bool,
    /// Groups whose last change is not durable yet, and its version.
    changed: BTreeMap<GroupName, u64>,
}

impl Disk {
    /// A group's leases changed. Returns the version that has the change.
    pub fn note_change(&mut self, group: &GroupName) -> u64 {
        self.version += 1;
        self.changed.insert(group.clone(), self.version);
        self.version
    }
}

/// What `leases.json` is to hold: a copy of a version, for another thread.
#[derive(Debug)]
pub struct Flush {
    version: u64,
    layout: Layout,
    file: LeaseFile,
}

impl Flush {
    /// Which version it is, for [`Leases::flushed`].
    pub fn version(&self) -> u64 {
        self.version
    }

    /// The end of one whose thread ended without an answer.
    pub fn lost(&self) -> LeaseError {
        let source = std::io::Error::other("its thread ended without an answer");
        LeaseError::Sync { path: self.layout.leases(), source }
    }

    /// Writes it and waits for the disk. Before that the names of the groups' folders are made durable: those that were
    /// made, and those that took a trash name.
    ///
    /// # Errors
    /// [`LeaseError::Write`] or [`LeaseError::Sync`]: the old file is intact.
    pub fn write(&self) -> Result<(), LeaseError> {
        let path = self.layout.groups();
        sync_folder(&path).map_err(|source| LeaseError::Sync { path, source })?;
        save_record(&self.layout.leases(), &self.file, Fsync::Yes)?;
        failpoint::reach("leases-written");
        Ok(())
    }
}

impl Leases {
    /// True when all that the group leased is in `leases.json`, flushed.
    pub fn is_durable(&self, group: &GroupName) -> bool {
        !self.disk.changed.contains_key(group)
    }

    /// True when this version, or a later one, is in `leases.json`.
    pub fn has_flushed(&self, version: u64) -> bool {
        self.disk.durable >= version
    }

    /// True while a [`Flush`] is under way.
    pub fn is_writing(&self) -> bool {
        self.disk.writing
    }

    /// What is to be written now; `None` when all is, or while another one is under way: they must not overtake each
    /// other. Its end is told by [`Leases::flushed`].
    pub fn next_flush(&mut self) -> Option<Flush> {
        if self.disk.writing || self.disk.durable == self.disk.version {
            return None;
        }
        self.disk.writing = true;
        Some(self.flush())
    }

    /// The end of a flush. When it was written, what it held is durable.
    pub fn flushed(&mut self, version: u64, written: bool) {
        self.disk.writing = false;
        if written {
            self.disk.durable = self.disk.durable.max(version);
            let durable = self.disk.durable;
            self.disk.changed.retain(|_, changed| *changed > durable);
        }
    }

    /// Writes what is to be written, and waits for it; not while a flush is under way.
    ///
    /// # Errors
    /// As [`Flush::write`].
    pub fn flush_now(&mut self) -> Result<(), LeaseError> {
        let Some(flush) = self.next_flush() else { return Ok(()) };
        let written = flush.write();
        self.flushed(flush.version(), written.is_ok());
        written
    }

    fn flush(&self) -> Flush {
        Flush { version: self.disk.version, layout: self.layout.clone(), file: LeaseFile { leases: self.held.clone() } }
    }
}
