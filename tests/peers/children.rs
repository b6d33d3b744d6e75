//! What a child inherits, how its end is read, and who collects it.

use crate::support::{Daemon, wait_for};
use crate::{SHORT, SUPERVISOR, component, group, ready, stop_leaves_nothing, wait_wrote};
use socialweb_sys::process::{Stat, scan};
use socialweb_wire::Phase;
use std::os::unix::net::UnixDatagram;

/// djinnos/djinn PR#2700: a loop that waits for any child steals the status of commands that somebody else waits for. Here
/// probes end all the time beside orphans that do.
#[test]
fn a_storm_of_orphans_steals_no_probes_status() {
    let storm = "while :; do (true &) ; sleep 0.01; done";
    let probe = format!(
        "readiness = {{ kind = \"exec\", argv = [\"true\"], interval = \"20ms\" }}\nliveness = {{ kind = \"exec\", argv = [\"sh\", \"-c\", \"echo asked >> ../asked\"], interval = \"20ms\", timeout = \"1h\", failures = 1 }}\n{SHORT}"
    );
    let daemon = ready(storm, &probe);
    wait_for("a hundred probes have ended", || {
        let asked = crate::wrote(&daemon, "g", "asked").unwrap_or_default();
        (asked.lines().count() >= 100).then_some(())
    });
    let group = daemon.group("g");
    assert_eq!((group.phase, group.components[0].restarts), (Phase::Ready, 0), "{group:#?}");
    stop_leaves_nothing(daemon);
}

/// qntx/bux#87: who ignores SIGCHLD loses every exit code; a daemon inherits that from whoever starts it.
#[test]
fn an_exit_code_is_read_also_by_a_daemon_that_was_born_ignoring_sigchld() {
    let text = group(&[component("c", "exit 42", "restart = \"never\"")]);
    let mut daemon = Daemon::new(SUPERVISOR, &[("g", &text)]).with_prelude("trap '' CHLD");
    daemon.start();
    wait_for("the end is told with its code", || {
        daemon.ctl_ok(&["events", "g"]).contains("exit status 42").then_some(())
    });
    daemon.stop();
    daemon.assert_nothing_left();
}

/// krallin/tini PR#67, containerd/rust-extensions PR#19: the call that makes a subreaper had a zero for an argument, so it
/// was off. Read back: the daemon is the parent of what was forked twice.
#[test]
fn what_is_forked_twice_becomes_the_daemons_child() {
    let daemon = ready("(setsid sh -c 'echo $$ > twice; exec sleep 100000' &) ; exec sleep 100001", SHORT);
    let pid: u32 = wait_wrote(&daemon, "g", "c/twice").trim().parse().unwrap();
    wait_for("it has a new parent", || (Stat::of(pid).unwrap().ppid == daemon.pid()).then_some(()));
    stop_leaves_nothing(daemon);
}

/// containerd/containerd#5708: one zombie more with every run.
#[test]
fn no_zombie_of_an_orphan_stays() {
    let many = "i=0; while [ $i -lt 300 ]; do (true &) ; i=$((i+1)); done; echo all-forked; exec sleep 100000";
    let daemon = ready(many, &format!("readiness = {{ kind = \"log-line\", contains = \"all-forked\" }}\n{SHORT}"));
    let zombies = || {
        let stats = scan().unwrap().filter_map(|pid| Stat::of(pid).ok());
        stats.filter(|s| s.ppid == daemon.pid() && s.is_dead()).count()
    };
    wait_for("every zombie is collected", || (zombies() == 0).then_some(()));
    stop_leaves_nothing(daemon);
}

