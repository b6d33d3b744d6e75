//! A cluster file that was read and found good, and the way there: the keys that exclude each other, the graph of its
//! components, the roles of its ports.

use super::cluster_file::{ClusterFile, ClusterKind};
use super::component::{Builder, Fault};
use super::env::Env;
use super::finding::{ConfigError, Finding};
use super::read;
use super::source::{Source, Step};
use super::tenant;
use super::words::Words;
use socialweb_core::graph::{self, Node};
use socialweb_core::{GroupName, Rank};
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

/// One declared group, checked as far as a file can be without the host: every name, key, placeholder and need is good.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClusterConfig {
    /// The group.
    pub name: GroupName,
    /// What the file says.
    pub file: ClusterFile,
    /// Where it was said.
    pub source: Source,
}

/// A port that a group leases.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct PortRole {
    /// The role under which the port is leased.
    pub role: String,
    /// Role of the port right above it, where the two are leased as a pair.
    pub above: Option<String>,
}

impl ClusterConfig {
    /// True when it should run, false when it is parked.
    pub fn running(&self) -> bool {
        self.file.running
    }

    /// The account of a tenant.
    pub fn account(&self) -> Option<&str> {
        self.file.account.as_deref()
    }

    /// The places of the group's components in the order of the stop: the tenant's own, then those of the file.
    pub(super) fn ranks(&self) -> Result<Vec<Rank>, graph::GraphError> {
        let own = if self.file.kind == ClusterKind::Tenant { tenant::nodes() } else { Vec::new() };
        let listed = self.file.component.iter();
        let listed = listed.map(|c| Node { name: c.name.clone(), rank: c.rank.map(Rank), needs: c.needs.clone() });
        let skip = own.len();
        let nodes: Vec<Node> = own.into_iter().chain(listed).collect();
        Ok(graph::assign(&nodes)?.split_off(skip))
    }

    pub(super) fn error(&self, findings: Vec<Finding>) -> ConfigError {
        ConfigError::new(Some(self.name.clone()), findings)
    }
}

/// The ports that the group leases, each once.
pub fn port_roles(cluster: &ClusterConfig) -> Vec<PortRole> {
    let own = if cluster.file.kind == ClusterKind::Tenant { tenant::port_roles() } else { Vec::new() };
    let listed = cluster.file.component.iter().flat_map(|c| &c.ports);
    own.into_iter().chain(listed.map(|role| PortRole { role: role.clone(), above: None })).collect()
}

/// Reads one cluster file. The error carries the group whenever the file's name is one, so that it can keep its spec.
pub fn load_cluster(path: &Path) -> Result<ClusterConfig, ConfigError> {
    let name = name_of(path).map_err(|f| ConfigError::new(None, vec![f]))?;
    let fail = |findings| ConfigError::new(Some(name.clone()), findings);
    if name.as_str() == socialweb_wire::DRILL_GROUP {
        return Err(fail(vec![Finding::error(path, None, "this name is `ctl drill`'s own; rename the file")]));
    }
    let source = Source::read(path).map_err(|f| fail(vec![f]))?;
    parse_cluster(name.clone(), source)
}

/// The same for a text that is in memory already.
pub fn parse_cluster(name: GroupName, source: Source) -> Result<ClusterConfig, ConfigError> {
    let file: ClusterFile = read::parse(&source).map_err(|f| ConfigError::new(Some(name.clone()), f))?;
    let cluster = ClusterConfig { name, file, source };
    let mut findings = check_top(&cluster);
    findings.extend(check_number(&cluster));
    findings.extend(check_ports(&cluster));
    findings.extend(check_graph(&cluster));
    findings.extend(check_components(&cluster));
    if findings.is_empty() { Ok(cluster) } else { Err(cluster.error(findings)) }
}

/// Most components that a file may list. Every event of a group looks at all of its components, and one file must not
/// take the time of all groups.
const MAX_COMPONENTS: usize = 100;

fn check_number(cluster: &ClusterConfig) -> Option<Finding> {
    let listed = cluster.file.component.len();
    (listed > MAX_COMPONENTS).then(|| {
        let message = format!(
            "{listed} components are listed and a group has at most {MAX_COMPONENTS}; make several groups of it"
        );
        cluster.source.error(&["component".into()], message)
    })
}

fn name_of(path: &Path) -> Result<GroupName, Finding> {
    let stem = path.file_stem().map(|s| s.to_string_lossy().into_owned()).unwrap_or_default();
    GroupName::new(stem).map_err(|error| {
        Finding::error(path, None, format!("a cluster file is named after its group, and {error}; rename the file"))
    })
}

