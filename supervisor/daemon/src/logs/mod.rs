//! The components' output: one pipe per run, drained always, kept where it can be kept, counted where it cannot.
//!
//! This room never blocks a child and never fails the daemon. It knows nothing of groups' states; it does not print
//! secrets away (components that log secrets are the recipe's concern), and it does not read the journal back.
//!
//! One shared epoll task, [`Pump`], serves all pipes; not one task per run. Its reasons: an idle pipe then costs one small
//! struct and no task, no timer and no tokio registration of its own (5,000 of them must fit); one read buffer serves all;
//! and fairness is ours to decide: each turn reads at most [`READ`] bytes from at most [`PIPES_PER_TURN`] pipes, the
//! kernel's ready list goes round, and after each turn the task yields to the daemon's loop. So a child that writes
//! 100 MB/s is slowed by its own full pipe and nobody else is.
//!
//! Keeping is another thread's work (`keep`), because a disk may stand still: what it does not keep up with waits for it,
//! bounded, and is dropped beyond that. Counters per component are exact:
//! `lines_in = lines_written + lines_dropped + lines_waiting`, where written means that the journal or the file took the
//! line; and where lines are missing the log says how many. The ring, the followers and the watchers are served besides.
//!
//! Map:
//! - [`line`](mod@line): bytes to lines: splitting, UTF-8, priority.
//! - [`follow`] - followers, each with its own bounded queue.
//! - [`store`] - the components with ring and counters; [`Logs`], the handle that everybody else holds.
//! - [`pump`] - the task that reads; `pipe`: what it reads from.
//! - `keep`, `sink`: the thread that keeps, and where.
//! - [`journal`] - journald's native protocol.
//! - [`file`](mod@file): rotated files where there is no journal, and reading them back.

pub mod file;
pub mod follow;
pub mod journal;
mod keep;
pub mod line;
mod pipe;
pub mod pump;
mod sink;
pub mod store;

pub use follow::{Followed, Follower};
pub use line::{LogLine, MAX_LINE, Priority, Source};
pub use pump::{PIPES_PER_TURN, Pump, READ, Turn};
pub use store::{Counters, LogError, Logs, Options, PipeId, Sink, Tail, Watch};

#[cfg(test)]
mod properties;
#[cfg(test)]
mod tests;
