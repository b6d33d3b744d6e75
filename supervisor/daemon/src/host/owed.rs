//! What the daemon owes the disk: writes that found no room, or are under way beside the loop. The daemon goes on, says
//! so once, tries again, and says when all is written. No group goes down for a full disk, and nothing is lost by it.

use super::shutdown::{DEAD_DISK, STUCK};
use super::{Again, Host, Msg};
use crate::chain::chain;
use crate::config::ClusterConfig;
use crate::state::{self, Fsync, LeaseError, Receipts};
use socialweb_core::{GroupName, Receipt, mutant};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::io;
use std::path::PathBuf;
use std::time::Duration;

/// Between two tries. Room comes by a person's hand.
const AGAIN: Duration = Duration::from_secs(1);
/// Receipts kept in memory, over all groups. Each is also a line of the daemon's own log.
const RECEIPTS: usize = 1000;

/// Writes that are still to be done.
#[derive(Debug, Default)]
pub(crate) struct Owed {
    /// Proofs of stops that found no room, oldest first.
    receipts: VecDeque<(GroupName, Receipt)>,
    /// Groups whose record on disk is older than the one in memory.
    records: BTreeSet<GroupName>,
    /// Clusters whose record or leases could not be written, so that they are not declared yet.
    declarations: BTreeMap<GroupName, ClusterConfig>,
    /// Why the leases could not be written the last time.
    leases: Option<String>,
    /// Groups that start when their leases are durable.
    waiting: BTreeSet<GroupName>,
    /// Deleted groups whose data is being removed.
    trash: Vec<Trash>,
    /// A retry is on its way.
    ticking: bool,
    /// Something found no room, and that it did is not told yet.
    said: bool,
}

/// The folder of a deleted group.
#[derive(Debug)]
struct Trash {
    path: PathBuf,
    /// The version of the leases without it.
    version: u64,
    emptied: bool,
}

impl Owed {
    /// For status; `None` when nothing waits for room.
    pub fn summary(&self) -> Option<String> {
        let mut parts = Vec::new();
        parts.extend(self.leases.as_ref().map(|why| format!("the leases ({why})")));
        let mut count = |n: usize, what: &str| {
            if n > 0 {
                parts.push(format!("{n} {what}"));
            }
        };
        count(self.records.len(), "group records");
        count(self.receipts.len(), "receipts");
        count(self.declarations.len(), "groups that are not declared yet");
        let what = (!parts.is_empty()).then(|| parts.join(", "))?;
        Some(format!("not all of the state folder can be written; free space there, or see why. What waits: {what}"))
    }
}

impl Host {
    /// Work for another thread; said once when there can be none.
    pub(super) fn aside(&mut self, work: impl FnOnce() + Send + 'static) {
        let asked = self.aside.disk.run(work);
        self.say_when_no_thread(asked);
    }

    /// Work that looks at processes; a disk that hangs does not hold it up (law L10).
    pub(super) fn look_aside(&mut self, lost: Msg, work: impl FnOnce() -> Msg + Send + 'static) {
        let tx = self.tx.clone();
        let asked = self.aside.processes.ask(lost, work, move |answer| {
            let _ = tx.send(answer);
        });
        self.say_when_no_thread(asked);
    }

    /// The same for work whose answer the loop counts on: where the work panics, `lost` is its answer (law L6).
    pub(super) fn ask_aside(&mut self, lost: Msg, work: impl FnOnce() -> Msg + Send + 'static) {
        let tx = self.tx.clone();
        let asked = self.aside.disk.ask(lost, work, move |answer| {
            let _ = tx.send(answer);
        });
        self.say_when_no_thread(asked);
    }

    fn say_when_no_thread(&mut self, asked: io::Result<()>) {
        if let Err(error) = asked
            && !std::mem::replace(&mut self.said_no_thread, true)
        {
            let text = format!(
                "no thread can be made ({error}), so the loop itself waits for the disk; \
                 raise TasksMax or the account's limit of processes"
            );
            self.warn(None, text);
        }
    }

    // ---- leases -----------------------------------------------------------------------------------------------------

