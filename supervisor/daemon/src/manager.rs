//! What the daemon tells the service manager above it: ready, reloading, stopping, alive.
//!
//! Without NOTIFY_SOCKET in the daemon's environment everything here does nothing. The variables are the daemon's own:
//! a component's environment is a closed list, so none of NOTIFY_SOCKET, WATCHDOG_USEC and WATCHDOG_PID reaches a child
//! (one that is watched by us gets a NOTIFY_SOCKET of ours instead).

use sd_notify::NotifyState;
use std::cell::Cell;
use std::time::Duration;

/// The connection to systemd, or to nobody.
#[derive(Debug)]
pub struct Manager {
    listens: bool,
    watchdog: Option<Duration>,
    failing: Cell<bool>,
}

impl Manager {
    /// Reads NOTIFY_SOCKET, WATCHDOG_USEC and WATCHDOG_PID.
    pub fn from_env() -> Manager {
        let listens = std::env::var_os("NOTIFY_SOCKET").is_some_and(|s| !s.is_empty());
        let watchdog = sd_notify::watchdog_enabled().filter(|limit| listens && !limit.is_zero());
        Manager { listens, watchdog, failing: Cell::new(false) }
    }

    /// True when a service manager listens.
    pub fn listens(&self) -> bool {
        self.listens
    }

    /// The daemon is up: it can be asked, its groups may still be starting. Also ends a reload.
    pub fn ready(&self) {
        self.tell(&[NotifyState::Ready]);
    }

    /// One line on what is going on, for `systemctl status`.
    pub fn status(&self, text: &str) {
        // A newline would begin another variable of the message.
        self.tell(&[NotifyState::Status(&text.replace('\n', " "))]);
    }

    /// The daemon goes down; from now on [`Manager::extend_timeout`] keeps TimeoutStopSec away.
    pub fn stopping(&self) {
        self.tell(&[NotifyState::Stopping]);
    }

    /// A reload begins; [`Manager::ready`] ends it. Carries the time that Type=notify-reload demands.
    pub fn reloading(&self) {
        match NotifyState::monotonic_usec_now() {
            Ok(now) => self.tell(&[NotifyState::Reloading, now]),
            Err(e) => tracing::warn!("the reload is not told to the service manager: no monotonic clock: {e}"),
        }
    }

    /// The start or stop that is going on may take this much longer from now. To be repeated before it has passed.
    pub fn extend_timeout(&self, by: Duration) {
        // The crate's own variant has 32 bits, which is 71 minutes.
        let usec = u64::try_from(by.as_micros()).unwrap_or(u64::MAX);
        self.tell(&[NotifyState::Custom(&format!("EXTEND_TIMEOUT_USEC={usec}"))]);
    }

    /// How often to call [`Manager::alive`]: half of the watchdog's limit. `None` = the watchdog is off, or is another
    /// process's.
    pub fn watchdog_interval(&self) -> Option<Duration> {
        self.watchdog.map(|limit| limit / 2)
    }

    /// The loop goes round. To be called from the loop itself and nowhere else, or the watchdog proves nothing.
    pub fn alive(&self) {
        if self.watchdog.is_some() {
            self.tell(&[NotifyState::Watchdog]);
        }
    }

    fn tell(&self, what: &[NotifyState<'_>]) {
        if !self.listens {
            return;
        }
        match sd_notify::notify(what) {
            Ok(()) => self.failing.set(false),
            Err(e) => {
                if !self.failing.replace(true) {
                    tracing::warn!("the service manager cannot be told: {e}; check NOTIFY_SOCKET and NotifyAccess=");
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use std::os::unix::net::UnixDatagram;
    use std::process::{Command, Stdio};

    /// Set in the process that is to speak: an environment cannot be changed safely in this one.
    const SPEAK: &str = "SOCIALWEB_TEST_SPEAK";

    #[test]
    fn speak() {
        let manager = Manager::from_env();
        if std::env::var_os(SPEAK).is_none() {
            assert_eq!(manager.listens(), std::env::var_os("NOTIFY_SOCKET").is_some());
            return;
        }
        manager.status("starting\nREADY=1");
        manager.ready();
        manager.reloading();
        manager.alive();
        manager.status(&format!("{:?}", manager.watchdog_interval()));
        manager.extend_timeout(Duration::from_secs(5000));
        manager.stopping();
    }

    /// What the calls of [`speak`] send in an environment.
    fn heard(set: &[(&str, &str)], socket: Option<&str>) -> Vec<String> {
        let home = tempfile::TempDir::new().unwrap();
        let path = home.path().join("notify");
        let listener = UnixDatagram::bind(&path).unwrap();
        let mut speaker = Command::new(std::env::current_exe().unwrap());
        speaker.args(["--exact", "manager::tests::speak"]).env(SPEAK, "1").stdout(Stdio::null());
        for name in ["NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID"] {
            speaker.env_remove(name);
        }
        if let Some(name) = socket {
            speaker.env("NOTIFY_SOCKET", if name.is_empty() { path.to_str().unwrap() } else { name });
        }
        assert!(speaker.envs(set.iter().copied()).status().unwrap().success());
        listener.set_nonblocking(true).unwrap();
        let mut buffer = [0; 4096];
        std::iter::from_fn(|| {
            listener.recv(&mut buffer).ok().map(|n| String::from_utf8_lossy(&buffer[..n]).into_owned())
        })
        .collect()
    }

    #[test]
    fn each_call_is_one_message_in_systemds_words() {
        let heard = heard(&[("WATCHDOG_USEC", "3000000")], Some(""));
        let reloading = heard[2].strip_prefix("RELOADING=1\nMONOTONIC_USEC=").unwrap();
        assert!(reloading.trim().parse::<u64>().unwrap() > 0);
        let rest: Vec<_> = heard.iter().enumerate().filter(|(n, _)| *n != 2).map(|(_, m)| m.trim()).collect();
        assert_eq!(
            rest,
            [
                "STATUS=starting READY=1",
                "READY=1",
                "WATCHDOG=1",
                "STATUS=Some(1.5s)",
                "EXTEND_TIMEOUT_USEC=5000000000",
                "STOPPING=1"
            ]
        );
    }

    #[test]
    fn another_process_s_watchdog_is_not_fed() {
        let heard = heard(&[("WATCHDOG_USEC", "3000000"), ("WATCHDOG_PID", "1")], Some(""));
        assert!(!heard.iter().any(|m| m.contains("WATCHDOG=1")), "{heard:?}");
        assert!(heard.iter().any(|m| m.contains("STATUS=None")), "{heard:?}");
    }

    #[test]
    fn without_a_manager_or_with_a_dead_one_nothing_fails() {
        assert!(heard(&[("WATCHDOG_USEC", "3000000")], None).is_empty());
        assert!(heard(&[], Some("/nonexistent/notify")).is_empty());
    }
}
