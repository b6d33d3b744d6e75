//! Catching what forks faster than /proc can be read.
//!
//! A process that forks and exits at once, again and again, lives under one number for less than a millisecond. A scan of
//! /proc reads its list first and the processes after, so each number that it comes to is a dead one by then. The kernel
//! gives numbers out in order, though, and says which was the last: so the newest number is looked at, and nothing else,
//! again and again, and what belongs is killed through its pidfd before it forks the next time. A fork that is under way
//! when the signal arrives does not happen.
//!
//! Needs no privilege. Takes one processor while it lasts, so it is for short, bounded calls off any event loop.

use super::Proc;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::time::{Duration, Instant};

/// Most numbers below the newest that are looked at in one turn: what can be given out during one turn on many processors.
const BEHIND: u32 = 32;
/// Most processes killed in one call: each is kept with its descriptor, for the receipt.
const MOST: usize = 512;
/// Fewest turns without a catch.
const TURNS: u32 = 200;
/// Numbers below this are not given out again once the kernel began anew (RESERVED_PIDS).
const FIRST_AGAIN: u32 = 300;

/// How long to chase.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// At the longest.
    pub longest: Duration,
    /// Until so long after the last catch, and some hundred turns as well: on a busy host a moment may hold none.
    pub quiet: Duration,
}

/// Looks at the newest processes of the host, again and again, and kills those for which `belongs` gives a marker. Returns
/// what was killed, each once. That is empty both when nothing belongs and when it was too fast, so the caller goes by
/// other evidence (its ended children) before it calls anything gone.
///
/// # Errors
/// /proc/loadavg cannot be read.
pub fn chase(limits: Limits, mut belongs: impl FnMut(u32) -> Option<String>) -> io::Result<Vec<Proc>> {
    let newest = Newest::open()?;
    let (began, mut caught) = (Instant::now(), Vec::<Proc>::new());
    let (mut seen, mut last_catch, mut turns) = (newest.read()?, began, 0);
    loop {
        let newest_now = newest.read()?;
        let mut struck = false;
        // The newest one twice: its number is told before the process can be opened.
        for pid in newest_first(newest_now, seen, newest.max) {
            let Some(proc) = strike(pid, &mut belongs) else { continue };
            struck = true;
            // A dying one can be read, and struck, for a moment longer.
            if !caught.iter().rev().any(|c| (c.pid, c.stat.start_time) == (proc.pid, proc.stat.start_time)) {
                caught.push(proc);
            }
        }
        seen = newest_now;
        let now = Instant::now();
        match struck {
            true => (last_catch, turns) = (now, 0),
            false => {
                turns += 1;
                std::thread::yield_now();
            }
        }
        let quiet = turns >= TURNS && now - last_catch >= limits.quiet;
        if quiet || now - began >= limits.longest || caught.len() >= MOST {
            return Ok(caught);
        }
    }
}

/// Kills the process with this number if it belongs. What was read before the pidfd was held is read again afterwards, and
/// the pidfd's process still exists then, so it was its own (law L5).
fn strike(pid: u32, belongs: &mut impl FnMut(u32) -> Option<String>) -> Option<Proc> {
    // Cheap look first: nearly every number is a stranger's or nobody's.
    belongs(pid)?;
    let proc = Proc::pinned(pid, |stat| belongs(pid).filter(|_| !stat.is_dead())).ok()??;
    proc.pidfd.send(libc::SIGKILL).ok()?;
    Some(proc)
}

/// The number that the kernel gave out last, in this process's pid namespace.
struct Newest {
    file: File,
    max: u32,
}

impl Newest {
    fn open() -> io::Result<Newest> {
        let max = std::fs::read_to_string("/proc/sys/kernel/pid_max").ok().and_then(|t| t.trim().parse().ok());
        Ok(Newest { file: File::open("/proc/loadavg")?, max: max.unwrap_or(1 << 22) })
    }

    fn read(&self) -> io::Result<u32> {
        let mut bytes = [0u8; 128];
        let n = self.file.read_at(&mut bytes, 0)?;
        last_number(&bytes[..n])
            .ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, "/proc/loadavg has an unknown form"))
    }
}

/// "0.20 0.18 0.12 1/80 11206": the fifth field.
fn last_number(loadavg: &[u8]) -> Option<u32> {
    std::str::from_utf8(loadavg).ok()?.split_ascii_whitespace().nth(4)?.parse().ok()
}

/// From `newest` down to the one before `seen`, across the point where the kernel begins anew; at most [`BEHIND`].
fn newest_first(newest: u32, seen: u32, max: u32) -> impl Iterator<Item = u32> {
    let given = match newest.checked_sub(seen) {
        Some(given) => given,
        None => newest.saturating_sub(FIRST_AGAIN) + max.saturating_sub(seen),
    };
    let step = move |back: u32| match newest.checked_sub(back) {
        Some(pid) if pid >= FIRST_AGAIN || newest < FIRST_AGAIN => pid,
        _ => max.saturating_sub(back.saturating_sub(newest.saturating_sub(FIRST_AGAIN) + 1) + 1),
    };
    (0..=given.clamp(1, BEHIND)).map(step).filter(|pid| *pid > 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_number_is_the_fifth_field() {
        assert_eq!(last_number(b"0.20 0.18 0.12 1/80 11206\n"), Some(11206));
        assert_eq!(last_number(b"0.20 0.18"), None);
    }

    #[test]
    fn the_newest_numbers_come_first_and_across_the_beginning_anew() {
        let check = |newest, seen, want: &[u32]| {
            assert_eq!(newest_first(newest, seen, 1000).collect::<Vec<_>>(), want, "{newest} after {seen}");
        };
        check(500, 500, &[500, 499]);
        check(503, 500, &[503, 502, 501, 500]);
        check(301, 998, &[301, 300, 999, 998]);
        check(5, 5, &[5, 4]);
        assert_eq!(newest_first(900, 400, 1000).count(), BEHIND as usize + 1);
    }
}
