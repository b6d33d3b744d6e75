//! What a reload means, before and after it is done.

use serde::{Deserialize, Serialize};
use std::fmt;

/// The plan of a reload.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReloadPlan {
    /// False for a dry run, and when a problem kept the daemon from doing anything.
    pub applied: bool,
    /// The groups that change, by name; groups that do not change are not listed.
    pub groups: Vec<GroupPlan>,
    /// What could not be read. The groups of such a file stay as they are.
    pub problems: Vec<Problem>,
}

/// What a reload means for one group.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct GroupPlan {
    /// The group.
    pub group: String,
    /// The strongest effect of its changes.
    pub effect: Effect,
    /// The changes, by component, then key.
    pub changes: Vec<PlannedChange>,
}

/// One changed key.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PlannedChange {
    /// The component; absent when the key is about the whole group.
    pub component: Option<String>,
    /// The key, as in the file; empty when the component as a whole is meant.
    pub key: String,
    /// Where it stands now.
    pub file: Option<String>,
    /// Line in that file, from 1.
    pub line: Option<u32>,
    /// What it means.
    pub effect: Effect,
}

/// What a change means for what runs, from weak to strong.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Effect {
    /// Takes effect at once; nothing is touched.
    InPlace,
    /// Takes effect when the whole group starts next.
    NextStart,
    /// The component restarts.
    Restart,
    /// The component, or the whole group, is new and starts.
    Start,
    /// The component is gone from the configuration and stops.
    Stop,
    /// The group is no longer declared: it stops, its data stays.
    Park,
    /// The group is not to run, by its file or by an operator's stop: what changed counts from its next start on.
    StaysStopped,
    /// An effect that this reader does not know.
    #[serde(other)]
    Unknown,
}

/// How bad a [`Problem`] is.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Severity {
    /// It was used, and somebody should look.
    Warning,
    /// Something could not be used; what depends on it stays as it was. Also what a reader makes of one it does not know.
    #[default]
    #[serde(other)]
    Error,
}

/// One thing that is wrong in a configuration file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Problem {
    /// The file or folder.
    pub file: String,
    /// Line, from 1.
    pub line: Option<u32>,
    /// Column, from 1.
    pub column: Option<u32>,
    /// How bad it is.
    #[serde(default)]
    pub severity: Severity,
    /// What is wrong.
    pub message: String,
    /// What to do about it; may be empty.
    pub hint: String,
}

impl fmt::Display for Effect {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Effect::InPlace => "takes effect at once",
            Effect::NextStart => "takes effect at the group's next start",
            Effect::Restart => "restarts",
            Effect::Start => "starts",
            Effect::Stop => "stops",
            Effect::Park => "is parked, its data stays",
            Effect::StaysStopped => "stays stopped",
            Effect::Unknown => "unknown to this version",
        })
    }
}

impl ReloadPlan {
    /// True when something could not be used.
    pub fn has_errors(&self) -> bool {
        self.problems.iter().any(|p| p.severity == Severity::Error)
    }
}

impl Problem {
    /// The problem without what to do about it: `FILE:LINE:COLUMN: message`.
    pub fn place_and_message(&self) -> String {
        let number = |n: Option<u32>| n.map(|n| format!(":{n}")).unwrap_or_default();
        format!("{}{}{}: {}", self.file, number(self.line), number(self.column), self.message)
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.place_and_message())?;
        if !self.hint.is_empty() {
            write!(f, "; {}", self.hint)?;
        }
        Ok(())
    }
}
