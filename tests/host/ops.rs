//! What an operator has when something is wrong: doctor, drill, bundle, and a ctl that does not hang with its daemon.

use crate::support::{Daemon, PROGRAM, long, send, skip, wait_for};
use crate::{STEADY, SUPERVISOR, script};
use nix::sys::signal::Signal;
use serde_json::Value;
use socialweb_wire::{Check, Health, Phase, Report};
use std::fs;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::time::Instant;

/// ctl without a socket by which it would find another daemon.
fn ctl(args: &[&str], at: &Path) -> Output {
    let mut command = Command::new(PROGRAM);
    command.arg("ctl").arg("-socket").arg(at.join("admin.sock")).args(args).output().unwrap()
}

fn report(out: &Output) -> Report {
    serde_json::from_slice(&out.stdout).unwrap_or_else(|error| panic!("no report ({error}): {out:?}"))
}

fn check<'a>(report: &'a Report, name: &str) -> &'a Check {
    report.checks.iter().find(|c| c.name == name).unwrap_or_else(|| panic!("no check {name}: {report:#?}"))
}

fn doctor(daemon: &Daemon) -> Report {
    let config = daemon.dir.join("supervisor.toml");
    report(&daemon.ctl(&["doctor", "-o", "json", "--config", config.to_str().unwrap()]))
}

// ---- doctor -----------------------------------------------------------------------------------------------------------

#[test]
fn doctor_reads_a_running_daemon_and_its_table_is_one_line_a_check() {
    let mut daemon = Daemon::started(SUPERVISOR, &[("steady", STEADY)]);
    daemon.wait_phase("steady", Phase::Ready);
    // Without -config: flags and PATH are the daemon's.
    let found = report(&daemon.ctl(&["doctor", "-o", "json"]));
    assert_eq!(check(&found, "daemon").health, Health::Ok, "{found:#?}");
    assert!(found.subject.contains(&format!("pid {}", daemon.pid())), "{}", found.subject);
    assert!(check(&found, "configuration").text.contains("1 groups"), "{found:#?}");
    assert!(check(&found, "program").text.contains("the daemon's PATH"), "{found:#?}");
    let state = daemon.state().display().to_string();
    assert!(check(&found, "state folder").text.contains(&state), "{found:#?}");
    let table = String::from_utf8(daemon.ctl(&["doctor"]).stdout).unwrap();
    assert!(table.lines().any(|line| line.starts_with("ok    daemon")), "{table}");
    assert_eq!(pids(&daemon), pids(&daemon), "it touches nothing");
    daemon.stop();
}

fn pids(daemon: &Daemon) -> Vec<Option<u32>> {
    daemon.status().groups.iter().flat_map(|g| g.components.iter().map(|c| c.pid)).collect()
}

#[test]
fn doctor_without_a_daemon_names_what_the_killed_one_left() {
    let mut daemon = Daemon::started(SUPERVISOR, &[("steady", STEADY)]);
    let pid = daemon.wait_phase("steady", Phase::Ready).components[0].pid.unwrap();
    daemon.kill_9();
    let out = {
        let config = daemon.dir.join("supervisor.toml");
        let state = daemon.state();
        ctl(
            &["doctor", "-o", "json", "--config", config.to_str().unwrap(), "--state-dir", state.to_str().unwrap()],
            &daemon.runtime,
        )
    };
    let found = report(&out);
    assert_eq!(out.status.code(), Some(1), "a failure is exit code 1: {found:#?}");
    let left = check(&found, "leftovers");
    assert_eq!(left.health, Health::Fail, "{left:?}");
    assert!(left.text.contains(&format!("pid {pid} (sleep)")) && left.fix.contains("start the daemon"), "{left:?}");
    assert_eq!(check(&found, "daemon").health, Health::Warn);
    daemon.start();
    daemon.wait_phase("steady", Phase::Ready);
    let own = format!("of {}/", socialweb_daemon::state_id(&daemon.state()));
    let after = doctor(&daemon);
    assert!(!check(&after, "leftovers").text.contains(&own), "{after:#?}");
    daemon.stop();
}

