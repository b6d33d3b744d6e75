//! Each fact that is wrong is one check that says so, with its fix; nothing else changes.

use super::facts::*;
use super::{Asked, Place, Seen, examine, judge};
use socialweb_wire::{Check, Health};
use std::path::PathBuf;

/// A host on which everything is right.
fn good() -> Facts {
    let all = ["cpu", "io", "memory", "pids"].map(String::from).to_vec();
    let root = RootFacts {
        path: "/sys/fs/cgroup/a".into(),
        whose: "the daemon's cgroup".into(),
        kind: "domain".into(),
        offered: all.clone(),
        handed_down: all,
        unwritable: vec![],
        daemon_inside: false,
        has_kill: true,
    };
    let program = |name: &str| (name.to_string(), Ok(PathBuf::from("/usr/bin").join(name)));
    Facts {
        seen: Seen::Answers { pid: 42 },
        socket: "/run/user/1000/socialweb-computer/admin.sock".into(),
        holder: Some(42),
        account: (1000, "kcp".into()),
        config: ConfigFacts { file: Some("/c/supervisor.toml".into()), ..ConfigFacts::default() },
        cgroups: CgroupFacts {
            hierarchy: Hierarchy::Unified,
            root: Some(root),
            own: "/user.slice/user-1000.slice/user@1000.service/socialweb.slice/x.service/supervisor".into(),
        },
        kernel: "6.1.0-13-amd64".into(),
        pidfds: true,
        limits: LimitFacts {
            nofile: Some(524_288),
            nproc: Some(60_000),
            tasks: Some((65_536, "/sys/fs/cgroup/a".into())),
        },
        need: Need { groups: 3, tenants: 2, components: 12 },
        systemd: Some("252.39-1".into()),
        linger: Some(true),
        journal: Some(JournalFacts { unit: "user@1000.service".into(), burst: Some(1_000_000) }),
        left: Left { own_id: "0123456789ab".into(), ..Left::default() },
        programs: Programs {
            searched: "the daemon's PATH".into(),
            found: ["kine", "bao", "k3s"].map(program).to_vec(),
        },
        state: StateFacts {
            path: Some("/s".into()),
            owner_and_mode: Some((1000, 0o700)),
            free_bytes: Some(100 << 30),
            ..StateFacts::default()
        },
        ports: PortFacts { overlap: vec![], ephemeral: "32768-60999".into() },
        clock: ClockFacts {
            now: 1_800_000_000,
            newest: Some((1_799_999_999, "leases.json".into())),
            synchronised: Some(true),
        },
    }
}

fn not_ok(facts: &Facts) -> Vec<Check> {
    judge(facts).into_iter().filter(|check| check.health != Health::Ok).collect()
}

/// One change, one check: of this name and health, with these words in its text and its fix.
fn check(name: &str, health: Health, words: &str, fix: &str, change: impl FnOnce(&mut Facts)) {
    let mut facts = good();
    change(&mut facts);
    let found = not_ok(&facts);
    assert_eq!(found.len(), 1, "{name}: {found:#?}");
    let check = &found[0];
    assert_eq!((check.name.as_str(), check.health), (name, health), "{check:?}");
    assert!(check.text.contains(words), "{words:?}: {check:?}");
    assert!(check.fix.contains(fix), "{fix:?}: {check:?}");
}

fn root(facts: &mut Facts) -> &mut RootFacts {
    facts.cgroups.root.as_mut().unwrap()
}

#[test]
fn a_host_that_is_right_has_nothing_to_look_at() {
    assert_eq!(not_ok(&good()), []);
}

#[test]
fn a_daemon_that_hangs_or_hides_is_told_from_one_that_is_not_there() {
    check("daemon", Health::Fail, "it is stopped", "kill -CONT 42", |f| f.seen = Seen::Silent { pid: 42, state: 'T' });
    check("daemon", Health::Fail, "it is frozen", "thaw", |f| f.seen = Seen::Silent { pid: 42, state: 'F' });
    check("daemon", Health::Fail, "it runs", "restart", |f| f.seen = Seen::Silent { pid: 42, state: 'R' });
    check("daemon", Health::Fail, "pid 42 holds", "-socket", |f| f.seen = Seen::Absent);
    check("daemon", Health::Warn, "none answers", "systemctl --user start", |f| {
        f.seen = Seen::Absent;
        f.holder = None;
    });
}

