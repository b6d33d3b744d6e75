//! Readiness and liveness probes: asks one run one question, again and again, and says what it saw.
//!
//! This room decides nothing: deadlines, thresholds and what a failure means are core's. It reads no environment, no
//! proxy setting and no system trust store, follows no redirect, and starts no process itself (an exec probe's program is
//! started by the injected [`Exec`]). Progress of a slow start is not seen here: that is the cgroup's counters.
//!
//! A probe is a future, not a task: whoever drives it drops it to end it, and nothing stays behind.
//!
//! Map:
//! - [`Prober`] - one probe of one run; [`Prober::run_readiness`] and [`Prober::run_liveness`].
//! - [`signal`] - what arrives from outside: READY=1, a newline on a descriptor, a log line, WATCHDOG=1.
//! - `bounded`: what an answer may cost.
//! - `names`: host names, looked up beside the loop.
//! - [`http`], [`etcd`] - the two that speak a protocol; [`tls`]: their trust, from files only.

mod bounded;
pub mod etcd;
pub mod http;
mod names;
pub mod signal;
pub mod tls;

#[cfg(test)]
mod tests;

pub use signal::Signalled;

use socialweb_core::{ExitStatus, Launch, Probe};
use std::fmt;
use std::future::Future;
use std::path::Path;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::{TcpStream, UnixStream};
use tokio::time::{Instant, sleep_until, timeout};

/// The future of an exec probe's program: how it ended, or why it could not be started.
///
/// Dropping it means that the answer no longer matters: the program must then be ended by whoever made the future.
pub type ExecFuture = Pin<Box<dyn Future<Output = Result<ExitStatus, String>> + Send>>;

/// Runs a program in the probed component's own cgroup.
pub type Exec = Arc<dyn Fn(Launch) -> ExecFuture + Send + Sync>;

/// What a probe reports.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// It held (readiness only; the last report).
    Ready,
    /// It did not hold; names the probe and what was seen.
    Failed(String),
    /// It held again after failures (liveness only).
    Recovered,
}

/// One probe of one run.
pub struct Prober {
    probe: Probe,
    signalled: Signalled,
    exec: Exec,
    http: http::Client,
}

impl fmt::Debug for Prober {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Prober").field("probe", &self.probe).finish_non_exhaustive()
    }
}

impl Prober {
    /// `signalled` is raised from outside for the kinds that wait: for readiness when the run said READY=1, wrote its
    /// newline or logged its line; for liveness on each WATCHDOG=1 (or newline, or line).
    pub fn new(probe: Probe, signalled: Signalled, exec: Exec) -> Prober {
        Prober { probe, signalled, exec, http: http::Client::default() }
    }

    /// Asks at once and then every `interval` until the probe holds, each attempt limited by `limit`; reports a failure when
    /// it differs from the one before, and Ready last. Ends only then.
    pub async fn run_readiness(mut self, interval: Duration, limit: Duration, mut report: impl FnMut(Outcome)) {
        if let Some(awaited) = awaited(&self.probe) {
            if !self.signalled.is_raised() {
                report(Outcome::Failed(awaited));
                self.signalled.raised().await;
            }
            return report(Outcome::Ready);
        }
        let mut last = None;
        loop {
            let begun = Instant::now();
            match self.attempt(limit).await {
                Ok(()) => return report(Outcome::Ready),
                Err(why) if last.as_ref() == Some(&why) => {}
                Err(why) => {
                    last = Some(why.clone());
                    report(Outcome::Failed(why));
                }
            }
            pause(begun, interval).await;
        }
    }

    /// Asks every `interval`, the first time after one; reports each failure, and one Recovered when it holds again. For the
    /// kinds that wait, a failure is an `interval` without a signal. Never ends.
    pub async fn run_liveness(mut self, interval: Duration, limit: Duration, mut report: impl FnMut(Outcome)) {
        let mut failing = false;
        let mut begun = Instant::now();
        loop {
            let seen = match awaited(&self.probe) {
                Some(_) => self.await_beat(interval).await,
                None => {
                    pause(begun, interval).await;
                    begun = Instant::now();
                    self.attempt(limit).await
                }
            };
            match seen {
                Ok(()) if failing => report(Outcome::Recovered),
                Ok(()) => {}
                Err(ref why) => report(Outcome::Failed(why.clone())),
            }
            failing = seen.is_err();
        }
    }

