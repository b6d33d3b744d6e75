//! Status as Prometheus text (format 0.0.4). No library: all numbers are at hand, and the format is a few lines.

use super::command::Counters;
use socialweb_wire::{GroupStatus, HostStatus, LogCounts, Phase, Usage};
use std::fmt::{Display, Write};
use std::sync::atomic::{AtomicU64, Ordering};

/// One answer to GET /metrics.
pub fn render(status: &HostStatus, counters: &Counters) -> String {
    let mut page = Page::default();
    host(&mut page, status);
    groups(&mut page, &status.groups);
    components(&mut page, &status.groups);
    usage(&mut page, &status.groups);
    admin(&mut page, counters);
    page.text
}

#[derive(Default)]
struct Page {
    text: String,
}

impl Page {
    /// Begins a metric. `kind` is `gauge` or `counter`.
    fn family(&mut self, name: &str, kind: &str, help: &str) {
        // Writing to a String cannot fail, here and below.
        let _ = writeln!(self.text, "# HELP socialweb_{name} {help}\n# TYPE socialweb_{name} {kind}");
    }

    fn sample(&mut self, name: &str, labels: &[(&str, &str)], value: impl Display) {
        let _ = write!(self.text, "socialweb_{name}");
        for (i, (label, text)) in labels.iter().enumerate() {
            let _ = write!(self.text, "{}{label}=\"{}\"", if i == 0 { '{' } else { ',' }, escape(text));
        }
        let _ = writeln!(self.text, "{} {value}", if labels.is_empty() { "" } else { "}" });
    }

    fn single(&mut self, name: &str, kind: &str, help: &str, value: impl Display) {
        self.family(name, kind, help);
        self.sample(name, &[], value);
    }
}

