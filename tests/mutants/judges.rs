//! Each judge leads a daemon through one thing that can happen, and says what was not as it must be.

use crate::scene::Scene;
use crate::support::{Daemon, cgroup2_mount, own_ports, send};
use nix::sys::signal::Signal;
use serde_json::Value;
use socialweb_wire::{GroupStatus, Phase};
use std::fs;
use std::net::TcpListener;
use std::time::{Duration, Instant};

const SUPERVISOR: &str = "[log]\njournal = \"never\"\n";
const GROUP: &str = "judged";
/// Asking is a process each time.
const ASK_AGAIN: Duration = Duration::from_millis(100);

/// What is judged.
#[derive(Debug, Clone, Copy)]
pub enum Judge {
    /// Order, signals, what is left, the receipt, the ports.
    Stop,
    /// A component dies; a port is taken.
    Restart,
    /// kill -9 of the daemon.
    Crash,
    /// Data and ports of what is deleted.
    Delete,
    /// The daemon's own end, asked for twice.
    End,
    /// A disk that takes no leases.
    Full,
}

/// One trial.
struct Trial {
    daemon: Daemon,
    scene: Scene,
    patience: Duration,
}

impl Judge {
    /// Err: what is wrong with the daemon, with this fault or with none.
    pub fn verdict(self, fault: Option<&str>, patience: Duration) -> Result<(), String> {
        let scene = Scene::new(&format!("{self:?}-{}", fault.unwrap_or("none")));
        let cgroups = cgroup2_mount().is_some();
        let text = match self {
            Judge::Stop => scene.nasty(cgroups),
            _ => scene.pair(),
        };
        let mut clusters = vec![(GROUP, text)];
        match self {
            Judge::Crash => clusters.push(("endless", scene.endless())),
            Judge::Delete | Judge::Full => clusters.push(("other", steady())),
            _ => {}
        }
        let clusters: Vec<(&str, &str)> = clusters.iter().map(|(n, t)| (*n, t.as_str())).collect();
        let mut daemon = Daemon::new(&format!("{SUPERVISOR}{}", own_ports()), &clusters);
        daemon.set_env("SOCIALWEB_MUTANT", fault);
        if matches!(self, Judge::Full) {
            daemon.set_env("SOCIALWEB_FAILPOINT", Some("disk-leases:1000000=enospc"));
        }
        daemon.start();
        let mut trial = Trial { daemon, scene, patience };
        let verdict = match self {
            Judge::Stop => trial.stop(cgroups),
            Judge::Restart => trial.restart(cgroups),
            Judge::Crash => trial.crash(),
            Judge::Delete => trial.delete(),
            Judge::End => trial.end(),
            Judge::Full => trial.full(),
        };
        trial.clear();
        verdict
    }
}

fn steady() -> String {
    "kind = \"exec\"\n[[component]]\nname = \"c\"\nargv = [\"sleep\", \"100000\"]\nstop = { grace = \"1s\" }\n".into()
}

fn demand(holds: bool, what: impl FnOnce() -> String) -> Result<(), String> {
    if holds { Ok(()) } else { Err(what()) }
}

impl Trial {
    fn until<T>(&self, what: &str, mut look: impl FnMut(&Trial) -> Option<T>) -> Result<T, String> {
        let deadline = Instant::now() + self.patience;
        loop {
            if let Some(seen) = look(self) {
                return Ok(seen);
            }
            if Instant::now() > deadline {
                return Err(format!("not seen: {what}"));
            }
            std::thread::sleep(ASK_AGAIN);
        }
    }

    fn group(&self, name: &str) -> Option<GroupStatus> {
        self.daemon.try_status()?.group(name).cloned()
    }

    fn phase(&self, name: &str, phase: Phase) -> Result<GroupStatus, String> {
        self.until(&format!("{name} is {phase}"), |t| t.group(name).filter(|g| g.phase == phase))
    }

    /// As the setting demands it: what is not there yet is no fault.
    fn ready(&self) -> Result<GroupStatus, String> {
        self.phase(GROUP, Phase::Ready)
    }

    fn leases(&self) -> Value {
        let text = fs::read(self.daemon.state().join("leases.json")).unwrap_or_default();
        let file: Value = serde_json::from_slice(&text).unwrap_or_default();
        file["leases"].clone()
    }

    /// Where the group's cgroups are.
    fn cgroup(&self) -> Option<std::path::PathBuf> {
        Some(self.daemon.cgroups().first()?.join(GROUP))
    }

    fn stop(&mut self, cgroups: bool) -> Result<(), String> {
        let port = self.ready()?.ports["web"];
        let shown: &[&str] = if cgroups { &["s", "f", "m"] } else { &["s"] };
        self.until("all have shown themselves", |t| shown.iter().all(|n| t.scene.is_here(n)).then_some(()))?;
        let group = self.ready()?;
        let unmarked = |pid: u32| socialweb_sys::process::environ_value(pid, "SOCIALWEB_BIRTH").is_none();
        let leaders = group.components.iter().filter_map(|c| c.pid);
        let unmarked: Vec<u32> = leaders.filter(|pid| unmarked(*pid)).collect();
        demand(unmarked.is_empty(), || format!("processes without a marker: {unmarked:?}"))?;

        self.daemon.ctl(&["stop", GROUP, "--no-wait"]);
        self.phase(GROUP, Phase::Parked)?;
        let said = self.scene.said();
        let below: Vec<&String> = said.iter().filter(|line| *line != "f told").collect();
        demand(below == ["b told", "b done", "a told"], || format!("the order of the stop: {said:?}"))?;
        demand(!cgroups || said[0] == "f told", || format!("the frozen one was not told: {said:?}"))?;
        let left = self.scene.alive();
        demand(left.is_empty(), || format!("these outlived the group: {left:?}"))?;
        demand(self.cgroup().is_none_or(|c| !c.exists()), || "the group's cgroup is left".into())?;
        let receipts = self.daemon.receipts(GROUP);
        demand(receipts.len() == 1, || format!("{} receipts of one stop", receipts.len()))?;
        let all = receipts[0].components.len();
        demand(all == shown.len() + 2, || format!("the receipt names {all} components"))?;
        let lease = self.leases()[port.to_string()]["group"].clone();
        demand(lease == GROUP, || format!("the lease of port {port} is {lease}"))
    }

