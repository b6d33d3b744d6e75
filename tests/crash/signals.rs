//! Signals of others: the daemon is stopped while its children die, told to go in the middle of a start, told twice, and
//! killed in the middle of its orderly end.

use crate::scene::{GROUP, Manners, Scene};
use crate::support::{Daemon, cgroup2_mount, send, skip, wait_for};
use crate::{STEADY, SUPERVISOR};
use nix::sys::signal::Signal;
use socialweb_wire::Phase;

#[test]
fn what_died_while_the_daemon_was_stopped_is_seen_when_it_goes_on() {
    let scene = Scene::new("stopped", Manners::Follows);
    let mut daemon = Daemon::started(SUPERVISOR, &[(GROUP, &scene.config(1)), ("steady", STEADY)]);
    let group = daemon.wait_phase(GROUP, Phase::Ready);
    scene.wait_starts(&daemon, 0, 1);
    let pids: Vec<u32> = ["a", "b"].iter().map(|n| group.component(n).unwrap().pid.unwrap()).collect();
    daemon.signal(Signal::SIGSTOP);
    let state = |pid| socialweb_sys::process::Stat::of(pid).map(|s| s.state);
    wait_for("the daemon is stopped", || state(daemon.pid()).is_ok_and(|s| s == 'T').then_some(()));
    pids.iter().for_each(|pid| send(*pid, 9));
    wait_for("both are dead and nobody waited for them", || {
        pids.iter().all(|pid| state(*pid).is_ok_and(|s| s == 'Z')).then_some(())
    });
    daemon.signal(Signal::SIGCONT);
    wait_for("both run again", || {
        let group = daemon.group(GROUP);
        let again =
            |n: &str| group.component(n).is_some_and(|c| c.restarts == 1 && c.pid.is_some_and(|p| !pids.contains(&p)));
        (group.phase == Phase::Ready && again("a") && again("b")).then_some(())
    });
    let starts = wait_for("they wrote it down", || {
        let starts = scene.starts_since(0).unwrap();
        (starts["a"] > 1 && starts["b"] > 1).then_some(starts)
    });
    assert_eq!((starts["a"], starts["b"], starts["once"]), (2, 2, 1), "each once more\n{}", daemon.log());
    daemon.stop();
    daemon.assert_nothing_left();
}

/// A daemon that stops itself at this point, in the middle of a start, while the process that it has just made dies.
fn stopped_at(point: &str) {
    let text = one("argv = [\"sleep\", \"100000\"]");
    let mut daemon = Daemon::new(SUPERVISOR, &[("only", &text)]);
    daemon.set_env("SOCIALWEB_FAILPOINT", Some(&format!("{point}=stop")));
    daemon.launch();
    let state = |pid| socialweb_sys::process::Stat::of(pid).map(|s| s.state);
    wait_for("the daemon stops itself", || state(daemon.pid()).is_ok_and(|s| s == 'T').then_some(()));
    let marked = wait_for("its process is there", || Some(daemon.marked()).filter(|m| !m.is_empty()));
    marked.iter().for_each(|(pid, _)| send(*pid, 9));
    wait_for("it is dead", || marked.iter().all(|(pid, _)| state(*pid).is_ok_and(|s| s == 'Z')).then_some(()));
    daemon.signal(Signal::SIGCONT);
    wait_for("another one is ready", || {
        let group = daemon.try_status()?.group("only")?.clone();
        let pid = group.components.first()?.pid?;
        (group.phase == Phase::Ready && marked.iter().all(|(old, _)| *old != pid)).then_some(())
    });
    daemon.stop();
    daemon.assert_nothing_left();
}

#[test]
fn a_process_that_dies_before_it_is_noted_is_not_lost() {
    stopped_at("spawned");
}

#[test]
fn a_process_that_dies_before_its_exec_is_seen_is_not_lost() {
    stopped_at("run-noted");
}

#[test]
fn a_child_that_never_came_to_its_first_instruction_keeps_the_next_daemon_out_of_nothing() {
    let name = "a_child_that_never_came_to_its_first_instruction_keeps_the_next_daemon_out_of_nothing";
    if cgroup2_mount().is_none() {
        return skip(name, "cgroup2: there is none");
    }
    let mut daemon = Daemon::new(SUPERVISOR, &[("only", &one("argv = [\"sleep\", \"100000\"]"))]);
    daemon.set_env("SOCIALWEB_FAILPOINT", Some("run-cgroup-made=stop,spawned=kill"));
    daemon.launch();
    let state = |pid| socialweb_sys::process::Stat::of(pid).map(|s| s.state);
    wait_for("the daemon stops itself", || state(daemon.pid()).is_ok_and(|s| s == 'T').then_some(()));
    let Some(tree) = daemon.cgroups().pop() else { return skip(name, "cgroup2: it is not writable here") };
    // A sister freezes the group just before the clone: the child has all descriptors of the daemon, locks among them.
    let group = socialweb_sys::Cgroup::at(tree.join("only"));
    std::fs::write(tree.join("only/cgroup.freeze"), "1").unwrap();
    daemon.signal(Signal::SIGCONT);
    wait_for("the daemon kills itself", || daemon.ended());
    let left = group.pids().unwrap();
    assert_eq!(left.len(), 1, "a child is left, frozen before it began");
    daemon.set_env("SOCIALWEB_FAILPOINT", None);
    daemon.start();
    assert_ne!(daemon.wait_phase("only", Phase::Ready).components[0].pid, left.first().copied());
    daemon.stop();
    daemon.assert_nothing_left();
}

