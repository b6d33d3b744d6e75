//! The nasty cases, tried on the operator's own host: `ctl drill`.
//!
//! The daemon runs them as a real group of a reserved name, through the ordinary core and executor; nothing here is a second
//! way to start or stop anything. The judge believes neither: [`eyes`] look into /proc for the drill's processes by their
//! command line, which no marker and no cgroup of the daemon's has a part in. So a drill under a broken supervisor fails and
//! names what is left.
//!
//! Expected flow: the client makes a token, the daemon declares and starts [`spec`], the client sees it Ready, looks, has it
//! stopped, looks again, has it deleted, looks a last time, and judges.
//!
//! Guarantees: no other group is touched; every process of a drill ends by itself after [`child::LIFE`], whatever becomes of
//! the daemon; at most [`MOST`] processes exist at once.
//!
//! Map:
//! - [`cases`] - what is tried, and the group's spec. - [`child`]: the programs. - [`eyes`]: who of them is there.
//! - [`judge`](mod@judge) - what was seen, as checks. Pure.

pub mod cases;
pub mod child;
pub mod eyes;
pub mod judge;

pub use cases::{Case, spec};
pub use eyes::SeenProcess;
pub use judge::{Observed, judge};

/// The group's name; no cluster file may have it.
pub const GROUP: &str = socialweb_wire::DRILL_GROUP;

/// Most processes of a drill at once: the fork bomb's 43, and a handful of each other case.
pub const MOST: usize = 100;

/// True for a token as clients make them: 8 to 32 hex digits. It becomes part of command lines.
pub fn is_token(text: &str) -> bool {
    (8..=32).contains(&text.len()) && text.bytes().all(|b| b.is_ascii_hexdigit())
}
