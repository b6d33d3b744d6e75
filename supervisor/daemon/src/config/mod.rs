//! Config files to what the daemon runs: `supervisor.toml`, the folder of cluster files beside it, and the specs of the
//! groups that they declare.
//!
//! Everything wrong in a file is reported with its place and a way out, and stays in that file: a broken cluster file
//! leaves every other group alone, and its own group keeps the spec that it had. This room starts nothing, leases
//! nothing and writes nothing; the environment, the flags and the leased ports are handed to it.
//!
//! The way of a cluster file:
//!
//! ```text
//! folder -> source (text) -> read (serde, every error) -> cluster (checked) -> [leases] -> expand -> core::GroupSpec
//! ```
//!
//! Map:
//! - `daemon`: supervisor.toml; [`load_daemon`].
//! - `folder`: the folder as a source of clusters and law L7; [`read_folder`].
//! - `cluster_file`, `cluster`: a cluster file's keys, and what they must obey together; [`load_cluster`], [`port_roles`].
//! - `component`, `probe`, `words`: a `[[component]]` to a spec.
//! - `limits`: what a group and a component may take of the host.
//! - `tenant`: the tenant's own components, from the recipe rooms.
//! - `binaries`: where programs are.
//! - `expand`: ports and host in, [`socialweb_core::GroupSpec`] out.
//! - `check`: [`check()`] and [`schema`]; `locate`: the places of changed keys for a reload's plan.
//! - `source`, `read`, `finding`, `value`, `env`: text and places, all errors at once, how they read, small values.

mod binaries;
mod check;
mod cluster;
mod cluster_file;
mod component;
mod daemon;
mod env;
mod expand;
mod finding;
mod folder;
mod limits;
mod locate;
mod probe;
mod read;
mod source;
mod tenant;
mod value;
mod words;

#[cfg(test)]
mod tests;

pub use binaries::{Binaries, MissingBinary, Server};
pub use check::{FileKind, check, schema};
pub use cluster::{ClusterConfig, PortRole, load_cluster, parse_cluster, port_roles};
pub use cluster_file::{ClusterFile, ClusterKind, ComponentFile};
pub use daemon::{
    BinariesFile, DaemonConfig, DaemonFile, DefaultsFile, LogConfig, MAX_SOCKET_PATH, Overrides, Switch, load_daemon,
};
pub use env::Env;
pub use expand::{Context, Expanded, expand};
pub use finding::{ConfigError, Finding, Position, Severity};
pub use folder::{Declared, SourceState, read_folder};
pub use limits::{GroupLimitsFile, LimitsFile};
pub use locate::{locate, locate_group};
pub use socialweb_k3s::Flavour;
pub use source::{MAX_FILE, Source, Step};
pub use tenant::{TenantTimeouts, Timeouts, port_roles as tenant_port_roles};

use socialweb_core::GroupName;
use std::collections::BTreeSet;
use std::path::Path;

/// What a load starts from.
#[derive(Debug, Clone, Copy)]
pub struct Inputs<'a> {
    /// supervisor.toml (`run -config FILE`).
    pub file: &'a Path,
    /// The daemon's environment.
    pub env: &'a Env,
    /// The flags of `run`.
    pub flags: &'a Overrides,
    /// Groups that the folder declared when it was last read: from memory, or from the group records after a start.
    pub known: &'a BTreeSet<GroupName>,
    /// A folder without a cluster file is meant, and no lost mount.
    pub may_be_empty: bool,
}

/// All that the files say.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Loaded {
    /// supervisor.toml, settled.
    pub daemon: DaemonConfig,
    /// The cluster files.
    pub declared: Declared,
}

/// Reads supervisor.toml and the cluster files of its folder.
///
/// # Errors
/// Only what is wrong with supervisor.toml itself; a broken cluster file is one entry of the result.
pub fn load(inputs: &Inputs<'_>) -> Result<Loaded, ConfigError> {
    let daemon = load_daemon(inputs.file, inputs.env, inputs.flags)?;
    let declared = read_folder(&daemon.clusters_dir, inputs.known, inputs.may_be_empty);
    Ok(Loaded { daemon, declared })
}