    async fn await_beat(&self, interval: Duration) -> Result<(), String> {
        let beaten = timeout(interval, self.signalled.next()).await;
        beaten.map_err(|_| format!("{} within {interval:?}", missing_beat(&self.probe)))
    }

    /// One attempt; a probe that hangs is a failure that names it.
    async fn attempt(&mut self, limit: Duration) -> Result<(), String> {
        let answer = timeout(limit, self.ask()).await;
        answer.unwrap_or_else(|_| Err(format!("{} did not answer within {limit:?}", describe(&self.probe))))
    }

    async fn ask(&mut self) -> Result<(), String> {
        match &self.probe {
            Probe::Running | Probe::Notify | Probe::NotificationFd { .. } | Probe::LogLine { .. } => Ok(()),
            Probe::Http { url, expect, tls } => self.http.check(url, expect, tls.as_ref()).await,
            Probe::Tcp { address } => connect_tcp(address).await,
            Probe::Unix { path } => connect_unix(path).await.map(drop),
            Probe::EtcdRange { socket, tls } => etcd::check(socket, tls).await,
            Probe::Exec { launch } => run_program(&self.exec, launch).await,
        }
    }
}

/// Waits for the next beat of a fixed rhythm; a late attempt moves the rhythm instead of bunching.
async fn pause(begun: Instant, interval: Duration) {
    sleep_until(begun + interval.max(SHORTEST)).await;
}

/// A zero interval must not become a busy loop.
const SHORTEST: Duration = Duration::from_millis(10);

/// For the kinds that wait: what is awaited.
fn awaited(probe: &Probe) -> Option<String> {
    match probe {
        Probe::Notify => Some("it has not sent READY=1 to its NOTIFY_SOCKET".into()),
        Probe::NotificationFd { fd } => Some(format!("it has not written a newline to its descriptor {fd}")),
        Probe::LogLine { contains } => Some(format!("it has not logged a line with {contains:?}")),
        _ => None,
    }
}

fn missing_beat(probe: &Probe) -> String {
    match probe {
        Probe::NotificationFd { fd } => format!("no newline on descriptor {fd}"),
        Probe::LogLine { contains } => format!("no log line with {contains:?}"),
        _ => "no WATCHDOG=1".into(),
    }
}

fn describe(probe: &Probe) -> String {
    match probe {
        Probe::Running => "the process".into(),
        Probe::Notify | Probe::NotificationFd { .. } | Probe::LogLine { .. } => "its own signal".into(),
        Probe::Http { url, .. } => format!("GET {url}"),
        Probe::Tcp { address } => format!("tcp {address}"),
        Probe::Unix { path } => format!("the socket {}", path.display()),
        Probe::EtcdRange { socket, .. } => format!("the etcd range query on {}", socket.display()),
        Probe::Exec { launch } => format!("the program {}", program(launch)),
    }
}

/// Only argv\[0\]: the rest may be long.
fn program(launch: &Launch) -> &str {
    launch.argv.first().map_or("(no argv)", String::as_str)
}

async fn connect_tcp(address: &str) -> Result<(), String> {
    let failed = |e: std::io::Error| format!("tcp {address}: {e}");
    let (host, port) = address.rsplit_once(':').unwrap_or((address, ""));
    let port = port.parse().map_err(|_| format!("tcp {address}: it has no port"))?;
    let found = names::resolve(host, port).await.map_err(failed)?;
    TcpStream::connect(&found[..]).await.map(drop).map_err(failed)
}

async fn connect_unix(path: &Path) -> Result<UnixStream, String> {
    UnixStream::connect(path).await.map_err(|e| format!("the socket {}: {e}", path.display()))
}

async fn run_program(exec: &Exec, launch: &Launch) -> Result<(), String> {
    match exec(launch.clone()).await {
        Ok(status) if status.success() => Ok(()),
        Ok(status) => Err(format!("the program {} ended with {status}", program(launch))),
        Err(why) => Err(format!("the program {} did not start: {why}", program(launch))),
    }
}
