//! One run in the shell: what the kernel gave us for it.

use super::hunt::Vacancy;
use crate::probe::Signalled;
use socialweb_core::{Birth, ComponentName, ExitStatus, GroupName, Reaped, Traces};
use socialweb_sys::cgroup::{Cgroup, WatchId};
use socialweb_sys::{PidFd, reap};
use std::fmt;
use std::time::Instant;
use tokio::task::AbortHandle;

/// Names one run on this host.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Key {
    pub group: GroupName,
    pub component: ComponentName,
    pub birth: Birth,
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}/{}", self.group, self.component, self.birth)
    }
}

/// Whose process a child of ours is.
#[derive(Debug)]
pub(crate) enum Owner {
    /// The leader of a run.
    Leader(Key),
    /// An exec probe of a run; its end is told here.
    Probe(Key, tokio::sync::oneshot::Sender<ExitStatus>),
}

impl Owner {
    pub fn key(&self) -> &Key {
        match self {
            Owner::Leader(key) | Owner::Probe(key, _) => key,
        }
    }
}

/// One run.
#[derive(Debug)]
pub(crate) struct Live {
    pub pid: u32,
    pub start_time: u64,
    pub pidfd: PidFd,
    pub cgroup: Option<Cgroup>,
    /// The end of the exec pipe's reader, until exec is decided.
    pub exec: Option<AbortHandle>,
    /// exec failed: what to tell once the process is waited for.
    pub exec_failed: Option<String>,
    pub exited: bool,
    pub status: Option<ExitStatus>,
    /// What else was seen of its end.
    pub traces: Traces,
    /// Processes of its group that were ended out of memory before it began.
    pub oom_before: u64,
    pub emptying: Option<Emptying>,
    /// Others of this run that were seen to end.
    pub others: Vec<Reaped>,
    pub probe: Option<AbortHandle>,
    /// Raised when the run says that it is ready.
    pub ready: Signalled,
    /// Raised at each of its signs of life.
    pub beat: Signalled,
    pub tasks: Vec<AbortHandle>,
    pub pipe: crate::logs::PipeId,
}

/// Somebody waits for the last process of the run.
#[derive(Debug, Clone, Default)]
pub(crate) struct Emptying {
    /// True: kill whatever turns up. False: the stop signal was sent, grace runs.
    pub kill: bool,
    /// The watch on the cgroup's events.
    pub watch: Option<WatchId>,
    /// Scans of the fallback that found nothing in a row.
    pub clean: u8,
    /// When it was killed first.
    pub killed: Option<Instant>,
    /// Present while nobody seems to live in it.
    pub vacancy: Option<Vacancy>,
    /// Those that we may not kill, by number and start, each told once.
    pub refused: Vec<(u32, u64)>,
    /// What was told last about those that do not end.
    pub lingering: String,
}

impl Drop for Live {
    fn drop(&mut self) {
        let tasks = self.tasks.drain(..).chain(self.probe.take()).chain(self.exec.take());
        tasks.for_each(|task| task.abort());
    }
}

/// The kernel's status in core's words.
pub(crate) fn exit_status(status: reap::Status) -> ExitStatus {
    match status {
        reap::Status::Exited(code) => ExitStatus::Code(code),
        reap::Status::Killed { signal, .. } => ExitStatus::Signal(signal),
    }
}