#[test]
fn doctor_finds_faults_of_a_configuration_without_a_daemon() {
    let daemon = Daemon::new(SUPERVISOR, &[("broken", "this is no toml")]);
    let config = daemon.dir.join("supervisor.toml");
    let out = ctl(&["doctor", "-o", "json", "--config", config.to_str().unwrap()], &daemon.runtime);
    let found = report(&out);
    assert_eq!((out.status.code(), check(&found, "configuration").health), (Some(1), Health::Fail), "{found:#?}");
    assert!(check(&found, "configuration").text.contains("broken.toml"), "{found:#?}");
}

// ---- a daemon that hangs ----------------------------------------------------------------------------------------------

#[test]
fn a_stopped_daemon_is_told_with_pid_and_state_and_doctor_and_bundle_go_on() {
    let never = "readiness = { kind = \"tcp\", address = \"127.0.0.1:1\", deadline = \"20m\" }";
    let slow = script("slow", "exec sleep 100000", never);
    let mut daemon = Daemon::started(SUPERVISOR, &[("slow", &slow), ("steady", STEADY)]);
    daemon.wait_phase("steady", Phase::Ready);
    let pid = daemon.pid();
    let mut waits = Command::new(PROGRAM);
    waits.arg("ctl").arg("-socket").arg(daemon.runtime.join("admin.sock")).args(["start", "slow"]);
    let mut waits = waits.stderr(Stdio::piped()).spawn().unwrap();
    let mut said = std::io::BufReader::new(waits.stderr.take().unwrap());
    std::io::BufRead::read_line(&mut said, &mut String::new()).unwrap();
    daemon.signal(Signal::SIGSTOP);
    let began = Instant::now();
    let out = daemon.ctl(&["status"]);
    let text = String::from_utf8_lossy(&out.stderr).into_owned();
    assert_eq!(out.status.code(), Some(3), "{out:?}");
    assert!(text.contains(&format!("pid {pid}, stopped (T)")), "{text}");
    assert!(began.elapsed().as_secs() < 80, "it is told before the answer's own limit of 90 s: {:?}", began.elapsed());
    assert_eq!(waits.wait().unwrap().code(), Some(3), "who waits is told too");
    let found = doctor(&daemon);
    assert!(check(&found, "daemon").text.contains("it is stopped"), "{found:#?}");
    assert!(check(&found, "daemon").fix.contains(&format!("kill -CONT {pid}")), "{found:#?}");
    let file = daemon.dir.join("bundle.tar");
    let out = daemon.ctl(&["bundle", file.to_str().unwrap()]);
    assert!(out.status.success() && file.is_file(), "{out:?}");
    daemon.signal(Signal::SIGCONT);
    daemon.wait_phase("steady", Phase::Ready);
    daemon.stop();
    daemon.assert_nothing_left();
}

// ---- drill ------------------------------------------------------------------------------------------------------------

/// The report of a drill, and that it left nothing.
fn drill(daemon: &Daemon) -> Report {
    let found = report(&daemon.ctl(&["drill", "-o", "json"]));
    assert!(daemon.status().group("socialweb-drill").is_none(), "{found:#?}");
    assert!(!daemon.state().join("groups/socialweb-drill").exists(), "{found:#?}");
    found
}

fn assert_passed(found: &Report, allowed: &[&str], daemon: &Daemon) {
    let bad: Vec<&Check> =
        found.checks.iter().filter(|c| c.health != Health::Ok && !allowed.contains(&c.name.as_str())).collect();
    assert!(bad.is_empty() && found.health != Health::Fail, "{bad:#?}\n{}", daemon.log());
}

