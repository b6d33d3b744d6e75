//! Needs and ranks. A rank is either given or derived (one above the highest need); a need must have a lower rank, so the
//! stop in reverse rank order can never take a need away from a component that still runs.

use crate::name::{ComponentName, Rank};
use std::collections::BTreeMap;

/// What the graph knows of a component.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Node {
    /// Its name.
    pub name: ComponentName,
    /// The rank that its author gave, if any.
    pub rank: Option<Rank>,
    /// What must be ready before it starts.
    pub needs: Vec<ComponentName>,
}

/// Why a set of components is no group.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum GraphError {
    /// No component at all.
    #[error("the group has no component; add at least one")]
    Empty,
    /// Two components share a name.
    #[error("two components are named {name}; rename one")]
    Duplicate {
        /// The name.
        name: ComponentName,
    },
    /// A need that does not exist.
    #[error("component {component} needs {need}, which is not a component of this group; add it or remove the need")]
    MissingNeed {
        /// Who needs.
        component: ComponentName,
        /// What it needs.
        need: ComponentName,
    },
    /// Needs that lead back to themselves.
    #[error("the needs form a circle: {}; remove one of them", path.iter().map(|n| n.as_str()).collect::<Vec<_>>().join(" -> "))]
    Cycle {
        /// The circle, first name repeated at the end.
        path: Vec<ComponentName>,
    },
    /// A need that would be stopped before the component that needs it.
    #[error(
        "component {component} of rank {rank} needs {need} of rank {need_rank}; a need must have a lower rank: it starts earlier and stops later"
    )]
    RankInversion {
        /// Who needs.
        component: ComponentName,
        /// Its rank.
        rank: Rank,
        /// What it needs.
        need: ComponentName,
        /// That one's rank.
        need_rank: Rank,
    },
}

impl GraphError {
    /// The component that the error is about, for its place in a file.
    pub fn component(&self) -> Option<&ComponentName> {
        match self {
            GraphError::Empty => None,
            GraphError::Duplicate { name } => Some(name),
            GraphError::MissingNeed { component, .. } | GraphError::RankInversion { component, .. } => Some(component),
            GraphError::Cycle { path } => path.first(),
        }
    }
}

/// Checks the graph and gives each node its rank, in the order of `nodes`.
pub fn assign(nodes: &[Node]) -> Result<Vec<Rank>, GraphError> {
    if nodes.is_empty() {
        return Err(GraphError::Empty);
    }
    let mut index: BTreeMap<&ComponentName, usize> = BTreeMap::new();
    for (i, node) in nodes.iter().enumerate() {
        if index.insert(&node.name, i).is_some() {
            return Err(GraphError::Duplicate { name: node.name.clone() });
        }
    }
    for node in nodes {
        if let Some(need) = node.needs.iter().find(|need| !index.contains_key(need)) {
            return Err(GraphError::MissingNeed { component: node.name.clone(), need: need.clone() });
        }
    }
    let mut walk = Walk { nodes, index: &index, ranks: vec![None; nodes.len()], path: Vec::new() };
    (0..nodes.len()).map(|i| walk.rank(i)).collect()
}

/// Checks components that carry their ranks already.
pub fn check(components: &[crate::spec::ComponentSpec]) -> Result<(), GraphError> {
    let nodes: Vec<Node> =
        components.iter().map(|c| Node { name: c.name.clone(), rank: Some(c.rank), needs: c.needs.clone() }).collect();
    assign(&nodes).map(|_| ())
}

struct Walk<'a> {
    nodes: &'a [Node],
    index: &'a BTreeMap<&'a ComponentName, usize>,
    ranks: Vec<Option<Rank>>,
    path: Vec<usize>,
}

impl Walk<'_> {
    fn rank(&mut self, i: usize) -> Result<Rank, GraphError> {
        if let Some(rank) = self.ranks[i] {
            return Ok(rank);
        }
        if let Some(from) = self.path.iter().position(|p| *p == i) {
            let mut path: Vec<_> = self.path[from..].iter().map(|p| self.nodes[*p].name.clone()).collect();
            path.push(self.nodes[i].name.clone());
            return Err(GraphError::Cycle { path });
        }
        self.path.push(i);
        let node = &self.nodes[i];
        let mut highest: Option<(Rank, &ComponentName)> = None;
        for need in &node.needs {
            let rank = self.rank(self.index[need])?;
            highest = highest.max(Some((rank, need)));
        }
        self.path.pop();
        let derived = Rank(highest.map_or(1, |(rank, _)| rank.0.saturating_add(1)));
        let rank = node.rank.unwrap_or(derived);
        if let Some((need_rank, need)) = highest.filter(|(need_rank, _)| *need_rank >= rank) {
            let (component, need) = (node.name.clone(), need.clone());
            return Err(GraphError::RankInversion { component, rank, need, need_rank });
        }
        self.ranks[i] = Some(rank);
        Ok(rank)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn nodes(text: &str) -> Vec<Node> {
        // "a@1 b:a c:a,b@3" -> names, needs, ranks
        let label = |s: &str| ComponentName::new(s).unwrap();
        text.split_whitespace()
            .map(|word| {
                let (word, rank) =
                    word.split_once('@').map_or((word, None), |(w, r)| (w, Some(Rank(r.parse().unwrap()))));
                let (name, needs) = word.split_once(':').unwrap_or((word, ""));
                let needs = needs.split(',').filter(|n| !n.is_empty()).map(label).collect();
                Node { name: label(name), rank, needs }
            })
            .collect()
    }

    fn check(text: &str, expect: Result<&[u16], &str>) {
        let got = assign(&nodes(text));
        match expect {
            Ok(ranks) => assert_eq!(got.unwrap(), ranks.iter().map(|r| Rank(*r)).collect::<Vec<_>>(), "{text}"),
            Err(part) => {
                let message = got.unwrap_err().to_string();
                assert!(message.contains(part), "{text}: {message}");
            }
        }
    }

    #[test]
    fn ranks_are_derived_from_needs_or_taken_as_given() {
        check("a b:a c:a,b", Ok(&[1, 2, 3]));
        check("c:b b:a a", Ok(&[3, 2, 1]));
        check("a b", Ok(&[1, 1]));
        check("a@5 b:a", Ok(&[5, 6]));
        check("a@0 b:a@7 c:b", Ok(&[0, 7, 8]));
    }

    #[test]
    fn circles_missing_needs_doubles_and_inversions_are_named() {
        check("a:b b:c c:a", Err("a -> b -> c -> a"));
        check("a:a", Err("a -> a"));
        check("a:x", Err("a needs x"));
        check("a a", Err("two components are named a"));
        check("a@2 b:a@2", Err("b of rank 2 needs a of rank 2"));
        check("", Err("no component"));
    }
}
