//! What is wrong with this host, and what to do: `ctl doctor`.
//!
//! Facts first ([`gather()`]), then a pure judgement ([`judge()`]): each check can so be shown wrong in a test without a wrong host.
//! It works beside a daemon that answers, beside one that hangs, and without one: what is the daemon's own (its cgroup, its
//! limits, its PATH, the flags that it was started with) is read from /proc, not asked for. It changes nothing: no cgroup is
//! made, no process is signalled, no file is written.
//!
//! Map:
//! - [`place`] - which daemon, which configuration, which state folder: [`Place`].
//! - [`facts`] - what was seen. - [`gather`](mod@gather), [`cgroups`], [`left`]: how it is seen.
//! - [`judge`](mod@judge) - what it means for processes and the kernel; [`account`]: for the account, its limits and its manager;
//!   [`files`] - for files, programs and ports.

pub mod account;
pub mod cgroups;
pub mod facts;
pub mod files;
pub mod gather;
pub mod judge;
pub mod left;
pub mod place;

#[cfg(test)]
mod tests;

pub use gather::gather;
pub use judge::judge;
pub use place::{Asked, Place, Seen};

use socialweb_wire::Report;

/// Looks at everything and says what it means.
pub fn examine(place: &Place) -> Report {
    let facts = gather(place);
    Report::new(judge::subject(&facts), judge(&facts))
}
