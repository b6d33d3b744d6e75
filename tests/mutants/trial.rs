//! A trial: what is waited for, and what a daemon can be convicted of.
//!
//! A conviction rests on something that was seen, and names what is broken. What does not come to be convicts nobody: a
//! machine can be slow. Where a fault shows in nothing else, the judge waits until the daemon has had its chance, and then
//! looks for what should not be there any more.

use crate::scene::Scene;
use crate::support::{Daemon, PATIENCE};
use serde_json::Value;
use socialweb_wire::{GroupStatus, Phase};
use std::fs;
use std::time::{Duration, Instant};

pub const GROUP: &str = "judged";
/// Asking is a process each time.
const ASK_AGAIN: Duration = Duration::from_millis(100);
/// A daemon that has answered so often has been through its loop as often, however slow the machine is.
const CHANCES: u32 = 20;

/// What a daemon can be convicted of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Broken {
    /// A group was started again in spite of an operator's stop.
    Desired,
    /// Data of a deleted group is kept.
    Data,
    /// A cgroup is left.
    Cgroup,
    /// A number of a start came twice.
    Generation,
    /// A group lost its port.
    Lease,
    /// A process has no marker.
    Marker,
    /// What was told came in another order, or did not come.
    Order,
    /// A process is there after its group, or after its grace.
    Outlived,
    /// Ports of a deleted group are kept.
    Ports,
    /// A receipt too few, or too many.
    Receipt,
    /// A receipt is there before the end.
    ReceiptEarly,
    /// A process was left frozen.
    Frozen,
    /// What an earlier daemon left is there beside the next one.
    Survivors,
    /// A group started on a port that somebody holds.
    Taken,
    /// A dead child was not waited for.
    Unreaped,
    /// A group started before its ports were kept.
    Unflushed,
}

/// What a judge has to say against a daemon.
#[derive(Debug)]
pub enum Finding {
    /// This is broken, and this was seen.
    Guilty(Broken, String),
    /// It came to no end: the setting, the machine or the judge is at fault.
    Unclear(String),
}

pub fn unclear(what: impl ToString) -> Finding {
    Finding::Unclear(what.to_string())
}

/// One trial.
pub struct Trial {
    pub daemon: Daemon,
    pub scene: Scene,
    /// How long the daemon has for what it must bring about.
    pub chance: Duration,
}

pub fn demand(holds: bool, broken: Broken, what: impl FnOnce() -> String) -> Result<(), Finding> {
    if holds { Ok(()) } else { Err(Finding::Guilty(broken, what())) }
}

impl Trial {
    /// A step on the way: that it does not come says nothing about the daemon.
    pub fn until<T>(&self, what: &str, mut look: impl FnMut(&Trial) -> Option<T>) -> Result<T, Finding> {
        let deadline = Instant::now() + PATIENCE;
        loop {
            if let Some(seen) = look(self) {
                return Ok(seen);
            }
            if Instant::now() > deadline {
                return Err(unclear(format!("not seen: {what}\n{}", self.daemon.log())));
            }
            std::thread::sleep(ASK_AGAIN);
        }
    }

    /// What the daemon must bring about. When it has had its chance and has not, `instead` says what is there in its place;
    /// None: nothing that would convict it.
    pub fn brought(
        &self,
        broken: Broken,
        what: &str,
        mut look: impl FnMut(&Trial) -> bool,
        instead: impl FnOnce(&Trial) -> Option<String>,
    ) -> Result<(), Finding> {
        let began = Instant::now();
        let mut answers = 0;
        while !look(self) {
            if began.elapsed() > self.chance && answers >= CHANCES {
                return Err(match instead(self) {
                    Some(seen) => Finding::Guilty(broken, seen),
                    None => unclear(format!("not seen: {what}\n{}", self.daemon.log())),
                });
            }
            if began.elapsed() > PATIENCE.max(self.chance) {
                return Err(unclear(format!("no chance for: {what}\n{}", self.daemon.log())));
            }
            std::thread::sleep(ASK_AGAIN);
            answers += u32::from(self.daemon.try_status().is_some());
        }
        Ok(())
    }

    pub fn group(&self, name: &str) -> Option<GroupStatus> {
        self.daemon.try_status()?.group(name).cloned()
    }

    pub fn phase(&self, name: &str, phase: Phase) -> Result<GroupStatus, Finding> {
        self.until(&format!("{name} is {phase}"), |t| t.group(name).filter(|g| g.phase == phase))
    }

    pub fn is_in(&self, name: &str, phase: Phase) -> bool {
        self.group(name).is_some_and(|group| group.phase == phase)
    }

    pub fn ready(&self) -> Result<GroupStatus, Finding> {
        self.phase(GROUP, Phase::Ready)
    }

    pub fn leases(&self) -> Value {
        let text = fs::read(self.daemon.state().join("leases.json")).unwrap_or_default();
        let file: Value = serde_json::from_slice(&text).unwrap_or_default();
        file["leases"].clone()
    }

    /// Where the group's cgroups are.
    pub fn cgroup(&self) -> Option<std::path::PathBuf> {
        Some(self.daemon.cgroups().first()?.join(GROUP))
    }

    /// Waits for the daemon's end.
    pub fn gone(&mut self) -> Result<(), Finding> {
        let deadline = Instant::now() + PATIENCE;
        while self.daemon.ended().is_none() {
            if Instant::now() > deadline {
                return Err(unclear(format!("the daemon does not end\n{}", self.daemon.log())));
            }
            std::thread::sleep(ASK_AGAIN);
        }
        Ok(())
    }

    /// A broken daemon is not asked to clear up.
    pub fn clear(&mut self) {
        if self.daemon.ended().is_none() && self.daemon.is_running() {
            self.daemon.kill_9();
        }
        self.scene.clear();
    }
}
