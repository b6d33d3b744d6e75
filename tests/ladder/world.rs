//! Where a case runs, and what a case needs there.

use crate::support::{Daemon, cgroup2_mount, cgroup2_mount_point, skip, wait_for};
use socialweb_sys::process::{self, Stat};
use socialweb_wire::Phase;
use std::fs;
use std::path::{Path, PathBuf};

/// No journal, so that a machine with one and a machine without one behave alike.
pub const SUPERVISOR: &str = "[log]\njournal = \"never\"\n[budgets]\nmax_concurrent_starts = \"off\"\n";

/// The group beside: it must not notice.
pub const STEADY: &str =
    "kind = \"exec\"\n[[component]]\nname = \"steady\"\nargv = [\"sleep\", \"100000\"]\nstop = { grace = \"60s\" }\n";

/// Makes a test of the case for each world that is named.
macro_rules! in_worlds {
    ($case:ident: $($world:ident),+) => {
        mod $case {
            $(
                #[test]
                fn $world() {
                    let name = concat!(stringify!($case), "::", stringify!($world));
                    if let Some(stage) = $crate::world::World::$world(name) {
                        super::$case(stage);
                    }
                }
            )+
        }
    };
}
pub(crate) use in_worlds;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum World {
    Cgroups,
    Delegated,
    Fallback,
}

impl World {
    /// As this account, with cgroups.
    pub fn with_cgroups(test: &str) -> Option<Stage> {
        Stage::new(World::Cgroups, test)
    }

    pub fn as_nobody_in_a_delegated_subtree(test: &str) -> Option<Stage> {
        Stage::new(World::Delegated, test)
    }

    pub fn without_cgroups(test: &str) -> Option<Stage> {
        Stage::new(World::Fallback, test)
    }
}

/// A daemon that does not run yet, in its world.
pub struct Stage {
    pub world: World,
    pub daemon: Daemon,
    pub name: String,
}

impl Stage {
    fn new(world: World, test: &str) -> Option<Stage> {
        let daemon = Daemon::new(SUPERVISOR, &[("steady", STEADY)]);
        let writable = cgroup2_mount().is_some_and(|m| m.join("cgroup.procs").exists());
        let placed = match world {
            World::Cgroups => writable.then_some(daemon),
            World::Delegated => daemon.run_as_nobody(),
            World::Fallback => Some(daemon.without_cgroups()),
        };
        let Some(daemon) = placed else {
            skip(test, "cgroup2: a writable one, and root to hand a part of it over, are needed");
            return None;
        };
        Some(Stage { world, daemon, name: test.into() })
    }

    pub fn has_cgroups(&self) -> bool {
        self.world != World::Fallback
    }

    pub fn wrapped(mut self, wrapper: &[&str]) -> Stage {
        self.daemon = self.daemon.with_wrapper(wrapper);
        self
    }

    /// Declares the group, starts the daemon, and waits until this group and the steady one are in these phases.
    pub fn started(self, group: &str, text: &str) -> Stage {
        let stage = self.begun(group, text);
        stage.daemon.wait_phase(group, Phase::Ready);
        stage
    }

    /// The same without waiting for the group.
    pub fn begun(mut self, group: &str, text: &str) -> Stage {
        self.daemon.write_cluster(group, text);
        self.daemon.start();
        self.daemon.wait_phase("steady", Phase::Ready);
        self
    }

    /// Folder of a component, in which its program starts.
    pub fn dir(&self, group: &str, component: &str) -> PathBuf {
        self.daemon.state().join("groups").join(group).join(component)
    }

    /// Number of the process that says so in a file of the component's folder.
    pub fn shown(&self, group: &str, component: &str, file: &str) -> Shown {
        let path = self.dir(group, component).join(file);
        let pid = wait_for(&format!("{file} shows itself\n{}", self.daemon.log()), || {
            fs::read_to_string(&path).ok()?.trim().parse::<u32>().ok()
        });
        Shown { pid, start: Stat::of(pid).map(|s| s.start_time).unwrap_or_default() }
    }

    /// Size of a file of the component's folder once it is at least so large.
    pub fn wait_size(&self, group: &str, component: &str, file: &str, least: u64) {
        let path = self.dir(group, component).join(file);
        wait_for(&format!("{file} has {least} bytes"), || (size(&path) >= least).then_some(()));
    }

