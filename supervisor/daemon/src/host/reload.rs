//! Sources become declarations: at start, on SIGHUP, by `ctl reload`. A plan first, then the machines are told. What
//! cannot be read changes nothing (law L7).

use super::Host;
use crate::chain::chain;
use crate::config::{self, ClusterConfig, ConfigError, Context, Expanded, Finding, Inputs, Loaded, SourceState};
use crate::failpoint;
use crate::state::{Desired, GroupRecord, LeaseError, Loaded as Record, PortRole};
use socialweb_core::plan::{self, Effect};
use socialweb_core::{Event, GroupName, GroupSpec, Why};
use socialweb_wire as wire;
use std::collections::BTreeSet;
use std::path::Path;

impl Host {
    /// Reads everything again and applies it; what is wrong is said and kept for status.
    pub fn reload(&mut self) {
        let plan = self.plan_reload(false, false);
        for problem in &plan.problems {
            self.warn(None, problem.to_string());
        }
        let changed = match plan.groups.len() {
            1 => "1 group changes".to_string(),
            n => format!("{n} groups change"),
        };
        let problems = wire::counted(plan.problems.len(), "problem");
        self.say_host(format!("configuration read: {changed}, {problems}"));
        self.port.changed();
    }

    /// Reads everything, and unless it is a dry run applies it. With `allow_empty` a folder without cluster files parks all groups.
    pub fn plan_reload(&mut self, dry_run: bool, allow_empty: bool) -> wire::ReloadPlan {
        let mut plan = wire::ReloadPlan { applied: false, groups: Vec::new(), problems: Vec::new() };
        let mut loaded = match self.load(allow_empty || self.may_be_empty) {
            Ok(loaded) => loaded,
            Err(error) => {
                plan.problems.extend(error.findings.iter().map(problem));
                return plan;
            }
        };
        plan.problems.extend(loaded.declared.warnings.iter().map(problem));
        if loaded.declared.state != SourceState::Read {
            // Nothing was done: for whoever asked that is an error.
            plan.problems.iter_mut().for_each(|p| p.severity = wire::Severity::Error);
            self.sources.problems = plan.problems.iter().map(ToString::to_string).collect();
            return plan;
        }
        if !dry_run {
            failpoint::reach("reload-read");
            self.sources.faulty.clear();
            self.forget_declarations();
            self.may_be_empty = (self.may_be_empty || allow_empty) && loaded.declared.clusters.is_empty();
            self.apply_daemon(&loaded, &mut plan.problems);
        }
        let names = Names::of(&loaded.declared.clusters);
        // One by one: what a file was read into makes room for what its group holds as long as it lives.
        for entry in std::mem::take(&mut loaded.declared.clusters) {
            match entry {
                Ok(cluster) => self.plan_cluster(&cluster, dry_run, &mut plan),
                Err(error) => {
                    let problems = error.findings.iter().map(problem).collect();
                    self.plan_faulty(error.group.as_ref(), problems, dry_run, &mut plan);
                }
            }
        }
        for group in &loaded.declared.absent {
            self.plan_absent(group, dry_run, &mut plan);
        }
        if !dry_run {
            self.hold_undeclared(&names);
        }
        plan.groups.sort_by(|a, b| a.group.cmp(&b.group));
        plan.applied = !dry_run;
        if !dry_run {
            self.keep_leases();
            self.keep_problems(&plan);
            failpoint::reach("reload-applied");
        }
        plan
    }

    /// What status goes on showing. That a group is no longer declared is told by the group itself, as long as it is so.
    fn keep_problems(&mut self, plan: &wire::ReloadPlan) {
        let lasting =
            |p: &&wire::Problem| p.severity == wire::Severity::Error || Path::new(&p.file) == self.paths.config;
        self.sources.problems = plan.problems.iter().filter(lasting).map(ToString::to_string).collect();
    }

    fn load(&self, may_be_empty: bool) -> Result<Loaded, config::ConfigError> {
        let known: BTreeSet<GroupName> =
            self.groups.values().filter(|h| h.machine.is_declared()).map(|h| h.machine.name().clone()).collect();
        let mut known = if known.is_empty() { self.known_from_state.clone() } else { known };
        // No source declares a drill, so none is missing it.
        known.retain(|name| name.as_str() != wire::DRILL_GROUP);
        let (file, env, flags) = (&*self.paths.config, &self.env, &self.flags);
        config::load(&Inputs { file, env, flags, known: &known, may_be_empty })
    }

