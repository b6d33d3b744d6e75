//! Bounds reach the kernel: which of them are in force for a group, which are not and why, and what it takes of the host.
//! What to write is core's decision ([`socialweb_core::limits::decide`]); here it is written, and what did not work is told
//! once and shown for as long as it is so (systemd/systemd 29305: a bound that is silently not there).

use super::live::Key;
use super::{Containment, Host};
use crate::chain::chain;
use nix::sys::resource::{Resource, getrlimit};
use socialweb_core::limits::{self, Bound, Controller, Limits};
use socialweb_core::{ComponentName, ComponentSpec, GroupName, Launch, Rank};
use socialweb_sys::cgroup::{Cgroup, Usage};
use socialweb_sys::spawn::Command;
use socialweb_wire as wire;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::OnceLock;

/// The bounds of one group as the kernel has them. Made anew with the group's cgroup.
#[derive(Debug, Default)]
pub(crate) struct InForce {
    /// The group's cgroup is there.
    begun: bool,
    /// Of the group itself (`None`) and of its components; only where a bound is or was wanted.
    parts: BTreeMap<Option<ComponentName>, Part>,
    /// What was said last, so that it is said once.
    said: Vec<String>,
}

#[derive(Debug, Default)]
struct Part {
    taken: Limits,
    /// Wanted keys that are not in force, each with the reason where it is another one than a missing controller.
    missing: BTreeMap<&'static str, String>,
}

impl InForce {
    /// Bounds in force under their names in the file.
    pub fn bounds(&self) -> BTreeMap<String, u64> {
        let all = |(of, part): (&Option<ComponentName>, &Part)| {
            let taken = part.taken;
            let name = move |bound: Bound| Some((named(of.as_ref(), bound.key()), taken.of(bound)?));
            Bound::ALL.into_iter().filter_map(name).collect::<Vec<_>>()
        };
        self.parts.iter().flat_map(all).collect()
    }

    /// Bounds that are wanted and not in force.
    pub fn missing(&self) -> Vec<String> {
        let names = |(of, part): (&Option<ComponentName>, &Part)| {
            part.missing.keys().map(|key| named(of.as_ref(), key)).collect::<Vec<_>>()
        };
        self.parts.iter().flat_map(names).collect()
    }

    /// One sentence on all of them; none while all is as it should be.
    pub fn warning(&self, group: &GroupName) -> Option<String> {
        let missing = self.missing();
        if missing.is_empty() {
            return None;
        }
        let reasons = self.parts.values().flat_map(|p| p.missing.values());
        let reasons: BTreeSet<&str> = reasons.map(String::as_str).filter(|r| !r.is_empty()).collect();
        let reasons: Vec<&str> = reasons.into_iter().collect();
        let why = match reasons.is_empty() {
            true => no_controller(Path::new("/run/systemd/system").is_dir()),
            false => reasons.join("; "),
        };
        Some(format!("bounds of group {group} are not in force: {}: {why}", missing.join(", ")))
    }
}

/// What to do about a controller that does not reach the groups; `systemd`: this host is run by it.
fn no_controller(systemd: bool) -> String {
    let fix = match systemd {
        true => "run the daemon as a unit with Delegate=yes",
        false => "start it in a cgroup2 folder that has them",
    };
    format!("no cgroup controller for them reaches the group; {fix} (`ctl doctor` says more)")
}

fn named(of: Option<&ComponentName>, key: &str) -> String {
    of.map_or_else(|| key.to_string(), |component| format!("{component}.{key}"))
}

/// Brings one cgroup to `wanted`, from what is in force in it.
fn settle(cgroup: Option<&Cgroup>, wanted: &Limits, part: &mut Part) {
    let there = cgroup.and_then(|c| c.controllers().ok()).unwrap_or_default();
    let there: BTreeSet<Controller> = there.iter().filter_map(|name| Controller::named(name)).collect();
    let steps = limits::decide(wanted, &part.taken, &there);
    Bound::ALL.iter().for_each(|bound| drop(part.missing.remove(bound.key())));
    for bound in steps.missing {
        part.taken.take(bound, &Limits::default());
        part.missing.insert(bound.key(), String::new());
    }
    for write in steps.writes {
        let Some(cgroup) = cgroup else { continue };
        match cgroup.set_bound(write.bound.file(), &write.text) {
            Ok(()) => part.taken.take(write.bound, wanted),
            Err(error) => drop(part.missing.insert(write.bound.key(), chain(&error))),
        }
    }
}