#[test]
fn a_drill_passes_leaves_nothing_and_touches_no_other_group() {
    let mut daemon = Daemon::started(SUPERVISOR, &[("steady", STEADY)]);
    let before = daemon.wait_phase("steady", Phase::Ready);
    for _ in 0..2 {
        let found = drill(&daemon);
        // Without controllers no bound is kept, and the drill says so.
        let weak: &[&str] = if crate::support::cgroup2_mount().is_some() {
            &["containment"]
        } else {
            &["frozen-cgroup", "containment"]
        };
        assert_passed(&found, weak, &daemon);
        assert!(check(&found, "fork-bomb").took_ms.is_some(), "{found:#?}");
    }
    let after = daemon.group("steady");
    assert_eq!((after.phase, after.components[0].pid), (Phase::Ready, before.components[0].pid));
    daemon.stop();
    daemon.assert_nothing_left();
}

#[test]
fn a_drill_without_cgroups_passes_and_says_what_is_weak() {
    let mut daemon = Daemon::new(SUPERVISOR, &[]).without_cgroups();
    daemon.start();
    let found = drill(&daemon);
    assert_passed(&found, &["frozen-cgroup", "containment"], &daemon);
    assert_eq!(check(&found, "containment").health, Health::Warn, "{found:#?}");
    daemon.stop();
    daemon.assert_nothing_left();
}

#[test]
fn a_drill_whose_daemon_was_killed_is_deleted_by_the_next_one() {
    let mut daemon = Daemon::started(SUPERVISOR, &[("steady", STEADY)]);
    daemon.wait_phase("steady", Phase::Ready);
    let socket = daemon.runtime.join("admin.sock");
    let mut client = Command::new(PROGRAM);
    let client = client.arg("ctl").arg("-socket").arg(&socket).arg("drill").stdout(Stdio::piped()).spawn().unwrap();
    wait_for("the drill has processes", || {
        let group = daemon.try_status()?.group("socialweb-drill")?.clone();
        group.components.iter().any(|c| c.pid.is_some()).then_some(())
    });
    daemon.kill_9();
    let out = client.wait_with_output().unwrap();
    let told = String::from_utf8_lossy(&out.stdout).into_owned();
    assert_eq!(out.status.code(), Some(1), "a drill whose daemon dies is no success: {told}");
    assert!(told.contains("left after the stop: pid "), "what is left is named: {told}");
    daemon.start();
    let found = drill(&daemon);
    assert_passed(&found, &["frozen-cgroup", "containment"], &daemon);
    daemon.wait_phase("steady", Phase::Ready);
    daemon.stop();
    daemon.assert_nothing_left();
}

#[test]
fn a_drill_that_is_cut_off_by_its_client_is_deleted_by_the_next_one_and_a_reload_leaves_it_alone() {
    let mut daemon = Daemon::started(SUPERVISOR, &[("steady", STEADY)]);
    let socket = daemon.runtime.join("admin.sock");
    let mut client = Command::new(PROGRAM).arg("ctl").arg("-socket").arg(&socket).arg("drill").spawn().unwrap();
    wait_for("the drill is there", || daemon.try_status()?.group("socialweb-drill").map(|_| ()));
    // It must not be through before the second one looks.
    send(client.id(), Signal::SIGSTOP as i32);
    let second = daemon.ctl(&["drill"]);
    let busy = String::from_utf8_lossy(&second.stderr).into_owned();
    send(client.id(), 9);
    client.wait().unwrap();
    assert_eq!(second.status.code(), Some(1), "two drills at once are refused: {second:?}");
    assert!(busy.contains("another drill is under way"), "{busy}");
    daemon.ctl_ok(&["reload"]);
    let found = drill(&daemon);
    assert_passed(&found, &["frozen-cgroup", "containment"], &daemon);
    daemon.stop();
    daemon.assert_nothing_left();
}

#[test]
fn a_drill_as_an_account_without_root_passes_in_what_was_delegated() {
    let name = "a_drill_as_an_account_without_root_passes_in_what_was_delegated";
    let Some(mut daemon) = Daemon::new(SUPERVISOR, &[]).run_as_nobody() else {
        return skip(name, "root: no cgroup can be handed to another account");
    };
    daemon.start();
    let found = drill(&daemon);
    assert_passed(&found, &["containment"], &daemon);
    daemon.stop();
    daemon.assert_nothing_left();
}

