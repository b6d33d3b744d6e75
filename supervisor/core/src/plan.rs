//! What a changed spec means: per component the keys that changed and what each needs. Pure; a dry run prints it, a
//! reload applies it ([`crate::Event::Declared`]).

use crate::limits::Limits;
use crate::name::ComponentName;
use crate::spec::{ComponentSpec, GroupSpec};
use serde::{Deserialize, Serialize};

/// What has to happen so that a change takes effect.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Effect {
    /// Applied to what runs, without touching it: policy.
    InPlace,
    /// Takes effect when the whole group starts next: ranks are fixed per generation (law L2).
    NextStart,
    /// The component restarts.
    Restart,
    /// The component is new and starts.
    Start,
    /// The component is gone from the spec and stops.
    Stop,
}

/// One changed key of one component.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Change {
    /// Key as in [`ComponentSpec`]: `argv`, `env`, `readiness`, ...
    pub key: String,
    /// What it needs.
    pub effect: Effect,
}

/// The changes of one component, at least one.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ComponentPlan {
    /// The component.
    pub component: ComponentName,
    /// The strongest effect among the changes.
    pub effect: Effect,
    /// The changed keys; empty for Start and Stop.
    pub changes: Vec<Change>,
}

/// Compares what runs with what is declared now. An empty plan means that nothing changed for any component.
pub fn diff(old: &GroupSpec, new: &GroupSpec) -> Vec<ComponentPlan> {
    let mut plan = Vec::new();
    for component in &new.components {
        match old.component(&component.name) {
            None => plan.push(whole(component, Effect::Start)),
            Some(before) => plan.extend(diff_component(before, component)),
        }
    }
    for component in &old.components {
        if new.component(&component.name).is_none() {
            plan.push(whole(component, Effect::Stop));
        }
    }
    plan
}

fn whole(component: &ComponentSpec, effect: Effect) -> ComponentPlan {
    ComponentPlan { component: component.name.clone(), effect, changes: Vec::new() }
}

/// The changes between two specs of one component, if there are any.
pub fn diff_component(old: &ComponentSpec, new: &ComponentSpec) -> Option<ComponentPlan> {
    let (a, b) = (&old.launch, &new.launch);
    // A pre or post task matters at the next start: what runs has passed it. A need that this generation's fixed ranks
    // cannot carry waits for the group's next start, as the rank itself does.
    let checks: [(&str, bool, Effect); 17] = [
        ("argv", a.argv != b.argv, Effect::Restart),
        ("env", a.env != b.env, Effect::Restart),
        ("cwd", a.cwd != b.cwd, Effect::Restart),
        ("files", a.files != b.files || a.dirs != b.dirs, Effect::Restart),
        ("stale_sockets", a.stale_sockets != b.stale_sockets, Effect::InPlace),
        ("nofile", a.nofile != b.nofile, Effect::Restart),
        ("core_limit", a.core_limit != b.core_limit, Effect::Restart),
        ("oom_score_adj", a.oom_score_adj != b.oom_score_adj, Effect::Restart),
        ("kind", old.kind != new.kind, Effect::Restart),
        ("rank", old.rank != new.rank, Effect::NextStart),
        ("needs", old.needs != new.needs, Effect::InPlace),
        ("pre", old.pre != new.pre, Effect::InPlace),
        ("post", old.post != new.post, Effect::InPlace),
        ("readiness", old.readiness != new.readiness, Effect::InPlace),
        ("liveness", old.liveness != new.liveness, Effect::InPlace),
        ("restart", old.restart != new.restart || old.backoff != new.backoff, Effect::InPlace),
        ("stop", old.stop != new.stop, Effect::InPlace),
    ];
    let changes = checks.into_iter().filter(|(_, changed, _)| *changed);
    let changes = changes.map(|(key, _, effect)| Change { key: key.to_string(), effect });
    let changes: Vec<Change> = changes.chain(limits(&old.limits, &new.limits)).collect();
    let effect = changes.iter().map(|c| c.effect).max()?;
    Some(ComponentPlan { component: new.name.clone(), effect, changes })
}

/// The changed keys of the group as a whole. None of them touches what runs.
pub fn diff_group(old: &GroupSpec, new: &GroupSpec) -> Vec<Change> {
    let in_place = |key: &str| Change { key: key.into(), effect: Effect::InPlace };
    let bringup = (old.bringup != new.bringup).then(|| in_place("bringup"));
    let bytes = (old.cores.bytes != new.cores.bytes).then(|| in_place("limits.core_bytes"));
    let count = (old.cores.count != new.cores.count).then(|| in_place("limits.core_count"));
    bringup.into_iter().chain(limits(&old.limits, &new.limits)).chain(bytes).chain(count).collect()
}

