//! Performs core's actions. Each has an outcome that comes back as an event, at once or later.

use super::live::Key;
use super::{Containment, Host, Msg};
use crate::failpoint;
use crate::state::Fsync;
use socialweb_core::{Action, Event, GroupName, GroupView, Phase, Receipt, Shared, mutant};

/// Who holds a port that nobody is seen with.
const UNKNOWN: &str = "an unknown process";

impl Host {
    pub(super) fn execute(&mut self, group: &GroupName, action: Action) {
        let (before, after) = both_sides(&action);
        failpoint::reach(before);
        self.perform(group, action);
        failpoint::reach(after);
    }

    fn perform(&mut self, group: &GroupName, action: Action) {
        let key = |component, birth| Key { group: group.clone(), component, birth };
        match action {
            Action::ReapSurvivors => self.reap_survivors(group),
            Action::Lease => self.probe_leases(group),
            Action::Request { permit } => self.budget.request(group, permit),
            Action::Return { permit } => self.budget.give_back(group, &permit),
            Action::MakeCgroup => self.make_group(group),
            Action::Spawn { component, birth, role } => self.spawn_run(key(component, birth), role),
            Action::Probe { component, birth, what } => self.probe_run(key(component, birth), what),
            Action::Signal { signal, .. } if mutant!("l2-all-told-at-once") => {
                let all: Vec<Key> = self.births.keys().filter(|key| key.group == *group).cloned().collect();
                all.iter().for_each(|key| self.signal_run(key, signal));
            }
            Action::Signal { component, birth, signal } => self.signal_run(&key(component, birth), signal),
            Action::AwaitEmpty { component, birth } => self.empty_run(&key(component, birth), false),
            Action::KillCgroup { component, birth } => self.empty_run(&key(component, birth), true),
            Action::RemoveCgroup { component, birth } => self.remove_run(&key(component, birth), 0),
            Action::RemoveGroup => self.remove_group(group, 0),
            // No path is configured in front of a tenant yet: shut is what it always is, and that was just looked at.
            Action::ShutPath => {
                if mutant!("l14-receipt-early") {
                    let receipt = self.survivors_receipt(group, Default::default(), Vec::new());
                    self.keep_receipt(group, &receipt);
                }
                self.later(group, Event::PathShut);
            }
            // Leases are sticky; nothing is given back but by a delete.
            Action::Release if mutant!("l9-lease-dropped") => {
                self.leases.release(group);
                self.keep_leases();
            }
            Action::Release => {}
            Action::Publish { view } => self.publish(group, view),
            Action::Receipt { receipt } => self.keep_receipt(group, &receipt),
        }
    }

    /// A sticky port is probed before every start; its holder is named, and nothing moves (law L9).
    pub(super) fn probe_leases(&mut self, group: &GroupName) {
        if !self.leases_are_kept(group) {
            return;
        }
        let ports = self.groups.get(group).and_then(|h| h.machine.spec()).map(|s| s.ports.clone()).unwrap_or_default();
        let taken = ports
            .into_iter()
            .find(|(_, port)| socialweb_sys::port::is_free(*port).is_err() && !mutant!("l9-port-not-probed"));
        let Some((role, port)) = taken else { return self.later(group, Event::LeasesGranted) };
        // Finding the holder reads every process's descriptors, which takes time that other groups need.
        let told = move |role, group, holder| Msg::Event(group, Event::LeaseTaken { role, port, holder });
        let lost = told(role.clone(), group.clone(), UNKNOWN.into());
        let group = group.clone();
        self.look_aside(lost, move || {
            told(role, group, socialweb_sys::port::holder_of(port).unwrap_or_else(|| UNKNOWN.into()))
        });
    }

    fn make_group(&mut self, group: &GroupName) {
        let made = match &self.containment {
            Containment::Cgroups { tree, .. } => {
                tree.child(group.as_str()).create().map_err(|e| crate::chain::chain(&e))
            }
            Containment::Fallback => Ok(()),
        };
        let runtime = self.paths.runtime.join(group.as_str());
        let made = made.and_then(|()| make_private(&runtime));
        self.begin_limits(group);
        self.later(group, made.map_or_else(|error| Event::CgroupFailed { error }, |()| Event::CgroupMade));
    }

    fn publish(&mut self, group: &GroupName, view: Shared<GroupView>) {
        let now = self.clock.now();
        let Some(held) = self.groups.get_mut(group) else { return };
        let mut unsaved = None;
        let before = std::mem::replace(&mut held.view, view);
        let view = &held.view;
        if before.generation != view.generation {
            held.start_began = Some(now);
            held.record.generation = view.generation;
            // A lost number costs nothing but a name of a receipt, so a start does not wait for the disk.
            let lost = mutant!("l4-generation-lost");
            let saved = if lost { Ok(()) } else { held.record.save(self.state.layout(), Fsync::No) };
            unsaved = saved.err().map(|e| crate::chain::chain(&e));
            failpoint::reach("generation-written");
        }
        if view.phase == Phase::Ready
            && before.phase != Phase::Ready
            && let Some(began) = held.start_began.take()
        {
            held.last_start_ms = u64::try_from(now.since(began).as_millis()).ok();
        }
        if let Some(why) = unsaved {
            self.owe_record(group, why);
        }
        self.say_change(group, &before);
        self.port.changed();
        if matches!(self.groups[group].view.phase, Phase::Parked | Phase::Absent) && self.groups[group].delete {
            self.delete_when_swept(group);
        }
    }

    pub(super) fn keep_receipt(&mut self, group: &GroupName, receipt: &Receipt) {
        let mut receipt = receipt.clone();
        if let Some(held) = self.groups.get_mut(group) {
            receipt.strays.append(&mut held.strays);
        }
        self.say_receipt(group, &receipt);
        if !mutant!("l14-receipt-lost") {
            self.save_receipt(group, receipt);
        }
    }
}

/// The failpoints on both sides of an action.
fn both_sides(action: &Action) -> (&'static str, &'static str) {
    match action {
        Action::ReapSurvivors => ("before-reap-survivors", "after-reap-survivors"),
        Action::Lease => ("before-lease", "after-lease"),
        Action::Request { .. } => ("before-request", "after-request"),
        Action::Return { .. } => ("before-return", "after-return"),
        Action::MakeCgroup => ("before-make-cgroup", "after-make-cgroup"),
        Action::Spawn { .. } => ("before-spawn", "after-spawn"),
        Action::Probe { .. } => ("before-probe", "after-probe"),
        Action::Signal { .. } => ("before-signal", "after-signal"),
        Action::AwaitEmpty { .. } => ("before-await-empty", "after-await-empty"),
        Action::KillCgroup { .. } => ("before-kill-cgroup", "after-kill-cgroup"),
        Action::RemoveCgroup { .. } => ("before-remove-cgroup", "after-remove-cgroup"),
        Action::RemoveGroup => ("before-remove-group", "after-remove-group"),
        Action::ShutPath => ("before-shut-path", "after-shut-path"),
        Action::Release => ("before-release", "after-release"),
        Action::Publish { .. } => ("before-publish", "after-publish"),
        Action::Receipt { .. } => ("before-receipt", "after-receipt"),
    }
}

/// Makes a folder that only we can enter.
pub(crate) fn make_private(path: &std::path::Path) -> Result<(), String> {
    use std::os::unix::fs::DirBuilderExt;
    let made = std::fs::DirBuilder::new().recursive(true).mode(0o700).create(path);
    made.map_err(|e| {
        format!("cannot make the folder {}: {e}; check the owner and the free space above it", path.display())
    })
}