/// Hands every controller that this cgroup has down to those below it, as far as the kernel lets us: what does not work
/// shows as a controller that is missing below.
fn hand_down(cgroup: &Cgroup) {
    for name in cgroup.controllers().unwrap_or_default() {
        if Controller::named(&name).is_some() {
            let _ = cgroup.hand_down(&name);
        }
    }
}

impl Host {
    /// The group's cgroup was made: nothing is in force in it yet. Components with bounds get their cgroups now, so that all
    /// that cannot be kept is told in one warning.
    pub(super) fn begin_limits(&mut self, group: &GroupName) {
        if let Containment::Cgroups { tree, .. } = &self.containment {
            hand_down(tree.top());
            hand_down(&tree.child(group.as_str()));
        }
        let Some(held) = self.groups.get_mut(group) else { return };
        held.in_force.parts.clear();
        held.in_force.begun = true;
        let spec = held.machine.spec().cloned();
        self.limit_part(group, None);
        for component in spec.iter().flat_map(|s| &s.components) {
            if component.limits != Limits::default() {
                self.prepare_part(group, &component.name);
            }
            self.note_process(group, component, &component.launch);
        }
        self.say_limits(group);
    }

    /// A component's cgroup is there: its bounds go in, and its runs get the controllers that count them.
    pub(super) fn limit_component(&mut self, key: &Key) {
        self.prepare_part(&key.group, &key.component);
        self.say_limits(&key.group);
    }

    fn prepare_part(&mut self, group: &GroupName, component: &ComponentName) {
        if let Some(cgroup) = self.part_cgroup(group, Some(component)) {
            // What cannot be made now is an error of the spawn, or shows as a controller that is missing.
            let _ = cgroup.create();
            hand_down(&cgroup);
        }
        self.limit_part(group, Some(component));
    }

    /// The spec changed while the group runs: its cgroups get the new bounds.
    pub(super) fn change_limits(&mut self, group: &GroupName) {
        let Some(held) = self.groups.get(group).filter(|held| held.in_force.begun) else { return };
        let bounded = held.machine.spec().into_iter().flat_map(|s| &s.components);
        let bounded = bounded.filter(|c| c.limits != Limits::default()).map(|c| c.name.clone());
        let parts: BTreeSet<ComponentName> = bounded.chain(held.in_force.parts.keys().flatten().cloned()).collect();
        self.limit_part(group, None);
        for part in parts {
            self.prepare_part(group, &part);
        }
        self.say_limits(group);
    }

    /// The group is down, and its cgroup gone.
    pub(super) fn end_limits(&mut self, group: &GroupName) {
        if let Some(held) = self.groups.get_mut(group) {
            held.in_force = InForce::default();
        }
    }

    fn limit_part(&mut self, group: &GroupName, component: Option<&ComponentName>) {
        let cgroup = self.part_cgroup(group, component);
        let Some(held) = self.groups.get_mut(group) else { return };
        let spec = held.machine.spec();
        let wanted = match component {
            None => spec.map(|s| s.limits),
            Some(name) => spec.and_then(|s| s.component(name)).map(|c| c.limits),
        };
        let (parts, wanted) = (&mut held.in_force.parts, wanted.unwrap_or_default());
        if wanted != Limits::default() || parts.contains_key(&component.cloned()) {
            settle(cgroup.as_ref(), &wanted, parts.entry(component.cloned()).or_default());
        }
    }

    fn part_cgroup(&self, group: &GroupName, component: Option<&ComponentName>) -> Option<Cgroup> {
        let Containment::Cgroups { tree, .. } = &self.containment else { return None };
        let whole = tree.child(group.as_str());
        Some(component.map_or_else(|| whole.clone(), |name| whole.child(name.as_str())))
    }

    /// One warning a group, and another one only when something else is missing.
    fn say_limits(&mut self, group: &GroupName) {
        let Some(held) = self.groups.get_mut(group) else { return };
        let missing = held.in_force.missing();
        if missing == held.in_force.said {
            return;
        }
        held.in_force.said = missing;
        let text = held.in_force.warning(group);
        match text {
            Some(text) => self.warn(Some(group), text),
            None => self.say_host(format!("all bounds of group {group} are in force")),
        }
    }

