//! Queries, and the answer to a change.

use crate::status::Phase;
use serde::{Deserialize, Serialize};
use std::fmt;

/// Most lines of the past that a stream begins with.
pub const MAX_TAIL: u32 = 10_000;

/// Query of `status` and `watch`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct GroupQuery {
    /// Only this group.
    #[serde(default)]
    pub group: Option<String>,
}

/// Query of `logs` and `events`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FeedQuery {
    /// Events only: those about this group.
    #[serde(default)]
    pub group: Option<String>,
    /// Logs only: those of this component.
    #[serde(default)]
    pub component: Option<String>,
    /// Begin with at most this many lines of the past; at most [`MAX_TAIL`], and by default [`FeedQuery::DEFAULT_TAIL`].
    #[serde(default)]
    pub tail: Option<u32>,
    /// Go on with what comes.
    #[serde(default)]
    pub follow: bool,
}

impl FeedQuery {
    /// Lines of the past when none are asked for.
    pub const DEFAULT_TAIL: u32 = 100;
}

/// Query of `reload`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ReloadQuery {
    /// Make the plan and stop there.
    #[serde(default)]
    pub dry_run: bool,
    /// A folder without cluster files is meant: all groups are parked.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub allow_empty: bool,
}

/// The group in which a drill runs. No cluster file may have this name.
pub const DRILL_GROUP: &str = "socialweb-drill";

/// Query of `drill`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DrillQuery {
    /// Names the drill: 8 to 32 hex digits, which its processes carry on their command lines.
    pub token: String,
}

/// A change that was asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Operation {
    /// Bring a group up.
    Start,
    /// Take a group down.
    Stop,
    /// Take a group down and bring it up again.
    Restart,
    /// Restart one component alone.
    RestartComponent,
    /// Take a group down and destroy its data.
    Delete,
    /// Take all groups down and end the daemon.
    Shutdown,
}

/// The daemon has taken the change on. It says nothing on the outcome: who wants to know watches the status, which from
/// here on reflects the change.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Accepted {
    /// What was asked for.
    pub operation: Operation,
    /// The group; absent for a shutdown.
    pub group: Option<String>,
    /// The component, if the change is about one.
    pub component: Option<String>,
    /// The group's generation when the change was taken on. A group restart that begins with a stop is done when the
    /// group is Ready in a later one.
    pub generation: u64,
    /// The component's run before the change. A component restart is done when a later one is up.
    pub birth: Option<u64>,
    /// Its restarts before the change: a one-shot may have run again before anybody looks.
    #[serde(default)]
    pub restarts: u64,
    /// The group's phase when the change was taken on. Sweeping or Starting: the start is under way in this generation.
    pub phase: Option<Phase>,
    /// One sentence, such as "it was running already"; may be empty.
    pub note: String,
}

impl fmt::Display for Operation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Operation::Start => "start",
            Operation::Stop => "stop",
            Operation::Restart | Operation::RestartComponent => "restart",
            Operation::Delete => "delete",
            Operation::Shutdown => "shutdown",
        })
    }
}
