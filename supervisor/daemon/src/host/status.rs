//! What is: the host, its groups, their processes, as the admin server tells it. Observed when asked, never inferred.

use super::live::Key;
use super::{Containment, Facts, Held, Host};
use crate::admin::convert;
use crate::config::{ClusterConfig, Expanded};
use crate::logs::{Counters, Source};
use socialweb_core::{Birth, Group, GroupName, Phase};
use socialweb_sys::cgroup::{Cgroup, Tree};
use socialweb_sys::process::{self, Stat};
use socialweb_wire as wire;
use std::collections::{BTreeMap, HashMap};
use std::path::Path;
use std::sync::Arc;

/// Above this a tenant's datastore is worth a warning. A fresh one has 2 MiB; the reports of trouble begin at 4 GiB.
const DATASTORE_LARGE: u64 = 1 << 30;

/// What was wrong with the sources when they were last read.
#[derive(Debug, Default)]
pub(crate) struct Sources {
    /// For status, each a sentence.
    pub problems: Vec<String>,
    /// Groups whose file cannot be used, each with the first thing that is wrong and its place.
    pub faulty: BTreeMap<GroupName, String>,
}

impl Host {
    pub(super) fn status(&self, group: Option<&GroupName>) -> Result<wire::HostStatus, wire::ApiError> {
        if let Some(group) = group.filter(|group| !self.sources.faulty.contains_key(group)) {
            self.known(group)?;
        }
        let groups = self.groups.iter().filter(|(name, _)| group.is_none_or(|g| g == *name));
        let shown = groups.filter(|(_, held)| held.view.phase != Phase::Absent);
        let counters: HashMap<_, _> = self.logs.all_counters().into_iter().collect();
        let mut groups: Vec<wire::GroupStatus> = shown.map(|(_, held)| self.group_status(held, &counters)).collect();
        groups.extend(self.faulty_groups().filter(|g| group.is_none_or(|asked| asked.as_str() == g.name)));
        groups.sort_by(|a, b| a.name.cmp(&b.name));
        let mut warnings = self.warnings.clone();
        warnings.extend(self.sources.problems.iter().cloned());
        warnings.extend(self.owed.summary());
        warnings.extend(self.moved_warning());
        warnings.extend(self.support.problems().iter().cloned());
        warnings.extend(groups.iter().filter_map(large_datastore));
        let told = self.groups.iter().filter(|(name, _)| group.is_none_or(|g| g == *name));
        warnings.extend(told.filter_map(|(name, held)| held.in_force.warning(name)));
        if self.groups.values().any(|h| h.facts.url.is_some()) {
            warnings.extend(self.binaries.server().err().map(|missing| missing.to_string()));
        }
        Ok(wire::HostStatus {
            schema: wire::SCHEMA,
            version: env!("CARGO_PKG_VERSION").into(),
            pid: std::process::id(),
            started_at_ms: self.started_at_ms,
            uptime_s: self.clock.now().0 / 1000,
            cgroups: self.support.explain(),
            state_dir: self.config.state_dir.display().to_string(),
            config: self.paths.config.display().to_string(),
            server: self.server_text(),
            max_tenants: u32::try_from(self.leases.max_tenants(&self.tenant_roles)).unwrap_or(u32::MAX),
            rss_bytes: Stat::of(std::process::id()).map_or(0, |s| s.rss_bytes),
            dropped_log_lines: counters.values().map(|c| c.lines_dropped).sum(),
            dropped_events: self.groups.values().filter_map(|h| h.log.as_ref()).map(|l| l.lost()).sum(),
            warnings,
            groups,
        })
    }