    /// Has what changed in the leases written beside the loop, in one piece for all groups.
    pub(super) fn keep_leases(&mut self) {
        if let Some(flush) = self.leases.next_flush() {
            let version = flush.version();
            let lost = Msg::LeasesWritten(version, Err(flush.lost()));
            self.ask_aside(lost, move || Msg::LeasesWritten(version, flush.write()));
        }
    }

    /// True when the group's leases are on disk; else it is probed again when they are.
    pub(super) fn leases_are_kept(&mut self, group: &GroupName) -> bool {
        if self.leases.is_durable(group) || mutant!("l9-started-before-flush") {
            return true;
        }
        self.owed.waiting.insert(group.clone());
        self.keep_leases();
        false
    }

    pub(super) fn leases_written(&mut self, version: u64, written: Result<(), LeaseError>) {
        self.leases.flushed(version, written.is_ok());
        match written {
            Ok(()) => {
                self.owed.leases = None;
                for group in std::mem::take(&mut self.owed.waiting) {
                    self.probe_leases(&group);
                }
                self.drop_trash();
                self.keep_leases();
                self.say_when_paid();
            }
            Err(error) => {
                let why = chain(&error);
                if self.owed.leases.replace(why.clone()).is_none() {
                    self.warn(None, format!("{why}; groups with new ports wait, and it is tried again"));
                }
                self.owe();
            }
        }
    }

    // ---- deleted data -----------------------------------------------------------------------------------------------

    /// Removes a deleted group's data beside the loop: gigabytes take time, and no other group waits for that.
    pub(super) fn remove_trash(&mut self, path: PathBuf, version: u64) {
        self.owed.trash.push(Trash { path: path.clone(), version, emptied: false });
        let lost = Msg::TrashEmptied(path.clone(), Err(io::Error::other("its thread ended without an answer")));
        self.ask_aside(lost, move || {
            let emptied = state::empty_trash(&path);
            Msg::TrashEmptied(path, emptied)
        });
    }

    pub(super) fn trash_emptied(&mut self, path: PathBuf, emptied: io::Result<()>) {
        match emptied {
            Ok(()) => {
                self.owed.trash.iter_mut().filter(|t| t.path == path).for_each(|t| t.emptied = true);
                self.drop_trash();
            }
            Err(error) => {
                self.owed.trash.retain(|t| t.path != path);
                let text = format!("{} is not removed yet: {error}; the next start tries again", path.display());
                self.warn(None, text);
            }
        }
    }

    /// The folders that are empty and whose ports are given back for good.
    fn drop_trash(&mut self) {
        let leases = &self.leases;
        let (done, rest) =
            std::mem::take(&mut self.owed.trash).into_iter().partition(|t| t.emptied && leases.has_flushed(t.version));
        self.owed.trash = rest;
        let done: Vec<Trash> = done;
        for Trash { path, .. } in done {
            if let Err(error) = state::drop_trash(&path) {
                let text = format!("{} is not removed yet: {error}; the next start tries again", path.display());
                self.warn(None, text);
            }
        }
    }

    // ---- records, receipts, declarations ------------------------------------------------------------------------------

    /// The group's record is to be written when there is room.
    pub(super) fn owe_record(&mut self, group: &GroupName, why: String) {
        if self.owed.records.insert(group.clone()) {
            self.warn(Some(group), format!("{why}; it is tried again"));
        }
        self.owe();
    }

    pub(super) fn owe_declaration(&mut self, cluster: &ClusterConfig) {
        self.owed.declarations.insert(cluster.name.clone(), cluster.clone());
        self.owe();
    }

    /// What a reload says counts, not what an earlier one could not do.
    pub(super) fn forget_declarations(&mut self) {
        self.owed.declarations.clear();
    }