    pub fn leader(&self, group: &str, component: &str) -> Shown {
        let pid = wait_for("the component runs", || self.daemon.group(group).component(component)?.pid);
        Shown { pid, start: Stat::of(pid).map(|s| s.start_time).unwrap_or_default() }
    }

    /// Stops the group; the steady one did not notice.
    pub fn stop(&self, group: &str) {
        let before = self.leader("steady", "steady");
        self.daemon.ctl_ok(&["stop", group]);
        assert!(before.lives(), "the steady group's process is gone\n{}", self.daemon.log());
        assert_eq!(self.daemon.group("steady").components[0].restarts, 0);
    }

    /// The daemon's end takes the rest, and leaves nothing.
    pub fn end(mut self) {
        self.daemon.stop();
        self.daemon.assert_nothing_left();
    }

    /// The same, with something to do just before and just after.
    pub fn end_with(mut self, before: impl FnOnce(), after: impl FnOnce()) {
        before();
        self.daemon.stop();
        after();
        self.daemon.assert_nothing_left();
    }

    /// The daemon's own subtree.
    pub fn tree(&self) -> PathBuf {
        self.daemon.cgroups().pop().expect("the daemon's subtree")
    }

    /// Where the cgroup of a process is.
    pub fn cgroup_of(&self, pid: u32) -> PathBuf {
        let path = process::cgroup(pid).unwrap().unwrap();
        cgroup2_mount_point().unwrap().join(path.trim_start_matches('/'))
    }
}

/// A process that showed itself.
#[derive(Debug, Clone, Copy)]
pub struct Shown {
    pub pid: u32,
    pub start: u64,
}

impl Shown {
    pub fn lives(self) -> bool {
        process::alive(self.pid, self.start)
    }
}

pub fn size(path: &Path) -> u64 {
    fs::metadata(path).map(|m| m.len()).unwrap_or_default()
}

/// The path of a program of this test, readable by every account.
pub fn program(name: &str) -> String {
    format!("{}/tests/ladder/programs/{name}", env!("CARGO_MANIFEST_DIR"))
}

/// One component: a shell script that begins with a few names.
pub fn component(name: &str, script: &str, more: &str) -> String {
    let paths = cgroup2_mount_point().map(|m| m.display().to_string()).unwrap_or_default();
    let names = format!(
        "STAY='sh {stay}'; HOP='sh {hop}'; BOMB='sh {bomb}'; run={paths}$(sed -n s/^0:://p /proc/self/cgroup); group=$run/../..; tree=$group/..",
        stay = program("stay.sh"),
        hop = program("hop.sh"),
        bomb = program("bomb.sh"),
    );
    format!(
        "[[component]]\nname = \"{name}\"\nargv = [\"sh\", \"-c\", '''{names}\n{script}''']\nenv = {{ PATH = \"/usr/bin:/bin\" }}\n{more}\n"
    )
}

/// A group of components.
pub fn group(components: &[String]) -> String {
    format!("kind = \"exec\"\n{}", components.join("\n"))
}

/// The whole text of a group with one such component, killed soon after its stop signal.
pub fn nasty(script: &str) -> String {
    group(&[component("nasty", script, SHORT)])
}

/// For who does not follow the stop signal anyway.
pub const SHORT: &str = "stop = { grace = \"300ms\" }";
/// For who must be seen to follow it.
pub const LONG: &str = "stop = { grace = \"100s\" }";

/// The file stops growing: whoever writes to it all the time is gone. One that lives writes thousands of times meanwhile.
pub fn assert_silent(path: &Path, log: &str) {
    let before = size(path);
    std::thread::sleep(std::time::Duration::from_millis(300));
    assert_eq!(size(path), before, "{} still grows\n{log}", path.display());
}

/// Waits until the kernel says that everything in it stands still.
pub fn wait_frozen(cgroup: &Path) {
    let events = cgroup.join("cgroup.events");
    wait_for(&format!("{} is frozen", cgroup.display()), || {
        fs::read_to_string(&events).ok()?.contains("frozen 1").then_some(())
    });
}