    /// Nothing of a faulty file is used (law L7). What that means for its group is said, and shown for as long as it is so.
    pub(super) fn plan_faulty(
        &mut self,
        group: Option<&GroupName>,
        mut problems: Vec<wire::Problem>,
        dry_run: bool,
        plan: &mut wire::ReloadPlan,
    ) {
        if let (Some(group), Some(last)) = (group, problems.last_mut()) {
            let declared = self.groups.get(group).is_some_and(|held| held.machine.is_declared());
            last.hint = match declared {
                true => format!("group {group} stays as it is"),
                false => format!("group {group} is not started"),
            };
        }
        if let (false, Some(group), Some(first)) = (dry_run, group, problems.first()) {
            self.sources.faulty.insert(group.clone(), first.place_and_message());
        }
        plan.problems.extend(problems);
    }

    /// Groups that would be here if their file could be used: there is no machine for them, or one that was never told.
    fn faulty_groups(&self) -> impl Iterator<Item = wire::GroupStatus> {
        let absent = |name: &GroupName| self.groups.get(name).is_none_or(|held| held.view.phase == Phase::Absent);
        self.sources.faulty.iter().filter(move |(name, _)| absent(name)).map(|(name, fault)| {
            let mut status = match self.groups.get(name) {
                Some(held) => convert::group_status(&held.view, self.clock.now()),
                None => convert::group_status(&Group::new(name.clone(), 0, Birth(0)).view(), self.clock.now()),
            };
            status.reason = format!("its file cannot be used: {fault}");
            status.declared = true;
            status
        })
    }

    fn server_text(&self) -> String {
        match self.binaries.server() {
            Ok(server) => format!("{} ({})", server.flavour.as_str(), server.path.display()),
            Err(_) => "none".into(),
        }
    }

    fn group_status(&self, held: &Held, logs: &HashMap<Arc<Source>, Counters>) -> wire::GroupStatus {
        let mut status = convert::group_status(&held.view, self.clock.now());
        status.url = held.facts.url.clone();
        status.kubeconfig = held.facts.kubeconfig.as_ref().filter(|p| p.exists()).map(|p| p.display().to_string());
        status.ports = held.record.ports.clone();
        status.last_start_ms = held.last_start_ms;
        status.datastore_bytes = held.facts.datastore.as_deref().map(datastore_bytes);
        status.usage = self.group_usage(&held.view.name);
        status.bounds = held.in_force.bounds();
        status.bounds_missing = held.in_force.missing();
        status.stop_deadline_s = held.machine.stop_deadline().as_secs();
        for (view, component) in held.view.components.iter().zip(&mut status.components) {
            let source = Source { group: held.view.name.clone(), component: view.name.clone() };
            component.log = logs.get(&source).filter(|c| c.lines_in > 0).map(log_counts);
            let Some(birth) = view.birth else { continue };
            let key = Key { group: held.view.name.clone(), component: view.name.clone(), birth };
            let Some(live) = self.births.get(&key) else { continue };
            let (rss, cpu) = self.usage(live.pid, live.cgroup.as_ref());
            component.rss_bytes = rss;
            component.cpu_usec = cpu;
            component.usage = self.component_usage(&held.view.name, &view.name);
        }
        status
    }

    /// Resident memory of all processes of a run, and their processor time.
    fn usage(&self, leader: u32, cgroup: Option<&Cgroup>) -> (Option<u64>, Option<u64>) {
        let pids = cgroup.and_then(|c| c.pids().ok()).unwrap_or_else(|| vec![leader]);
        let rss = pids.iter().filter_map(|pid| Stat::of(*pid).ok()).map(|s| s.rss_bytes).sum();
        let cpu = cgroup.and_then(|c| c.counters().ok()).map(|c| c.cpu_usec).or_else(|| cpu_usec(leader));
        (Some(rss), cpu)
    }