fn escape(text: &str) -> String {
    text.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

fn seconds(value: u64, per_second: u32) -> f64 {
    value as f64 / f64::from(per_second)
}

fn host(page: &mut Page, status: &HostStatus) {
    page.family("build_info", "gauge", "The daemon's version.");
    page.sample("build_info", &[("version", &status.version)], 1);
    page.single("uptime_seconds", "gauge", "How long the daemon runs.", status.uptime_s);
    page.single("resident_memory_bytes", "gauge", "Resident memory of the daemon alone.", status.rss_bytes);
    page.single("tenants_max", "gauge", "How many tenants the port ranges allow.", status.max_tenants);
    page.single("warnings", "gauge", "Things that are wrong and do not stop the daemon.", status.warnings.len());
    let dropped = "Log lines dropped because a component wrote faster than they could be kept.";
    page.single("log_lines_dropped_total", "counter", dropped, status.dropped_log_lines);
    let dropped = "Events dropped because a follower was too slow.";
    page.single("events_dropped_total", "counter", dropped, status.dropped_events);
    page.family("groups", "gauge", "Groups by phase.");
    for phase in Phase::ALL {
        let count = status.groups.iter().filter(|g| g.phase == phase).count();
        page.sample("groups", &[("phase", phase.as_str())], count);
    }
}

fn groups(page: &mut Page, groups: &[GroupStatus]) {
    page.family("group_phase", "gauge", "1 for the phase that a group is in.");
    for group in groups {
        page.sample("group_phase", &[("group", &group.name), ("phase", group.phase.as_str())], 1);
    }
    page.family("group_ready", "gauge", "1 while a group is Ready.");
    for group in groups {
        page.sample("group_ready", &[("group", &group.name)], u8::from(group.phase == Phase::Ready));
    }
    page.family("group_declared", "gauge", "1 while the source declares a group.");
    for group in groups {
        page.sample("group_declared", &[("group", &group.name)], u8::from(group.declared));
    }
    page.family("group_starts_total", "counter", "Starts of a whole group.");
    for group in groups {
        page.sample("group_starts_total", &[("group", &group.name)], group.generation);
    }
    page.family("group_last_start_seconds", "gauge", "How long the last start that reached Ready took.");
    for group in groups {
        if let Some(ms) = group.last_start_ms {
            page.sample("group_last_start_seconds", &[("group", &group.name)], seconds(ms, 1_000));
        }
    }
    page.family("group_datastore_bytes", "gauge", "Size of a tenant's sqlite database and its write-ahead log.");
    for group in groups {
        if let Some(bytes) = group.datastore_bytes {
            page.sample("group_datastore_bytes", &[("group", &group.name)], bytes);
        }
    }
}

fn components(page: &mut Page, groups: &[GroupStatus]) {
    let all = || groups.iter().flat_map(|g| g.components.iter().map(move |c| (g, c)));
    page.family("component_up", "gauge", "1 while a component is Ready or has done its work.");
    for (group, component) in all() {
        let labels = [("group", group.name.as_str()), ("component", component.name.as_str())];
        page.sample("component_up", &labels, u8::from(component.is_up()));
    }
    page.family("component_restarts_total", "counter", "Restarts of a component since its group's start.");
    for (group, component) in all() {
        let labels = [("group", group.name.as_str()), ("component", component.name.as_str())];
        page.sample("component_restarts_total", &labels, component.restarts);
    }
    page.family("component_resident_memory_bytes", "gauge", "Resident memory of all processes of a component.");
    for (group, component) in all() {
        let labels = [("group", group.name.as_str()), ("component", component.name.as_str())];
        if let Some(bytes) = component.rss_bytes {
            page.sample("component_resident_memory_bytes", &labels, bytes);
        }
    }
    page.family("component_cpu_seconds_total", "counter", "CPU time of a component's current run.");
    for (group, component) in all() {
        let labels = [("group", group.name.as_str()), ("component", component.name.as_str())];
        if let Some(usec) = component.cpu_usec {
            page.sample("component_cpu_seconds_total", &labels, seconds(usec, 1_000_000));
        }
    }
}

/// A counter of [`Usage`]: its name, kind and help, and where it is.
type Counted = (&'static str, &'static str, &'static str, fn(&Usage) -> Option<f64>);

const COUNTED: [Counted; 8] = [
    ("memory_bytes", "gauge", "Memory, page cache included, as its cgroup counts it.", |u| bytes(u.memory_bytes)),
    ("memory_peak_bytes", "gauge", "The most memory that it ever took.", |u| bytes(u.memory_peak_bytes)),
    ("cgroup_cpu_seconds_total", "counter", "CPU time of its cgroup.", |u| usec(u.cpu_usec)),
    ("cpu_throttled_seconds_total", "counter", "Time for which its cpu bound held it back.", |u| {
        usec(u.cpu_throttled_usec)
    }),
    ("pids", "gauge", "Processes and threads.", |u| bytes(u.pids)),
    ("io_read_bytes_total", "counter", "Bytes read from block devices.", |u| bytes(u.io_read_bytes)),
    ("io_written_bytes_total", "counter", "Bytes written to block devices.", |u| bytes(u.io_write_bytes)),
    ("oom_kills_total", "counter", "Processes that the kernel ended, out of memory.", |u| bytes(u.oom_kills)),
];

fn bytes(value: Option<u64>) -> Option<f64> {
    value.map(|n| n as f64)
}

fn usec(value: Option<u64>) -> Option<f64> {
    value.map(|n| seconds(n, 1_000_000))
}

/// What cgroups count of groups and of components. A family without a sample is left out: no controller counts it here.
fn usage(page: &mut Page, groups: &[GroupStatus]) {
    for (name, kind, help, of) in COUNTED {
        let counted = groups.iter().filter_map(|g| Some((g, of(&g.usage)?)));
        for (n, (group, value)) in counted.enumerate() {
            if n == 0 {
                page.family(&format!("group_{name}"), kind, help);
            }
            page.sample(&format!("group_{name}"), &[("group", &group.name)], value);
        }
        let all = groups.iter().flat_map(|g| g.components.iter().map(move |c| (g, c)));
        for (n, (group, component, value)) in all.filter_map(|(g, c)| Some((g, c, of(&c.usage)?))).enumerate() {
            if n == 0 {
                page.family(&format!("component_{name}"), kind, help);
            }
            let labels = [("group", group.name.as_str()), ("component", component.name.as_str())];
            page.sample(&format!("component_{name}"), &labels, value);
        }
    }
    let logged = || groups.iter().flat_map(|g| g.components.iter().filter_map(move |c| Some((g, c, c.log?))));
    let mut lines = |name: &str, help: &str, of: fn(&LogCounts) -> u64| {
        page.family(name, "counter", help);
        for (group, component, counts) in logged() {
            let labels = [("group", group.name.as_str()), ("component", component.name.as_str())];
            page.sample(name, &labels, of(&counts));
        }
    };
    lines("component_log_lines_total", "Log lines read from a component.", |c| c.lines);
    lines("component_log_lines_written_total", "Log lines that the journal or the file took.", |c| c.written);
    lines("component_log_lines_dropped_total", "Log lines for which there was no room.", |c| c.dropped);
    page.family("group_bounds_missing", "gauge", "Bounds that the cluster file wants and this host does not keep.");
    for group in groups {
        page.sample("group_bounds_missing", &[("group", &group.name)], group.bounds_missing.len());
    }
}

fn admin(page: &mut Page, counters: &Counters) {
    let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
    page.single("admin_connections_total", "counter", "Connections to the admin socket.", read(&counters.accepted));
    let refused = "Admin connections refused because of who asked.";
    page.single("admin_refused_total", "counter", refused, read(&counters.refused));
    let turned_away = "Admin connections refused because too many were open.";
    page.single("admin_turned_away_total", "counter", turned_away, read(&counters.turned_away));
    page.single("admin_streams", "gauge", "Logs, events and watches being followed.", read(&counters.streams));
    let missed = "Lines that slow followers missed.";
    page.single("admin_missed_lines_total", "counter", missed, read(&counters.missed));
}
