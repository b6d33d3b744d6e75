//! Each judge leads a daemon through one thing that can happen, and says what was not as it must be.

use crate::scene::Scene;
use crate::support::texts::SUPERVISOR;
use crate::support::{Daemon, PATIENCE, cgroup2_mount, own_ports, send};
use crate::trial::{Broken, Finding, GROUP, Trial, demand, unclear};
use nix::sys::signal::Signal;
use serde_json::Value;
use socialweb_wire::Phase;
use std::fs;
use std::net::TcpListener;
use std::time::Duration;

/// What a broken daemon has not done by then, and after many answers, it does not do.
const SHORT: Duration = Duration::from_secs(8);

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

impl Judge {
    /// Err: what is wrong with the daemon, with the fault of this name that breaks this, or with none.
    pub fn verdict(self, fault: Option<(&str, Broken)>) -> Result<(), Finding> {
        let (name, breaks) = fault.unzip();
        let chance = if fault.is_some() { SHORT } else { PATIENCE };
        let scene = Scene::new(&format!("{self:?}-{}", name.unwrap_or("none")), breaks == Some(Broken::Order));
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
        daemon.set_env("SOCIALWEB_MUTANT", name);
        if matches!(self, Judge::Full) {
            daemon.set_env("SOCIALWEB_FAILPOINT", Some("disk-leases:1000000=enospc"));
        }
        daemon.start();
        let mut trial = Trial { daemon, scene, chance };
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

impl Trial {
    fn stop(&mut self, cgroups: bool) -> Result<(), Finding> {
        let shown: &[&str] = if cgroups { &["s", "f", "m"] } else { &["s"] };
        self.ready()?;
        self.until("all have shown themselves", |t| shown.iter().all(|n| t.scene.is_here(n)).then_some(()))?;
        let group = self.ready()?;
        let unmarked = |pid: u32| socialweb_sys::process::environ_value(pid, "SOCIALWEB_BIRTH").is_none();
        let leaders = group.components.iter().filter_map(|c| c.pid);
        let unmarked: Vec<u32> = leaders.filter(|pid| unmarked(*pid)).collect();
        demand(unmarked.is_empty(), Broken::Marker, || format!("processes without a marker: {unmarked:?}"))?;

        self.daemon.ctl(&["stop", GROUP, "--no-wait"]);
        self.thawed(cgroups)?;
        let stubborn = group.component("s").and_then(|c| c.pid).ok_or_else(|| unclear("s does not run"))?;
        self.brought(
            Broken::Outlived,
            "judged is Parked",
            |t| t.is_in(GROUP, Phase::Parked),
            |t| t.scene.alive().iter().any(|(pid, _)| *pid == stubborn).then(|| format!("{stubborn} was not killed")),
        )?;
        self.is_down(cgroups)?;
        self.is_proven(shown.len() + 2)?;
        // A flush of the leases that is under way ends before the daemon does.
        self.daemon.signal(Signal::SIGTERM);
        self.gone()?;
        let port = group.ports["web"];
        let lease = self.leases()[port.to_string()]["group"].clone();
        demand(lease == GROUP, Broken::Lease, || format!("the lease of port {port} is {lease}"))
    }

    /// Who froze itself is told, and is frozen no more.
    fn thawed(&self, cgroups: bool) -> Result<(), Finding> {
        let told = |t: &Trial| !cgroups || t.scene.said().contains(&"f told".into());
        let frozen = |t: &Trial| {
            let runs = fs::read_dir(t.cgroup()?.join("f")).ok()?.flatten();
            let mut events = runs.filter_map(|run| fs::read_to_string(run.path().join("cgroup.events")).ok());
            events.any(|text| text.contains("frozen 1")).then(|| "it stays frozen".to_string())
        };
        // With another fault it may be dead by now.
        let over = |t: &Trial| told(t) || (!t.is_in(GROUP, Phase::Ready) && frozen(t).is_none());
        self.brought(Broken::Frozen, "the frozen one is told", over, frozen)
    }

    fn is_down(&self, cgroups: bool) -> Result<(), Finding> {
        let said = self.scene.said();
        let early = said.iter().any(|line| line == "a sees a receipt");
        demand(!early, Broken::ReceiptEarly, || format!("in the middle of the stop: {said:?}"))?;
        let below: Vec<&String> = said.iter().filter(|line| *line != "f told").collect();
        demand(below == ["b told", "b done", "a told"], Broken::Order, || format!("the order of the stop: {said:?}"))?;
        demand(!cgroups || said[0] == "f told", Broken::Order, || format!("the frozen one was not told: {said:?}"))?;
        let left = self.scene.alive();
        demand(left.is_empty(), Broken::Outlived, || format!("these outlived the group: {left:?}"))?;
        demand(self.cgroup().is_none_or(|c| !c.exists()), Broken::Cgroup, || "the group's cgroup is left".into())
    }

    fn is_proven(&self, components: usize) -> Result<(), Finding> {
        let receipts = self.daemon.receipts(GROUP);
        demand(receipts.len() == 1, Broken::Receipt, || format!("{} receipts of one stop", receipts.len()))?;
        let all = receipts[0].components.len();
        demand(all == components, Broken::Receipt, || format!("the receipt names {all} components"))
    }

    fn restart(&mut self, cgroups: bool) -> Result<(), Finding> {
        let group = self.ready()?;
        let port = group.ports["web"];
        let pid = group.component("b").and_then(|c| c.pid).ok_or_else(|| unclear("b does not run"))?;
        send(pid, 9);
        let again = |t: &Trial| {
            let group = t.group(GROUP).filter(|group| group.phase == Phase::Ready);
            group.is_some_and(|group| group.component("b").is_some_and(|b| b.pid.is_some_and(|p| p != pid)))
        };
        self.brought(Broken::Unreaped, "b runs again", again, |_| {
            let dead = socialweb_sys::process::Stat::of(pid).is_ok_and(|stat| stat.is_dead());
            dead.then(|| format!("b is dead, and nobody waits for pid {pid}"))
        })?;
        if cgroups {
            let runs = self.cgroup().map(|c| c.join("b")).ok_or_else(|| unclear("no cgroup"))?;
            let count = fs::read_dir(runs).map_err(unclear)?.flatten().filter(|e| e.path().is_dir()).count();
            demand(count == 1, Broken::Cgroup, || format!("{count} cgroups for one run of b"))?;
        }
        self.daemon.ctl(&["stop", GROUP]);
        self.phase(GROUP, Phase::Parked)?;
        let holder = TcpListener::bind(("127.0.0.1", port)).map_err(unclear)?;
        let before = self.scene.lines("started").len();
        self.daemon.ctl(&["start", GROUP, "--no-wait"]);
        let own = std::process::id().to_string();
        let named = |t: &Trial| t.group(GROUP).is_some_and(|group| group.reason.contains(&own));
        self.brought(Broken::Taken, "the holder of the port is named", named, |t| {
            (t.scene.lines("started").len() > before).then(|| format!("it started, and port {port} is taken"))
        })?;
        drop(holder);
        self.ready().map(drop)
    }

    fn crash(&mut self) -> Result<(), Finding> {
        let before = self.ready()?.generation;
        self.phase("endless", Phase::Ready)?;
        self.until("all have started", |t| (t.scene.lines("started").len() == 3).then_some(()))?;
        let old = self.scene.alive();
        self.daemon.ctl(&["stop", "endless", "--no-wait"]);
        self.phase("endless", Phase::Stopping)?;
        self.daemon.kill_9();
        self.daemon.start();
        let after = self.ready()?.generation;
        demand(after == before + 1, Broken::Generation, || format!("start {before} is followed by start {after}"))?;
        let record = self.daemon.state().join("groups/endless/record.json");
        self.brought(
            Broken::Desired,
            "endless is Parked",
            |t| t.is_in("endless", Phase::Parked),
            |_| {
                let kept: Value = serde_json::from_slice(&fs::read(record).ok()?).ok()?;
                (kept["desired"] != "parked-by-operator").then(|| format!("what it is to be is {}", kept["desired"]))
            },
        )?;
        let left = |t: &Trial| {
            let now = t.scene.alive();
            old.iter().filter(|one| now.contains(one)).cloned().collect::<Vec<_>>()
        };
        self.brought(
            Broken::Survivors,
            "what an earlier daemon left is ended",
            |t| left(t).is_empty(),
            |t| Some(left(t)).filter(|left| !left.is_empty()).map(|left| format!("these are left: {left:?}")),
        )?;
        self.until("a and b have started once more, and nothing else has", |t| {
            let mut started = t.scene.lines("started").split_off(3);
            started.sort();
            (started == ["a", "b"]).then_some(())
        })?;
        let twice: Vec<String> = self.scene.said().into_iter().filter(|line| line.ends_with("twice")).collect();
        demand(twice.is_empty(), Broken::Survivors, || format!("started beside an earlier run: {twice:?}"))
    }

    fn delete(&mut self) -> Result<(), Finding> {
        let port = self.ready()?.ports["web"].to_string();
        self.phase("other", Phase::Ready)?;
        self.daemon.remove_cluster(GROUP);
        self.daemon.ctl(&["reload"]);
        self.phase(GROUP, Phase::Parked)?;
        self.daemon.ctl(&["delete", GROUP, "--yes"]);
        self.until("it is not shown any more", |t| {
            t.daemon.try_status().filter(|s| s.group(GROUP).is_none()).map(|_| ())
        })?;
        let kept = |t: &Trial| {
            let groups = fs::read_dir(t.daemon.state().join("groups")).ok()?.flatten();
            let other = groups.map(|e| e.file_name().to_string_lossy().into_owned()).filter(|name| name != "other");
            Some(other.collect::<Vec<_>>()).filter(|names| !names.is_empty()).map(|names| format!("kept: {names:?}"))
        };
        self.brought(Broken::Data, "its data is gone", |t| kept(t).is_none(), kept)?;
        let leased = |t: &Trial| Some(t.leases()[&port].clone()).filter(|lease| !lease.is_null());
        self.brought(
            Broken::Ports,
            "its port is free",
            |t| leased(t).is_none(),
            |t| leased(t).map(|lease| format!("port {port} is still leased: {lease}")),
        )
    }

    fn end(&mut self) -> Result<(), Finding> {
        self.ready()?;
        self.daemon.signal(Signal::SIGTERM);
        self.until("b is told", |t| t.scene.said().contains(&"b told".into()).then_some(()))?;
        self.daemon.signal(Signal::SIGTERM);
        self.gone()?;
        let said = self.scene.said();
        demand(said == ["b told", "b done", "a told"], Broken::Order, || format!("the order of the end: {said:?}"))?;
        let left = self.scene.alive();
        demand(left.is_empty(), Broken::Outlived, || format!("these outlived the daemon: {left:?}"))?;
        let cgroups = self.daemon.cgroups();
        demand(cgroups.is_empty(), Broken::Cgroup, || format!("cgroups are left: {cgroups:?}"))
    }

    fn full(&mut self) -> Result<(), Finding> {
        self.phase("other", Phase::Ready)?;
        self.until("what waits is told", |t| {
            t.daemon.try_status()?.warnings.iter().any(|w| w.contains("the leases")).then_some(())
        })?;
        // A whole restart of another group goes through the loop: by then this one would have started.
        self.daemon.ctl(&["restart", "other"]);
        self.phase("other", Phase::Ready)?;
        let group = self.group(GROUP).ok_or_else(|| unclear("not shown"))?;
        let started = self.scene.lines("started");
        demand(group.phase == Phase::Sweeping && started.is_empty(), Broken::Unflushed, || {
            format!("started with a port that is not leased on disk: {} {started:?}", group.phase)
        })
    }
}
