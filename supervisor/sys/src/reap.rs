//! The one owner of all waits.
//!
//! Expected flow: on SIGCHLD (and once after start), `while let Some(zombie) = next_zombie()? { ...; zombie.collect()?; }`.
//! Guarantees: a zombie is looked at before it is collected, so that its pid, start time and cgroup are certainly its own;
//! its number cannot be recycled before [`Zombie::collect`]. Assumptions: nobody else in the process waits for children
//! (no tokio::process, no std `Child::wait`), else their statuses are stolen (djinnos/djinn PR 2700). Caveats: the same
//! zombie is returned again until it is collected. SIGCHLD must never be ignored, or all statuses are lost (qntx/bux 87).
#![allow(unsafe_code)]

use crate::process::{self, Stat};
use std::io;

/// How a process ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Status {
    /// exit(n).
    Exited(i32),
    /// Ended by a signal.
    Killed {
        /// Its number.
        signal: i32,
        /// A core was written.
        core: bool,
    },
}

/// An ended child that nobody has waited for yet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Zombie {
    /// Process id; its own until [`Zombie::collect`].
    pub pid: u32,
    /// Command name; "?" when unreadable.
    pub comm: String,
    /// Start, in clock ticks since boot; 0 when unreadable.
    pub start_time: u64,
    /// Session, which a zombie keeps too; 0 when unreadable.
    pub session: u32,
    /// Its cgroup2 path ("/a/b"), which a zombie keeps; `None` where there is no cgroup2.
    pub cgroup: Option<String>,
}

impl Zombie {
    /// Takes the status and lets the number go.
    pub fn collect(self) -> io::Result<Status> {
        reap(self.pid)
    }
}

/// The next ended child, left as it is. `None`: no child has ended, or there are no children.
pub fn next_zombie() -> io::Result<Option<Zombie>> {
    let Some(pid) = peek()? else { return Ok(None) };
    // Unreadable is no reason to leave it uncollected for ever: /proc mounted with hidepid hides other users' processes.
    let (comm, start_time, session) =
        Stat::of(pid).map_or_else(|_| ("?".into(), 0, 0), |s| (s.comm, s.start_time, s.session));
    Ok(Some(Zombie { pid, comm, start_time, session, cgroup: process::cgroup(pid).ok().flatten() }))
}

/// The same with nothing but its number: for whoever has more of them than time. Reading /proc costs ten times what the rest
/// does.
pub fn next_bare() -> io::Result<Option<Zombie>> {
    let bare = |pid| Zombie { pid, comm: "?".into(), start_time: 0, session: 0, cgroup: None };
    Ok(peek()?.map(bare))
}

/// Number of an ended child, without waiting for it and without taking its status.
pub fn peek() -> io::Result<Option<u32>> {
    let info = match wait(libc::P_ALL, 0, libc::WNOHANG | libc::WNOWAIT) {
        Err(e) if e.raw_os_error() == Some(libc::ECHILD) => return Ok(None),
        other => other?,
    };
    // Zero means that children exist and none has ended (circus-tent/circus PR 1036 took it for an end).
    Ok(u32::try_from(pid_of(&info)).ok().filter(|pid| *pid != 0))
}

/// Takes the status of a child that [`peek`] showed. Error ECHILD: not our child, or already waited for. Error kind
/// WouldBlock: it has not ended.
pub fn reap(pid: u32) -> io::Result<Status> {
    let info = wait(libc::P_PID, pid, libc::WNOHANG)?;
    if pid_of(&info) == 0 {
        return Err(io::ErrorKind::WouldBlock.into());
    }
    // SAFETY: waitid filled a SIGCHLD siginfo (si_pid is set), for which si_status is the valid member.
    let value = unsafe { info.si_status() };
    Ok(match info.si_code {
        libc::CLD_EXITED => Status::Exited(value),
        code => Status::Killed { signal: value, core: code == libc::CLD_DUMPED },
    })
}

/// Makes orphaned descendants children of this process instead of init's, and reads the flag back: a call with a wrong
/// argument would be silently off (krallin/tini PR 67).
pub fn become_subreaper() -> io::Result<()> {
    nix::sys::prctl::set_child_subreaper(true)?;
    if !nix::sys::prctl::get_child_subreaper()? {
        return Err(io::Error::other("the kernel did not keep the subreaper flag; orphans would go to init"));
    }
    Ok(())
}

fn wait(which: libc::idtype_t, id: u32, flags: i32) -> io::Result<libc::siginfo_t> {
    // SAFETY: siginfo_t is plain old data for which all zeros is a valid value.
    let mut info: libc::siginfo_t = unsafe { std::mem::zeroed() };
    // __WALL: also children that were cloned with another exit signal than SIGCHLD.
    // SAFETY: `info` is a valid siginfo_t that outlives the call.
    let rc = unsafe { libc::waitid(which, id, &mut info, libc::WEXITED | libc::__WALL | flags) };
    if rc < 0 { Err(io::Error::last_os_error()) } else { Ok(info) }
}

fn pid_of(info: &libc::siginfo_t) -> libc::pid_t {
    // SAFETY: `wait` returns either zeros or a SIGCHLD siginfo; si_pid is a valid member of both.
    unsafe { info.si_pid() }
}
