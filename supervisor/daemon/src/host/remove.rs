//! The last rung: rmdir of a run's cgroup, and of a group's, once nothing of it is left.

use super::live::Key;
use super::{Again, Containment, Host, Msg};
use socialweb_core::event::ReapedBy;
use socialweb_core::{ComponentName, Event, GroupName, Reaped, mutant};
use socialweb_sys::cgroup::RemoveError;
use socialweb_sys::fallback;
use socialweb_sys::process::{self, Proc};
use std::time::Duration;

/// The kernel answers EBUSY for a moment after the last member died: tried again this often, then core is left to ask.
const REMOVE_TRIES: u32 = 40;
/// Between two tries, and between two looks of the fallback.
const REMOVE_PAUSE: Duration = Duration::from_millis(25);

impl Host {
    /// rmdir of the run's cgroup; EBUSY is tried again for a second.
    pub(super) fn remove_run(&mut self, key: &Key, tries: u32) {
        let removed = match self.run_cgroup(key) {
            Some(cgroup) if !mutant!("l3-run-not-removed") => cgroup.remove(),
            _ => Ok(()),
        };
        match removed {
            Ok(()) => {
                if let Some(live) = self.births.remove(key) {
                    self.logs.finish(live.pipe);
                }
                self.look_for_cores(&key.group);
                let (component, birth) = (key.component.clone(), key.birth);
                self.later(&key.group, Event::CgroupRemoved { component, birth });
            }
            Err(e) if e.is_busy() && tries < REMOVE_TRIES => self.again(Again::RemoveRun(key.clone(), tries + 1)),
            // Core asks again; until then this says why it waits.
            Err(e) => self.warn(Some(&key.group), crate::chain::chain(&e)),
        }
    }

    /// The group's own cgroup, and once more a look for anything that carries its marker.
    pub(super) fn remove_group(&mut self, group: &GroupName, tries: u32) {
        if self.waits_for_sweep(group) {
            return;
        }
        let strays = match self.end_strays_of(group) {
            Ok(strays) => strays,
            Err(error) => {
                let what = format!("cannot look for processes that left the group's cgroup: {error}");
                return self.later(group, Event::GroupStuck { what });
            }
        };
        let removed = match &self.containment {
            Containment::Cgroups { tree, .. } if !mutant!("l3-group-not-removed") => {
                tree.child(group.as_str()).remove()
            }
            _ => Ok(()),
        };
        let event = match removed {
            Ok(()) if strays.is_empty() => Event::GroupRemoved,
            Ok(()) if tries < REMOVE_TRIES => return self.again(Again::RemoveGroup(group.clone(), tries + 1)),
            Ok(()) => {
                let who: Vec<String> = fallback::unkillable(strays).iter().map(ToString::to_string).collect();
                let what = format!("processes that left the group's cgroup do not end: {}", who.join("; "));
                Event::GroupStuck { what }
            }
            Err(e) if e.is_busy() && tries < REMOVE_TRIES => {
                if let (RemoveError::Busy { .. }, Containment::Cgroups { tree, .. }) = (&e, &self.containment) {
                    // Something came in from outside after the last component was gone.
                    let _ = tree.child(group.as_str()).kill();
                }
                return self.again(Again::RemoveGroup(group.clone(), tries + 1));
            }
            Err(e) => Event::GroupStuck { what: crate::chain::chain(&e) },
        };
        if event == Event::GroupRemoved {
            self.end_limits(group);
        }
        self.later(group, event);
    }

    /// Kills what carries this group's marker and is in no run of its own any more. Returns their numbers.
    fn end_strays_of(&mut self, group: &GroupName) -> std::io::Result<Vec<u32>> {
        let prefix = format!("{}/{group}/", self.paths.id);
        let mut found: Vec<Proc> = self.strays()?.into_iter().filter(|p| p.marker.starts_with(&prefix)).collect();
        if matches!(self.containment, Containment::Fallback) {
            found.extend(process::find_marked(super::spawn::MARKER, &prefix)?);
        }
        let Some(held) = self.groups.get_mut(group) else { return Ok(Vec::new()) };
        for proc in &found {
            let _ = proc.pidfd.send(nix::libc::SIGKILL);
            let component = proc.marker[prefix.len()..].split('/').next().and_then(|c| ComponentName::new(c).ok());
            if !held.strays.iter().any(|s| (s.pid, s.start_time) == (proc.pid, proc.stat.start_time)) {
                held.strays.push(Reaped {
                    component,
                    pid: proc.pid,
                    start_time: proc.stat.start_time,
                    command: proc.stat.comm.clone(),
                    by: ReapedBy::MarkerKill,
                });
            }
        }
        Ok(found.iter().map(|p| p.pid).collect())
    }

    fn again(&self, again: Again) {
        let tx = self.tx.clone();
        tokio::spawn(async move {
            tokio::time::sleep(REMOVE_PAUSE).await;
            let _ = tx.send(Msg::Again(again));
        });
    }
}