    /// Keeps a receipt, behind those that wait: their numbers are their order.
    pub(super) fn save_receipt(&mut self, group: &GroupName, receipt: Receipt) {
        let waits = self.owed.receipts.iter().any(|(g, _)| g == group);
        let saved = if waits { None } else { Some(self.write_receipt(group, &receipt)) };
        match saved {
            Some(Ok(())) => return,
            Some(Err(why)) => self.warn(Some(group), format!("the receipt is not kept yet: {why}; it is tried again")),
            None => {}
        }
        if self.owed.receipts.len() == RECEIPTS
            && let Some((group, _)) = self.owed.receipts.pop_front()
        {
            self.warn(Some(&group), "a receipt found no room for too long and is only in this daemon's log".into());
        }
        self.owed.receipts.push_back((group.clone(), receipt));
        self.owe();
    }

    fn write_receipt(&self, group: &GroupName, receipt: &Receipt) -> Result<(), String> {
        let folder = self.state.layout().receipts(group);
        Receipts::new(folder).save(receipt).map(drop).map_err(|e| chain(&e))
    }

    fn owe(&mut self) {
        self.owed.said = true;
        if !std::mem::replace(&mut self.owed.ticking, true) {
            let tx = self.tx.clone();
            tokio::spawn(async move {
                tokio::time::sleep(AGAIN).await;
                let _ = tx.send(Msg::Again(Again::Owed));
            });
        }
    }

    /// Tries what is owed once more.
    pub(super) fn pay(&mut self) {
        self.owed.ticking = false;
        self.pay_records();
        self.pay_receipts();
        self.pay_declarations();
        self.keep_leases();
        self.say_when_paid();
        if self.owed.summary().is_some() {
            self.owe();
        }
    }

    fn pay_records(&mut self) {
        let layout = self.state.layout().clone();
        let groups = &self.groups;
        let unsaved = |g: &GroupName| groups.get(g).is_some_and(|h| h.record.save(&layout, Fsync::No).is_err());
        self.owed.records.retain(unsaved);
    }

    fn pay_receipts(&mut self) {
        let mut full = BTreeSet::new();
        for (group, receipt) in std::mem::take(&mut self.owed.receipts) {
            // A group that was deleted meanwhile has no folder for it, and needs none.
            if !self.groups.contains_key(&group) {
                continue;
            }
            if full.contains(&group) || self.write_receipt(&group, &receipt).is_err() {
                full.insert(group.clone());
                self.owed.receipts.push_back((group, receipt));
            }
        }
    }

    fn pay_declarations(&mut self) {
        for cluster in std::mem::take(&mut self.owed.declarations).into_values() {
            self.declare_again(&cluster);
        }
    }

    fn say_when_paid(&mut self) {
        if self.owed.said && self.owed.summary().is_none() {
            self.owed.said = false;
            self.say_host("the state folder can be written again; nothing is owed to it".into());
        }
    }

    /// Beside this thread, which waits for it no longer than for anything else that is stuck.
    fn flush_at_the_end(&mut self) {
        let Some(flush) = self.leases.next_flush() else { return };
        let (version, lost) = (flush.version(), flush.lost());
        let (tell, told) = std::sync::mpsc::channel();
        let asked = self.aside.disk.ask(Err(lost), move || flush.write(), move |written| drop(tell.send(written)));
        self.say_when_no_thread(asked);
        match told.recv_timeout(STUCK) {
            Ok(Ok(())) => self.leases.flushed(version, true),
            Ok(Err(error)) => {
                self.leases.flushed(version, false);
                tracing::warn!("{}; the next start makes them from the groups' records", chain(&error));
            }
            Err(_) => tracing::error!("{DEAD_DISK}"),
        }
    }

    /// The last try, at the daemon's end.
    pub(super) fn pay_at_the_end(&mut self) {
        // A flush that did not end in its time: whatever else goes to that disk would hang as well (law L6).
        if self.leases.is_writing() {
            return tracing::error!("nothing more is written to the state folder; the receipts are in this log");
        }
        self.pay_records();
        self.pay_receipts();
        self.flush_at_the_end();
        self.drop_trash();
        for log in self.groups.values_mut().filter_map(|held| held.log.as_mut()) {
            log.settle();
        }
        if let Some(what) = self.owed.summary() {
            tracing::error!("{what}; the receipts are in this log");
        }
    }
}