    /// The limits that a process is born with: the order in which the kernel ends processes when memory runs out, and the
    /// size of a core dump. Where this daemon may not give what is wanted, the component starts all the same.
    pub(super) fn limit_process(&mut self, key: &Key, spec: &ComponentSpec, launch: &Launch, command: &mut Command) {
        let own = Own::get();
        command.oom_score_adj = Some(own.score(launch, spec.rank).score);
        command.core_limit = Some(launch.core_limit.min(own.core_max));
        self.note_process(&key.group, spec, launch);
        self.say_limits(&key.group);
    }

    /// Keeps what of these a process of the component cannot get.
    fn note_process(&mut self, group: &GroupName, spec: &ComponentSpec, launch: &Launch) {
        let own = Own::get();
        let refused = [
            (
                "oom_score_adj",
                own.score(launch, spec.rank).refused,
                "an oom_score_adj below the daemon's own takes CAP_SYS_RESOURCE",
            ),
            (
                "core_max",
                launch.core_limit > own.core_max,
                "the daemon's own hard limit of core dumps is lower; raise LimitCORE of its unit",
            ),
        ];
        let Some(held) = self.groups.get_mut(group) else { return };
        let (parts, of) = (&mut held.in_force.parts, Some(spec.name.clone()));
        if !parts.contains_key(&of) && refused.iter().all(|(_, refused, _)| !refused) {
            return;
        }
        let part = parts.entry(of).or_default();
        for (name, refused, why) in refused {
            match refused {
                true => drop(part.missing.insert(name, why.into())),
                false => drop(part.missing.remove(name)),
            }
        }
    }

    /// What a group takes, as the kernel counts it.
    pub(super) fn group_usage(&self, group: &GroupName) -> wire::Usage {
        self.part_cgroup(group, None).map(|c| c.usage()).map(usage).unwrap_or_default()
    }

    /// The same of one component, over all of its runs in this generation.
    pub(super) fn component_usage(&self, group: &GroupName, component: &ComponentName) -> wire::Usage {
        self.part_cgroup(group, Some(component)).map(|c| c.usage()).map(usage).unwrap_or_default()
    }
}

fn usage(of: Usage) -> wire::Usage {
    wire::Usage {
        memory_bytes: of.memory,
        memory_peak_bytes: of.memory_peak,
        cpu_usec: of.cpu_usec,
        cpu_throttled_usec: of.cpu_throttled_usec,
        pids: of.pids,
        io_read_bytes: of.io_read,
        io_write_bytes: of.io_write,
        oom_kills: of.oom_kills,
    }
}

/// What this daemon itself has, and so can give. Read once: it does not change under way.
#[derive(Debug, Clone, Copy)]
struct Own {
    oom_score_adj: i32,
    may_lower: bool,
    core_max: u64,
}

/// linux/capability.h.
const CAP_SYS_RESOURCE: u32 = 24;

impl Own {
    fn get() -> Own {
        static OWN: OnceLock<Own> = OnceLock::new();
        *OWN.get_or_init(|| {
            let text = std::fs::read_to_string("/proc/self/oom_score_adj").unwrap_or_default();
            let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
            let may_lower = has_capability(&status, CAP_SYS_RESOURCE);
            let hard = getrlimit(Resource::RLIMIT_CORE).map_or(0, |(_, hard)| hard);
            let core_max = if may_lower { u64::MAX } else { hard };
            Own { oom_score_adj: text.trim().parse().unwrap_or(0), may_lower, core_max }
        })
    }

    fn score(&self, launch: &Launch, rank: Rank) -> limits::OomScore {
        limits::oom_score(launch.oom_score_adj, rank, self.oom_score_adj, self.may_lower)
    }
}