    pub(super) fn tree(&self, group: &GroupName) -> Result<wire::GroupTree, wire::ApiError> {
        let held = self.known(group)?;
        let mut components = Vec::new();
        for view in &held.view.components {
            let mut part =
                wire::ComponentTree { name: view.name.to_string(), birth: None, cgroup: None, processes: vec![] };
            let key = view.birth.map(|birth| Key { group: group.clone(), component: view.name.clone(), birth });
            if let Some(live) = key.and_then(|key| self.births.get(&key)) {
                part.birth = view.birth.map(|b| b.0);
                part.cgroup = live.cgroup.as_ref().map(|c| c.path().display().to_string());
                let pids = live.cgroup.as_ref().and_then(|c| c.pids().ok()).unwrap_or_else(|| vec![live.pid]);
                part.processes = pids.into_iter().filter_map(process_of).collect();
            }
            components.push(part);
        }
        let prefix = format!("{}/{group}/", self.paths.id);
        let listed = |pid: u32| components.iter().any(|c| c.processes.iter().any(|p| p.pid == pid));
        let strays =
            self.strays().unwrap_or_default().into_iter().filter(|p| p.marker.starts_with(&prefix) && !listed(p.pid));
        let strays = strays.filter_map(|p| process_of(p.pid)).collect();
        Ok(wire::GroupTree { group: group.to_string(), components, strays })
    }

    pub(super) fn receipts(&self, group: &GroupName) -> Result<Vec<wire::Receipt>, wire::ApiError> {
        self.known(group)?;
        let kept = crate::state::Receipts::new(self.state.layout().receipts(group)).list();
        let kept = kept.map_err(|e| wire::ApiError::new(wire::ErrorCode::Failed, crate::chain::chain(&e)))?;
        Ok(kept.iter().rev().map(|r| convert::receipt(r, None)).collect())
    }

    /// What status says of a group beside its machine.
    pub(super) fn facts_of(&self, cluster: &ClusterConfig, expanded: &Expanded) -> Facts {
        let url = expanded.server.as_ref().and_then(|_| expanded.spec.ports.get("https"));
        let layout = socialweb_credentials::Layout::new(self.config.group_dir(&cluster.name));
        Facts {
            url: url.map(|port| format!("https://127.0.0.1:{port}")),
            kubeconfig: url.map(|_| layout.operator_kubeconfig()),
            running: cluster.running(),
            datastore: url.map(|_| layout.kine_database()),
        }
    }

    /// Where the groups live; nowhere in the fallback.
    pub fn groups_tree(&self) -> Option<Tree> {
        match &self.containment {
            Containment::Cgroups { tree, .. } => Some(tree.clone()),
            Containment::Fallback => None,
        }
    }
}

fn log_counts(counters: &Counters) -> wire::LogCounts {
    wire::LogCounts {
        lines: counters.lines_in,
        written: counters.lines_written,
        dropped: counters.lines_dropped,
        waiting: counters.lines_waiting,
    }
}

/// A sqlite database with its write-ahead log; 0 where the datastore is elsewhere.
fn datastore_bytes(database: &Path) -> u64 {
    let wal = database.with_extension("db-wal");
    [database, &wal].iter().filter_map(|file| std::fs::metadata(file).ok()).map(|meta| meta.len()).sum()
}

/// A tenant whose datastore grows without end takes the disk from all others (k3s-io/kine 607 and 582): said in time.
fn large_datastore(group: &wire::GroupStatus) -> Option<String> {
    let bytes = group.datastore_bytes.filter(|bytes| *bytes > DATASTORE_LARGE)?;
    Some(format!(
        "the datastore of {} has {} MiB, which is a lot for a small cluster; look for an object that is written all the time",
        group.name,
        bytes >> 20
    ))
}

fn process_of(pid: u32) -> Option<wire::Process> {
    let stat = Stat::of(pid).ok()?;
    Some(wire::Process {
        pid,
        ppid: stat.ppid,
        comm: stat.comm,
        state: stat.state.to_string(),
        rss_bytes: stat.rss_bytes,
        cpu_usec: usec(stat.cpu_ticks),
    })
}

/// Processor time of one process in microseconds.
pub(super) fn cpu_usec(pid: u32) -> Option<u64> {
    Stat::of(pid).ok().map(|s| usec(s.cpu_ticks))
}

fn usec(ticks: u64) -> u64 {
    ticks.saturating_mul(1_000_000) / process::ticks_per_second().max(1)
}
