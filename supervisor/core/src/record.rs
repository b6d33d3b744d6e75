//! Recorded event logs. A log is the header and every event with its time; replaying it gives the same states, because
//! the machine has no other input.

use crate::action::Action;
use crate::event::Event;
use crate::group::Group;
use crate::name::{Birth, GroupName};
use crate::time::Time;
use serde::{Deserialize, Serialize};

/// Version of the log's shape.
pub const SCHEMA: u32 = 1;

/// First line of a log.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Header {
    /// [`SCHEMA`].
    pub schema: u32,
    /// The group.
    pub group: GroupName,
    /// Seed of the jitter.
    pub seed: u64,
    /// First birth that the group hands out.
    pub first_birth: Birth,
    /// Starts of the group before this log.
    #[serde(default)]
    pub generation: u64,
}

#[derive(Deserialize)]
struct Version {
    schema: u32,
}

/// Every other line.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Entry {
    /// When it was handled, in daemon time.
    pub at: Time,
    /// What.
    #[serde(flatten)]
    pub event: Event,
}

/// Why a log cannot be replayed.
#[derive(Debug, thiserror::Error)]
pub enum ReplayError {
    /// No first line.
    #[error("the log is empty; it begins with a header line")]
    Empty,
    /// A line that is no entry.
    #[error("line {line} of the log is no {what}")]
    BadLine {
        /// Counted from 1.
        line: usize,
        /// header or event.
        what: &'static str,
        /// What the parser says.
        #[source]
        source: serde_json::Error,
    },
    /// Another shape.
    #[error("the log has schema {found}, this program reads schema {SCHEMA}; replay it with the program that wrote it")]
    Schema {
        /// What the header says.
        found: u32,
    },
}

/// Replays a log (JSON lines) and hands each step to `seen`. A last line without its end (the writer was killed) is
/// left out.
pub fn replay(text: &str, mut seen: impl FnMut(&Entry, &[Action], &Group)) -> Result<Group, ReplayError> {
    let whole = match text.rfind('\n') {
        Some(end) => &text[..end],
        None => text,
    };
    let mut lines = whole.lines().enumerate();
    let (_, first) = lines.next().ok_or(ReplayError::Empty)?;
    let bad = |source| ReplayError::BadLine { line: 1, what: "header", source };
    // The version first: another one may have another header.
    let Version { schema: found } = serde_json::from_str(first).map_err(bad)?;
    if found != SCHEMA {
        return Err(ReplayError::Schema { found });
    }
    let header: Header = serde_json::from_str(first).map_err(bad)?;
    let mut group = Group::new(header.group, header.seed, header.first_birth).after(header.generation);
    for (n, line) in lines.filter(|(_, line)| !line.trim().is_empty()) {
        let entry: Entry = serde_json::from_str(line).map_err(|source| ReplayError::BadLine {
            line: n + 1,
            what: "recorded event",
            source,
        })?;
        let actions = group.handle(entry.at, entry.event.clone());
        seen(&entry, &actions, &group);
    }
    Ok(group)
}