#[test]
fn what_delegation_lacks_is_named_with_the_fix_that_applies_here() {
    let drop_in = "units/system/user@.service.d/socialweb-computer.conf";
    check("controllers", Health::Warn, "lacks io", drop_in, |f| root(f).offered.retain(|c| c != "io"));
    check("controllers", Health::Warn, "it has none", "restart user@1000", |f| root(f).offered.clear());
    check("delegation", Health::Fail, "may not write cgroup.procs", "Delegate=yes", |f| {
        root(f).unwritable = vec!["cgroup.procs".into()];
    });
    check("own process", Health::Fail, "new processes are refused", "restart the daemon", |f| {
        root(f).daemon_inside = true
    });
    check("own process", Health::Warn, "hands no controller down", "leaf", |f| {
        root(f).daemon_inside = true;
        root(f).handed_down.clear();
    });
    check("cgroup type", Health::Fail, "threaded", "remove that cgroup", |f| root(f).kind = "domain threaded".into());
}

#[test]
fn journalds_limit_is_named_where_it_is_in_force() {
    let drop_in = "units/system/user@.service.d/socialweb-computer.conf";
    check("journal", Health::Warn, "user@1000.service", drop_in, |f| {
        f.journal = Some(JournalFacts { burst: None, ..f.journal.take().unwrap() });
    });
}

#[test]
fn a_host_without_systemd_hears_of_no_unit() {
    let mut facts = good();
    (facts.systemd, facts.linger, facts.journal) = (None, None, None);
    assert_eq!(not_ok(&facts), [], "it is no fault");
    root(&mut facts).offered.clear();
    root(&mut facts).unwritable = vec![".".into()];
    let found = not_ok(&facts);
    assert_eq!(found.len(), 2, "{found:?}");
    for check in found {
        assert!(check.fix.contains("no systemd here") && !check.fix.contains("unit"), "{check:?}");
    }
}

#[test]
fn a_hierarchy_that_cannot_hold_processes_together_fails() {
    check("cgroups", Health::Warn, "beside v1", "unified", |f| f.cgroups.hierarchy = Hierarchy::Hybrid);
    for (hierarchy, fix) in [(Hierarchy::Old, "unified"), (Hierarchy::Missing, "mount -t cgroup2")] {
        check("cgroups", Health::Fail, "session and marker", fix, |f| {
            f.cgroups.hierarchy = hierarchy;
            f.cgroups.root = None;
        });
    }
}

#[test]
fn kernels_are_judged_by_what_they_lack() {
    check("kernel", Health::Warn, "no cgroup.kill", "5.14", |f| f.kernel = "5.10.0-28-amd64".into());
    check("kernel", Health::Fail, "close_range", "5.14", |f| f.kernel = "5.4.0".into());
    check("kernel", Health::Fail, "pidfd_open", "seccomp", |f| f.pidfds = false);
    check("kernel", Health::Warn, "not understood", "", |f| f.kernel = "odd".into());
    assert_eq!(super::judge::version("6.18.5"), Some((6, 18)));
}

#[test]
fn limits_are_compared_with_what_is_declared() {
    check("open files", Health::Fail, "the limit is 100", "LimitNOFILE=", |f| f.limits.nofile = Some(100));
    check("tasks", Health::Fail, "/sys/fs/cgroup/a allows 200", "TasksMax=", |f| {
        f.limits.tasks.as_mut().unwrap().0 = 200
    });
    check("tasks", Health::Fail, "may have 100 processes", "LimitNPROC=", |f| f.limits.nproc = Some(100));
    let mut facts = good();
    facts.limits = LimitFacts::default();
    assert_eq!(not_ok(&facts), [], "no limit is no fault");
}

#[test]
fn the_accounts_manager_must_outlive_its_sessions() {
    check("linger", Health::Fail, "off for kcp", "loginctl enable-linger kcp", |f| f.linger = Some(false));
    check("linger", Health::Warn, "session-3.scope", "Delegate=yes", |f| {
        f.cgroups.own = "/user.slice/user-1000.slice/session-3.scope".into();
    });
    check("systemd", Health::Warn, "43361", "256.3", |f| f.systemd = Some("255.4-1ubuntu8".into()));
    let mut root_unit = good();
    (root_unit.linger, root_unit.systemd) = (None, Some("255".into()));
    assert_eq!(not_ok(&root_unit), [], "the system's manager is never ended");
}

