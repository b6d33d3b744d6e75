//! What people ask through the admin socket.

use super::live::Key;
use super::{Containment, Facts, Held, Host};
use crate::admin::{Change, Command, Feed, convert};
use crate::config::{ClusterConfig, Expanded};
use crate::logs::{Followed, Follower, LogLine, Source};
use crate::state::Desired;
use socialweb_core::{ComponentName, Event, GroupName, Phase, Why};
use socialweb_sys::cgroup::{Cgroup, Tree};
use socialweb_sys::process::{self, Stat};
use socialweb_wire as wire;
use std::path::Path;
use std::sync::Arc;
use std::time::UNIX_EPOCH;
use tokio::sync::broadcast;

/// Lines that a slow follower may lag behind before it is told how many it missed.
const FOLLOW: usize = 1024;
/// Above this a tenant's datastore is worth a warning. A fresh one has 2 MiB; the reports of trouble begin at 4 GiB.
const DATASTORE_LARGE: u64 = 1 << 30;

impl Host {
    pub(super) fn answer(&mut self, command: Command) {
        // The asker may have gone; nothing depends on it.
        match command {
            Command::Status { group, reply } => drop(reply.send(self.status(group.as_ref()))),
            Command::Change { change, reply } => {
                let answer = self.change(change);
                let _ = reply.send(answer);
            }
            Command::Reload { dry_run, reply } => {
                let plan = self.plan_reload(dry_run);
                let _ = reply.send(Ok(plan));
            }
            Command::Tree { group, reply } => drop(reply.send(self.tree(&group))),
            Command::Receipts { group, reply } => drop(reply.send(self.receipts(&group))),
            Command::Logs { group, component, tail, follow, reply } => {
                drop(reply.send(self.log_feed(&group, component, tail, follow)));
            }
            Command::Events { group, tail, follow, reply } => {
                drop(reply.send(self.event_feed(group.as_ref(), tail, follow)))
            }
        }
        self.drain();
    }

    // ---- changes --------------------------------------------------------------------------------------------------

    fn change(&mut self, change: Change) -> Result<wire::Accepted, wire::ApiError> {
        let why = Why::Operator;
        match change {
            Change::Shutdown => {
                self.begin_shutdown();
                Ok(accepted(wire::Operation::Shutdown, None, "every group goes down in its order"))
            }
            Change::Start(group) => {
                self.must_run(&group)?;
                self.keep_desired(&group, Desired::Up)?;
                self.feed(&group, Event::Start { why });
                self.accepted(wire::Operation::Start, &group, None)
            }
            Change::Stop(group) => {
                self.known(&group)?;
                self.keep_desired(&group, Desired::ParkedByOperator)?;
                self.feed(&group, Event::Stop { why });
                self.accepted(wire::Operation::Stop, &group, None)
            }
            Change::Restart(group, None) => {
                self.must_run(&group)?;
                self.keep_desired(&group, Desired::Up)?;
                self.feed(&group, Event::Restart { component: None, why });
                self.accepted(wire::Operation::Restart, &group, None)
            }
            Change::Restart(group, Some(component)) => self.restart_component(group, component),
            Change::Delete(group) => self.delete(&group),
        }
    }

    fn restart_component(
        &mut self,
        group: GroupName,
        component: ComponentName,
    ) -> Result<wire::Accepted, wire::ApiError> {
        let held = self.known(&group)?;
        let running = matches!(held.view.phase, Phase::Starting | Phase::Ready | Phase::Degraded);
        let exists = held.machine.spec().is_some_and(|s| s.component(&component).is_some());
        if !exists {
            return Err(wire::ApiError::no_component(group.as_str(), component.as_str()));
        }
        if !running {
            let text = format!(
                "group {group} is {}, so its component {component} cannot be restarted",
                held.view.phase.as_str()
            );
            return Err(
                wire::ApiError::new(wire::ErrorCode::Conflict, text).with_hint(format!("`ctl start {group}` first"))
            );
        }
        // The run that is to be replaced, before anything can have replaced it: what the asker waits to see the end of.
        let answer = self.accepted(wire::Operation::RestartComponent, &group, Some(&component));
        self.feed(&group, Event::Restart { component: Some(component), why: Why::Operator });
        answer
    }