#[test]
fn a_drill_without_room_on_the_disk_is_refused_and_leaves_nothing() {
    let mut daemon = Daemon::new(SUPERVISOR, &[]).with_env("SOCIALWEB_FAILPOINT", "disk-record:1=enospc");
    daemon.start();
    let refused = daemon.ctl(&["drill"]);
    let text = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert_eq!(refused.status.code(), Some(1), "{refused:?}");
    assert!(text.contains("nothing was started"), "{text}");
    assert!(daemon.status().group("socialweb-drill").is_none());
    assert!(!daemon.state().join("groups/socialweb-drill").exists());
    let found = drill(&daemon);
    assert_passed(&found, &["frozen-cgroup", "containment"], &daemon);
    daemon.stop();
    daemon.assert_nothing_left();
}

#[test]
fn a_drill_under_a_broken_supervisor_fails_and_says_what_is_wrong() {
    for (fault, name, words) in
        [("l14-receipt-lost", "stop", "no receipt"), ("l3-group-not-removed", "nothing left", "socialweb-drill")]
    {
        if fault.starts_with("l3") && crate::support::cgroup2_mount().is_none() {
            continue;
        }
        let mut daemon = Daemon::new(SUPERVISOR, &[]).with_env("SOCIALWEB_MUTANT", fault);
        daemon.start();
        let out = daemon.ctl(&["drill", "-o", "json"]);
        let found = report(&out);
        assert_eq!(out.status.code(), Some(1), "{fault}: {found:#?}");
        let check = check(&found, name);
        assert!(check.health == Health::Fail && check.text.contains(words), "{fault}: {found:#?}");
    }
}

#[test]
fn a_drill_under_a_supervisor_that_kills_nobody_names_every_case_that_is_left() {
    if !long("a_drill_under_a_supervisor_that_kills_nobody_names_every_case_that_is_left") {
        return;
    }
    let mut daemon = Daemon::new(SUPERVISOR, &[]).with_env("SOCIALWEB_MUTANT", "l6-no-kill");
    daemon.start();
    let out = daemon.ctl(&["drill", "-o", "json", "--timeout", "60s"]);
    // What it does not kill it waits for.
    daemon.kill_9();
    let found = report(&out);
    assert_eq!(out.status.code(), Some(1), "{found:#?}");
    for case in ["double-fork", "own-session", "ignores-term", "fork-bomb"] {
        assert!(check(&found, case).text.contains("left after the stop: pid "), "{case}: {found:#?}");
    }
}

#[test]
fn no_cluster_file_may_have_the_drills_name() {
    let mut daemon = Daemon::started(SUPERVISOR, &[("socialweb-drill", STEADY), ("steady", STEADY)]);
    daemon.wait_phase("steady", Phase::Ready);
    let status = daemon.status();
    let refused = status.group("socialweb-drill").unwrap();
    assert!(refused.phase == Phase::Absent && refused.reason.contains("ctl drill"), "{status:#?}");
    assert!(status.warnings.iter().any(|w| w.contains("ctl drill")), "{status:#?}");
    daemon.stop();
}

// ---- bundle -----------------------------------------------------------------------------------------------------------

