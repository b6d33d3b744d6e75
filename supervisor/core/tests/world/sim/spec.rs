//! Specs in one line: `a b:a c:a,b` are three components and their needs; ranks are derived.

use socialweb_core::graph::{self, Node};
use socialweb_core::spec::{Backoff, Bringup, Liveness, Readiness, StopPolicy, Task};
use socialweb_core::{ComponentName, ComponentSpec, GroupName, GroupSpec, Kind, Launch, Probe, Restart, Shared};
use std::collections::BTreeMap;
use std::time::Duration;

pub fn name(text: &str) -> ComponentName {
    ComponentName::new(text).unwrap()
}

pub fn launch(text: &str) -> Launch {
    Launch::new(vec![format!("/bin/{text}")], "/")
}

pub fn task() -> Task {
    Task { launch: launch("task"), timeout: Duration::from_secs(10) }
}

pub fn liveness() -> Liveness {
    let probe = Probe::Tcp { address: "127.0.0.1:1".into() };
    Liveness { probe, interval: Duration::from_secs(1), timeout: Duration::from_secs(1), failures: 3 }
}

/// A group of services that prove their readiness by a probe, are restarted alone, and have 5 s of grace.
pub fn group(text: &str) -> GroupSpec {
    let nodes: Vec<Node> = text
        .split_whitespace()
        .map(|word| {
            let (own, needs) = word.split_once(':').unwrap_or((word, ""));
            let needs = needs.split(',').filter(|n| !n.is_empty()).map(name).collect();
            Node { name: name(own), rank: None, needs }
        })
        .collect();
    let ranks = graph::assign(&nodes).unwrap();
    let components = nodes
        .into_iter()
        .zip(ranks)
        .map(|(node, rank)| ComponentSpec {
            launch: launch(node.name.as_str()),
            name: node.name,
            rank,
            needs: node.needs,
            kind: Kind::Service,
            pre: Vec::new(),
            post: Vec::new(),
            readiness: Readiness {
                probe: Probe::Tcp { address: "127.0.0.1:1".into() },
                interval: Duration::from_millis(100),
                timeout: Duration::from_secs(1),
                deadline: Duration::from_secs(60),
                cap: Duration::from_secs(1200),
            },
            liveness: None,
            restart: Restart::Alone,
            backoff: Backoff { limit: 5, ..Backoff::default() },
            stop: StopPolicy::term(Duration::from_secs(5)),
            limits: Default::default(),
        })
        .map(Shared::from)
        .collect();
    let ports = BTreeMap::from([("https".to_string(), 61000)]);
    let (limits, cores) = Default::default();
    let name = GroupName::new("demo").unwrap();
    GroupSpec { name, ports, components, bringup: Bringup::default(), limits, cores }
}

/// Changes one component of a spec.
pub fn edit(spec: &GroupSpec, of: &str, change: impl FnOnce(&mut ComponentSpec)) -> GroupSpec {
    let mut spec = spec.clone();
    change(spec.components.iter_mut().find(|c| c.name.as_str() == of).unwrap());
    spec
}

/// Ranks derived anew; `None` where the needs form no graph.
pub fn ranked(mut spec: GroupSpec) -> Option<GroupSpec> {
    let nodes: Vec<Node> =
        spec.components.iter().map(|c| Node { name: c.name.clone(), rank: None, needs: c.needs.clone() }).collect();
    let ranks = graph::assign(&nodes).ok()?;
    spec.components.iter_mut().zip(ranks).for_each(|(c, rank)| c.rank = rank);
    Some(spec)
}
