//! The tenant's own components: kine, OpenBao, k3s server and the two tasks around them, from the recipe rooms, with the
//! timeouts that the files ask for.

use super::binaries::Server;
use super::cluster::{ClusterConfig, PortRole};
use super::daemon::{check_socket, folder_of};
use super::expand::Context;
use super::finding::Finding;
use super::value::HumanDuration;
use schemars::JsonSchema;
use serde::Deserialize;
use socialweb_core::ComponentSpec;
use socialweb_core::graph::Node;
use socialweb_credentials::{Credentials, issuer};
use socialweb_k3s::BringUp;
use socialweb_kine::{Endpoint, Kine};
use socialweb_openbao::OpenBao;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

/// Roles of a tenant's ports.
const HTTPS: &str = "https";
const HTTPS_INNER: &str = "https-inner";
const CCM: &str = "ccm-secure-port";
const OPENBAO_API: &str = "openbao-api";
const OPENBAO_CLUSTER: &str = "openbao-cluster";

/// `[timeouts]`: one table per component of a tenant.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default, rename_all = "kebab-case")]
pub struct TenantTimeouts {
    /// The task that places certificates and tokens.
    pub credentials: Timeouts,
    /// kine.
    pub kine: Timeouts,
    /// OpenBao.
    pub openbao: Timeouts,
    /// k3s server, or kube-server.
    pub k3s: Timeouts,
    /// The task that makes namespaces and rules.
    pub bring_up: Timeouts,
}

/// Timeouts of one component; what is absent stays as the recipe has it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Timeouts {
    /// Limit of a start that makes no progress.
    pub deadline: Option<HumanDuration>,
    /// Limit of a start in any case.
    pub cap: Option<HumanDuration>,
    /// Time between the stop signal and the kill.
    pub grace: Option<HumanDuration>,
    /// The same at a restart of this component alone.
    pub grace_restart: Option<HumanDuration>,
}

impl TenantTimeouts {
    /// Each table with its component's name.
    pub(super) fn each(&self) -> [(&'static str, &Timeouts); 5] {
        [
            ("credentials", &self.credentials),
            ("kine", &self.kine),
            ("openbao", &self.openbao),
            ("k3s", &self.k3s),
            ("bring-up", &self.bring_up),
        ]
    }

    fn of(&self, component: &str) -> Timeouts {
        self.each().into_iter().find(|(name, _)| *name == component).map(|(_, t)| *t).unwrap_or_default()
    }
}

impl Timeouts {
    /// Keys with what is wrong with them.
    pub(super) fn faults(&self) -> Vec<(&'static str, &'static str)> {
        let mut faults = Vec::new();
        for (key, value) in [("deadline", self.deadline), ("cap", self.cap)] {
            if value.is_some_and(|d| d.0.as_secs() == 0) {
                faults.push((key, "must be at least \"1s\""));
            }
        }
        if let (Some(deadline), Some(cap)) = (self.deadline, self.cap)
            && cap < deadline
        {
            faults.push(("cap", "must not be below the deadline beside it"));
        }
        faults
    }

    fn apply(&self, spec: &mut ComponentSpec) {
        let readiness = &mut spec.readiness;
        readiness.deadline = self.deadline.map_or(readiness.deadline, |d| d.0);
        readiness.cap = self.cap.map_or(readiness.cap, |d| d.0);
        // One of the two alone must not cross the other.
        match (self.deadline, self.cap) {
            (None, Some(_)) => readiness.deadline = readiness.deadline.min(readiness.cap),
            _ => readiness.cap = readiness.cap.max(readiness.deadline),
        }
        spec.stop.grace = self.grace.map_or(spec.stop.grace, |d| d.0);
        spec.stop.grace_restart = self.grace_restart.map_or(spec.stop.grace_restart, |d| d.0);
    }
}

/// The ports of a tenant; k3s puts its inner API server right above the outer one.
pub fn port_roles() -> Vec<PortRole> {
    let pair = PortRole { role: HTTPS.into(), above: Some(HTTPS_INNER.into()) };
    let single = |role: &str| PortRole { role: role.into(), above: None };
    [pair].into_iter().chain([CCM, OPENBAO_API, OPENBAO_CLUSTER].map(single)).collect()
}

/// What the recipes of one tenant are made of.
struct Parts<'a> {
    cluster: &'a str,
    account: &'a str,
    tls_san: &'a [String],
    program: &'a Path,
    kine: PathBuf,
    bao: PathBuf,
    server: PathBuf,
    endpoint: Endpoint,
    group_dir: &'a Path,
    runtime_dir: &'a Path,
    port: &'a dyn Fn(&str) -> u16,
}

