//! Output without end: nobody waits for it, every line is kept or counted, and the log says how many are missing.

use crate::support::{Daemon, wait_for};
use crate::{STEADY, script};
use socialweb_wire::{LogCounts, Phase};
use std::fs;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// Files that no test of this room rotates.
const LOGS: &str = "[log]\njournal = \"never\"\nmax_file_bytes = \"512MiB\"\n";

fn counts(daemon: &Daemon, group: &str) -> LogCounts {
    daemon.group(group).components[0].log.unwrap_or_default()
}

/// Waits until nothing of the group's lines is on its way, and so many were read.
fn settled(daemon: &Daemon, group: &str, lines: u64) -> LogCounts {
    wait_for("all lines are kept or dropped", || {
        let now = counts(daemon, group);
        (now.lines >= lines && now.waiting == 0).then_some(now)
    })
}

/// The sum of what the file says is missing, and its lines.
fn read_log(daemon: &Daemon, group: &str, component: &str) -> (u64, Vec<String>) {
    let file = daemon.state().join(format!("groups/{group}/logs/{component}.log"));
    // Not there until something is kept.
    let text = fs::read_to_string(file).unwrap_or_default();
    let told = |line: &str| {
        let (before, _) = line.split_once(" lines were dropped here")?;
        before.rsplit('(').next()?.parse::<u64>().ok()
    };
    let missing = text.lines().filter_map(told).sum();
    (missing, text.lines().filter(|line| told(line).is_none()).map(str::to_string).collect())
}

/// Three times a restart of the steady group and a status; the median.
fn restart_time(daemon: &Daemon) -> Duration {
    let mut times: Vec<Duration> = (0..3)
        .map(|_| {
            let began = Instant::now();
            daemon.ctl_ok(&["restart", "steady/steady"]);
            daemon.status();
            began.elapsed()
        })
        .collect();
    times.sort();
    times[1]
}

#[test]
fn a_flood_of_one_child_keeps_no_other_group_waiting() {
    let text = "while [ ! -e go ]; do sleep 0.05; done; yes 0123456789012345678901234567890123456789 & \
                while [ ! -e halt ]; do sleep 0.05; done; kill $!; wait; echo; echo the-end; exec sleep 100000";
    let loud = script("loud", text, "");
    let mut daemon = Daemon::started(LOGS, &[("loud", &loud), ("steady", STEADY)]);
    daemon.wait_phase("steady", Phase::Ready);
    daemon.wait_phase("loud", Phase::Ready);
    let quiet = restart_time(&daemon);
    fs::write(daemon.state().join("groups/loud/loud/go"), "").unwrap();
    wait_for("the flood has begun", || (counts(&daemon, "loud").lines > 10_000).then_some(()));
    let before = counts(&daemon, "loud").lines;
    let flooded = restart_time(&daemon);
    assert!(counts(&daemon, "loud").lines > before, "the flood went on meanwhile");
    // A ratio, and a generous one: it tells a loop that waits for a flood from one that shares two cores with it.
    let most = (quiet * 100).max(Duration::from_secs(20));
    assert!(flooded < most, "a restart beside the flood took {flooded:?}, without it {quiet:?}");
    let group = daemon.group("loud");
    assert_eq!((group.phase, group.components[0].restarts), (Phase::Ready, 0));
    fs::write(daemon.state().join("groups/loud/loud/halt"), "").unwrap();
    wait_for("the flood is over", || daemon.ctl_ok(&["logs", "loud", "-n", "1"]).contains("the-end").then_some(()));
    let end = settled(&daemon, "loud", before);
    assert_eq!(end.lines, end.written + end.dropped, "{end:?}");
    let (missing, lines) = read_log(&daemon, "loud", "loud");
    assert_eq!((lines.len() as u64, missing), (end.written, end.dropped));
    daemon.stop();
    daemon.assert_nothing_left();
}