    /// What of supervisor.toml can change under way; the rest is named.
    fn apply_daemon(&mut self, loaded: &Loaded, problems: &mut Vec<wire::Problem>) {
        let (old, new) = (&self.config, &loaded.daemon);
        let fixed = [
            ("state_dir", old.state_dir != new.state_dir),
            ("runtime_dir", old.runtime_dir != new.runtime_dir),
            ("cgroup", old.cgroup != new.cgroup),
            ("ports.ranges", old.ports != new.ports),
            ("log", old.log != new.log),
            ("record_events", old.record_events != new.record_events),
        ];
        for (key, _) in fixed.iter().filter(|(_, changed)| *changed) {
            let message = format!("{key} changed; it takes effect when the daemon starts next");
            problems.push(problem(&Finding::warning(&self.paths.config, message)));
        }
        self.budget.set_limits(new.budgets);
        let mut next = new.clone();
        next.state_dir = old.state_dir.clone();
        next.runtime_dir = old.runtime_dir.clone();
        next.log = old.log;
        next.ports = old.ports.clone();
        next.cgroup = old.cgroup.clone();
        next.record_events = old.record_events;
        self.binaries = config::Binaries::new(&next.binaries, &self.env, &self.paths.exe);
        self.config = next;
    }

    fn plan_cluster(&mut self, cluster: &ClusterConfig, dry_run: bool, plan: &mut wire::ReloadPlan) {
        let group = &cluster.name;
        let expanded = match self.expand(cluster, dry_run) {
            Ok(expanded) => expanded,
            Err(problems) => return self.plan_faulty(Some(group), problems, dry_run, plan),
        };
        let held = self.groups.get(group);
        let old = held.and_then(|h| h.machine.spec().filter(|_| h.machine.is_declared())).cloned();
        let file_ran = held.is_some_and(|h| h.facts.running);
        let stopped = held.is_some_and(|h| h.record.desired == Desired::ParkedByOperator);
        let was_running = file_ran && !stopped;
        let runs = cluster.running() && !stopped;
        if let Some(part) = describe(cluster, old.as_ref(), &expanded.spec, (was_running, runs)) {
            plan.groups.push(part);
        }
        if !dry_run {
            self.declare(cluster, expanded, old.is_some(), file_ran);
        }
    }

    /// Once more, for one whose record or leases found no room on the disk.
    pub(super) fn declare_again(&mut self, cluster: &ClusterConfig) {
        let mut plan = wire::ReloadPlan { applied: true, groups: Vec::new(), problems: Vec::new() };
        self.plan_cluster(cluster, false, &mut plan);
        if plan.problems.iter().all(|p| p.severity != wire::Severity::Error) {
            let file = cluster.source.path().display().to_string();
            self.sources.problems.retain(|problem| !problem.starts_with(&file));
            self.sources.faulty.remove(&cluster.name);
            self.say_host(format!("group {} is declared after all", cluster.name));
        }
    }

    /// Leases ports and makes the spec. A dry run leases nothing: a new group is shown with stand-ins.
    fn expand(&mut self, cluster: &ClusterConfig, dry_run: bool) -> Result<Expanded, Vec<wire::Problem>> {
        let group = &cluster.name;
        let roles: Vec<PortRole> = config::port_roles(cluster).into_iter().map(lease_role).collect();
        let whole = |message: String| vec![problem(&Finding::error(cluster.source.path(), None, message))];
        let ports = if dry_run {
            self.groups.get(group).map_or(Ok(()), |held| same_account(&held.record, cluster))?;
            let mut ports = self.leases.of(group);
            for (n, role) in (1u16..).zip(role_names(&roles)) {
                ports.entry(role).or_insert(n);
            }
            ports
        } else {
            let mut record = self.record_of(group, cluster.account()).map_err(|why| {
                self.owe_declaration(cluster);
                whole(why)
            })?;
            same_account(&record, cluster)?;
            let ports = self.leases.ensure(&mut record, &roles).map_err(|e| {
                if matches!(e, LeaseError::Write(_)) {
                    self.owe_declaration(cluster);
                }
                whole(chain(&e))
            })?;
            self.hold(record);
            ports
        };
        let context = Context::new(&self.config, group, &ports, &self.binaries, &self.paths.exe, &self.env);
        config::expand(cluster, &context).map_err(|e| e.findings.iter().map(problem).collect())
    }