#[test]
fn what_dead_daemons_left_is_named() {
    let one = |id: &str| (7, "kine".to_string(), format!("{id}/demo/kine/3"));
    check("leftovers", Health::Fail, "pid 7 (kine)", "start the daemon", |f| {
        f.left.processes = vec![one("0123456789ab")]
    });
    check("leftovers", Health::Warn, "another state folder", "kill PID", |f| {
        f.left.processes = vec![one("ffffffffffff")]
    });
    check("leftovers", Health::Warn, "state folder: /srv/other", "kill PID", |f| {
        f.left.processes = vec![one("ffffffffffff")];
        f.left.folders.insert("ffffffffffff".into(), "/srv/other".into());
    });
    check("leftovers", Health::Warn, "socialweb-ffffffffffff", "rmdir", |f| {
        f.left.cgroups = vec!["/cg/socialweb-ffffffffffff".into()];
    });
}

#[test]
fn programs_matter_when_a_tenant_needs_them_and_it_is_said_where_they_were_looked_for() {
    let missing = |f: &mut Facts| f.programs.found[0].1 = Err("there is no kine on PATH or in /x; build it".into());
    check("program", Health::Fail, "the daemon's PATH", "build it", missing);
    check("program", Health::Warn, "no tenant is declared", "build it", |f| {
        missing(f);
        f.need.tenants = 0;
    });
}

#[test]
fn a_state_folder_that_will_not_do_is_told() {
    let name = "state folder";
    check(name, Health::Fail, "belongs to uid 0", "chown", |f| f.state.owner_and_mode = Some((0, 0o700)));
    check(name, Health::Warn, "mode 755", "chmod 700", |f| f.state.owner_and_mode = Some((1000, 0o755)));
    check(name, Health::Fail, "tmpfs", "disk", |f| f.state.memory = Some("tmpfs".into()));
    check(name, Health::Warn, "tmpfs", "disk", |f| {
        f.state.memory = Some("tmpfs".into());
        f.state.memory_accepted = true;
    });
    check(name, Health::Fail, "read-only", "remount", |f| f.state.read_only = true);
    check(name, Health::Fail, "1 MiB free", "free some", |f| f.state.free_bytes = Some(1 << 20));
    check(name, Health::Warn, "500 MiB free", "free some", |f| f.state.free_bytes = Some(500 << 20));
    check(name, Health::Fail, "no place", "state_dir", |f| f.state = StateFacts::default());
}

#[test]
fn ports_clock_and_configuration_are_looked_at() {
    check("ports", Health::Warn, "61000-62000", "ip_local_reserved_ports=61000-62000", |f| {
        f.ports.overlap = vec![(61_000, 62_000)];
    });
    check("clock", Health::Fail, "in the past", "set it", |f| f.clock.now = 1_000);
    check("clock", Health::Warn, "set back", "set it", |f| f.clock.newest = Some((1_800_001_000, "x".into())));
    check("clock", Health::Warn, "timesyncd", "timedatectl", |f| f.clock.synchronised = Some(false));
    check("configuration", Health::Warn, "no supervisor.toml", "-config", |f| f.config.file = None);
    check("configuration", Health::Fail, "a.toml:1", "config check", |f| {
        f.config.errors = vec!["a.toml:1: bad".into()]
    });
    check("configuration", Health::Warn, "b.toml:1", "config check", |f| {
        f.config.warnings = vec!["b.toml:1: odd".into()]
    });
}

#[test]
fn this_very_host_is_looked_at_without_a_daemon_and_left_as_it_is() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("supervisor.toml");
    std::fs::write(&file, "state_dir = \"state\"\n").unwrap();
    std::fs::create_dir(dir.path().join("clusters.d")).unwrap();
    let asked = Asked { seen: Seen::Absent, socket: "/none".into(), config: Some(file), state_dir: None };
    let report = examine(&Place::find(asked));
    let names: Vec<&str> = report.checks.iter().map(|check| check.name.as_str()).collect();
    for name in
        ["daemon", "configuration", "cgroups", "kernel", "open files", "tasks", "leftovers", "state folder", "clock"]
    {
        assert!(names.contains(&name), "{name}: {names:?}");
    }
    assert!(report.checks.iter().all(|c| c.health == Health::Ok || !c.fix.is_empty()), "{report:#?}");
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 2, "nothing was made");
}