/// habitat-sh/habitat 2395: a pipe that is made and never read.
#[test]
fn both_outputs_are_drained_and_counted_to_the_last_line() {
    let text = "yes out | head -n 100000 & yes err | head -n 100000 >&2 & wait; echo the-end; exec sleep 100000";
    let ready = "readiness = { kind = \"log-line\", contains = \"the-end\" }";
    let mut daemon = Daemon::started(LOGS, &[("both", &script("both", text, ready))]);
    daemon.wait_phase("both", Phase::Ready);
    let end = settled(&daemon, "both", 200_001);
    assert_eq!((end.lines, end.written + end.dropped), (200_001, 200_001));
    let (missing, lines) = read_log(&daemon, "both", "both");
    assert_eq!((lines.len() as u64, missing), (end.written, end.dropped));
    daemon.stop();
}

/// Supervisor/supervisor 240.
#[test]
fn a_log_file_that_is_removed_or_moved_away_is_made_anew() {
    let text = "n=0; while :; do n=$((n+1)); echo line $n; sleep 0.02; done";
    let mut daemon = Daemon::started(LOGS, &[("writer", &script("writer", text, ""))]);
    let pid = daemon.wait_phase("writer", Phase::Ready).components[0].pid;
    let log = daemon.state().join("groups/writer/logs/writer.log");
    let there = || fs::read_to_string(&log).ok().filter(|text| text.lines().count() > 2);
    wait_for("there is a log", there);
    fs::remove_file(&log).unwrap();
    wait_for("there is a log again", there);
    fs::rename(&log, log.with_extension("moved")).unwrap();
    wait_for("there is a log once more", there);
    fs::remove_dir_all(log.parent().unwrap()).unwrap();
    wait_for("its folder is made anew too", there);
    assert_eq!(counts(&daemon, "writer").dropped, 0);
    assert_eq!(daemon.group("writer").components[0].pid, pid);
    daemon.stop();
}

#[test]
fn a_follower_that_does_not_read_holds_nobody_up() {
    let loud = script("loud", "exec yes 0123456789012345678901234567890123456789", "");
    let mut daemon = Daemon::started(LOGS, &[("loud", &loud), ("steady", STEADY)]);
    daemon.wait_phase("loud", Phase::Ready);
    daemon.wait_phase("steady", Phase::Ready);
    let follow = |_| {
        let mut ctl = Command::new(crate::support::PROGRAM);
        ctl.args(["ctl", "-socket"]).arg(daemon.runtime.join("admin.sock")).args(["logs", "-f", "loud"]);
        ctl.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap()
    };
    let mut followers: Vec<_> = (0..3).map(follow).collect();
    wait_for("they are served", || {
        let metrics = daemon.ctl_ok(&["metrics"]);
        metrics.lines().any(|l| l.starts_with("socialweb_admin_streams") && l.ends_with(" 3")).then_some(())
    });
    let before = counts(&daemon, "loud").lines;
    wait_for("the flood goes on", || (counts(&daemon, "loud").lines > before + 20_000).then_some(()));
    daemon.ctl_ok(&["restart", "steady/steady"]);
    daemon.ctl_ok(&["stop", "loud"]);
    daemon.stop();
    daemon.assert_nothing_left();
    for follower in &mut followers {
        let _ = follower.kill();
        follower.wait().unwrap();
    }
}

#[test]
fn a_grandchild_that_holds_the_pipe_is_heard_to_its_end_and_holds_up_no_stop() {
    let text = r#"
kind = "exec"
[[component]]
name = "parent"
argv = ["sh", "-c", '''trap "echo leader-ends; exit 0" TERM; (trap "" TERM; while :; do echo grandchild; sleep 0.05; done) & while :; do sleep 0.05; done''']
env = { PATH = "/usr/bin:/bin" }
stop = { grace = "5s" }
"#;
    let mut daemon = Daemon::started(LOGS, &[("family", text)]);
    daemon.wait_phase("family", Phase::Ready);
    wait_for("the grandchild speaks", || (counts(&daemon, "family").lines > 2).then_some(()));
    daemon.ctl_ok(&["stop", "family"]);
    wait_for("the grandchild spoke after the leader's end", || {
        let (_, lines) = read_log(&daemon, "family", "parent");
        let end = lines.iter().position(|line| line.contains("leader-ends"))?;
        lines[end..].iter().any(|line| line.contains("grandchild")).then_some(())
    });
    daemon.stop();
    daemon.assert_nothing_left();
}
