//! Linux mechanisms for a supervisor: make, watch, signal, wait for and take away processes, and say what the kernel sees.
//!
//! This room decides nothing: no policy, no timer, no retry, no logging, no async runtime. It never blocks on another
//! process (the one exception is [`cgroup::Support::detect`], which waits once for a child that ends at once). Roots and
//! names come as arguments; nothing here knows of groups or components. It is the only room with `unsafe`, and each such
//! block argues its own safety.
//!
//! Map:
//! - [`cgroup`] - find a cgroup2 subtree that is ours, make, kill, thaw, count and remove cgroups, wait for "unpopulated".
//! - [`mod@spawn`] - clone3 into a cgroup with a pidfd; a child that inherits only what it was given.
//! - [`reap`] - the one owner of all waits; subreaper.
//! - [`process`] - /proc, pidfds, identity of a process beyond its number, the marker sweep.
//! - [`fallback`] - who belongs to a run where there is no cgroup, and killing them; what cannot be killed.
//! - [`socket`] - private unix sockets, who the peer is, the notify socket.
//! - [`port`] - is a loopback port free, and who holds it.
//! - [`fsinfo`] - what a state folder lies on; [`mounts`] - what is mounted where.
//! - [`memory`] - what the allocator gives back.
//!
//! Needs Linux 5.14 (cgroup.kill; clone3 into a cgroup is 5.7, close_range 5.9). On older kernels from 5.9 on the kill
//! falls back to signalling every member through its pidfd.

pub mod cgroup;
pub mod fallback;
pub mod fsinfo;
pub mod memory;
pub mod mounts;
pub mod port;
pub mod process;
pub mod reap;
pub mod socket;
pub mod spawn;

pub use cgroup::{Cgroup, Support, Tree, Watcher};
pub use process::PidFd;
pub use spawn::{Command, Output, Spawned};
