//! Small supervisors of the same programs, broken on purpose, and one that is not.

use super::evidence::Scene;
use super::nasty::{self, Program};
use crate::support::{cgroup2_mount, wait_for};
use socialweb_sys::spawn::{Command, Spawned};
use socialweb_sys::{Cgroup, reap};
use std::path::PathBuf;
use std::time::{Duration, Instant};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// Right: reverse ranks, each proven empty.
    None,
    /// The order of the start.
    WrongOrder,
    /// TERM, grace, KILL, to leaders only.
    LeaderOnly,
    /// The next rank when the leaders above are gone, whatever they left.
    EarlyRank,
}

struct Child {
    rank: u16,
    grace: Duration,
    spawned: Spawned,
    cgroup: Cgroup,
}

pub struct Broken {
    fault: Fault,
    top: Cgroup,
    children: Vec<Child>,
}

impl Broken {
    /// None where there is no cgroup2 for it.
    pub fn start(scene: &Scene, fault: Fault) -> Option<Broken> {
        let root = cgroup2_mount()?;
        let top = Cgroup::at(root).child(&format!("sw-broken-{}-{fault:?}", std::process::id()));
        top.create().ok()?;
        scene.drop_mover();
        let children = nasty::programs(false).into_iter().map(|p| start(scene, &top, p)).collect();
        Some(Broken { fault, top, children })
    }

    pub fn stop(&self, scene: &Scene) {
        let mut ranks: Vec<u16> = self.children.iter().map(|c| c.rank).collect();
        ranks.sort_unstable();
        ranks.dedup();
        if self.fault != Fault::WrongOrder {
            ranks.reverse();
        }
        for rank in ranks {
            let here: Vec<&Child> = self.children.iter().filter(|c| c.rank == rank).collect();
            here.iter().for_each(|c| drop(c.spawned.pidfd.send(15)));
            wait_ended(&here, here.iter().map(|c| c.grace).max().unwrap_or_default());
            match self.fault {
                Fault::LeaderOnly | Fault::EarlyRank => here.iter().for_each(|c| drop(c.spawned.pidfd.send(9))),
                Fault::None | Fault::WrongOrder => here.iter().for_each(|c| c.cgroup.kill().unwrap()),
            }
            wait_ended(&here, Duration::from_secs(60));
            if matches!(self.fault, Fault::None | Fault::WrongOrder) {
                wait_for("a killed cgroup empties", || {
                    here.iter().all(|c| !c.cgroup.populated().unwrap()).then_some(())
                });
            }
        }
        if self.fault == Fault::EarlyRank {
            // It does clean up in the end; only the order is wrong.
            self.top.kill().unwrap();
            wait_for("all is gone", || scene.all_alive().is_empty().then_some(()));
        }
    }
}

impl Drop for Broken {
    fn drop(&mut self) {
        let _ = self.top.kill();
        wait_for("a broken supervisor's leftovers end", || self.top.remove().ok());
    }
}

fn start(scene: &Scene, top: &Cgroup, program: Program) -> Child {
    let cgroup = top.child(program.name);
    cgroup.create().unwrap();
    let argv = vec!["/bin/sh".into(), "-c".into(), program.script.clone()];
    let mut command = Command::new(argv, PathBuf::from("/"));
    command.env = nasty::env(scene, &program);
    // Orphans of these go to init, which collects them when it likes; the daemon collects its own and is judged by that.
    command.env.push(("ZOMBIES_ARE_GONE".into(), "yes".into()));
    let spawned = command.spawn(Some(&cgroup)).unwrap();
    Child { rank: program.rank, grace: program.grace(), spawned, cgroup }
}

/// Waits for leaders only, and collects them by number: other tests in this process have children too.
fn wait_ended(children: &[&Child], limit: Duration) {
    let deadline = Instant::now() + limit;
    let ended = |c: &Child| reap::reap(c.spawned.pid).is_ok() || !c.spawned.pidfd.exists().unwrap();
    while !children.iter().all(|c| ended(c)) && Instant::now() < deadline {
        std::thread::sleep(Duration::from_millis(10));
    }
}
