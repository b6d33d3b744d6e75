//! Who is at the other end of the socket, and does that process run at all? The kernel's word: a daemon that was stopped or
//! hangs takes connections as ever and answers nothing.

use std::fmt;
use std::path::Path;

/// No letter of the kernel's: the process is in a frozen cgroup.
pub const FROZEN: char = 'F';

/// The process that listens on the socket.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Peer {
    /// Its process id.
    pub pid: u32,
}

impl Peer {
    /// From the credentials of a connection; none where its process is of another pid namespace.
    pub fn of(stream: &tokio::net::UnixStream) -> Option<Peer> {
        let pid = stream.peer_cred().ok()?.pid()?;
        u32::try_from(pid).ok().filter(|pid| *pid != 0).map(|pid| Peer { pid })
    }

    /// The kernel's state letter, and [`FROZEN`] where its cgroup is frozen; none when it is gone.
    pub fn state(self) -> Option<char> {
        let state = state_in(&std::fs::read_to_string(format!("/proc/{}/stat", self.pid)).ok()?)?;
        // The kernel calls a frozen one asleep.
        Some(if matches!(state, 'S' | 'D') && self.is_frozen() == Some(true) { FROZEN } else { state })
    }

    fn is_frozen(self) -> Option<bool> {
        let mounts = std::fs::read_to_string("/proc/self/mountinfo").ok()?;
        let mount = mounts.lines().find(|line| line.contains(" - cgroup2 "))?.split(' ').nth(4)?;
        let cgroups = std::fs::read_to_string(format!("/proc/{}/cgroup", self.pid)).ok()?;
        let path = cgroups.lines().find_map(|line| line.strip_prefix("0::/"))?;
        let events = std::fs::read_to_string(Path::new(mount).join(path).join("cgroup.events")).ok()?;
        Some(events.lines().any(|line| line == "frozen 1"))
    }

    /// True when it cannot answer before somebody lets it go on.
    pub fn is_stopped(self) -> bool {
        matches!(self.state(), Some('T' | 't' | FROZEN))
    }
}

impl fmt::Display for Peer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "pid {}, {}", self.pid, word(self.state()))
    }
}

/// The letter after the name, which may itself hold spaces and parentheses.
fn state_in(stat: &str) -> Option<char> {
    stat.rsplit_once(") ")?.1.chars().next()
}

fn word(state: Option<char>) -> &'static str {
    match state {
        Some('R') => "running (R)",
        Some('S' | 'I') => "asleep (S)",
        Some('D') => "in uninterruptible sleep (D)",
        Some('T') => "stopped (T)",
        Some(FROZEN) => "frozen by its cgroup",
        Some('t') => "stopped by a debugger (t)",
        Some('Z' | 'X') => "dead (Z)",
        Some(_) => "in an unknown state",
        None => "gone",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_state_is_the_letter_after_the_name() {
        let check = |stat: &str, want: Option<char>| assert_eq!(state_in(stat), want, "{stat:?}");
        check("42 (a) S 1 2", Some('S'));
        check("42 (a) T 1) R 1 2", Some('R'));
        check("42 (a", None);
        assert_eq!(Peer { pid: std::process::id() }.state().map(|s| s.is_ascii_uppercase()), Some(true));
        assert_eq!(Peer { pid: u32::MAX }.to_string(), format!("pid {}, gone", u32::MAX));
    }
}