    /// The group's record, made when there is none. A bad one is kept aside and named.
    pub(super) fn record_of(&mut self, group: &GroupName, account: Option<&str>) -> Result<GroupRecord, String> {
        if let Some(held) = self.groups.get(group) {
            return Ok(held.record.clone());
        }
        self.state.ensure_group(group).map_err(|e| chain(&e))?;
        let loaded = GroupRecord::load(self.state.layout(), group).map_err(|e| chain(&e))?;
        let fresh = |host: &Host| {
            let mut record = GroupRecord::new(group.clone());
            record.account = account.map(str::to_string);
            record.ports = host.leases.of(group);
            record
        };
        let record = match loaded {
            Record::Found(record) => return Ok(record),
            Record::Absent => fresh(self),
            Record::SetAside(aside) => {
                self.warn(Some(group), format!("{aside}; its ports come from the lease file"));
                fresh(self)
            }
        };
        // Not flushed: until its ports are, there is nothing in it that could not be made again.
        record.save(self.state.layout(), crate::state::Fsync::No).map_err(|e| chain(&e))?;
        failpoint::reach("record-made");
        Ok(record)
    }

    fn declare(&mut self, cluster: &ClusterConfig, expanded: Expanded, was_declared: bool, was_running: bool) {
        let group = &cluster.name;
        let facts = self.facts_of(cluster, &expanded);
        let Some(held) = self.groups.get_mut(group) else { return };
        held.facts = facts;
        held.delete = false;
        let same = was_declared && held.machine.spec() == Some(&expanded.spec);
        if !same {
            self.feed(group, Event::Declared { spec: Box::new(expanded.spec) });
            failpoint::reach("declared");
        }
        self.change_limits(group);
        self.watch_cores(group);
        let parked_by_operator = self.groups.get(group).is_some_and(|h| h.record.desired == Desired::ParkedByOperator);
        match (cluster.running(), was_declared && was_running) {
            (true, false) if !parked_by_operator && !self.stopping => {
                let why = if self.booted { Why::Reload } else { Why::Boot };
                self.feed(group, Event::Start { why });
            }
            (false, true) => self.feed(group, Event::Stop { why: Why::Reload }),
            _ => {}
        }
    }

    fn plan_absent(&mut self, group: &GroupName, dry_run: bool, plan: &mut wire::ReloadPlan) {
        if self.groups.get(group).is_some_and(|h| h.machine.is_declared()) {
            plan.groups.push(wire::GroupPlan {
                group: group.to_string(),
                effect: wire::Effect::Park,
                changes: Vec::new(),
            });
            if !dry_run {
                self.feed(group, Event::Removed);
            }
        }
    }

    /// Groups with a folder that nobody declares: shown as parked, their data kept. One whose file is there and cannot be
    /// used is declared all the same, though nobody knows as what: it is left alone (law L7).
    fn hold_undeclared(&mut self, files: &Names) {
        let names = match self.state.layout().list_groups() {
            Ok(names) => names,
            Err(error) => return self.warn(None, format!("the groups' folder cannot be read: {error}")),
        };
        for name in names {
            if files.0.contains(&name) || self.groups.contains_key(&name) {
                continue;
            }
            match self.record_of(&name, None) {
                Ok(record) => {
                    self.hold(record);
                    self.feed(&name, Event::Removed);
                }
                Err(why) => self.warn(Some(&name), why),
            }
        }
    }
}

/// The groups that have a file, a broken one too as far as it tells whose it is.
struct Names(BTreeSet<GroupName>);

impl Names {
    fn of(files: &[Result<ClusterConfig, ConfigError>]) -> Names {
        let name = |file: &Result<ClusterConfig, ConfigError>| match file {
            Ok(cluster) => Some(cluster.name.clone()),
            Err(error) => error.group.clone(),
        };
        Names(files.iter().filter_map(name).collect())
    }
}

