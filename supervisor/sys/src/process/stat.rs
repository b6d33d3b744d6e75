//! /proc/PID/stat, whose second field may contain anything, spaces and parentheses included.

use super::proc_path;
use std::fs;
use std::io;

/// The fields of /proc/PID/stat that we use.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stat {
    /// Process id.
    pub pid: u32,
    /// Command name, at most 15 bytes; what is not printable ASCII is replaced by '?'.
    pub comm: String,
    /// One letter: R running, S sleeping, D uninterruptible, T stopped, Z zombie, X dead, I idle kernel thread.
    pub state: char,
    /// Parent.
    pub ppid: u32,
    /// Process group.
    pub pgrp: u32,
    /// Session.
    pub session: u32,
    /// User and system time, in clock ticks.
    pub cpu_ticks: u64,
    /// Threads that are not yet gone.
    pub threads: u64,
    /// Start, in clock ticks since boot.
    pub start_time: u64,
    /// Resident memory, in bytes.
    pub rss_bytes: u64,
}

impl Stat {
    /// Reads /proc/PID/stat. Error kind NotFound: no such process.
    pub fn of(pid: u32) -> io::Result<Stat> {
        let bytes = fs::read(proc_path(pid, "stat")).map_err(|e| {
            // A process that goes away between open and read answers ESRCH: the same news.
            if super::is_gone(&e) { io::Error::from(io::ErrorKind::NotFound) } else { e }
        })?;
        Stat::parse(&bytes)
            .ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, format!("/proc/{pid}/stat has an unknown form")))
    }

    /// True when nothing of it runs any more. A process whose first thread ended while others run shows Z, and lives.
    pub fn is_dead(&self) -> bool {
        matches!(self.state, 'Z' | 'X' | 'x') && self.threads <= 1
    }

    fn parse(bytes: &[u8]) -> Option<Stat> {
        // The name ends at the last ')': a hostile process may put "1) S 1" into its own name.
        let open = bytes.iter().position(|b| *b == b'(')?;
        let close = bytes.iter().rposition(|b| *b == b')')?;
        let pid = std::str::from_utf8(&bytes[..open]).ok()?.trim().parse().ok()?;
        let comm = printable(bytes.get(open + 1..close)?);
        let rest: Vec<&str> = std::str::from_utf8(&bytes[close + 1..]).ok()?.split_ascii_whitespace().collect();
        // rest[0] is field 3 (state) of proc_pid_stat(5).
        let number = |field: usize| rest.get(field - 3)?.parse::<u64>().ok();
        // Kernel threads have session 0; -1 appears as ppid nowhere, but a group of a dying process may read as -1.
        let small = |field: usize| rest.get(field - 3)?.parse::<i64>().ok().map(|n| u32::try_from(n).unwrap_or(0));
        Some(Stat {
            pid,
            comm,
            state: rest.first()?.chars().next()?,
            ppid: small(4)?,
            pgrp: small(5)?,
            session: small(6)?,
            cpu_ticks: number(14)? + number(15)?,
            threads: number(20)?,
            start_time: number(22)?,
            rss_bytes: number(24)? * page_size(),
        })
    }
}

/// Text safe for a message, from bytes that a process chose itself.
pub(crate) fn printable(bytes: &[u8]) -> String {
    bytes.iter().map(|b| if b.is_ascii_graphic() || *b == b' ' { char::from(*b) } else { '?' }).collect()
}

fn page_size() -> u64 {
    nix::unistd::sysconf(nix::unistd::SysconfVar::PAGE_SIZE)
        .ok()
        .flatten()
        .and_then(|n| u64::try_from(n).ok())
        .unwrap_or(4096)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(comm: &str, state: char, threads: u32) -> String {
        format!(
            "42 ({comm}) {state} 1 2 3 0 -1 4194304 0 0 0 0 7 8 0 0 20 0 {threads} 0 4711 1000 5 18446744073709551615\n"
        )
    }

    #[test]
    fn a_name_made_to_confuse_does_not_confuse() {
        for comm in ["a", "a b", "a) S 9 9 9", "(((", ")))", "", "x\ny"] {
            let s = Stat::parse(line(comm, 'S', 1).as_bytes()).unwrap();
            assert_eq!((s.pid, s.state, s.ppid, s.pgrp, s.session), (42, 'S', 1, 2, 3), "{comm:?}");
            assert_eq!((s.cpu_ticks, s.threads, s.start_time), (15, 1, 4711), "{comm:?}");
            assert_eq!(s.comm, comm.replace('\n', "?"));
        }
        assert_eq!(Stat::parse(b"42 (\xff\x1b[0m) S 1 2 3"), None, "too short");
        assert_eq!(Stat::parse(b""), None);
        assert_eq!(Stat::parse(b")("), None);
        assert_eq!(printable(b"\xff\x1b[0m"), "??[0m");
    }

    #[test]
    fn a_zombie_leader_with_running_threads_is_not_dead() {
        assert!(Stat::parse(line("a", 'Z', 1).as_bytes()).unwrap().is_dead());
        assert!(!Stat::parse(line("a", 'Z', 2).as_bytes()).unwrap().is_dead());
        assert!(!Stat::parse(line("a", 'D', 1).as_bytes()).unwrap().is_dead());
    }
}