    fn restart(&mut self, cgroups: bool) -> Result<(), String> {
        let group = self.ready()?;
        let port = group.ports["web"];
        let pid = group.component("b").and_then(|c| c.pid).ok_or("b does not run")?;
        send(pid, 9);
        self.until("b runs again", |t| {
            let group = t.group(GROUP)?;
            let again = group.component("b")?.pid.is_some_and(|p| p != pid);
            (again && group.phase == Phase::Ready).then_some(())
        })?;
        if cgroups {
            let runs = self.cgroup().map(|c| c.join("b")).ok_or("no cgroup")?;
            let count = fs::read_dir(runs).map_err(|e| e.to_string())?.flatten().filter(|e| e.path().is_dir()).count();
            demand(count == 1, || format!("{count} cgroups for one run of b"))?;
        }
        self.daemon.ctl(&["stop", GROUP]);
        self.phase(GROUP, Phase::Parked)?;
        let holder = TcpListener::bind(("127.0.0.1", port)).map_err(|e| e.to_string())?;
        self.daemon.ctl(&["start", GROUP, "--no-wait"]);
        let own = std::process::id().to_string();
        self.until("the holder of the port is named", |t| t.group(GROUP)?.reason.contains(&own).then_some(()))?;
        drop(holder);
        self.ready().map(drop)
    }

    fn crash(&mut self) -> Result<(), String> {
        let before = self.ready()?.generation;
        self.phase("endless", Phase::Ready)?;
        self.until("all have started", |t| (t.scene.lines("started").len() == 3).then_some(()))?;
        let old = self.scene.alive();
        self.daemon.ctl(&["stop", "endless", "--no-wait"]);
        self.phase("endless", Phase::Stopping)?;
        self.daemon.kill_9();
        self.daemon.start();
        let after = self.ready()?.generation;
        demand(after == before + 1, || format!("start {before} is followed by start {after}"))?;
        self.phase("endless", Phase::Parked)?;
        self.until("what an earlier daemon left is ended", |t| {
            let now = t.scene.alive();
            old.iter().all(|one| !now.contains(one)).then_some(())
        })?;
        self.until("a and b have started once more, and nothing else has", |t| {
            let mut started = t.scene.lines("started").split_off(3);
            started.sort();
            (started == ["a", "b"]).then_some(())
        })?;
        let twice: Vec<String> = self.scene.said().into_iter().filter(|line| line.ends_with("twice")).collect();
        demand(twice.is_empty(), || format!("started beside an earlier run: {twice:?}"))
    }

    fn delete(&mut self) -> Result<(), String> {
        let port = self.ready()?.ports["web"];
        self.phase("other", Phase::Ready)?;
        self.daemon.remove_cluster(GROUP);
        self.daemon.ctl(&["reload"]);
        self.phase(GROUP, Phase::Parked)?;
        self.daemon.ctl(&["delete", GROUP, "--yes"]);
        self.until("it is not shown any more", |t| {
            t.daemon.try_status().filter(|s| s.group(GROUP).is_none()).map(|_| ())
        })?;
        self.until("its data is gone", |t| {
            let groups = fs::read_dir(t.daemon.state().join("groups")).ok()?;
            (groups.flatten().count() == 1).then_some(())
        })?;
        self.until("its port is free", |t| t.leases()[port.to_string()].is_null().then_some(()))
    }

    fn end(&mut self) -> Result<(), String> {
        self.ready()?;
        self.daemon.signal(Signal::SIGTERM);
        self.until("b is told", |t| t.scene.said().contains(&"b told".into()).then_some(()))?;
        self.daemon.signal(Signal::SIGTERM);
        let deadline = Instant::now() + self.patience;
        while self.daemon.ended().is_none() {
            demand(Instant::now() < deadline, || "the daemon does not end".into())?;
            std::thread::sleep(ASK_AGAIN);
        }
        let said = self.scene.said();
        demand(said == ["b told", "b done", "a told"], || format!("the order of the end: {said:?}"))?;
        let left = self.scene.alive();
        demand(left.is_empty(), || format!("these outlived the daemon: {left:?}"))?;
        let cgroups = self.daemon.cgroups();
        demand(cgroups.is_empty(), || format!("cgroups are left: {cgroups:?}"))
    }

    fn full(&mut self) -> Result<(), String> {
        self.phase("other", Phase::Ready)?;
        self.until("what waits is told", |t| {
            t.daemon.try_status()?.warnings.iter().any(|w| w.contains("the leases")).then_some(())
        })?;
        // A whole restart of another group goes through the loop: by then this one would have started.
        self.daemon.ctl(&["restart", "other"]);
        self.phase("other", Phase::Ready)?;
        let group = self.group(GROUP).ok_or("not shown")?;
        let started = self.scene.lines("started");
        demand(group.phase == Phase::Sweeping && started.is_empty(), || {
            format!("started with a port that is not leased on disk: {} {started:?}", group.phase)
        })
    }

    /// A broken daemon is not asked to clear up.
    fn clear(&mut self) {
        if self.daemon.ended().is_none() && self.daemon.is_running() {
            self.daemon.kill_9();
        }
        self.scene.clear();
    }
}