    /// Only what the source no longer declares may be destroyed (law L7).
    fn delete(&mut self, group: &GroupName) -> Result<wire::Accepted, wire::ApiError> {
        let held = self.known(group)?;
        let file = self.config.clusters_dir.join(format!("{group}.toml"));
        if held.machine.is_declared() || file.exists() {
            let text = format!("group {group} is declared, so it is not deleted");
            let hint = format!("remove {group}.toml from the clusters folder and `ctl reload` first; that parks it");
            return Err(wire::ApiError::new(wire::ErrorCode::Conflict, text).with_hint(hint));
        }
        if self.orphans.get(group).is_some_and(|left| !left.is_empty()) {
            let text = format!("processes of an earlier run of group {group} do not end, so its data is not deleted");
            let hint = format!("`ctl events {group}` names them");
            return Err(wire::ApiError::new(wire::ErrorCode::Conflict, text).with_hint(hint));
        }
        let answer = self.accepted(wire::Operation::Delete, group, None);
        if let Some(held) = self.groups.get_mut(group) {
            held.delete = true;
        }
        match self.groups[group].view.phase {
            Phase::Parked | Phase::Absent => self.delete_when_swept(group),
            _ => self.feed(group, Event::Stop { why: Why::Delete }),
        }
        answer
    }

    /// Data is not taken from under processes of an earlier run: a sweep that is under way goes on to the delete.
    pub(super) fn delete_when_swept(&mut self, group: &GroupName) {
        if !self.sweeping.contains_key(group) {
            self.finish_delete(group);
        }
    }

    /// The group is down: its data, its ports and its logs go.
    pub(super) fn finish_delete(&mut self, group: &GroupName) {
        match self.state.trash_group(group) {
            Ok(None) => {}
            // Gigabytes take time to remove, and no other group waits for that.
            Ok(Some(trash)) => drop(tokio::task::spawn_blocking(move || {
                if let Err(error) = std::fs::remove_dir_all(&trash) {
                    tracing::warn!("{} is not removed yet: {error}; the next start tries again", trash.display());
                }
            })),
            Err(error) => {
                self.warn(Some(group), super::say::chain(&error));
                if matches!(error, crate::state::DeleteError::Trash { .. }) {
                    return;
                }
            }
        }
        if let Err(error) = self.leases.release(group) {
            self.warn(Some(group), super::say::chain(&error));
        }
        let runtime = self.paths.runtime.join(group.as_str());
        let _ = std::fs::remove_dir_all(runtime);
        self.logs.forget(group);
        self.drop_group(group);
        self.say_host(format!("group {group} and its data are deleted"));
        self.port.changed();
    }

    fn known(&self, group: &GroupName) -> Result<&Held, wire::ApiError> {
        let held = self.groups.get(group).map(Box::as_ref);
        held.ok_or_else(|| wire::ApiError::no_group(group.as_str()))
    }

    fn must_run(&self, group: &GroupName) -> Result<(), wire::ApiError> {
        let held = self.known(group)?;
        let refuse =
            |text: String, hint: &str| Err(wire::ApiError::new(wire::ErrorCode::Conflict, text).with_hint(hint));
        if self.stopping {
            return refuse("the daemon is going down".into(), "start it again first");
        }
        if !held.machine.is_declared() {
            return refuse(format!("group {group} is no longer declared"), "put its file back and `ctl reload`");
        }
        if !held.facts.running {
            return refuse(
                format!("group {group} is parked by its file (running = false)"),
                "set running = true and `ctl reload`",
            );
        }
        Ok(())
    }

    /// An operator's stop outlives the daemon; so does the start that ends it.
    fn keep_desired(&mut self, group: &GroupName, desired: Desired) -> Result<(), wire::ApiError> {
        let layout = self.state.layout().clone();
        let Some(held) = self.groups.get_mut(group) else { return Ok(()) };
        if held.record.desired == desired {
            return Ok(());
        }
        let mut record = held.record.clone();
        record.desired = desired;
        record.save(&layout, crate::state::Fsync::Yes).map_err(|e| {
            wire::ApiError::new(
                wire::ErrorCode::Failed,
                format!("the group's record cannot be written: {}", super::say::chain(&e)),
            )
            .with_hint("free space in the state folder and try again")
        })?;
        held.record = record;
        Ok(())
    }

