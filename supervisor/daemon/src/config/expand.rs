//! A cluster file to the spec that core runs, once its ports are leased.

use super::binaries::{Binaries, Server};
use super::cluster::{ClusterConfig, place};
use super::cluster_file::{BringupFile, ClusterKind};
use super::component::Builder;
use super::daemon::{DaemonConfig, DefaultsFile};
use super::env::Env;
use super::finding::{ConfigError, Finding};
use super::source::Step;
use super::tenant;
use super::words::Words;
use socialweb_core::graph::{self, GraphError};
use socialweb_core::spec::Bringup;
use socialweb_core::{GroupName, GroupSpec, Shared};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// What the host adds to a cluster file.
#[derive(Debug, Clone)]
pub struct Context<'a> {
    /// The group's leased ports by role; all that [`super::port_roles`] lists, and the upper ones of pairs.
    pub ports: &'a BTreeMap<String, u16>,
    /// The group's state folder, absolute.
    pub group_dir: PathBuf,
    /// The group's folder for sockets, absolute.
    pub runtime_dir: PathBuf,
    /// Where programs are.
    pub binaries: &'a Binaries,
    /// Our own binary, absolute: first-start tasks are its sub-commands.
    pub own_exe: &'a Path,
    /// The daemon's environment, for `env_pass`.
    pub env: &'a Env,
    /// `[defaults]` of supervisor.toml.
    pub defaults: &'a DefaultsFile,
}

impl<'a> Context<'a> {
    /// The context of a group under this daemon.
    pub fn new(
        daemon: &'a DaemonConfig,
        group: &GroupName,
        ports: &'a BTreeMap<String, u16>,
        binaries: &'a Binaries,
        own_exe: &'a Path,
        env: &'a Env,
    ) -> Self {
        let (group_dir, runtime_dir) = (daemon.group_dir(group), daemon.group_runtime_dir(group));
        Context { ports, group_dir, runtime_dir, binaries, own_exe, env, defaults: &daemon.defaults }
    }
}

/// A group ready to be declared to core.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Expanded {
    /// The spec; [`graph::check`] holds for it.
    pub spec: GroupSpec,
    /// The program that is the tenant's API server, for `status`; none in an exec group.
    pub server: Option<Server>,
}

/// Makes the spec. Looks for programs on the disk; changes nothing.
///
/// # Errors
/// All that is missing on this host: programs, leased ports, room in a socket path. Only this group is concerned.
pub fn expand(cluster: &ClusterConfig, context: &Context<'_>) -> Result<Expanded, ConfigError> {
    let mut findings = check_host(cluster, context);
    let mut components = Vec::new();
    let mut server = None;
    if cluster.file.kind == ClusterKind::Tenant {
        match tenant::components(cluster, context) {
            Ok((own, found)) => (components, server) = (own, Some(found)),
            Err(more) => findings.extend(more),
        }
    }
    let ranks = cluster.ranks().map_err(|e| graph_error(cluster, &e))?;
    let (dir, runtime) = (text(&context.group_dir), text(&context.runtime_dir));
    for (i, (file, rank)) in cluster.file.component.iter().zip(ranks).enumerate() {
        let (group, component) = (cluster.name.as_str(), file.name.as_str());
        let words = Words { group, component, dir: &dir, runtime: &runtime, ports: context.ports };
        let binaries = Some(context.binaries);
        let mut builder = Builder { file, words, env: context.env, binaries, faults: Vec::new() };
        components.push(builder.component(rank));
        findings.extend(builder.faults.into_iter().map(|fault| place(cluster, i, fault)));
    }
    if !findings.is_empty() {
        return Err(cluster.error(findings));
    }
    graph::check(&components).map_err(|e| graph_error(cluster, &e))?;
    // As long as the list is, no longer: 1,000 groups stay in memory, and the spare room of a grown list would too.
    let components = components.into_iter().map(Shared::from).collect::<Box<[_]>>().into_vec();
    let (ports, bringup) = (context.ports.clone(), bringup(&cluster.file.bringup));
    let (limits, cores) = (cluster.file.limits.bounds(), cluster.file.limits.cores());
    let spec = GroupSpec { name: cluster.name.clone(), ports, components, bringup, limits, cores };
    Ok(Expanded { spec, server })
}

fn check_host(cluster: &ClusterConfig, context: &Context<'_>) -> Vec<Finding> {
    let mut findings = Vec::new();
    let mut refuse = |message: String| findings.push(cluster.source.error(&[], message));
    for role in super::port_roles(cluster) {
        for role in [Some(role.role), role.above].into_iter().flatten().filter(|r| !context.ports.contains_key(r)) {
            refuse(format!("no port is leased for {role:?}; lease all of the group's ports first"));
        }
    }
    findings
}

fn graph_error(cluster: &ClusterConfig, error: &GraphError) -> ConfigError {
    cluster.error(vec![cluster.source.error(&[Step::Key("component")], error.to_string())])
}

fn bringup(file: &BringupFile) -> Bringup {
    let default = Bringup::default();
    Bringup {
        no_progress: file.no_progress.map_or(default.no_progress, |d| d.0),
        cap: file.cap.map_or(default.cap, |d| d.0),
        retry: file.retry.map_or(default.retry, |d| d.0),
    }
}

/// A path as text; config paths are checked to be UTF-8 when they are settled.
fn text(path: &Path) -> String {
    path.to_string_lossy().into_owned()
}