fn one(extra: &str) -> String {
    format!(
        "kind = \"exec\"\n[[component]]\nname = \"c\"\nenv = {{ PATH = \"/usr/bin:/bin\" }}\nstop = {{ grace = \"1s\" }}\n{extra}\n"
    )
}

#[test]
fn a_term_in_the_middle_of_any_start_leaves_nothing() {
    let never = "readiness = { kind = \"tcp\", address = \"127.0.0.1:1\" }";
    let starting = one(&format!("argv = [\"sleep\", \"100000\"]\n{never}"));
    let waiting = format!("{starting}[[component]]\nname = \"d\"\nneeds = [\"c\"]\nargv = [\"sleep\", \"100000\"]\n");
    let preparing = one("argv = [\"sleep\", \"100000\"]\npre = [[\"sleep\", \"100001\"]]");
    let backoff = one(&format!("argv = [\"false\"]\nbackoff = {{ base = \"1h\", max = \"1h\" }}\n{never}"));
    let clusters = [("waiting", &waiting), ("starting", &starting), ("preparing", &preparing), ("backoff", &backoff)];
    let clusters: Vec<(&str, &str)> = clusters.iter().map(|(n, t)| (*n, t.as_str())).collect();
    let supervisor = format!("{SUPERVISOR}[budgets]\nmax_concurrent_starts = \"off\"\n");
    let mut daemon = Daemon::started(&supervisor, &clusters);
    for (group, component, state) in [
        ("waiting", "d", "Waiting"),
        ("starting", "c", "Starting"),
        ("preparing", "c", "Preparing"),
        ("backoff", "c", "Backoff"),
    ] {
        wait_for(&format!("{group} is {state}"), || {
            let seen = daemon.group(group);
            seen.component(component).is_some_and(|c| c.state == state).then_some(())
        });
    }
    daemon.stop();
    daemon.assert_nothing_left();
}

#[test]
fn a_term_right_after_the_launch_leaves_nothing() {
    let scene = Scene::new("launch", Manners::Follows);
    let mut daemon = Daemon::new(SUPERVISOR, &[(GROUP, &scene.config(1)), ("steady", STEADY)]);
    // Before its handlers are set the signal ends it at once; afterwards in order. Both leave nothing.
    for _ in 0..5 {
        daemon.launch();
        daemon.signal(Signal::SIGTERM);
        wait_for("it ends", || daemon.ended());
        daemon.assert_nothing_left();
    }
}

#[test]
fn a_second_term_cuts_nothing_short() {
    // The handler takes a moment; a daemon that took the second TERM for impatience would kill it in the middle.
    let dir = std::env::temp_dir().join(format!("sw-twice-{}", std::process::id()));
    let script = format!(
        "trap 'echo told >> {0}; sleep 1; echo done >> {0}; exit 0' TERM; echo ready; while :; do sleep 0.1; done",
        dir.display()
    );
    let text = one(&format!(
        "argv = [\"sh\", \"-c\", '''{script}''']\nreadiness = {{ kind = \"log-line\", contains = \"ready\" }}"
    ));
    let text = text.replace("\"1s\"", "\"60s\"");
    let mut daemon = Daemon::started(SUPERVISOR, &[("slow", &text), ("steady", STEADY)]);
    daemon.wait_phase("slow", Phase::Ready);
    let said = || std::fs::read_to_string(&dir).unwrap_or_default();
    daemon.signal(Signal::SIGTERM);
    wait_for("the component is told", || said().contains("told").then_some(()));
    daemon.signal(Signal::SIGTERM);
    daemon.signal(Signal::SIGINT);
    daemon.wait_end();
    assert_eq!(said(), "told\ndone\n", "{}", daemon.log());
    daemon.assert_nothing_left();
    let _ = std::fs::remove_file(&dir);
}

#[test]
fn signals_that_scripts_send_to_other_supervisors_crash_nothing() {
    let mut daemon = Daemon::started(SUPERVISOR, &[("steady", STEADY)]);
    let pid = daemon.wait_phase("steady", Phase::Ready).components[0].pid;
    daemon.signal(Signal::SIGUSR1);
    daemon.signal(Signal::SIGUSR2);
    // A later answer than both signals.
    assert_eq!(daemon.group("steady").components[0].pid, pid);
    daemon.signal(Signal::SIGQUIT);
    daemon.wait_end();
    daemon.assert_nothing_left();
}

#[test]
fn a_kill_in_the_middle_of_the_orderly_end_is_made_good_by_the_next_daemon() {
    let scene = Scene::new("end", Manners::Ignores);
    let text = scene.config(1).replace("300ms", "10m");
    let mut daemon = Daemon::started(SUPERVISOR, &[(GROUP, &text), ("steady", STEADY)]);
    daemon.wait_phase(GROUP, Phase::Ready);
    scene.wait_starts(&daemon, 0, 1);
    let mark = Scene::mark();
    daemon.signal(Signal::SIGTERM);
    daemon.wait_phase(GROUP, Phase::Stopping);
    daemon.kill_9();
    assert!(!daemon.marked().is_empty(), "what ignores the signal survives, or this proves nothing");
    daemon.start();
    daemon.wait_phase(GROUP, Phase::Ready);
    scene.wait_starts(&daemon, mark, 1);
    daemon.write_cluster(GROUP, &scene.config(1));
    daemon.ctl_ok(&["reload"]);
    daemon.stop();
    daemon.assert_nothing_left();
}