    fn accepted(
        &self,
        operation: wire::Operation,
        group: &GroupName,
        component: Option<&ComponentName>,
    ) -> Result<wire::Accepted, wire::ApiError> {
        let mut answer = accepted(operation, Some(group), "");
        if let Some(held) = self.groups.get(group) {
            answer.generation = held.view.generation;
            answer.phase = Some(convert::phase(held.view.phase));
            let c = component.and_then(|name| held.view.components.iter().find(|c| &c.name == name));
            answer.birth = c.and_then(|c| c.birth).map(|b| b.0);
        }
        answer.component = component.map(ToString::to_string);
        Ok(answer)
    }

    // ---- what is --------------------------------------------------------------------------------------------------

    fn status(&self, group: Option<&GroupName>) -> Result<wire::HostStatus, wire::ApiError> {
        if let Some(group) = group {
            self.known(group)?;
        }
        let groups = self.groups.iter().filter(|(name, _)| group.is_none_or(|g| g == *name));
        let shown = groups.filter(|(_, held)| held.view.phase != Phase::Absent);
        let groups: Vec<wire::GroupStatus> = shown.map(|(_, held)| self.group_status(held)).collect();
        let counters = self.logs.all_counters();
        let mut warnings = self.warnings.clone();
        warnings.extend(self.source_problems.iter().cloned());
        warnings.extend(self.support.problems().iter().cloned());
        warnings.extend(groups.iter().filter_map(large_datastore));
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
            dropped_log_lines: counters.iter().map(|(_, c)| c.lines_dropped).sum(),
            dropped_events: self.groups.values().filter_map(|h| h.log.as_ref()).map(|l| l.lost()).sum(),
            warnings,
            groups,
        })
    }

    fn server_text(&self) -> String {
        match self.binaries.server() {
            Ok(server) => format!("{} ({})", server.flavour.as_str(), server.path.display()),
            Err(_) => "none".into(),
        }
    }

    fn group_status(&self, held: &Held) -> wire::GroupStatus {
        let mut status = convert::group_status(&held.view, self.clock.now());
        status.url = held.facts.url.clone();
        status.kubeconfig = held.facts.kubeconfig.as_ref().filter(|p| p.exists()).map(|p| p.display().to_string());
        status.ports = held.record.ports.clone();
        status.last_start_ms = held.last_start_ms;
        status.datastore_bytes = held.facts.datastore.as_deref().map(datastore_bytes);
        status.stop_deadline_s = held.machine.spec().map_or(0, |s| s.stop_deadline().as_secs());
        for (view, component) in held.view.components.iter().zip(&mut status.components) {
            let Some(birth) = view.birth else { continue };
            let key = Key { group: held.view.name.clone(), component: view.name.clone(), birth };
            let Some(live) = self.births.get(&key) else { continue };
            let (rss, cpu) = self.usage(live.pid, live.cgroup.as_ref());
            component.rss_bytes = rss;
            component.cpu_usec = cpu;
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

    fn tree(&self, group: &GroupName) -> Result<wire::GroupTree, wire::ApiError> {
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
        let strays = self.strays().into_iter().filter(|p| p.marker.starts_with(&prefix) && !listed(p.pid));
        let strays = strays.filter_map(|p| process_of(p.pid)).collect();
        Ok(wire::GroupTree { group: group.to_string(), components, strays })
    }

    fn receipts(&self, group: &GroupName) -> Result<Vec<wire::Receipt>, wire::ApiError> {
        self.known(group)?;
        let kept = crate::state::Receipts::new(self.state.layout().receipts(group)).list();
        let kept = kept.map_err(|e| wire::ApiError::new(wire::ErrorCode::Failed, super::say::chain(&e)))?;
        Ok(kept.iter().rev().map(|r| convert::receipt(r, None)).collect())
    }

    // ---- feeds ----------------------------------------------------------------------------------------------------

    fn log_feed(
        &self,
        group: &GroupName,
        component: Option<ComponentName>,
        tail: usize,
        follow: bool,
    ) -> Result<Feed<wire::LogLine>, wire::ApiError> {
        let held = self.known(group)?;
        let names: Vec<ComponentName> = match &component {
            Some(name) => {
                let exists = held.machine.spec().is_some_and(|s| s.component(name).is_some());
                if !exists {
                    return Err(wire::ApiError::no_component(group.as_str(), name.as_str()));
                }
                vec![name.clone()]
            }
            None => {
                held.machine.spec().map(|s| s.components.iter().map(|c| c.name.clone()).collect()).unwrap_or_default()
            }
        };
        // The subscription comes first: a line in between is doubled, never missed; and nothing comes in between, because
        // the log task and this one take turns.
        let follower = follow.then(|| self.logs.follow(group.clone(), component, FOLLOW));
        let mut past = Vec::new();
        for component in names {
            let source = Source { group: group.clone(), component };
            let lines = self.logs.tail(&source, &self.state.layout().logs(group), tail);
            let lines = lines
                .map_err(|e| wire::ApiError::new(wire::ErrorCode::Failed, format!("a log cannot be read: {e}")))?;
            past.extend(lines.lines);
        }
        past.sort_by_key(|line| line.at);
        let skip = past.len().saturating_sub(tail);
        let past = past.iter().skip(skip).map(|line| Arc::new(log_line(line))).collect();
        Ok(Feed { past, live: follower.map(relay) })
    }

    fn event_feed(
        &self,
        group: Option<&GroupName>,
        tail: usize,
        follow: bool,
    ) -> Result<Feed<wire::EventLine>, wire::ApiError> {
        if let Some(group) = group {
            self.known(group)?;
        }
        let live = follow.then(|| self.told.subscribe());
        let (_, all) = self.ring.since(0);
        let about = |line: &wire::EventLine| group.is_none_or(|g| line.group.as_deref() == Some(g.as_str()));
        let mut past: Vec<_> = all.map(|(_, line)| Arc::clone(line)).filter(|line| about(line)).collect();
        past.drain(..past.len().saturating_sub(tail));
        Ok(Feed { past, live })
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

fn accepted(operation: wire::Operation, group: Option<&GroupName>, note: &str) -> wire::Accepted {
    wire::Accepted {
        operation,
        group: group.map(ToString::to_string),
        component: None,
        generation: 0,
        birth: None,
        phase: None,
        note: note.into(),
    }
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

/// Processor time of one process in microseconds.
pub(super) fn cpu_usec(pid: u32) -> Option<u64> {
    Stat::of(pid).ok().map(|s| usec(s.cpu_ticks))
}

fn usec(ticks: u64) -> u64 {
    ticks.saturating_mul(1_000_000) / process::ticks_per_second().max(1)
}

fn log_line(line: &LogLine) -> wire::LogLine {
    let since = line.at.duration_since(UNIX_EPOCH).unwrap_or_default();
    wire::LogLine {
        time_ms: u64::try_from(since.as_millis()).unwrap_or(u64::MAX),
        group: line.source.group.to_string(),
        component: line.source.component.to_string(),
        birth: Some(line.birth.0),
        level: match line.priority.number() {
            0..=3 => wire::Level::Error,
            4 => wire::Level::Warning,
            7 => wire::Level::Debug,
            _ => wire::Level::Info,
        },
        text: line.text.clone(),
    }
}

/// Hands a follower's lines on in the wire's shape. The channel is the follower's own, so a hole in the one becomes a hole
/// in the other: what was missed is told by a line.
fn relay(mut follower: Follower) -> broadcast::Receiver<Arc<wire::LogLine>> {
    let (tx, rx) = broadcast::channel(FOLLOW);
    tokio::spawn(async move {
        while let Some(followed) = follower.next().await {
            let line = match followed {
                Followed::Line(line) => log_line(&line),
                Followed::Missed(n) => missed_line(n),
            };
            if tx.send(Arc::new(line)).is_err() {
                return;
            }
        }
    });
    rx
}

fn missed_line(n: u64) -> wire::LogLine {
    wire::LogLine {
        time_ms: super::say::unix_ms(),
        group: String::new(),
        component: String::new(),
        birth: None,
        level: wire::Level::Warning,
        text: format!("({n} lines were not shown: they came faster than they were read)"),
    }
}
