//! The admin API's types: HTTP/1.1 and JSON over a unix socket, one definition for the server in the daemon and for the
//! client in ctl.
//!
//! This room has no logic but the reading and writing of these types; it knows neither the core's nor the daemon's.
//! The shapes are stable: a field may be added, none is renamed or taken away without a new [`SCHEMA`], and a reader
//! ignores fields it does not know. Names say their unit: `_s` seconds, `_ms` milliseconds, `_usec` microseconds,
//! `_bytes` bytes; `time_ms` is milliseconds since the Unix epoch, `since_s` is "that many seconds ago", which no jump of
//! the wall clock changes.
//!
//! Routes, all under [`PREFIX`] but the last two:
//!
//! | method and path | query | answer |
//! |---|---|---|
//! | GET status | [`GroupQuery`] | [`HostStatus`] |
//! | GET watch | [`GroupQuery`] | stream of [`HostStatus`] |
//! | POST groups/G/start, stop, restart, delete | | [`Accepted`] |
//! | POST groups/G/components/C/restart | | [`Accepted`] |
//! | GET groups/G/logs | [`FeedQuery`] | stream of [`LogLine`] |
//! | GET events | [`FeedQuery`] | stream of [`EventLine`] |
//! | GET groups/G/tree | | [`GroupTree`] |
//! | GET groups/G/receipts | | list of [`Receipt`], newest first |
//! | POST reload | [`ReloadQuery`] | [`ReloadPlan`] |
//! | POST drill | [`DrillQuery`] | [`Accepted`] |
//! | POST shutdown | | [`Accepted`] |
//! | GET /metrics | | Prometheus text |
//! | GET /healthz | | `ok` |
//!
//! A stream is [`NDJSON`]: one [`StreamLine`] of JSON per line, until either side hangs up. An error of any route is an
//! [`ApiError`] with the status of its [`ErrorCode`].
//!
//! Map:
//! - [`status`] - host, groups, components.
//! - [`lines`] - what is streamed.
//! - [`tree`] - processes.
//! - [`receipt`] - the proof of a stop.
//! - [`plan`] - what a reload means.
//! - [`request`] - queries, and the answer to a change.
//! - [`error`] - what a refused request says.
//! - [`check`] - what `ctl doctor` and `ctl drill` say.
//! - [`place`] - where the socket is.
#![forbid(unsafe_code)]

pub mod check;
pub mod error;
pub mod lines;
pub mod place;
pub mod plan;
pub mod receipt;
pub mod request;
pub mod status;
pub mod tree;

pub use check::{Check, Health, Report};
pub use error::{ApiError, ErrorCode};
pub use lines::{EventLine, Level, LogLine, Missed, StreamLine};
pub use plan::{Effect, GroupPlan, PlannedChange, Problem, ReloadPlan, Severity};
pub use receipt::{Cause, End, ExitStatus, Reaped, ReapedBy, Receipt, Rung, Stopped, Why};
pub use request::{Accepted, DRILL_GROUP, DrillQuery, FeedQuery, GroupQuery, Operation, ReloadQuery};
pub use status::{ComponentStatus, GroupStatus, HostStatus, LogCounts, Phase, Usage};
pub use tree::{ComponentTree, GroupTree, Process};

/// A number with its noun, as people say it: `1 group`, `2 groups`, `3 processes`.
pub fn counted(n: usize, noun: &str) -> String {
    let ending = match (n, noun.ends_with('s')) {
        (1, _) => "",
        (_, true) => "es",
        (_, false) => "s",
    };
    format!("{n} {noun}{ending}")
}

/// Version of all shapes of this crate.
pub const SCHEMA: u32 = 1;

/// What the API's paths begin with.
pub const PREFIX: &str = "/v1";

/// Content type of a stream: one JSON value per line.
pub const NDJSON: &str = "application/x-ndjson";
