//! Where in a cluster file a changed key of a component was set: the last column of a reload's plan.

use super::cluster::ClusterConfig;
use super::finding::Position;
use super::source::Step;
use socialweb_core::ComponentName;

/// The place of what sets `key` (as in `core::plan`) of `component`. A component that the file lists has at least its
/// table; of the tenant's own only what the file overrides has a place.
pub fn locate(cluster: &ClusterConfig, component: &ComponentName, key: &str) -> Option<Position> {
    let source = &cluster.source;
    if let Some(index) = source.component(component.as_str()) {
        let table: [Step<'_>; 2] = ["component".into(), index.into()];
        let keys = listed_keys(key).iter().chain([&key]);
        let mut places = keys.filter_map(|key| {
            let way: Vec<Step<'_>> = table.into_iter().chain(key.split('.').map(Step::Key)).collect();
            source.locate(&way)
        });
        return places.next().or_else(|| source.locate(&table));
    }
    let name = Step::Key(component.as_str());
    if let Some(bound) = key.strip_prefix("limits.") {
        return source.locate(&[Step::Key("limits"), name, Step::Key(bound)]);
    }
    own_keys(component.as_str(), key).iter().find_map(|steps| {
        let steps: Vec<Step<'_>> = steps.iter().map(|s| if *s == NAME { name } else { Step::Key(s) }).collect();
        source.locate(&steps)
    })
}

/// The place of what sets `key` (as in `core::plan::diff_group`) of the group as a whole.
pub fn locate_group(cluster: &ClusterConfig, key: &str) -> Option<Position> {
    cluster.source.locate(&key.split('.').map(Step::Key).collect::<Vec<_>>())
}

/// Keys of a `[[component]]` that feed a key of the spec which is named otherwise.
fn listed_keys(key: &str) -> &'static [&'static str] {
    match key {
        "env" => &["env", "env_pass"],
        "rank" => &["rank", "needs"],
        "stale_sockets" => &["readiness"],
        "pre" => &["pre", "hook_timeout"],
        "post" => &["post", "hook_timeout"],
        "restart" => &["restart", "backoff"],
        "core_limit" => &["limits.core_max"],
        _ => &[],
    }
}

/// Stands for the component's name in a way.
const NAME: &str = "NAME";

/// Ways to what a tenant's file says of one of the tenant's own components.
fn own_keys(component: &str, key: &str) -> &'static [&'static [&'static str]] {
    match (component, key) {
        ("k3s", "argv" | "files") => &[&["tls_san"], &["account"]],
        ("kine", "argv" | "env" | "files") => &[&["kine", "dsn_file"]],
        (_, "readiness") => &[&["timeouts", NAME, "deadline"], &["timeouts", NAME, "cap"]],
        (_, "stop") => &[&["timeouts", NAME, "grace"], &["timeouts", NAME, "grace_restart"]],
        (_, "liveness") => &[&["liveness"]],
        (_, "core_limit") => &[&["limits", NAME, "core_max"]],
        _ => &[],
    }
}
