//! `config check` and `config schema`.

use super::Inputs;
use super::binaries::Binaries;
use super::cluster::{ClusterConfig, port_roles};
use super::cluster_file::ClusterFile;
use super::daemon::{DaemonConfig, DaemonFile, folder_of, load_daemon};
use super::expand::{Context, expand};
use super::finding::{Finding, Severity};
use super::folder::{Declared, SourceState, read_folder};
use std::collections::BTreeMap;
use std::path::Path;

/// Reads everything, expands every group with stand-ins for its ports, and lists what is wrong: errors and warnings, the
/// daemon's file first. Nothing is changed; an empty list means that `run` would take it all.
pub fn check(inputs: &Inputs<'_>, own_exe: &Path) -> Vec<Finding> {
    let (daemon, mut findings) = match load_daemon(inputs.file, inputs.env, inputs.flags) {
        Ok(daemon) => (Some(daemon), Vec::new()),
        Err(error) => (None, error.findings),
    };
    let beside = folder_of(inputs.file).join("clusters.d");
    let folder = daemon.as_ref().map_or(beside.as_path(), |d| d.clusters_dir.as_path());
    let declared = read_folder(folder, inputs.known, inputs.may_be_empty);
    let binaries = daemon.as_ref().map(|d| Binaries::new(&d.binaries, inputs.env, own_exe));
    for entry in &declared.clusters {
        match (entry, daemon.as_ref().zip(binaries.as_ref())) {
            (Err(error), _) => findings.extend(error.findings.clone()),
            (Ok(cluster), Some((daemon, binaries))) => {
                findings.extend(dry_run(cluster, daemon, binaries, inputs, own_exe))
            }
            (Ok(_), None) => {}
        }
    }
    findings.extend(folder_findings(&declared));
    findings
}

fn folder_findings(declared: &Declared) -> impl Iterator<Item = Finding> + '_ {
    // For a person who asks, a source that cannot be read is an error: `run` would declare nothing.
    let unreadable = matches!(declared.state, SourceState::Unreadable { .. });
    declared.warnings.iter().cloned().map(move |mut finding| {
        if unreadable {
            finding.severity = Severity::Error;
        }
        finding
    })
}

fn dry_run(
    cluster: &ClusterConfig,
    daemon: &DaemonConfig,
    binaries: &Binaries,
    inputs: &Inputs<'_>,
    own_exe: &Path,
) -> Vec<Finding> {
    let roles = port_roles(cluster).into_iter().flat_map(|r| [Some(r.role), r.above]).flatten();
    let ports: BTreeMap<String, u16> = roles.zip(61000..).collect();
    let context = Context::new(daemon, &cluster.name, &ports, binaries, own_exe, inputs.env);
    expand(cluster, &context).err().map(|error| error.findings).unwrap_or_default()
}

/// The two kinds of config files.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FileKind {
    /// supervisor.toml.
    Supervisor,
    /// clusters.d/NAME.toml.
    Cluster,
}

/// The JSON schema of a kind of file, for editors and other programs.
pub fn schema(kind: FileKind) -> serde_json::Value {
    let schema = match kind {
        FileKind::Supervisor => schemars::schema_for!(DaemonFile),
        FileKind::Cluster => schemars::schema_for!(ClusterFile),
    };
    schema.to_value()
}
