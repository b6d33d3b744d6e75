//! The record that proves a stop.

use crate::end::End;
use crate::event::{ExitStatus, Reaped, Why};
use crate::name::{Birth, ComponentName, GroupName, Rank};
use crate::time::Time;
use serde::{Deserialize, Serialize};

/// Version of [`Receipt`]'s shape.
pub const SCHEMA: u32 = 1;

/// One stop of one group: what ran, in which order it was ended, and by what. Written only when the group's cgroup is
/// removed and every child was waited for.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Receipt {
    /// [`SCHEMA`].
    pub schema: u32,
    /// The group.
    pub group: GroupName,
    /// Which start of the group this stop ends.
    pub generation: u64,
    /// Who wanted the stop.
    pub why: Why,
    /// When the stop began (daemon time).
    pub began: Time,
    /// When the last proof was in.
    pub ended: Time,
    /// Milliseconds between the two.
    pub elapsed_ms: u64,
    /// True when the tenant's path was seen shut before the first component was touched.
    pub path_shut: bool,
    /// The components in the order in which they were proven gone.
    pub components: Vec<Stopped>,
    /// Processes found outside any component's run.
    pub strays: Vec<Reaped>,
    /// True when the group's cgroup was removed (in the fallback: two scans found nothing).
    pub removed: bool,
}

/// One component's part of a receipt.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Stopped {
    /// The component.
    pub component: ComponentName,
    /// Its rank.
    pub rank: Rank,
    /// The run, when one was alive.
    pub birth: Option<Birth>,
    /// The leader.
    pub pid: Option<u32>,
    /// How the leader ended.
    pub status: Option<ExitStatus>,
    /// The same with who ended it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub end: Option<End>,
    /// The highest rung that was needed.
    pub rung: Rung,
    /// When its ladder began.
    pub began: Time,
    /// When it was proven gone.
    pub gone: Time,
    /// The other processes of the run.
    pub others: Vec<Reaped>,
}

/// A step of the ladder.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Rung {
    /// Nothing was running.
    None,
    /// The stop signal to the leader, which then left with all of its own.
    Signal,
    /// The cgroup's kill.
    Kill,
    /// Even that did not empty it in time.
    Wedged,
}
