//! Specs in one line: `a b:a c:a,b` are three components and their needs; ranks are derived.

use super::rng::Rng;
use socialweb_core::graph::{self, Node};
use socialweb_core::spec::{Backoff, Bringup, Liveness, Readiness, StopPolicy, Task};
use socialweb_core::{ComponentName, ComponentSpec, GroupName, GroupSpec, Kind, Launch, Probe, Restart};
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

/// A small group of any shape.
pub fn random(rng: &mut Rng) -> GroupSpec {
    let shapes = ["a", "a b", "a b:a", "a b c:a,b", "a b:a c:b", "a b:a c:a d:b,c", "a b:a c:b d:b e:d"];
    let mut spec = group(rng.pick(&shapes).unwrap());
    for c in &mut spec.components {
        vary(c, rng);
        if rng.percent(15) {
            c.kind = Kind::OneShot;
        }
    }
    spec
}

fn vary(c: &mut ComponentSpec, rng: &mut Rng) {
    c.restart = match rng.below(10) {
        0 => Restart::StopGroup,
        1 => Restart::Never,
        2 | 3 => Restart::WithDependents,
        _ => Restart::Alone,
    };
    c.pre = (0..rng.below(6).saturating_sub(3)).map(|_| task()).collect();
    c.post = (0..rng.below(6).saturating_sub(3)).map(|_| task()).collect();
    c.liveness = rng.percent(40).then(liveness);
    if rng.percent(20) {
        c.readiness.probe = Probe::Running;
    }
    if rng.percent(20) {
        c.stop.grace_restart = Duration::from_secs(75);
    }
}

/// Another spec for the same group: a component changed, added or taken away; the graph stays a graph.
pub fn random_edit(spec: &GroupSpec, rng: &mut Rng) -> GroupSpec {
    let mut new = spec.clone();
    let at = rng.below(new.components.len() as u64) as usize;
    match rng.below(6) {
        0 => {
            let gone = new.components[at].name.clone();
            new.components.retain(|c| c.name != gone);
            new.components.iter_mut().for_each(|c| c.needs.retain(|n| *n != gone));
        }
        1 | 2 => {
            let text = ["v", "w", "x"][rng.below(3) as usize];
            let mut c = group(text).components.remove(0);
            // In the middle of the others, so that ranks have to move.
            c.needs = vec![new.components[at].name.clone()];
            if !new.components.iter().any(|c| c.name.as_str() == text) {
                let below = at + 1 < new.components.len() && rng.percent(50);
                if below {
                    new.components[at + 1].needs.push(c.name.clone());
                }
                new.components.push(c);
            }
        }
        3 => new.components[at].launch.argv.push(format!("-{}", rng.below(9))),
        4 => vary(&mut new.components[at], rng),
        _ => new.components[at].needs.clear(),
    }
    let nodes: Vec<Node> =
        new.components.iter().map(|c| Node { name: c.name.clone(), rank: None, needs: c.needs.clone() }).collect();
    match graph::assign(&nodes) {
        Ok(ranks) => {
            new.components.iter_mut().zip(ranks).for_each(|(c, rank)| c.rank = rank);
            new
        }
        Err(_) => spec.clone(),
    }
}