#[test]
fn a_bundle_of_a_running_daemon_holds_what_helps_and_no_secret() {
    let leaky = script(
        "leaky",
        "echo the password is $DB_PASSWORD; echo token=hunter2token; echo -----BEGIN PRIVATE KEY-----; echo aGVsbG8gd29ybGQK; \
         echo -----END PRIVATE KEY-----; echo all is well; exec sleep 100000",
        "",
    )
    .replace("env = {", "env = { DB_PASSWORD = \"hunter2-in-env\",");
    let mut daemon = Daemon::started(SUPERVISOR, &[("leaky", &leaky), ("steady", STEADY)]);
    daemon.wait_phase("leaky", Phase::Ready);
    wait_for("the last line is kept", || daemon.ctl_ok(&["logs", "leaky"]).contains("all is well").then_some(()));
    let keys = daemon.state().join("groups/leaky/pki");
    fs::create_dir_all(&keys).unwrap();
    fs::write(keys.join("ca.key"), "hunter2 in a key file").unwrap();
    let file = daemon.dir.join("bundle.tar");
    let written = daemon.ctl_ok(&["bundle", file.to_str().unwrap(), "-o", "json"]);
    let written: Value = serde_json::from_str(&written).unwrap();
    let names: Vec<&str> = written["entries"].as_array().unwrap().iter().filter_map(Value::as_str).collect();
    for name in [
        "status.json",
        "events.ndjson",
        "doctor.json",
        "state/groups/leaky/record.json",
        "logs/leaky.txt",
        "config/supervisor.toml",
    ] {
        assert!(names.contains(&name), "{name}: {names:?}");
    }
    let bytes = fs::read(&file).unwrap();
    let text = String::from_utf8_lossy(&bytes);
    assert!(text.contains("all is well") && text.contains("steady"), "what helps is there");
    for secret in ["hunter2", "aGVsbG8gd29ybGQK", "PRIVATE KEY"] {
        assert!(!text.contains(secret), "{secret} is in the bundle");
    }
    use std::os::unix::fs::PermissionsExt;
    assert_eq!(fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
    let again = daemon.ctl(&["bundle", file.to_str().unwrap()]);
    assert_eq!(again.status.code(), Some(1), "{again:?}");
    assert_eq!(fs::read(&file).unwrap(), bytes, "nothing is overwritten");
    daemon.stop();
}

// ---- manners ----------------------------------------------------------------------------------------------------------

#[test]
fn a_group_that_is_not_to_run_stays_stopped_and_the_plan_says_so() {
    let mut daemon = Daemon::started(SUPERVISOR, &[("steady", STEADY)]);
    daemon.wait_phase("steady", Phase::Ready);
    daemon.write_cluster("quiet", &format!("running = false\n{STEADY}"));
    let plan = daemon.ctl_ok(&["reload"]);
    assert!(plan.contains("quiet: stays stopped") && !plan.contains("starts"), "{plan}");
    daemon.ctl_ok(&["stop", "steady"]);
    daemon.write_cluster("steady", &STEADY.replace("100000", "100001"));
    let plan = daemon.ctl_ok(&["reload"]);
    assert!(plan.contains("steady: stays stopped") && plan.contains("next start"), "{plan}");
    assert_eq!(daemon.group("steady").phase, Phase::Parked);
    let table = daemon.ctl_ok(&["status"]);
    assert!(!table.contains("0/0") && !table.contains("0/1"), "{table}");
    daemon.stop();
}

#[test]
fn a_failing_group_tells_the_reason_from_its_first_failure_on() {
    let more = "backoff = { base = \"30s\", max = \"60s\" }\nreadiness = { kind = \"tcp\", address = \"127.0.0.1:1\" }";
    let mut daemon = Daemon::started(SUPERVISOR, &[("brief", &script("brief", "exit 3", more))]);
    wait_for("the reason is told", || {
        let table = daemon.ctl_ok(&["status"]);
        (table.contains("brief is") && table.contains("exit status 3")).then_some(())
    });
    daemon.stop();
}

#[test]
fn colours_of_components_are_left_out_of_their_log() {
    let text = "printf 'a \\033[31mred\\033[0m word\\007\\n'; exec sleep 100000";
    let mut daemon = Daemon::started(SUPERVISOR, &[("loud", &script("loud", text, ""))]);
    wait_for("the line is shown bare", || daemon.ctl_ok(&["logs", "loud/loud"]).contains("a red word\n").then_some(()));
    let line = daemon.ctl_ok(&["logs", "loud/loud", "-o", "json"]);
    assert!(line.contains("\\u001b[31m"), "for programs it is as it was written: {line}");
    daemon.stop();
}
