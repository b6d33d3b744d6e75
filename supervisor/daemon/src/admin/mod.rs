//! The admin server: HTTP/1.1 and JSON over a unix socket, for the operator of this host and nobody else.
//!
//! It decides nothing and owns no state of any group: a request becomes one [`Command`] to the daemon's loop, the loop's
//! answer becomes the response. It cannot hold the loop up either: commands wait in a bounded queue, followers read from
//! bounded channels and are told how much they missed.
//!
//! Who may ask is settled per connection, before a byte of it is read ([`peer`]): the daemon's own uid or root, and no
//! process that lives in a group's cgroup. What may be asked is bounded in size, time and number ([`serve`]).
//!
//! Map, with the tasks:
//! - [`command`] - the language between this server and the loop; [`channel`] makes both ends.
//! - [`peer`] - who may ask.
//! - [`socket`] - binding the socket: private from the start, a stale one replaced, a live one left alone.
//! - [`serve`] - one task accepts; one task per connection, one request per connection.
//! - [`routes`] - a path becomes a command.
//! - `sparing`: what would fill the log is said seldom.
//! - [`stream`] - bodies that go on: status, logs, events.
//! - [`metrics`] - status as Prometheus text.
//! - [`convert`] - core's views as the wire's types.

pub mod command;
pub mod convert;
pub mod metrics;
pub mod peer;
pub mod routes;
pub mod serve;
pub mod socket;
mod sparing;
pub mod stream;

#[cfg(test)]
mod tests;

pub use command::{AdminHandle, AdminPort, Change, Command, Feed, Reply, channel};
pub use peer::{Peer, PeerCheck, PeerPolicy};
pub use serve::{AdminServer, Limits};
pub use socket::{BindError, bind};