/// stellar/quickstart PR#540: a variable of the daemon's means something else to a child. systemd/systemd PR#27291,
/// #25961: what the service manager told the daemon, its children take for theirs.
#[test]
fn the_daemons_environment_stays_with_the_daemon() {
    let listing = "tr '\\0' '\\n' < /proc/$$/environ | cut -d= -f1 | sort | tr '\\n' ' ' > names; echo >> names; echo \"$PORT\" > port; exec sleep 100000";
    let hook = "pre = [[\"sh\", \"-c\", \"env | cut -d= -f1 | sort | tr '\\\\n' ' ' > hook; echo >> hook\"]]";
    let more = format!("{hook}\n{SHORT}");
    let text = group(&[component("c", listing, &more)]).replace("env = { ", "env = { PORT = \"its own\", ");
    let mut daemon = Daemon::new(SUPERVISOR, &[("g", &text)]);
    std::fs::create_dir_all(&daemon.runtime).unwrap();
    let manager = daemon.runtime.join("manager.sock");
    let _listens = UnixDatagram::bind(&manager).unwrap();
    for (name, value) in [
        ("PORT", "1"),
        ("NOTIFY_SOCKET", manager.to_str().unwrap()),
        ("WATCHDOG_USEC", "600000000"),
        ("LISTEN_FDS", "1"),
        ("LISTEN_PID", "1"),
        ("SECRET_OF_THE_OPERATOR", "x"),
    ] {
        daemon = daemon.with_env(name, value);
    }
    daemon.start();
    assert_eq!(wait_wrote(&daemon, "g", "c/names").trim(), "PATH PORT SOCIALWEB_BIRTH");
    assert_eq!(wait_wrote(&daemon, "g", "c/port"), "its own\n");
    // A shell adds PWD for what it starts.
    assert_eq!(wait_wrote(&daemon, "g", "c/hook").trim(), "PATH PORT PWD SOCIALWEB_BIRTH");
    daemon.wait_phase("g", Phase::Ready);
    stop_leaves_nothing(daemon);
}

/// systemd/systemd#25961: what a grandchild says does not count, because it is not the main process. Here every process of
/// the component's own cgroup speaks for it, and no other.
#[test]
fn a_grandchild_may_say_that_its_component_is_ready_and_nobody_elses_may() {
    let says = "import socket,os,time; s=socket.socket(socket.AF_UNIX,socket.SOCK_DGRAM); s.sendto(b\"READY=1\",os.environ[\"NOTIFY_SOCKET\"]); time.sleep(100000)";
    // It stays: of a sender that has ended before its word is read nobody knows any more where it was.
    let speaker = format!("while [ ! -e go ]; do sleep 0.05; done; (python3 -c '{says}' &) ; exec sleep 100000");
    let notify = format!("readiness = {{ kind = \"notify\" }}\n{SHORT}");
    let both = group(&[component("speaker", &speaker, &notify), component("mute", "exec sleep 100000", &notify)]);
    let daemon = Daemon::started(SUPERVISOR, &[("g", &both)]);
    let state = |name: &str| daemon.group("g").component(name).map(|c| c.state.clone());
    wait_for("both run", || (daemon.marked().iter().filter(|(_, comm)| comm == "sleep").count() >= 1).then_some(()));
    std::fs::write(daemon.state().join("groups/g/speaker/go"), "").unwrap();
    wait_for("the speaker is ready", || (state("speaker").as_deref() == Some("Ready")).then_some(()));
    assert_eq!(state("mute").as_deref(), Some("Starting"));
    stop_leaves_nothing(daemon);
}

/// habitat-sh/habitat#2395: the pipe of stderr is made and never read, so a child stops at 64 KiB.
#[test]
fn what_is_written_to_stderr_alone_is_drained_too() {
    let script = "yes 0123456789012345678901234567890 | head -c 1000000 >&2; touch ../written; exec sleep 100000";
    let probe = "readiness = { kind = \"exec\", argv = [\"test\", \"-e\", \"{dir}/written\"], interval = \"50ms\" }";
    let daemon = ready(script, &format!("{probe}\n{SHORT}"));
    assert!(daemon.ctl_ok(&["logs", "g", "-n", "3"]).contains("0123456789"));
    stop_leaves_nothing(daemon);
}