fn check_top(cluster: &ClusterConfig) -> Vec<Finding> {
    let (file, source, name) = (&cluster.file, &cluster.source, &cluster.name);
    let mut findings = Vec::new();
    let mut refuse = |steps: &[Step<'_>], message: String| findings.push(source.error(steps, message));
    if let Some(given) = file.name.as_deref().filter(|given| *given != name.as_str()) {
        refuse(
            &["name".into()],
            format!("\"name\" is {given:?} but the file is named after {:?}; make them the same", name.as_str()),
        );
    }
    match file.kind {
        ClusterKind::Tenant => match file.account.as_deref() {
            None => refuse(
                &[],
                "a tenant needs \"account\", such as account = \"demo\"; a group of your own programs alone needs kind = \"exec\"".into(),
            ),
            Some(account) if account.trim().is_empty() || account.chars().any(char::is_control) => {
                refuse(&["account".into()], "\"account\" must name somebody, in printable characters".into());
            }
            Some(_) => {}
        },
        ClusterKind::Exec => {
            let tenant_only = [
                ("account", file.account.is_some()),
                ("tls_san", !file.tls_san.is_empty()),
                ("kine", file.kine != Default::default()),
                ("liveness", file.liveness.is_some()),
                ("timeouts", file.timeouts != Default::default()),
            ];
            for (key, _) in tenant_only.iter().filter(|(_, set)| *set) {
                refuse(&[(*key).into()], format!("\"{key}\" is for tenants and has no effect with kind = \"exec\"; remove it"));
            }
            for (name, _) in file.limits.each().into_iter().filter(|(_, table)| **table != Default::default()) {
                let message = "is for tenants; give the component its own limits = { ... }";
                refuse(&["limits".into(), name.into()], format!("\"limits.{name}\" {message}"));
            }
            if file.component.is_empty() {
                refuse(&[], "an exec group needs at least one [[component]] with name and argv".into());
            }
        }
    }
    for (way, message) in file.limits.faults() {
        let steps: Vec<Step<'_>> = std::iter::once("limits").chain(way.iter().copied()).map(Step::Key).collect();
        refuse(&steps, format!("\"limits.{}\" {message}", way.join(".")));
    }
    for (i, san) in file.tls_san.iter().enumerate() {
        let good = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | ':' | '*');
        if san.is_empty() || !san.chars().all(good) {
            refuse(&["tls_san".into(), i.into()], format!("{san:?} is neither a host name nor an address"));
        }
    }
    for (component, timeouts) in file.timeouts.each() {
        for (key, message) in timeouts.faults() {
            let steps = ["timeouts".into(), component.into(), key.into()];
            refuse(&steps, format!("\"timeouts.{component}.{key}\" {message}"));
        }
    }
    findings
}

fn check_ports(cluster: &ClusterConfig) -> Vec<Finding> {
    let mut seen: BTreeSet<&str> = BTreeSet::new();
    let own = if cluster.file.kind == ClusterKind::Tenant { tenant::port_roles() } else { Vec::new() };
    let reserved: BTreeSet<&str> =
        own.iter().flat_map(|r| r.above.iter().chain([&r.role])).map(String::as_str).collect();
    let mut findings = Vec::new();
    for (i, component) in cluster.file.component.iter().enumerate() {
        for (n, role) in component.ports.iter().enumerate() {
            let message = if reserved.contains(role.as_str()) {
                format!("the port {role:?} is one of the tenant's own; choose another role")
            } else if !seen.insert(role) {
                format!(
                    "the port {role:?} is listed twice in this group; list it once, every component may use {{port.{role}}}"
                )
            } else {
                continue;
            };
            let steps = ["component".into(), i.into(), "ports".into(), n.into()];
            findings.push(cluster.source.error(&steps, message));
        }
    }
    findings
}

fn check_graph(cluster: &ClusterConfig) -> Option<Finding> {
    let error = match cluster.ranks() {
        // An exec group without components is refused in other words already.
        Ok(_) | Err(graph::GraphError::Empty) => return None,
        Err(error) => error,
    };
    let named = |c: &&super::cluster_file::ComponentFile| Some(&c.name) == error.component();
    let with_that_name: Vec<usize> =
        cluster.file.component.iter().enumerate().filter(|(_, c)| named(c)).map(|(i, _)| i).collect();
    // The last one is the double.
    let place = with_that_name.last().copied().unwrap_or_default();
    let key = match error {
        graph::GraphError::Duplicate { .. } => "name",
        graph::GraphError::RankInversion { .. } => "rank",
        _ => "needs",
    };
    Some(cluster.source.error(&["component".into(), place.into(), key.into()], error.to_string()))
}

/// Builds every component with stand-ins for ports and folders, for what that finds.
fn check_components(cluster: &ClusterConfig) -> Vec<Finding> {
    let roles = port_roles(cluster).into_iter().flat_map(|r| [Some(r.role), r.above]).flatten();
    let ports: BTreeMap<String, u16> = roles.map(|role| (role, 61000)).collect();
    let mut findings = Vec::new();
    for (i, file) in cluster.file.component.iter().enumerate() {
        let (group, component) = (cluster.name.as_str(), file.name.as_str());
        let words = Words { group, component, dir: "/dir", runtime: "/runtime", ports: &ports };
        let mut builder = Builder { file, words, env: &Env::default(), binaries: None, faults: Vec::new() };
        builder.component(Rank(0));
        findings.extend(builder.faults.into_iter().map(|fault| place(cluster, i, fault)));
    }
    findings
}

/// A component's fault as a finding.
pub(super) fn place(cluster: &ClusterConfig, component: usize, (steps, message): Fault<'_>) -> Finding {
    let way: Vec<Step<'_>> = ["component".into(), component.into()].into_iter().chain(steps).collect();
    let name = &cluster.file.component[component].name;
    cluster.source.error(&way, format!("component {name}: {message}"))
}
