//! A daemon under measurement: started on a fresh state folder, asked to go when dropped.

use crate::repo::Repo;
use crate::run;
use crate::up::demo::Demo;
use anyhow::{Context, Result, bail};
use socialweb_wire::{HostStatus, Phase};
use std::fs;
use std::path::Path;
use std::process::Child;
use std::thread;
use std::time::{Duration, Instant};

/// Resolution of a time to Ready. A status of all groups costs the daemon milliseconds that its start would use; asked for
/// more often, the question would be a part of what is measured.
const LOOK: Duration = Duration::from_millis(50);

/// Far above every bound: past it something is broken, not slow.
const LIMIT: Duration = Duration::from_secs(300);

/// It runs while this lives.
pub struct Daemon {
    child: Child,
    demo: Demo,
    began: Instant,
}

impl Daemon {
    /// Writes `config` into `folder` and starts the release build on it, with nothing left of an earlier run.
    pub fn start(repo: &Repo, folder: &Path, config: &str) -> Result<Daemon> {
        fs::create_dir_all(folder).with_context(|| format!("creating {}", folder.display()))?;
        let file = folder.join("supervisor.toml");
        fs::write(&file, config).with_context(|| format!("writing {}", file.display()))?;
        let demo = Demo::with(repo, repo.daemon("release"), file, folder);
        let _absent = fs::remove_dir_all(demo.state());
        demo.prepare()?;
        fs::write(demo.log(), "")?;
        let mut command = demo.command()?;
        let began = Instant::now();
        let child = command.spawn().context("starting the daemon")?;
        Ok(Daemon { child, demo, began })
    }

    /// Time from exec until all its groups, at least `groups`, are Ready.
    pub fn until_ready(&mut self, groups: usize) -> Result<Duration> {
        loop {
            if let Some(status) = self.child.try_wait()? {
                bail!("the daemon ended with {status}:\n{}", self.demo.log_tail());
            }
            let status = self.demo.status();
            let elapsed = self.began.elapsed();
            if status.as_ref().is_some_and(|status| all_ready(status, groups)) {
                return Ok(elapsed);
            }
            if elapsed > LIMIT {
                bail!("not Ready after {}: {}", run::seconds(elapsed), worst(status.as_ref()));
            }
            thread::sleep(LOOK);
        }
    }

    /// Its process id.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Where it keeps its state.
    pub fn state(&self) -> &Path {
        self.demo.state()
    }

    /// Takes everything down in order and waits for it.
    pub fn stop(mut self) -> Result<()> {
        self.end().context("stopping the daemon")
    }

    fn end(&mut self) -> Result<()> {
        if self.child.try_wait()?.is_none() {
            run::terminate(self.child.id())?;
            let status = self.child.wait()?;
            if !status.success() {
                bail!("it ended with {status}:\n{}", self.demo.log_tail());
            }
        }
        Ok(())
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        if let Err(error) = self.end() {
            eprintln!("    {error:#}");
        }
    }
}

fn all_ready(status: &HostStatus, groups: usize) -> bool {
    status.groups.len() >= groups && status.groups.iter().all(|group| group.phase == Phase::Ready)
}

fn worst(status: Option<&HostStatus>) -> String {
    let group = status.and_then(|status| status.groups.iter().find(|group| group.phase != Phase::Ready));
    group.map_or_else(|| "no answer".into(), |group| format!("{} is {}: {}", group.name, group.phase, group.reason))
}
