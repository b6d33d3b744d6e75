//! `groups/<cluster>/record.json`: what the daemon must remember of a group.

use super::file::{Fsync, LoadError, Loaded, Record, WriteError, load_record, save_record};
use super::{Layout, unix_now};
use serde::{Deserialize, Serialize};
use socialweb_core::GroupName;
use std::collections::BTreeMap;
use std::path::Path;

/// Whether a declared group is to run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Desired {
    /// It runs while it is declared.
    Up,
    /// The operator stopped it; a restart of the daemon does not start it.
    ParkedByOperator,
}

/// One group's memory.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct GroupRecord {
    /// The group.
    pub name: GroupName,
    /// When the record was first made, seconds since 1970.
    pub created_at: u64,
    /// Leased ports by role. The truth of which `leases.json` is the index (law L9); changed by [`super::Leases`] only.
    pub ports: BTreeMap<String, u16>,
    /// Counts the group's starts.
    pub generation: u64,
    /// What the operator wants.
    pub desired: Desired,
    /// The account that owns the cluster.
    #[serde(default)]
    pub account: Option<String>,
}

impl Record for GroupRecord {
    const SCHEMA: u32 = 1;
    const WHAT: &'static str = "the group record";
    /// Believed, it would be written into the other group's folder, and its ports would be taken for this one's.
    fn misplaced(&self, path: &Path) -> Option<String> {
        let own = path.parent().and_then(Path::file_name).is_some_and(|folder| folder == self.name.as_str());
        (!own).then(|| format!("it is the record of group {}", self.name))
    }
}

impl GroupRecord {
    /// The record of a group that was never started.
    pub fn new(name: GroupName) -> Self {
        GroupRecord {
            name,
            created_at: unix_now(),
            ports: BTreeMap::new(),
            generation: 0,
            desired: Desired::Up,
            account: None,
        }
    }

    /// Reads a group's record; a bad one is moved aside and named in [`Loaded::SetAside`].
    ///
    /// # Errors
    /// [`LoadError`].
    pub fn load(layout: &Layout, group: &GroupName) -> Result<Loaded<GroupRecord>, LoadError> {
        load_record(&layout.record(group))
    }

    /// Writes it. The group's folder must exist ([`super::StateDir::ensure_group`]).
    ///
    /// # Errors
    /// [`WriteError`].
    pub fn save(&self, layout: &Layout, fsync: Fsync) -> Result<(), WriteError> {
        save_record(&layout.record(&self.name), self, fsync)
    }
}