/// The kernel takes another bound at any time.
fn limits<'a>(old: &'a Limits, new: &'a Limits) -> impl Iterator<Item = Change> + 'a {
    let change = |bound: crate::limits::Bound| Change { key: format!("limits.{bound}"), effect: Effect::InPlace };
    old.changed(new).into_iter().map(change)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::name::{GroupName, Rank};
    use crate::spec::{
        Backoff, Bringup, FileSpec, Kind, Launch, Liveness, Probe, Readiness, Restart, StopPolicy, Task,
    };
    use std::time::Duration;

    const SECOND: Duration = Duration::from_secs(1);

    fn component(name: &str) -> ComponentSpec {
        ComponentSpec {
            name: ComponentName::new(name).unwrap(),
            rank: Rank(1),
            needs: vec![],
            kind: Kind::Service,
            pre: vec![],
            launch: Launch::new(vec!["/bin/x".into()], "/"),
            post: vec![],
            readiness: Readiness {
                probe: Probe::Running,
                interval: SECOND,
                timeout: SECOND,
                deadline: SECOND,
                cap: SECOND,
            },
            liveness: None,
            restart: Restart::Alone,
            backoff: Backoff::default(),
            stop: StopPolicy::term(SECOND),
            limits: Limits::default(),
        }
    }

    fn group(names: &str) -> GroupSpec {
        let components = names.split_whitespace().map(|name| component(name).into()).collect();
        let name = GroupName::new("demo").unwrap();
        let (limits, cores) = Default::default();
        GroupSpec { name, ports: Default::default(), components, bringup: Bringup::default(), limits, cores }
    }

    fn check(expect: &str, change: impl FnOnce(&mut ComponentSpec)) {
        let old = group("a b");
        let mut new = old.clone();
        change(&mut new.components[0]);
        let plan = diff(&old, &new);
        let said: Vec<String> = plan
            .iter()
            .map(|p| {
                let keys: Vec<_> = p.changes.iter().map(|c| format!("{}={:?}", c.key, c.effect)).collect();
                format!("{} {:?} {}", p.component, p.effect, keys.join(" "))
            })
            .collect();
        assert_eq!(said.join("; ").trim(), expect);
    }

    #[test]
    fn each_key_says_what_its_change_needs() {
        check("", |_| {});
        check("a Restart argv=Restart", |c| c.launch.argv.push("-v".into()));
        check("a Restart env=Restart", |c| drop(c.launch.env.insert("A".into(), "1".into())));
        check("a Restart cwd=Restart", |c| c.launch.cwd = "/tmp".into());
        check("a Restart files=Restart", |c| {
            c.launch.files.push(FileSpec { path: "/f".into(), mode: 0o600, content: String::new() });
        });
        check("a Restart files=Restart", |c| c.launch.dirs.push("/d".into()));
        check("a InPlace stale_sockets=InPlace", |c| c.launch.stale_sockets.push("/s".into()));
        check("a Restart nofile=Restart", |c| c.launch.nofile = Some(9));
        check("a Restart core_limit=Restart", |c| c.launch.core_limit = 1);
        check("a Restart oom_score_adj=Restart", |c| c.launch.oom_score_adj = Some(1));
        check("a Restart kind=Restart", |c| c.kind = Kind::OneShot);
        check("a NextStart rank=NextStart", |c| c.rank = Rank(2));
        check("a InPlace needs=InPlace", |c| c.needs.push(ComponentName::new("b").unwrap()));
        let task = || Task { launch: Launch::new(vec![], "/"), timeout: SECOND };
        check("a InPlace pre=InPlace", |c| c.pre.push(task()));
        check("a InPlace post=InPlace", |c| c.post.push(task()));
        check("a InPlace readiness=InPlace", |c| c.readiness.cap = SECOND * 2);
        check("a InPlace liveness=InPlace", |c| {
            c.liveness = Some(Liveness { probe: Probe::Notify, interval: SECOND, timeout: SECOND, failures: 3 });
        });
        check("a InPlace restart=InPlace", |c| c.restart = Restart::Never);
        check("a InPlace restart=InPlace", |c| c.backoff.limit = 1);
        check("a InPlace stop=InPlace", |c| c.stop.grace = SECOND * 2);
        check("a InPlace limits.memory_max=InPlace", |c| c.limits.memory_max = Some(1));
        check("a InPlace limits.cpu=InPlace limits.pids_max=InPlace", |c| {
            c.limits = Limits { cpu_millis: Some(1), pids_max: Some(1), ..c.limits };
        });
    }

    #[test]
    fn a_change_of_the_group_as_a_whole_touches_nothing() {
        let old = group("a");
        let mut new = old.clone();
        assert_eq!(diff_group(&old, &new), []);
        new.limits.memory_max = Some(1);
        new.cores.count = 9;
        new.bringup.cap = SECOND;
        let said: Vec<_> = diff_group(&old, &new).into_iter().map(|c| (c.key, c.effect)).collect();
        let want = ["bringup", "limits.memory_max", "limits.core_count"].map(|key| (key.to_string(), Effect::InPlace));
        assert_eq!(said, want);
        assert_eq!(diff(&old, &new), []);
    }

    #[test]
    fn the_strongest_change_decides() {
        check("a NextStart rank=NextStart stop=InPlace", |c| {
            c.rank = Rank(2);
            c.stop.signal = 2;
        });
        check("a Restart argv=Restart rank=NextStart", |c| {
            c.rank = Rank(2);
            c.launch.argv.clear();
        });
    }

    #[test]
    fn new_ones_start_and_missing_ones_stop() {
        let plan = diff(&group("a b"), &group("b c"));
        let said: Vec<_> = plan.iter().map(|p| (p.component.as_str(), p.effect, p.changes.len())).collect();
        assert_eq!(said, [("c", Effect::Start, 0), ("a", Effect::Stop, 0)]);
    }
}
