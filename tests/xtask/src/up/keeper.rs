//! Keeps the daemon running as the unit's `Restart=on-failure` would: a crash is followed by a start, a clean end is not,
//! and a daemon that cannot even start is given up.

use crate::run;
use anyhow::{Context, Result, bail};
use signal_hook::consts::{SIGCHLD, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Child, Command, ExitStatus};
use std::thread;
use std::time::{Duration, Instant};

/// The unit's RestartSec.
const DELAY: Duration = Duration::from_millis(500);

/// The unit's RestartPreventExitStatus: wrong usage.
const WRONG_USAGE: i32 = 2;

/// As systemd's own default: this many starts within [`WINDOW`] are a loop.
const BURST: usize = 5;
const WINDOW: Duration = Duration::from_secs(10);

/// How often a bounded wait looks.
const LOOK: Duration = Duration::from_millis(50);

/// Runs one daemon.
pub struct Keeper<F> {
    command: F,
    child: Child,
    signals: Signals,
    starts: Vec<Instant>,
}

/// What happened meanwhile.
#[derive(Debug, PartialEq, Eq)]
pub enum Turn {
    /// Nothing.
    Quiet,
    /// Somebody asked us to stop: SIGINT or SIGTERM.
    Asked,
    /// The daemon died and runs again.
    Restarted(ExitStatus),
    /// It ended with status 0, and stays so.
    Ended,
}

impl<F: FnMut() -> Result<Command>> Keeper<F> {
    /// Starts what `command` builds.
    pub fn start(mut command: F) -> Result<Self> {
        let signals = Signals::new([SIGINT, SIGTERM, SIGCHLD]).context("installing signal handlers")?;
        let child = spawn(&mut command()?)?;
        Ok(Keeper { command, child, signals, starts: vec![Instant::now()] })
    }

    /// Waits for the next happening, at most for `patience` when there is one.
    pub fn turn(&mut self, patience: Option<Duration>) -> Result<Turn> {
        let until = patience.map(|p| Instant::now() + p);
        loop {
            // Looked at before every wait: the SIGCHLD that tells of it may have been taken together with another signal.
            if let Some(status) = self.child.try_wait().context("waiting for the daemon")? {
                return self.ended(status);
            }
            let asked = match until {
                Some(_) => self.signals.pending().any(|s| s != SIGCHLD),
                None => self.signals.wait().any(|s| s != SIGCHLD),
            };
            if asked {
                return Ok(Turn::Asked);
            }
            match until {
                Some(until) if Instant::now() >= until => return Ok(Turn::Quiet),
                Some(_) => thread::sleep(LOOK),
                None => {}
            }
        }
    }

    /// SIGTERM to the daemon: it takes its groups down in order.
    pub fn ask_to_stop(&self) -> Result<()> {
        run::terminate(self.child.id())
    }

    fn ended(&mut self, status: ExitStatus) -> Result<Turn> {
        if status.success() {
            return Ok(Turn::Ended);
        }
        if status.code() == Some(WRONG_USAGE) {
            bail!("the daemon refused to start ({status}); trying again would not help");
        }
        self.starts.retain(|start| start.elapsed() < WINDOW);
        if self.starts.len() >= BURST {
            bail!("the daemon ended {BURST} times within {} s, the last time with {}", WINDOW.as_secs(), say(status));
        }
        thread::sleep(DELAY);
        self.child = spawn(&mut (self.command)()?)?;
        self.starts.push(Instant::now());
        Ok(Turn::Restarted(status))
    }
}

/// However we end, the daemon does not stay behind without anybody who knows of it.
impl<F> Drop for Keeper<F> {
    fn drop(&mut self) {
        if matches!(self.child.try_wait(), Ok(None)) && run::terminate(self.child.id()).is_ok() {
            let _ended = self.child.wait();
        }
    }
}

/// A process group of its own: Ctrl-C in the terminal reaches us, and we ask the daemon once.
fn spawn(command: &mut Command) -> Result<Child> {
    let program = command.get_program().to_os_string();
    command.process_group(0).spawn().with_context(|| format!("starting {}", program.display()))
}

/// How it ended, as people say it.
pub fn say(status: ExitStatus) -> String {
    match status.signal() {
        Some(number) => format!("signal {number}"),
        None => status.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;

    fn shell(script: &str) -> Result<Command> {
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        Ok(command)
    }

    fn next<F: FnMut() -> Result<Command>>(keeper: &mut Keeper<F>) -> Result<Turn> {
        for _ in 0..200 {
            match keeper.turn(Some(LOOK))? {
                Turn::Quiet => {}
                turn => return Ok(turn),
            }
        }
        bail!("nothing happened")
    }

    #[test]
    fn a_crash_is_followed_by_a_start_and_a_clean_end_is_not() {
        let starts = Cell::new(0);
        let mut keeper = Keeper::start(|| {
            starts.set(starts.get() + 1);
            shell(if starts.get() == 1 { "kill -9 $$" } else { "exit 0" })
        })
        .unwrap();
        assert!(matches!(next(&mut keeper).unwrap(), Turn::Restarted(status) if status.signal() == Some(9)));
        assert_eq!(next(&mut keeper).unwrap(), Turn::Ended);
        assert_eq!(starts.get(), 2);
    }

    #[test]
    fn a_keeper_that_is_dropped_leaves_no_daemon_behind() {
        let keeper = Keeper::start(|| shell("exec sleep 1000")).unwrap();
        let proc = format!("/proc/{}", keeper.child.id());
        drop(keeper);
        assert!(!std::path::Path::new(&proc).exists());
    }

    #[test]
    fn wrong_usage_is_not_tried_again() {
        let mut keeper = Keeper::start(|| shell("exit 2")).unwrap();
        assert!(next(&mut keeper).unwrap_err().to_string().contains("refused"));
    }

    #[test]
    fn a_daemon_that_always_dies_is_given_up() {
        let mut keeper = Keeper::start(|| shell("exit 1")).unwrap();
        let mut restarts = 0;
        let error = loop {
            match next(&mut keeper) {
                Ok(_) => restarts += 1,
                Err(error) => break error.to_string(),
            }
        };
        assert_eq!(restarts, BURST - 1);
        assert!(error.contains("5 times"), "{error}");
    }

    #[test]
    fn a_daemon_that_is_asked_to_stop_gets_sigterm() {
        let mut keeper = Keeper::start(|| shell("trap 'exit 0' TERM; echo; while :; do sleep 0.05; done")).unwrap();
        // The trap is set once the shell has begun to sleep: its child is there to be seen.
        let children = format!("/proc/{0}/task/{0}/children", keeper.child.id());
        while std::fs::read_to_string(&children).unwrap().is_empty() {
            thread::sleep(LOOK);
        }
        keeper.ask_to_stop().unwrap();
        assert_eq!(next(&mut keeper).unwrap(), Turn::Ended);
    }
}
