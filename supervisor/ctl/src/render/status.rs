//! Status for people: all groups a line each, or one group with its components.

use super::{age, clean, cpu, grid, memory, or_dash};
use socialweb_wire::{ComponentStatus, GroupStatus, HostStatus, Phase, counted};
use std::fmt::Write;

/// All groups.
pub fn host(status: &HostStatus, wide: bool) -> String {
    // Writing to a String cannot fail, here and below.
    let mut out = String::new();
    let ready = status.groups.iter().filter(|g| g.phase == Phase::Ready).count();
    let _ = writeln!(
        out,
        "socialweb-computer {}, pid {}, up {}; {ready} of {} ready",
        clean(&status.version),
        status.pid,
        age(status.uptime_s),
        counted(status.groups.len(), "group")
    );
    let _ = writeln!(out, "processes: {}", clean(&status.cgroups));
    if !status.server.is_empty() {
        let _ = writeln!(out, "server: {}", clean(&status.server));
        let _ = writeln!(out, "ports: room for {}", counted(status.max_tenants as usize, "tenant"));
    }
    if wide {
        let _ = writeln!(out, "config: {}", clean(&status.config));
        let _ = writeln!(
            out,
            "state: {}; memory of the daemon: {}",
            clean(&status.state_dir),
            memory(Some(status.rss_bytes))
        );
    }
    if status.dropped_log_lines > 0 {
        let _ = writeln!(out, "log lines dropped: {}", status.dropped_log_lines);
    }
    if !status.groups.is_empty() {
        out.push('\n');
        out.push_str(&groups(&status.groups, wide));
    }
    warnings(&mut out, status);
    out
}

/// One group with its components. `status` holds just that group, or says that it does not exist.
pub fn group(status: &HostStatus, wide: bool) -> String {
    let mut out = String::new();
    for group in &status.groups {
        heading(&mut out, group, wide);
        if !group.components.is_empty() {
            out.push('\n');
            out.push_str(&components(&group.components, wide));
        }
    }
    warnings(&mut out, status);
    out
}

fn warnings(out: &mut String, status: &HostStatus) {
    for warning in &status.warnings {
        let _ = writeln!(out, "\nwarning: {}", clean(warning));
    }
}

/// Components that do their work, of how many. A group that is not to run has nothing to count.
fn up(group: &GroupStatus) -> String {
    if matches!(group.phase, Phase::Parked | Phase::Absent) || group.components.is_empty() {
        return "-".into();
    }
    format!("{}/{}", group.components.iter().filter(|c| c.is_up()).count(), group.components.len())
}

fn group_memory(group: &GroupStatus) -> Option<u64> {
    let known: Vec<u64> = group.components.iter().filter_map(|c| c.rss_bytes).collect();
    (!known.is_empty()).then(|| known.iter().sum())
}

fn reason(group: &GroupStatus) -> String {
    match group.retry_in_s {
        Some(seconds) => format!("{}; again in {}", group.reason, age(seconds)),
        None => group.reason.clone(),
    }
}

fn start_time(group: &GroupStatus) -> String {
    group.last_start_ms.map_or("-".into(), |ms| format!("{}.{}s", ms / 1_000, ms / 100 % 10))
}

fn groups(groups: &[GroupStatus], wide: bool) -> String {
    let mut header = vec!["GROUP", "PHASE", "UP", "FOR", "RESTARTS", "MEMORY", "URL"];
    if wide {
        header.extend(["GENERATION", "DECLARED", "START", "KUBECONFIG"]);
    }
    header.push("REASON");
    let row = |group: &GroupStatus| {
        let restarts: u64 = group.components.iter().map(|c| c.restarts).sum();
        let mut row = vec![
            group.name.clone(),
            group.phase.to_string(),
            up(group),
            age(group.since_s),
            restarts.to_string(),
            memory(group_memory(group)),
            or_dash(group.url.as_deref()),
        ];
        if wide {
            row.push(group.generation.to_string());
            row.push(if group.declared { "yes" } else { "no" }.into());
            row.push(start_time(group));
            row.push(or_dash(group.kubeconfig.as_deref()));
        }
        row.push(reason(group));
        row
    };
    grid(&header, groups.iter().map(row).collect())
}

fn heading(out: &mut String, group: &GroupStatus, wide: bool) {
    // Who goes down is not asked how much of it is up.
    let down = matches!(group.phase, Phase::Draining | Phase::Stopping);
    let up = Some(up(group)).filter(|up| !down && up != "-").map(|up| format!(", {up} up")).unwrap_or_default();
    let _ = writeln!(
        out,
        "{}: {} for {}{up}, generation {}{}",
        clean(&group.name),
        group.phase,
        age(group.since_s),
        group.generation,
        if group.declared { "" } else { ", not declared" }
    );
    let mut line = |name: &str, value: &str| {
        if !value.is_empty() {
            let _ = writeln!(out, "  {name:<11} {}", clean(value));
        }
    };
    line("reason", &reason(group));
    line("url", group.url.as_deref().unwrap_or_default());
    line("kubeconfig", group.kubeconfig.as_deref().unwrap_or_default());
    let ports: Vec<String> = group.ports.iter().map(|(role, port)| format!("{role} {port}")).collect();
    if wide {
        line("ports", &ports.join(", "));
        line("last start", &start_time(group));
        line("stop limit", &age(group.stop_deadline_s));
    }
    let bounds: Vec<String> = group.bounds.iter().map(|(name, value)| bound(name, *value)).collect();
    line("bounds", &bounds.join(", "));
    line("not bound", &group.bounds_missing.join(", "));
    for survivor in &group.survivors {
        let found = format!("of an earlier run: pid {} ({}), {}", survivor.pid, survivor.command, survivor.by);
        line("survivor", &found);
    }
}

/// A bound in its unit.
fn bound(name: &str, value: u64) -> String {
    match name.rsplit('.').next() {
        Some("memory_max" | "memory_high") => format!("{name} {}", memory(Some(value))),
        Some("cpu") => format!("{name} {}.{:03} cores", value / 1000, value % 1000),
        _ => format!("{name} {value}"),
    }
}

/// What the component says of itself; of one that has nothing to say and was started again, how it ended before that.
fn detail(component: &ComponentStatus) -> String {
    let end = component.last_end.map(|end| end.to_string()).or_else(|| Some(component.last_exit?.to_string()));
    match end {
        Some(end) if component.detail.is_empty() && component.restarts > 0 => {
            let ago = component.last_end_s.map(|seconds| format!(", {} ago", age(seconds))).unwrap_or_default();
            format!("last end: {end}{ago}")
        }
        _ => component.detail.clone(),
    }
}

fn components(components: &[ComponentStatus], wide: bool) -> String {
    let mut header = vec!["COMPONENT", "RANK", "STATE", "FOR", "PID", "RESTARTS", "MEMORY"];
    if wide {
        header.extend(["CPU", "RUN", "LAST EXIT"]);
    }
    header.push("DETAIL");
    let row = |component: &ComponentStatus| {
        let mut row = vec![
            component.name.clone(),
            component.rank.to_string(),
            component.state.clone(),
            age(component.since_s),
            or_dash(component.pid),
            component.restarts.to_string(),
            memory(component.rss_bytes),
        ];
        if wide {
            row.push(cpu(component.cpu_usec));
            row.push(or_dash(component.birth));
            row.push(component.last_end.map_or_else(|| or_dash(component.last_exit), |end| end.to_string()));
        }
        row.push(detail(component));
        row
    };
    grid(&header, components.iter().map(row).collect())
}
