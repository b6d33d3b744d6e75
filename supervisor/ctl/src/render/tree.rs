//! Processes for people: per component, children below their parents.

use super::{clean, cpu, memory};
use socialweb_wire::{GroupTree, Process};
use std::collections::BTreeSet;
use std::fmt::Write;

/// One group.
pub fn group(tree: &GroupTree) -> String {
    let mut out = String::new();
    let total: u64 = all(tree).map(|p| p.rss_bytes).sum();
    // Writing to a String cannot fail, here and below.
    let _ = writeln!(out, "{}: {} processes, {}", clean(&tree.group), tree.len(), memory(Some(total)));
    for component in &tree.components {
        let run = component.birth.map(|birth| format!(", run {birth}")).unwrap_or_default();
        let _ = writeln!(out, "  {}{run}", clean(&component.name));
        processes(&mut out, &component.processes);
    }
    if !tree.strays.is_empty() {
        let _ = writeln!(out, "  (of no component)");
        processes(&mut out, &tree.strays);
    }
    out
}

fn all(tree: &GroupTree) -> impl Iterator<Item = &Process> {
    tree.components.iter().flat_map(|c| &c.processes).chain(&tree.strays)
}

/// Roots are processes whose parent is not among them; each process is shown once, whatever the parents say.
fn processes(out: &mut String, list: &[Process]) {
    let pids: BTreeSet<u32> = list.iter().map(|p| p.pid).collect();
    let mut shown = BTreeSet::new();
    for root in list.iter().filter(|p| !pids.contains(&p.ppid) || p.ppid == p.pid) {
        branch(out, list, root, 2, &mut shown);
    }
    for rest in list {
        branch(out, list, rest, 2, &mut shown);
    }
}

/// Depth first without recursion: a chain of processes may be thousands long.
fn branch(out: &mut String, list: &[Process], root: &Process, depth: usize, shown: &mut BTreeSet<u32>) {
    let mut open = vec![(root, depth)];
    while let Some((process, depth)) = open.pop() {
        if !shown.insert(process.pid) {
            continue;
        }
        let _ = writeln!(
            out,
            "{:indent$}{} {} {} {} {}",
            "",
            process.pid,
            clean(&process.comm),
            clean(&process.state),
            memory(Some(process.rss_bytes)),
            cpu(Some(process.cpu_usec)),
            indent = 2 * depth.min(40)
        );
        open.extend(list.iter().rev().filter(|p| p.ppid == process.pid).map(|p| (p, depth + 1)));
    }
}
