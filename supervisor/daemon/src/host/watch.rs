//! Readiness, liveness and progress of runs: tasks that ask, and what processes say by themselves.

use super::live::{Key, Owner};
use super::{Host, Msg};
use crate::probe::{Exec, Outcome, Prober};
use socialweb_core::{Event, ExitStatus, Launch, ProbeUse};
use socialweb_sys::PidFd;
use socialweb_sys::cgroup::Cgroup;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::mpsc::UnboundedSender;
use tokio::sync::oneshot;

/// What a process says about itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Saying {
    /// READY=1, or a newline on the notification descriptor.
    Ready,
    /// WATCHDOG=1.
    Alive,
}

/// An exec probe that a prober asks the loop for.
#[derive(Debug)]
pub(crate) struct ExecAsk {
    pub key: Key,
    pub launch: Launch,
    pub started: oneshot::Sender<Result<Started, String>>,
}

/// A probe's process, on its way.
#[derive(Debug)]
pub(crate) struct Started {
    pub program: EndOnDrop,
    pub exec: socialweb_sys::spawn::ExecPipe,
    pub ended: oneshot::Receiver<ExitStatus>,
}

/// Counters are looked at this often while a run is starting.
const PROGRESS_EVERY: Duration = Duration::from_secs(5);
/// Less processor time than this in between is the probe's own doing, not progress: one percent of one core.
const PROGRESS_CPU_USEC: u64 = 50_000;

impl Host {
    pub(super) fn probe_run(&mut self, key: Key, what: ProbeUse) {
        let Some(spec) = self.groups.get(&key.group).and_then(|h| h.machine.component_spec(&key.component)).cloned()
        else {
            return;
        };
        let exec = self.exec_prober(&key);
        let tx = self.tx.clone();
        let Some(live) = self.births.get_mut(&key) else { return };
        if let Some(task) = live.probe.take() {
            task.abort();
        }
        let report = reporter(key.clone(), tx.clone());
        live.probe = match (what, spec.liveness.clone()) {
            (ProbeUse::Readiness, _) => {
                let r = spec.readiness.clone();
                if r.cap > r.deadline {
                    live.tasks.push(tokio::spawn(progress(key, live.cgroup.clone(), live.pid, tx)).abort_handle());
                }
                let prober = Prober::new(r.probe, live.ready.clone(), exec);
                Some(tokio::spawn(prober.run_readiness(r.interval, r.timeout, report)).abort_handle())
            }
            (ProbeUse::Liveness, Some(l)) => {
                live.tasks.drain(..).for_each(|task| task.abort());
                let prober = Prober::new(l.probe, live.beat.clone(), exec);
                Some(tokio::spawn(prober.run_liveness(l.interval, l.timeout, report)).abort_handle())
            }
            _ => {
                live.tasks.drain(..).for_each(|task| task.abort());
                None
            }
        };
    }

    /// A process said something; the kernel said which process.
    pub(super) fn said(&mut self, key: &Key, saying: Saying) {
        if let Some(live) = self.births.get(key) {
            match saying {
                Saying::Ready => live.ready.raise(),
                Saying::Alive => live.beat.raise(),
            }
        }
    }

    /// Starts a probe's process on behalf of a prober.
    pub(super) fn start_probe(&mut self, ask: ExecAsk) {
        let asked = self.births.get(&ask.key).is_some_and(|live| live.probe.is_some() && live.emptying.is_none());
        let spawned = match asked {
            true => self.spawn_probe(&ask.key, &ask.launch),
            false => Err("its run is over".into()),
        };
        let started = spawned.map(|(s, cgroup)| {
            let (tell, ended) = oneshot::channel();
            self.pids.insert(s.pid, Owner::Probe(ask.key.clone(), tell));
            Started { program: EndOnDrop { pidfd: s.pidfd, cgroup }, exec: s.exec, ended }
        });
        // When the prober gave up in the meantime, its program goes with the answer.
        let _ = ask.started.send(started);
    }

    fn exec_prober(&self, key: &Key) -> Exec {
        let (key, tx) = (key.clone(), self.tx.clone());
        Arc::new(move |launch: Launch| {
            let (key, tx) = (key.clone(), tx.clone());
            Box::pin(run_probe(key, launch, tx))
        })
    }
}

/// Runs one probe's program to its end. Dropping the future (its time is up) kills the program.
async fn run_probe(key: Key, launch: Launch, tx: UnboundedSender<Msg>) -> Result<ExitStatus, String> {
    let (tell, started) = oneshot::channel();
    let gone = || "the daemon goes down".to_string();
    tx.send(Msg::ExecProbe(ExecAsk { key, launch, started: tell })).map_err(|_| gone())?;
    let started = started.await.map_err(|_| gone())??;
    let _program = started.program;
    super::spawn::exec_result(started.exec).await?;
    started.ended.await.map_err(|_| gone())
}

/// A probe's program with all that it forked: nothing of it outlives the question.
#[derive(Debug)]
pub(crate) struct EndOnDrop {
    pidfd: PidFd,
    cgroup: Option<Cgroup>,
}

impl Drop for EndOnDrop {
    fn drop(&mut self) {
        let _ = self.pidfd.send(nix::libc::SIGKILL);
        if let Some(cgroup) = &self.cgroup {
            let _ = cgroup.kill();
        }
    }
}

fn reporter(key: Key, tx: UnboundedSender<Msg>) -> impl FnMut(Outcome) + Send + 'static {
    move |outcome| {
        let (component, birth) = (key.component.clone(), key.birth);
        let event = match outcome {
            Outcome::Ready => Event::Ready { component, birth },
            Outcome::Recovered => Event::ProbeRecovered { component, birth },
            Outcome::Failed(why) => Event::ProbeFailed { component, birth, why },
        };
        let _ = tx.send(Msg::Event(key.group.clone(), event));
    }
}

/// Tells core while the counters of a starting run grow.
async fn progress(key: Key, cgroup: Option<Cgroup>, pid: u32, tx: UnboundedSender<Msg>) {
    let mut before = work(cgroup.as_ref(), pid);
    loop {
        tokio::time::sleep(PROGRESS_EVERY).await;
        let now = work(cgroup.as_ref(), pid);
        let grew = now.0 >= before.0.saturating_add(PROGRESS_CPU_USEC) || now.1 > before.1;
        before = now;
        if grew {
            let (component, birth) = (key.component.clone(), key.birth);
            if tx.send(Msg::Event(key.group.clone(), Event::Progress { component, birth })).is_err() {
                return;
            }
        }
    }
}

/// Processor time in microseconds and bytes of block io, of the run or else of its leader.
fn work(cgroup: Option<&Cgroup>, pid: u32) -> (u64, u64) {
    match cgroup.and_then(|c| c.counters().ok()) {
        Some(counters) => (counters.cpu_usec, counters.io_bytes.unwrap_or(0)),
        None => (super::status::cpu_usec(pid).unwrap_or(0), 0),
    }
}
