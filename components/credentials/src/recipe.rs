//! The component `credentials`, and what the launches of all tenant recipes have in common.

use crate::layout::Layout;
use socialweb_core::spec::{Backoff, ComponentSpec, Kind, Launch, Probe, Readiness, Restart, StopPolicy};
use socialweb_core::{ComponentName, Rank};
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

/// The first component of a tenant's group: a one-shot before kine and OpenBao.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Credentials {
    /// Absolute path of `socialweb-computer`.
    pub program: PathBuf,
    /// The group's state folder.
    pub group_dir: PathBuf,
}

impl Credentials {
    /// Its name in `needs`.
    pub const NAME: &'static str = "credentials";

    /// The component.
    pub fn component(&self) -> ComponentSpec {
        let layout = Layout::new(&self.group_dir);
        let argv = vec![
            path_text(&self.program),
            "internal".into(),
            "tenant-credentials".into(),
            "--group-dir".into(),
            path_text(&self.group_dir),
        ];
        one_shot(Self::NAME, 0, &[], layout.launch(argv, layout.group_dir().into()), Duration::from_secs(30))
    }
}

impl Layout {
    /// The environment of every tenant component: an allow-list, with nothing of the daemon's own in it. HOME and TMPDIR lie
    /// in the group's folder, so no program finds a KUBECONFIG or a history of the account that runs the daemon.
    pub fn environment(&self) -> BTreeMap<String, String> {
        BTreeMap::from([
            ("PATH".into(), "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin".into()),
            ("HOME".into(), path_text(self.group_dir())),
            ("TMPDIR".into(), path_text(&self.tmp())),
        ])
    }

    /// A launch of `argv` with [`Layout::environment`]. The open-file limit is the daemon's own hard limit: asking for more
    /// than that fails without privilege.
    pub fn launch(&self, argv: Vec<String>, cwd: PathBuf) -> Launch {
        let mut launch = Launch::new(argv, cwd);
        launch.env = self.environment();
        launch.dirs = vec![self.tmp()];
        launch
    }

    /// The same for a Go program: Landlock does not see the MPTCP sockets that Go would listen on.
    pub fn go_launch(&self, argv: Vec<String>, cwd: PathBuf) -> Launch {
        let mut launch = self.launch(argv, cwd);
        launch.env.insert("GODEBUG".into(), "multipathtcp=0".into());
        launch
    }
}

/// A task of the group as a component: it must end well once per start of the group, within `limit`.
pub fn one_shot(name: &str, rank: u16, needs: &[&str], launch: Launch, limit: Duration) -> ComponentSpec {
    ComponentSpec {
        name: component_name(name),
        rank: Rank(rank),
        needs: needs.iter().map(|n| component_name(n)).collect(),
        kind: Kind::OneShot,
        pre: Vec::new(),
        launch,
        post: Vec::new(),
        readiness: Readiness {
            probe: Probe::Running,
            interval: Duration::from_millis(250),
            timeout: Duration::from_secs(5),
            deadline: limit,
            cap: limit,
        },
        liveness: None,
        restart: Restart::Alone,
        backoff: Backoff::default(),
        stop: StopPolicy::term(Duration::from_secs(5)),
        limits: Default::default(),
    }
}

/// A name that is written in this source.
///
/// # Panics
/// When it is no DNS label: a test of each recipe would show it.
pub fn component_name(name: &str) -> ComponentName {
    ComponentName::new(name).expect("recipes name their components by DNS labels")
}

/// A path as an argument. The state folder's path is checked to be text when the config is read.
pub fn path_text(path: &std::path::Path) -> String {
    path.to_string_lossy().into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_whole_argv_and_environment() {
        let spec = Credentials { program: "/opt/sc".into(), group_dir: "/s/groups/demo".into() }.component();
        assert_eq!(spec.launch.argv, ["/opt/sc", "internal", "tenant-credentials", "--group-dir", "/s/groups/demo"]);
        let env: Vec<_> = spec.launch.env.iter().map(|(k, v)| format!("{k}={v}")).collect();
        let path = "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";
        assert_eq!(env, ["HOME=/s/groups/demo", path, "TMPDIR=/s/groups/demo/tmp"]);
        assert_eq!((spec.rank, spec.kind, spec.needs.len()), (Rank(0), Kind::OneShot, 0));
    }
}