impl Parts<'_> {
    fn datastore(&self) -> Kine {
        Kine {
            binary: self.kine.clone(),
            group_dir: self.group_dir.into(),
            runtime_dir: self.runtime_dir.into(),
            endpoint: self.endpoint.clone(),
        }
    }

    fn components(&self) -> Vec<ComponentSpec> {
        let (program, group_dir) = (self.program.to_owned(), self.group_dir.to_owned());
        let (https_port, openbao_port) = ((self.port)(HTTPS), (self.port)(OPENBAO_API));
        let ports = socialweb_openbao::Ports { api: openbao_port, cluster: (self.port)(OPENBAO_CLUSTER) };
        let server = socialweb_k3s::Server {
            binary: self.server.clone(),
            group_dir: group_dir.clone(),
            datastore_socket: self.datastore().socket(),
            https_port,
            ccm_port: (self.port)(CCM),
            issuer: issuer(self.cluster, self.account),
            extra_sans: self.tls_san.to_vec(),
        };
        let cluster = self.cluster.to_owned();
        vec![
            Credentials { program: program.clone(), group_dir: group_dir.clone() }.component(),
            self.datastore().component(),
            OpenBao { binary: self.bao.clone(), program: program.clone(), group_dir: group_dir.clone(), ports }
                .component(),
            server.component(),
            BringUp { program, group_dir, cluster, https_port, openbao_port }.component(),
        ]
    }
}

/// The tenant's own components as core's graph sees them: from the recipes, with stand-ins for all that varies.
pub(super) fn nodes() -> Vec<Node> {
    let nothing = Path::new("/");
    let parts = Parts {
        cluster: "x",
        account: "x",
        tls_san: &[],
        program: nothing,
        kine: nothing.into(),
        bao: nothing.into(),
        server: nothing.into(),
        endpoint: Endpoint::Sqlite,
        group_dir: nothing,
        runtime_dir: nothing,
        port: &|_| 1,
    };
    let node = |c: ComponentSpec| Node { name: c.name, rank: Some(c.rank), needs: c.needs };
    parts.components().into_iter().map(node).collect()
}

/// The tenant's own components on this host, and which program is its API server.
pub(super) fn components(
    cluster: &ClusterConfig,
    context: &Context<'_>,
) -> Result<(Vec<ComponentSpec>, Server), Vec<Finding>> {
    let mut findings = Vec::new();
    let mut refuse = |steps: &[&str], message: String| {
        let steps: Vec<_> = steps.iter().map(|s| (*s).into()).collect();
        findings.push(cluster.source.error(&steps, message));
    };
    let kine = context.binaries.kine().map_err(|e| refuse(&[], e.to_string()));
    let bao = context.binaries.bao().map_err(|e| refuse(&[], e.to_string()));
    let server = context.binaries.server().map_err(|e| refuse(&[], e.to_string()));
    let endpoint = endpoint(cluster, context).map_err(|e| refuse(&["kine", "dsn_file"], e));
    let (Ok(kine), Ok(bao), Ok(server), Ok(endpoint)) = (kine, bao, server, endpoint) else { return Err(findings) };
    let parts = Parts {
        cluster: cluster.name.as_str(),
        account: cluster.account().unwrap_or_default(),
        tls_san: &cluster.file.tls_san,
        program: context.own_exe,
        kine,
        bao,
        server: server.path.clone(),
        endpoint,
        group_dir: &context.group_dir,
        runtime_dir: &context.runtime_dir,
        // One that is not leased is reported by the caller, and the spec is then not used.
        port: &|role| context.ports.get(role).copied().unwrap_or_default(),
    };
    if let Err(message) = check_socket(&parts.datastore().socket()) {
        refuse(&[], message);
        return Err(findings);
    }
    let mut components = parts.components();
    for spec in &mut components {
        settle(spec, cluster, context);
    }
    Ok((components, server))
}

/// The files' wishes: timeouts of supervisor.toml, then of the cluster file, limits, and whether liveness is asked for.
fn settle(spec: &mut ComponentSpec, cluster: &ClusterConfig, context: &Context<'_>) {
    let name = spec.name.as_str().to_owned();
    context.defaults.timeouts.of(&name).apply(spec);
    cluster.file.timeouts.of(&name).apply(spec);
    let limits = cluster.file.limits.of(&name);
    spec.limits = limits.bounds();
    spec.launch.core_limit = limits.core_max.map_or(spec.launch.core_limit, |size| size.0);
    if !cluster.file.liveness.unwrap_or(context.defaults.liveness) {
        spec.liveness = None;
    }
}

/// The database. A DSN may hold a password, so it is named by its file and nobody but the owner may read that.
fn endpoint(cluster: &ClusterConfig, context: &Context<'_>) -> Result<Endpoint, String> {
    let Some(named) = &cluster.file.kine.dsn_file else { return Ok(Endpoint::Sqlite) };
    let file = folder_of(cluster.source.path()).join(named);
    let file = std::path::absolute(&file).unwrap_or(file);
    let mode = match std::fs::metadata(&file) {
        Ok(meta) if meta.is_file() => meta.permissions().mode() & 0o777,
        Ok(_) => return Err(format!("the DSN file {} is not a file; put the DSN there", file.display())),
        Err(e) => return Err(format!("the DSN file {} cannot be examined: {e}; put the DSN there", file.display())),
    };
    if mode & 0o077 != 0 {
        let file = file.display();
        return Err(format!("the DSN file {file} has mode {mode:o} and may hold a password: chmod 600 {file}"));
    }
    Ok(Endpoint::Dsn { file, program: context.own_exe.to_owned() })
}