/// Reads the effective set of a /proc/PID/status.
fn has_capability(status: &str, capability: u32) -> bool {
    let line = status.lines().find_map(|l| l.strip_prefix("CapEff:"));
    let set = line.and_then(|hex| u64::from_str_radix(hex.trim(), 16).ok()).unwrap_or(0);
    set >> capability & 1 == 1
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use std::fs;

    /// A cgroup of plain files: what the kernel would show, and what was written.
    struct Fake(tempfile::TempDir);

    impl Fake {
        fn new(controllers: &str, files: &[&str]) -> Fake {
            let dir = tempfile::tempdir().unwrap();
            fs::write(dir.path().join("cgroup.controllers"), controllers).unwrap();
            files.iter().for_each(|file| fs::write(dir.path().join(file), "max").unwrap());
            Fake(dir)
        }

        fn settle(&self, wanted: &Limits, part: &mut Part) {
            settle(Some(&Cgroup::at(self.0.path())), wanted, part);
        }

        fn text(&self, file: &str) -> String {
            fs::read_to_string(self.0.path().join(file)).unwrap()
        }
    }

    fn in_force(part: Part) -> InForce {
        InForce { begun: true, parts: [(Some(ComponentName::new("kine").unwrap()), part)].into(), said: Vec::new() }
    }

    fn group() -> GroupName {
        GroupName::new("demo").unwrap()
    }

    #[test]
    fn what_the_kernel_takes_is_in_force_and_what_it_does_not_have_is_named() {
        let cgroup = Fake::new("cpu memory", &["memory.max", "memory.high", "cpu.max"]);
        let wanted =
            Limits { memory_max: Some(1 << 20), cpu_millis: Some(500), pids_max: Some(9), ..Limits::default() };
        let mut part = Part::default();
        cgroup.settle(&wanted, &mut part);
        assert_eq!((cgroup.text("memory.max"), cgroup.text("cpu.max")), ("1048576".into(), "50000 100000".into()));
        let state = in_force(part);
        assert_eq!(state.bounds(), [("kine.cpu".to_string(), 500), ("kine.memory_max".into(), 1 << 20)].into());
        assert_eq!(state.missing(), ["kine.pids_max"]);
        let text = state.warning(&group()).unwrap();
        assert!(text.contains("group demo") && text.contains("kine.pids_max") && text.contains("ctl doctor"), "{text}");
        assert!(no_controller(true).contains("Delegate=yes") && no_controller(false).contains("cgroup2 folder"));
    }

    #[test]
    fn a_bound_that_is_refused_is_named_with_its_reason_and_tried_again() {
        let cgroup = Fake::new("pids", &[]);
        let wanted = Limits { pids_max: Some(9), ..Limits::default() };
        let mut part = Part::default();
        cgroup.settle(&wanted, &mut part);
        assert!(part.missing["pids_max"].contains("pids.max") && part.taken == Limits::default(), "{part:?}");
        fs::write(cgroup.0.path().join("pids.max"), "max").unwrap();
        cgroup.settle(&wanted, &mut part);
        assert!(part.missing.is_empty() && part.taken == wanted, "{part:?}");
        assert_eq!(in_force(part).warning(&group()), None);
    }

    #[test]
    fn a_changed_bound_is_written_and_one_that_is_gone_is_taken_back() {
        let cgroup = Fake::new("memory pids", &["memory.max", "pids.max"]);
        let first = Limits { memory_max: Some(1 << 20), pids_max: Some(9), ..Limits::default() };
        let mut part = Part::default();
        cgroup.settle(&first, &mut part);
        fs::write(cgroup.0.path().join("pids.max"), "untouched").unwrap();
        cgroup.settle(&Limits { memory_max: None, ..first }, &mut part);
        assert!(cgroup.text("memory.max").starts_with("max"), "a write replaces the start of a plain file");
        assert_eq!(cgroup.text("pids.max"), "untouched");
        cgroup.settle(&Limits::default(), &mut part);
        assert!(cgroup.text("pids.max").starts_with("max") && part.taken == Limits::default(), "{part:?}");
    }

    #[test]
    fn without_cgroups_every_bound_is_missing() {
        let mut part = Part::default();
        settle(None, &Limits { io_weight: Some(5), ..Limits::default() }, &mut part);
        assert_eq!(in_force(part).missing(), ["kine.io_weight"]);
        let wanted = Limits { io_weight: Some(5), ..Limits::default() };
        let mut lost = Part { taken: wanted, ..Part::default() };
        settle(None, &wanted, &mut lost);
        assert!(in_force(lost).bounds().is_empty(), "what lost its controller is in force no more");
    }

    #[test]
    fn a_capability_is_read_from_the_effective_set() {
        let status = |hex: &str| format!("Name:\tx\nCapPrm:\tffffffffff\nCapEff:\t{hex}\n");
        assert!(has_capability(&status("0000000001000000"), CAP_SYS_RESOURCE));
        assert!(!has_capability(&status("000001fffeffffff"), CAP_SYS_RESOURCE));
        assert!(!has_capability("", CAP_SYS_RESOURCE));
    }
}
