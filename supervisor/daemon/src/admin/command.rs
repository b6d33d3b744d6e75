//! The language between the admin server and the daemon's loop.

use socialweb_core::{ComponentName, GroupName};
use socialweb_wire::{Accepted, ApiError, ErrorCode, EventLine, GroupTree, HostStatus, LogLine, Receipt, ReloadPlan};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tokio::sync::{broadcast, mpsc, oneshot, watch};

/// Commands that wait for the loop. A status of 1,000 groups takes it a few milliseconds, so this is well under a second
/// of work; who comes later waits outside the queue.
const QUEUE: usize = 64;

/// How long a request waits for the loop. The loop answers at once or the daemon is in trouble, which the operator should
/// hear soon; a reload or a walk through all processes may take seconds.
const ANSWER: Duration = Duration::from_secs(30);

/// Where the answer to a command goes. The receiver may be gone: ignore a failed send.
pub type Reply<T> = oneshot::Sender<Result<T, ApiError>>;

/// One request to the loop. Names are parsed; whether they exist is the loop's to say ([`ApiError::no_group`]).
#[derive(Debug)]
pub enum Command {
    /// What is.
    Status {
        /// Only this group, which must exist.
        group: Option<GroupName>,
        /// The answer.
        reply: Reply<HostStatus>,
    },
    /// Do something. Answered when the machine has handled it, so that a status asked for afterwards reflects it.
    Change {
        /// What.
        change: Change,
        /// The answer.
        reply: Reply<Accepted>,
    },
    /// Read the sources again.
    Reload {
        /// Stop after the plan.
        dry_run: bool,
        /// A folder without cluster files is meant.
        allow_empty: bool,
        /// The answer.
        reply: Reply<ReloadPlan>,
    },
    /// The processes of a group.
    Tree {
        /// Which.
        group: GroupName,
        /// The answer.
        reply: Reply<GroupTree>,
    },
    /// The receipts kept of a group, newest first.
    Receipts {
        /// Which.
        group: GroupName,
        /// The answer.
        reply: Reply<Vec<Receipt>>,
    },
    /// What the components of a group wrote.
    Logs {
        /// Which group.
        group: GroupName,
        /// Only this component.
        component: Option<ComponentName>,
        /// At most this many lines of the past.
        tail: usize,
        /// Also what comes.
        follow: bool,
        /// The answer. The feed may hold lines of other components: the server filters.
        reply: Reply<Feed<LogLine>>,
    },
    /// What happened.
    Events {
        /// Only what is about this group.
        group: Option<GroupName>,
        /// At most this many lines of the past.
        tail: usize,
        /// Also what comes.
        follow: bool,
        /// The answer. The feed may hold lines of other groups: the server filters.
        reply: Reply<Feed<EventLine>>,
    },
}

/// What can be done.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Change {
    /// Bring a group up; clears counters and waits.
    Start(GroupName),
    /// Take a group down.
    Stop(GroupName),
    /// Restart one component, or with `None` the whole group.
    Restart(GroupName, Option<ComponentName>),
    /// Take a group down and destroy its data; refused while it is declared.
    Delete(GroupName),
    /// Begin a drill with this token.
    Drill(String),
    /// Take all groups down and end the daemon.
    Shutdown,
}

/// Lines of the past, and a subscription made in the same moment, so that none is missing or doubled in between.
#[derive(Debug)]
pub struct Feed<T> {
    /// Oldest first.
    pub past: Vec<Arc<T>>,
    /// What comes; bounded, a slow reader loses the oldest lines and is told how many. Closed: the daemon ends.
    pub live: Option<broadcast::Receiver<Arc<T>>>,
}

/// The server's end.
#[derive(Debug, Clone)]
pub struct AdminHandle {
    commands: mpsc::Sender<Command>,
    revision: watch::Receiver<u64>,
    pub(super) counters: Arc<Counters>,
}

/// The loop's end.
#[derive(Debug)]
pub struct AdminPort {
    /// Requests, in order.
    pub commands: mpsc::Receiver<Command>,
    revision: watch::Sender<u64>,
}

/// What the server counts about itself.
#[derive(Debug, Default)]
pub struct Counters {
    /// Connections taken.
    pub accepted: AtomicU64,
    /// Connections refused for their peer.
    pub refused: AtomicU64,
    /// Connections refused for their number.
    pub turned_away: AtomicU64,
    /// Lines that followers missed.
    pub missed: AtomicU64,
    /// Streams open now.
    pub streams: AtomicU64,
}

impl Counters {
    pub(super) fn add(counter: &AtomicU64, n: u64) {
        counter.fetch_add(n, Ordering::Relaxed);
    }
}

/// Makes both ends.
pub fn channel() -> (AdminHandle, AdminPort) {
    let (sender, commands) = mpsc::channel(QUEUE);
    let (changed, revision) = watch::channel(0);
    (AdminHandle { commands: sender, revision, counters: Arc::default() }, AdminPort { commands, revision: changed })
}

impl AdminPort {
    /// Tells who watches that the status is another now. Cheap: watchers gather many changes into one status.
    pub fn changed(&self) {
        self.revision.send_modify(|n| *n = n.wrapping_add(1));
    }

    /// True while somebody watches or may begin to.
    pub fn is_open(&self) -> bool {
        !self.revision.is_closed()
    }
}

impl AdminHandle {
    /// Sends a command and waits for its answer, at most half a minute.
    ///
    /// # Errors
    /// The loop's own refusal; [`ErrorCode::Busy`] when it does not answer or has ended.
    pub async fn ask<T>(&self, command: impl FnOnce(Reply<T>) -> Command) -> Result<T, ApiError> {
        let (reply, answer) = oneshot::channel();
        let exchange = async {
            self.commands.send(command(reply)).await.map_err(|_| ending())?;
            answer.await.map_err(|_| ending())?
        };
        tokio::time::timeout(ANSWER, exchange).await.unwrap_or_else(|_| {
            Err(ApiError::new(ErrorCode::Busy, format!("the daemon's loop gave no answer in {} s", ANSWER.as_secs()))
                .with_hint("try again; if it stays so, look at the daemon's own log"))
        })
    }

    /// Counts the changes of the status.
    pub(super) fn revision(&self) -> watch::Receiver<u64> {
        self.revision.clone()
    }
}

fn ending() -> ApiError {
    ApiError::new(ErrorCode::Busy, "the daemon is going down").with_hint("ask again when it is up")
}
