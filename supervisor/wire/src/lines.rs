//! What is streamed: one JSON value per line.

use crate::error::ApiError;
use serde::{Deserialize, Serialize};

/// How much a line matters.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Level {
    /// Something failed.
    Error,
    /// Worth a look.
    Warning,
    /// Of interest when looking for a fault.
    Debug,
    /// What is expected to happen. Also what a reader makes of a level that it does not know.
    #[serde(other)]
    Info,
}

/// One thing that happened.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct EventLine {
    /// Counts up by one from the daemon's start.
    pub seq: u64,
    /// When, by the wall clock.
    pub time_ms: u64,
    /// The group it is about; absent when it is about the host.
    pub group: Option<String>,
    /// The component it is about.
    pub component: Option<String>,
    /// The run it is about.
    pub birth: Option<u64>,
    /// How much it matters.
    pub level: Level,
    /// One sentence.
    pub text: String,
}

/// One line that a component wrote.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LogLine {
    /// When it was read, by the wall clock.
    pub time_ms: u64,
    /// The group.
    pub group: String,
    /// The component.
    pub component: String,
    /// The run.
    pub birth: Option<u64>,
    /// As far as the line tells.
    pub level: Level,
    /// The line without its end; bytes that are no UTF-8 are replaced.
    pub text: String,
}

/// One line of a stream.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum StreamLine<T> {
    /// The reader was too slow, and lines were left out here.
    Missed(Missed),
    /// What was asked for.
    Item(T),
    /// The stream ends here, for this reason.
    Error(ApiError),
}

/// A hole in a stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Missed {
    /// How many lines were left out.
    pub missed: u64,
}
