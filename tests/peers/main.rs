//! What went wrong in other supervisors, tried on ours: each test names the public report whose scenario it plays, with a
//! real daemon and real processes. docs/promises.md lists all reports and where each is proven.
#![allow(clippy::unwrap_used)]

#[path = "../support/mod.rs"]
mod support;

mod children;
mod crashes;
mod operators;
mod stops;
mod teardown;

use socialweb_wire::Phase;
pub use support::texts::SUPERVISOR;
use support::{Daemon, wait_for};

/// A short grace for what never follows TERM: its kill is what a test waits for.
pub const SHORT: &str = "stop = { grace = \"1s\" }";

/// A grace that no test outlasts: what ends within it ended by itself.
pub const ENDLESS: &str = "stop = { grace = \"1h\" }";

/// For a script that says `set` once it is ready to be told to stop: before that the signal would meet no trap.
pub const WHEN_SET: &str = "readiness = { kind = \"log-line\", contains = \"set\" }";

/// One component: a shell script in its own folder.
pub fn component(name: &str, script: &str, more: &str) -> String {
    format!(
        "[[component]]\nname = \"{name}\"\nargv = [\"sh\", \"-c\", '''{script}''']\nenv = {{ PATH = \"/usr/bin:/bin\" }}\n{more}\n"
    )
}

/// A group of them.
pub fn group(components: &[String]) -> String {
    format!("kind = \"exec\"\n{}", components.concat())
}

/// A daemon with the group `g` of one component `c`, Ready.
pub fn ready(script: &str, more: &str) -> Daemon {
    let daemon = Daemon::started(SUPERVISOR, &[("g", &group(&[component("c", script, more)]))]);
    daemon.wait_phase("g", Phase::Ready);
    daemon
}

/// Waits until exactly `n` processes of this daemon's groups run; their pids.
pub fn wait_processes(daemon: &Daemon, n: usize) -> Vec<u32> {
    wait_for(&format!("{n} processes run"), || {
        let pids: Vec<u32> = daemon.marked().into_iter().map(|(pid, _)| pid).collect();
        (pids.len() == n).then_some(pids)
    })
}

/// The same, when all of them are `sleep`: a shell that is about to end, or to become one, is not taken for one of them.
pub fn wait_sleeps(daemon: &Daemon, n: usize) -> Vec<u32> {
    wait_for(&format!("{n} processes sleep"), || {
        let marked = daemon.marked();
        let all = marked.len() == n && marked.iter().all(|(_, comm)| comm == "sleep");
        all.then(|| marked.into_iter().map(|(pid, _)| pid).collect())
    })
}

/// What a component wrote to a file of its folder.
pub fn wrote(daemon: &Daemon, group: &str, file: &str) -> Option<String> {
    std::fs::read_to_string(daemon.state().join("groups").join(group).join(file)).ok()
}

/// Waits for that file to say something.
pub fn wait_wrote(daemon: &Daemon, group: &str, file: &str) -> String {
    wait_for(&format!("{group} writes {file}"), || wrote(daemon, group, file).filter(|text| text.ends_with('\n')))
}

/// Stops the group `g`: nothing of it is left when that says that it is done, nor after the daemon.
pub fn stop_leaves_nothing(mut daemon: Daemon) {
    daemon.ctl_ok(&["stop", "g"]);
    assert_eq!(daemon.marked(), [], "the stop said that it is done\n{}", daemon.log());
    assert!(daemon.receipts("g").last().expect("a stop has a receipt").removed);
    daemon.stop();
    daemon.assert_nothing_left();
}
