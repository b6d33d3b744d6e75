//! Sticky ports: `leases.json`, port -> group and role (law L9).
//!
//! Each group's ports also stand in its own record, which is written first and is the truth; this file is the index
//! over all of them. So a lost or corrupt `leases.json` is rebuilt from the records and no port moves.
//!
//! The records are written at once, without a flush. The index is what is flushed, once for all that changed since,
//! by whoever may wait for a disk ([`super::flush`](mod@super::flush)).

use super::file::{Fsync, LoadError, Loaded, Record, WriteError, load_record, parse_at, save_record};
use super::flush::Disk;
use super::ports::{LeaseOptions, PortRole};
use super::{GroupRecord, Layout};
use crate::failpoint;
use serde::{Deserialize, Serialize};
use socialweb_core::GroupName;
use std::collections::BTreeMap;
use std::io;
use std::ops::RangeInclusive;

/// One lease.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Lease {
    /// Who has it.
    pub group: GroupName,
    /// For what.
    pub role: String,
}

#[derive(Debug, Default, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct LeaseFile {
    pub(super) leases: BTreeMap<u16, Lease>,
}

impl Record for LeaseFile {
    const SCHEMA: u32 = 1;
    const WHAT: &'static str = "the lease file";
}

/// Why a group did not get its ports, or could not give them back.
#[derive(Debug, thiserror::Error)]
pub enum LeaseError {
    /// No port is left.
    #[error(
        "no port is left for {role} of group {group}: of {total} ports in {ranges}, {leased} are leased, {ephemeral} lie in \
         the kernel's ephemeral range and {bound} are in use by other programs; delete clusters that are no longer needed, \
         or widen the port ranges in the configuration"
    )]
    Exhausted {
        /// The group that asked.
        group: GroupName,
        /// What for.
        role: String,
        /// The ranges as text.
        ranges: String,
        /// Ports in all ranges.
        total: usize,
        /// Of these: held by groups.
        leased: usize,
        /// Of these: unusable because of net.ipv4.ip_local_port_range.
        ephemeral: usize,
        /// Of these: bound by somebody at the moment.
        bound: usize,
    },
    /// A port of this group's record is leased to another group. Nothing is moved.
    #[error(
        "port {port} ({role}) of group {group} is leased to group {holder}; \
         delete one of the two, or correct the ports in its record.json by hand while the daemon is down"
    )]
    Conflict {
        /// The group that asked.
        group: GroupName,
        /// What for.
        role: String,
        /// The port.
        port: u16,
        /// Who has it.
        holder: GroupName,
    },
    /// The lease file or the group's record cannot be written.
    #[error("cannot keep the leases")]
    Write(#[from] WriteError),
    /// The lease file cannot be read.
    #[error("cannot read the leases")]
    Load(#[from] LoadError),
    /// The names in the groups' folder cannot be flushed.
    #[error("cannot flush {} to disk; check the disk and that the state folder is where it was", path.display())]
    Sync {
        /// The folder.
        path: std::path::PathBuf,
        /// The cause.
        #[source]
        source: io::Error,
    },
    /// The groups' folder cannot be read.
    #[error("cannot look for leases in {}; check its owner and mode", path.display())]
    Groups {
        /// The folder.
        path: std::path::PathBuf,
        /// The cause.
        #[source]
        source: io::Error,
    },
}

/// All leases of a state folder.
#[derive(Debug)]
pub struct Leases {
    pub(super) layout: Layout,
    options: LeaseOptions,
    pub(super) held: BTreeMap<u16, Lease>,
    pub(super) disk: Disk,
}

impl Leases {
    /// Reads `leases.json` and every group's record, and brings the two together. Returns warnings for people.
    ///
    /// # Errors
    /// [`LeaseError`] when something cannot be read. A merged file that cannot be written is a warning: a full disk keeps
    /// no daemon from coming up.
    pub fn open(layout: &Layout, options: LeaseOptions) -> Result<(Leases, Vec<String>), LeaseError> {
        let mut warnings = Vec::new();
        let on_disk = match load_record::<LeaseFile>(&layout.leases())? {
            Loaded::Found(file) => file,
            Loaded::Absent => LeaseFile::default(),
            Loaded::SetAside(aside) => {
                warnings.push(format!("{aside}; the leases are rebuilt from the groups' records"));
                LeaseFile::default()
            }
        };
        let held = on_disk.leases.clone();
        let mut leases = Leases { layout: layout.clone(), options, held, disk: Disk::default() };
        leases.merge_records(&mut warnings)?;
        if leases.held != on_disk.leases {
            leases.disk.version = 1;
            if let Err(error) = leases.flush_now() {
                warnings.push(format!("{}; it is tried again", crate::chain::chain(&error)));
            }
        }
        Ok((leases, warnings))
    }

    fn merge_records(&mut self, warnings: &mut Vec<String>) -> Result<(), LeaseError> {
        let path = self.layout.groups();
        let groups = self.layout.list_groups().map_err(|source| LeaseError::Groups { path, source })?;
        for group in groups {
            // Only a look: a bad record is moved aside, with its warning, by whoever loads it for use.
            let path = self.layout.record(&group);
            let bytes = match super::file::read_regular(&path) {
                Err(e) if e.kind() == io::ErrorKind::NotFound => continue,
                other => other.unwrap_or_default(),
            };
            match parse_at::<GroupRecord>(&path, &bytes) {
                Ok(record) => self.adopt(&group, &record.ports).unwrap_or_else(|e| warnings.push(e.to_string())),
                Err(_) if self.of(&group).is_empty() => warnings.push(format!(
                    "no record and no lease tells the ports of group {group}; it gets new ones when it starts"
                )),
                Err(_) => {}
            }
        }
        Ok(())
    }

    /// Takes a record's ports as leased, all or none.
    fn adopt(&mut self, group: &GroupName, ports: &BTreeMap<String, u16>) -> Result<(), LeaseError> {
        for (role, &port) in ports {
            if let Some(Lease { group: holder, .. }) = self.held.get(&port).filter(|l| l.group != *group) {
                let (group, role, holder) = (group.clone(), role.clone(), holder.clone());
                return Err(LeaseError::Conflict { group, role, port, holder });
            }
        }
        // A role that the index has elsewhere follows the record.
        self.held.retain(|port, l| l.group != *group || ports.get(&l.role).is_none_or(|p| p == port));
        for (role, &port) in ports {
            self.held.insert(port, Lease { group: group.clone(), role: role.clone() });
        }
        Ok(())
    }

    /// The ports of a group by role.
    pub fn of(&self, group: &GroupName) -> BTreeMap<String, u16> {
        let own = self.held.iter().filter(|(_, l)| l.group == *group);
        own.map(|(port, l)| (l.role.clone(), *port)).collect()
    }

    /// Who has a port.
    pub fn holder(&self, port: u16) -> Option<&Lease> {
        self.held.get(&port)
    }

    /// Sees that the group has a port for each role: what it has stays, what is missing is leased, into `record` too.
    /// The record is written; `leases.json` follows by [`Leases::next_flush`]. The group's folder must exist. Returns all
    /// ports of the group, also those of roles that are no longer asked for.
    ///
    /// # Errors
    /// [`LeaseError`]; `record` and the leases are unchanged.
    pub fn ensure(
        &mut self,
        record: &mut GroupRecord,
        roles: &[PortRole],
    ) -> Result<BTreeMap<String, u16>, LeaseError> {
        if self.covers(record, roles) {
            return Ok(record.ports.clone());
        }
        let before = self.held.clone();
        let kept = self.plan(record, roles).and_then(|ports| self.keep_in_record(record, ports));
        match kept {
            Ok(()) if self.held != before => {
                self.disk.note_change(&record.name);
            }
            Ok(()) => {}
            Err(e) => {
                self.held = before;
                return Err(e);
            }
        }
        Ok(record.ports.clone())
    }

    /// The common case, a restart: all is leased and recorded.
    fn covers(&self, record: &GroupRecord, roles: &[PortRole]) -> bool {
        let leased = |(role, port): (&String, &u16)| {
            self.held.get(port).is_some_and(|l| l.group == record.name && l.role == *role)
        };
        let has = |role: &String| record.ports.contains_key(role);
        let wanted = |role: &PortRole| match role {
            PortRole::Single(name) => has(name),
            PortRole::Pair(low, high) => has(low) && has(high),
        };
        record.ports.iter().all(leased) && roles.iter().all(wanted)
    }

    fn keep_in_record(&self, record: &mut GroupRecord, ports: BTreeMap<String, u16>) -> Result<(), LeaseError> {
        if ports == record.ports {
            return Ok(());
        }
        let old = std::mem::replace(&mut record.ports, ports);
        // A power loss may undo this one; the index, which is flushed, has the ports too.
        if let Err(error) = record.save(&self.layout, Fsync::No) {
            record.ports = old;
            return Err(error.into());
        }
        failpoint::reach("ports-recorded");
        Ok(())
    }

    fn plan(&mut self, record: &GroupRecord, roles: &[PortRole]) -> Result<BTreeMap<String, u16>, LeaseError> {
        let group = &record.name;
        self.adopt(group, &record.ports)?;
        for role in roles {
            match role {
                PortRole::Single(name) => self.ensure_single(group, name)?,
                PortRole::Pair(low, high) => self.ensure_pair(group, low, high)?,
            }
        }
        Ok(self.of(group))
    }

    fn ensure_single(&mut self, group: &GroupName, role: &str) -> Result<(), LeaseError> {
        if self.of(group).contains_key(role) {
            return Ok(());
        }
        let port = self.first(|l, p| l.is_free(p)).ok_or_else(|| self.exhausted(group, role))?;
        self.grant(group, role, port)
    }

    fn ensure_pair(&mut self, group: &GroupName, low: &str, high: &str) -> Result<(), LeaseError> {
        let own = self.of(group);
        let port = match (own.get(low), own.get(high)) {
            (Some(port), _) => *port,
            (None, Some(port)) => port.saturating_sub(1),
            (None, None) => self
                .first(|l, p| p < u16::MAX && l.in_ranges(p + 1) && l.is_free(p) && l.is_free(p + 1))
                .ok_or_else(|| self.exhausted(group, &format!("{low} and {high}")))?,
        };
        self.grant(group, low, port)?;
        self.grant(group, high, port.saturating_add(1))
    }

    fn grant(&mut self, group: &GroupName, role: &str, port: u16) -> Result<(), LeaseError> {
        match self.held.get(&port) {
            Some(l) if l.group == *group && l.role == role => Ok(()),
            Some(l) => {
                let holder = l.group.clone();
                Err(LeaseError::Conflict { group: group.clone(), role: role.into(), port, holder })
            }
            None => {
                self.held.insert(port, Lease { group: group.clone(), role: role.into() });
                Ok(())
            }
        }
    }

    fn first(&self, fits: impl Fn(&Leases, u16) -> bool) -> Option<u16> {
        self.candidates().find(|port| fits(self, *port))
    }

    fn candidates(&self) -> impl Iterator<Item = u16> + '_ {
        self.options.ranges.iter().cloned().flatten()
    }

    fn in_ranges(&self, port: u16) -> bool {
        self.options.ranges.iter().any(|r| r.contains(&port))
    }

    fn is_free(&self, port: u16) -> bool {
        !self.held.contains_key(&port) && !self.options.ephemeral.contains(port) && !(self.options.is_bound)(port)
    }

    fn exhausted(&self, group: &GroupName, role: &str) -> LeaseError {
        let all: Vec<u16> = self.candidates().collect();
        let (leased, rest): (Vec<u16>, Vec<u16>) = all.iter().partition(|p| self.held.contains_key(p));
        let (ephemeral, rest): (Vec<u16>, Vec<u16>) = rest.iter().partition(|p| self.options.ephemeral.contains(**p));
        let bound = rest.iter().filter(|p| (self.options.is_bound)(**p)).count();
        let ranges: Vec<String> = self.options.ranges.iter().map(|r| format!("{}-{}", r.start(), r.end())).collect();
        LeaseError::Exhausted {
            group: group.clone(),
            role: role.into(),
            ranges: ranges.join(", "),
            total: all.len(),
            leased: leased.len(),
            ephemeral: ephemeral.len(),
            bound,
        }
    }

    /// Gives all ports of a group back; only when the cluster is deleted and its folder has its trash name. Returns the
    /// version that has to be durable before the trash may go: until then the trash is what tells of the deletion.
    pub fn release(&mut self, group: &GroupName) -> u64 {
        self.held.retain(|_, l| l.group != *group);
        self.disk.note_change(group)
    }

    /// How many tenants that each want `roles` the ranges hold.
    pub fn max_tenants(&self, roles: &[PortRole]) -> usize {
        let per_tenant: usize = roles.iter().map(PortRole::ports).sum();
        let usable = |r: &RangeInclusive<u16>| r.clone().filter(|p| !self.options.ephemeral.contains(*p)).count();
        let in_range = |r| usable(r).checked_div(per_tenant).unwrap_or(usize::MAX);
        self.options.ranges.iter().map(in_range).fold(0, usize::saturating_add)
    }
}

/// Takes groups out of `leases.json` whose deletion a crash cut short. Returns warnings.
pub(super) fn forget(layout: &Layout, groups: &[GroupName]) -> Result<Vec<String>, LeaseError> {
    match load_record::<LeaseFile>(&layout.leases())? {
        Loaded::Absent => Ok(Vec::new()),
        // Leases::open rebuilds it from the records that are left.
        Loaded::SetAside(aside) => Ok(vec![aside.to_string()]),
        Loaded::Found(mut file) => {
            file.leases.retain(|_, l| !groups.contains(&l.group));
            save_record(&layout.leases(), &file, Fsync::Yes)?;
            Ok(Vec::new())
        }
    }
}
