//! `up --detach` and `down`: the same keeper, in a session of its own, found again by a record of its pid and start time.

use super::demo::Demo;
use super::keeper::{Keeper, Turn, say};
use super::show::Progress;
use super::{ASK, announce, prepare, print_receipt};
use crate::repo::Repo;
use crate::run;
use crate::setup::Install;
use anyhow::{Context, Result, bail};
use socialweb_wire::Phase;
use std::fs;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant, SystemTime};

/// Above the daemon's own sum of all ladders; past it somebody has to look.
const STOP_LIMIT: Duration = Duration::from_secs(600);

/// `cargo x up --detach`.
pub fn up_detached(install: Install) -> Result<()> {
    let demo = prepare(install)?;
    demo.begin_log()?;
    let repo = Repo::find()?;
    println!("==> starting the daemon and the tenant {} in the background", super::demo::GROUP);
    let log = fs::File::create(repo.build().join("demo/up.log")).context("creating build/demo/up.log")?;
    let mut keeper = Command::new(std::env::current_exe().context("finding our own program")?);
    keeper.arg("keep").current_dir(repo.root()).stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log);
    let mut keeper = keeper.spawn().context("starting the keeper")?;
    Record::of(keeper.id())?.write(&repo)?;
    let mut progress = Progress::new();
    loop {
        if let Some(status) = keeper.try_wait()? {
            let said = fs::read_to_string(repo.build().join("demo/up.log")).unwrap_or_default();
            bail!(
                "the keeper ended with {}: {}\nthe daemon's last lines:\n{}",
                say(status),
                said.trim(),
                demo.log_tail()
            );
        }
        let group = demo.group();
        progress.show(group.as_ref());
        match group {
            Some(group) if group.phase == Phase::Ready => {
                announce(&demo, &group, progress.elapsed());
                println!("    `cargo x down` takes it down");
                return Ok(());
            }
            Some(group) if group.phase == Phase::Unavailable => {
                bail!("the tenant is Unavailable ({}); the daemon tries again, `cargo x down` ends it", group.reason)
            }
            _ => thread::sleep(ASK),
        }
    }
}

/// The background process behind `up --detach`.
pub fn keep() -> Result<()> {
    // No terminal's hang-up or Ctrl-C is ours.
    nix::unistd::setsid().context("leaving the terminal's session")?;
    let repo = Repo::find()?;
    let demo = Demo::new(&repo);
    let mut keeper = Keeper::start(|| demo.command())?;
    let mut asked = false;
    loop {
        match keeper.turn(None)? {
            Turn::Asked => {
                asked = true;
                keeper.ask_to_stop()?;
            }
            Turn::Restarted(status) => {
                println!("the daemon ended with {} and was started again", say(status));
                if asked {
                    keeper.ask_to_stop()?;
                }
            }
            Turn::Ended => return Ok(()),
            Turn::Quiet => {}
        }
    }
}

/// `cargo x down`.
pub fn down() -> Result<()> {
    let repo = Repo::find()?;
    let demo = Demo::new(&repo);
    let record = match (Record::read(&repo).filter(Record::alive), demo.status()) {
        (Some(keeper), _) => keeper,
        (None, None) => {
            println!("nothing runs");
            return Ok(());
        }
        (None, Some(status)) if has_keeper(status.pid) => {
            bail!("the demo runs in another terminal; Ctrl-C there takes it down")
        }
        (None, Some(status)) => {
            println!("    who started the daemon is gone; it is asked itself");
            Record::of(status.pid)?
        }
    };
    println!("==> stopping, in reverse order");
    let (began, limit) = (SystemTime::now(), Instant::now() + STOP_LIMIT);
    let mut progress = Progress::new();
    record.terminate()?;
    while record.alive() {
        if Instant::now() > limit {
            bail!("the daemon still runs after {} s; {} says why", STOP_LIMIT.as_secs(), demo.log().display());
        }
        if let Some(group) = demo.group() {
            progress.show(Some(&group));
        }
        thread::sleep(ASK);
    }
    let _gone = fs::remove_file(Record::path(&repo));
    print_receipt(&demo, began)
}

/// True while the daemon's parent is one of us.
fn has_keeper(daemon: u32) -> bool {
    let stat = fs::read_to_string(format!("/proc/{daemon}/stat")).unwrap_or_default();
    let parent = stat.rsplit_once(')').and_then(|(_, rest)| rest.split_whitespace().nth(1)?.parse::<u32>().ok());
    let own = std::env::current_exe().ok();
    parent
        .and_then(|pid| fs::read_link(format!("/proc/{pid}/exe")).ok())
        .is_some_and(|exe| exe.file_name() == own.as_ref().and_then(|own| own.file_name()))
}

/// Which process the keeper is: a pid alone may be somebody else's by now.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Record {
    pid: u32,
    start_time: u64,
}

impl Record {
    fn path(repo: &Repo) -> PathBuf {
        repo.build().join("demo/up.pid")
    }

    fn of(pid: u32) -> Result<Record> {
        let start_time = start_time(pid).with_context(|| format!("process {pid} ended at once"))?;
        Ok(Record { pid, start_time })
    }

    fn write(&self, repo: &Repo) -> Result<()> {
        fs::write(Record::path(repo), format!("{} {}\n", self.pid, self.start_time))
            .context("writing build/demo/up.pid")
    }

    fn read(repo: &Repo) -> Option<Record> {
        Record::parse(&fs::read_to_string(Record::path(repo)).ok()?)
    }

    fn parse(text: &str) -> Option<Record> {
        let (pid, start_time) = text.trim().split_once(' ')?;
        Some(Record { pid: pid.parse().ok()?, start_time: start_time.parse().ok()? })
    }

    fn alive(&self) -> bool {
        start_time(self.pid) == Some(self.start_time)
    }

    /// Only for a record that was just seen alive.
    fn terminate(&self) -> Result<()> {
        run::terminate(self.pid)
    }
}

/// Field 22 of /proc/PID/stat, in clock ticks since boot; none for a process that is gone or only waits to be reaped.
fn start_time(pid: u32) -> Option<u64> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The command, in parentheses, may hold anything.
    let mut fields = stat.rsplit_once(')')?.1.split_whitespace();
    if fields.next()? == "Z" {
        return None;
    }
    fields.nth(18)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_recycled_pid_is_not_taken_for_the_keeper() {
        let me = Record::of(std::process::id()).unwrap();
        assert!(me.alive());
        assert!(!Record { start_time: me.start_time + 1, ..me.clone() }.alive());
        assert_eq!(Record::parse(&format!("{} {}\n", me.pid, me.start_time)), Some(me));
        assert_eq!(Record::parse("garbage"), None);
    }

    #[test]
    fn a_process_that_only_waits_to_be_reaped_is_gone() {
        let mut child = Command::new("true").spawn().unwrap();
        let until = Instant::now() + Duration::from_secs(10);
        while start_time(child.id()).is_some() && Instant::now() < until {
            thread::sleep(Duration::from_millis(5));
        }
        assert_eq!(start_time(child.id()), None);
        child.wait().unwrap();
    }
}