/// A cluster's account is in the issuer of its tokens; another one would make every token and audience worthless.
fn same_account(record: &GroupRecord, cluster: &ClusterConfig) -> Result<(), Vec<wire::Problem>> {
    match (&record.account, cluster.account()) {
        (Some(was), Some(is)) if was != is => {
            let text = format!(
                "the account changed from {was:?} to {is:?}, and with it the issuer of every token of the cluster; \
                 put it back, or delete the cluster first"
            );
            Err(vec![problem(&cluster.source.error(&["account".into()], text))])
        }
        _ => Ok(()),
    }
}

fn describe(
    cluster: &ClusterConfig,
    old: Option<&GroupSpec>,
    new: &GroupSpec,
    (was_running, runs): (bool, bool),
) -> Option<wire::GroupPlan> {
    let group = cluster.name.to_string();
    let whole = |effect| Some(wire::GroupPlan { group: group.clone(), effect, changes: Vec::new() });
    let begins = if runs { wire::Effect::Start } else { wire::Effect::StaysStopped };
    let Some(old) = old else { return whole(begins) };
    match (was_running, runs) {
        (true, false) => return whole(wire::Effect::Park),
        (false, true) => return whole(wire::Effect::Start),
        _ => {}
    }
    let parts = plan::diff(old, new);
    let effect = parts.iter().map(|p| effect(p.effect)).max();
    let whole = plan::diff_group(old, new);
    let effect = whole.iter().map(|c| self::effect(c.effect)).chain(effect).max()?;
    let whole = whole.iter().map(|change| planned_whole(cluster, change));
    let effect = if runs { effect } else { wire::Effect::StaysStopped };
    let mut changes: Vec<_> = whole.chain(parts.iter().flat_map(|p| planned(cluster, p))).collect();
    if !runs {
        changes.iter_mut().for_each(|change| change.effect = wire::Effect::NextStart);
    }
    Some(wire::GroupPlan { group, effect, changes })
}

fn planned_whole(cluster: &ClusterConfig, change: &plan::Change) -> wire::PlannedChange {
    wire::PlannedChange {
        component: None,
        key: change.key.clone(),
        file: Some(cluster.source.path().display().to_string()),
        line: config::locate_group(cluster, &change.key).map(|p| p.line),
        effect: effect(change.effect),
    }
}

fn planned(cluster: &ClusterConfig, part: &plan::ComponentPlan) -> Vec<wire::PlannedChange> {
    let one = |key: &str, effect_of: Effect| {
        let place = config::locate(cluster, &part.component, key);
        wire::PlannedChange {
            component: Some(part.component.to_string()),
            key: key.to_string(),
            file: place.map(|_| cluster.source.path().display().to_string()),
            line: place.map(|p| p.line),
            effect: effect(effect_of),
        }
    };
    match part.changes.is_empty() {
        true => vec![one("", part.effect)],
        false => part.changes.iter().map(|c| one(&c.key, c.effect)).collect(),
    }
}

fn effect(effect: Effect) -> wire::Effect {
    match effect {
        Effect::InPlace => wire::Effect::InPlace,
        Effect::NextStart => wire::Effect::NextStart,
        Effect::Restart => wire::Effect::Restart,
        Effect::Start => wire::Effect::Start,
        Effect::Stop => wire::Effect::Stop,
    }
}

fn problem(finding: &Finding) -> wire::Problem {
    wire::Problem {
        file: finding.path.display().to_string(),
        line: finding.position.map(|p| p.line),
        column: finding.position.map(|p| p.column),
        severity: match finding.severity {
            config::Severity::Error => wire::Severity::Error,
            config::Severity::Warning => wire::Severity::Warning,
        },
        message: finding.message.clone(),
        hint: String::new(),
    }
}

pub(crate) fn lease_role(role: config::PortRole) -> PortRole {
    match role.above {
        Some(above) => PortRole::Pair(role.role, above),
        None => PortRole::Single(role.role),
    }
}

fn role_names(roles: &[PortRole]) -> Vec<String> {
    let names = |role: &PortRole| match role {
        PortRole::Single(name) => vec![name.clone()],
        PortRole::Pair(low, high) => vec![low.clone(), high.clone()],
    };
    roles.iter().flat_map(names).collect()
}
