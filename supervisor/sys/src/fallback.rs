//! Who belongs to a run where there is no cgroup: weaker, because it reads what processes may change, but never wrong about
//! whom it signals.
//!
//! Evidence, each strong enough alone: the leader itself; the marker in the environment; session or process group of the
//! leader, while that number is certainly still the leader's; descent from one that belongs. A process that leaves its
//! session, drops its environment and loses its parent is found only while the daemon is a subreaper and somebody knows it.
//!
//! Expected flow: [`Sweep::step`] again and again, with a little time between and under the caller's deadline, until it
//! says [`Step::Gone`]. Keep the leader unreaped until then if possible: an unreaped leader keeps its session's number.
//! Caveats: zombies count as gone here; the reaper takes them.

use crate::process::{self, PidFd, Proc, Sent, Stat};
use std::collections::{HashMap, HashSet};
use std::fmt;
use std::io;

/// One run, as the daemon knows it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Target {
    /// The process that was spawned; also its session and process group (the spawn calls setsid). `None`: unknown, only the
    /// marker counts.
    pub leader: Option<Leader>,
    /// Name of the marker variable.
    pub marker_key: String,
    /// What the marker's value begins with.
    pub marker_prefix: String,
}

/// A spawned process by its number and start.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Leader {
    /// Process id.
    pub pid: u32,
    /// Start, in clock ticks since boot.
    pub start_time: u64,
}

/// What makes a process a member.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Evidence {
    /// It is the spawned process.
    Leader,
    /// It carries the marker.
    Marker,
    /// It is in the leader's session or process group.
    Session,
    /// It descends from a member.
    Descendant,
}

/// One living member.
#[derive(Debug)]
pub struct Member {
    /// The process, pinned by a pidfd.
    pub process: Proc,
    /// Why it belongs.
    pub evidence: Evidence,
}

/// All living members of a run, from one look at /proc. What is forked during the look may be missed: look twice. A part
/// of them, never none, when descriptors run out.
pub fn members(target: &Target) -> io::Result<Vec<Member>> {
    let table: HashMap<u32, Stat> = process::scan()?.filter_map(|pid| Some((pid, Stat::of(pid).ok()?))).collect();
    let evidence = judge(target, &table, std::process::id(), |pid| {
        process::environ_value(pid, &target.marker_key).is_some_and(|v| v.starts_with(&target.marker_prefix))
    });
    let pin = |(pid, evidence): (u32, Evidence)| {
        let same = |stat: &Stat| {
            let seen = table.get(&pid).is_some_and(|s| s.start_time == stat.start_time);
            (seen && !stat.is_dead()).then(|| process::environ_value(pid, &target.marker_key).unwrap_or_default())
        };
        Proc::pinned(pid, same).map(|p| p.map(|process| Member { process, evidence })).transpose()
    };
    process::as_far_as_possible(evidence.into_iter().filter_map(pin))
}

/// Pure: who of the table belongs to the target. Sorted by pid.
fn judge(target: &Target, table: &HashMap<u32, Stat>, own: u32, marked: impl Fn(u32) -> bool) -> Vec<(u32, Evidence)> {
    let mut found: HashMap<u32, Evidence> = HashMap::new();
    for (pid, stat) in table.iter().filter(|(pid, _)| **pid != own && **pid != 1) {
        let evidence = match target.leader {
            Some(l) if l.pid == *pid && l.start_time == stat.start_time => Some(Evidence::Leader),
            _ if marked(*pid) => Some(Evidence::Marker),
            Some(l) if in_session(l, stat, table, own) => Some(Evidence::Session),
            _ => None,
        };
        found.extend(evidence.map(|e| (*pid, e)));
    }
    // Children of members, until no more are found. A dead member still proves its children's descent.
    loop {
        let born = |(pid, s): &(&u32, &Stat)| **pid != own && !found.contains_key(*pid) && found.contains_key(&s.ppid);
        let more: Vec<u32> = table.iter().filter(born).map(|(pid, _)| *pid).collect();
        if more.is_empty() {
            break;
        }
        found.extend(more.into_iter().map(|pid| (pid, Evidence::Descendant)));
    }
    let mut all: Vec<_> = found.into_iter().filter(|(pid, _)| !table[pid].is_dead()).collect();
    all.sort_unstable_by_key(|(pid, _)| *pid);
    all
}

/// A session's number is its leader's pid. The kernel does not give the number out again while a member lives, but when all
/// are gone a stranger may get it (jdx/pitchfork PR 632). So the number counts while the leader is there, zombie included,
/// and after that only for processes that descend from us: orphans of our children come back to us as the subreaper.
fn in_session(leader: Leader, stat: &Stat, table: &HashMap<u32, Stat>, own: u32) -> bool {
    if (stat.session != leader.pid && stat.pgrp != leader.pid) || stat.start_time < leader.start_time {
        return false;
    }
    match table.get(&leader.pid) {
        Some(there) => there.start_time == leader.start_time,
        None => descends_from(stat, own, table),
    }
}

fn descends_from(stat: &Stat, ancestor: u32, table: &HashMap<u32, Stat>) -> bool {
    let mut seen = HashSet::new();
    let mut at = stat.ppid;
    // A table that was read while processes came and went may contain a circle.
    while at != 0 && seen.insert(at) {
        if at == ancestor {
            return true;
        }
        at = table.get(&at).map_or(0, |s| s.ppid);
    }
    false
}

/// Kills the members of a run step by step.
#[derive(Debug)]
pub struct Sweep {
    target: Target,
    clean: u8,
}

/// What one step saw.
#[derive(Debug)]
pub enum Step {
    /// These lived and were sent SIGKILL (or refused it: see [`Killed::refused`]). Step again.
    Killed(Vec<Killed>),
    /// None was seen, once. Step again: one may have been forked during the look.
    CleanOnce,
    /// Two looks in a row saw none.
    Gone,
}

/// A process that was sent SIGKILL.
#[derive(Debug)]
pub struct Killed {
    /// Process id.
    pub pid: u32,
    /// Start, in clock ticks since boot.
    pub start_time: u64,
    /// Command name.
    pub comm: String,
    /// Why it belongs.
    pub evidence: Evidence,
    /// The kernel refused the signal: another user's process (flux-framework/flux-core issue 6107).
    pub refused: bool,
}

impl Sweep {
    /// A sweep that has not looked yet.
    pub fn new(target: Target) -> Sweep {
        Sweep { target, clean: 0 }
    }

    /// Looks once and kills what it sees, each through its pidfd. Does not wait.
    pub fn step(&mut self) -> io::Result<Step> {
        let seen = members(&self.target)?;
        if !seen.is_empty() {
            self.clean = 0;
            return Ok(Step::Killed(seen.into_iter().map(kill).collect()));
        }
        self.clean = self.clean.saturating_add(1);
        Ok(if self.clean < 2 { Step::CleanOnce } else { Step::Gone })
    }
}

fn kill(member: Member) -> Killed {
    let Member { process: Proc { pid, stat, pidfd, .. }, evidence } = member;
    let refused = pidfd.send(libc::SIGKILL).is_err();
    Killed { pid, start_time: stat.start_time, comm: stat.comm, evidence, refused }
}

/// A process that does not die, for people: state D with its wait channel says what it hangs on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unkillable {
    /// Process id.
    pub pid: u32,
    /// Command name.
    pub comm: String,
    /// Its user.
    pub uid: u32,
    /// State letter.
    pub state: char,
    /// Kernel function it sleeps in, where we may know.
    pub wchan: Option<String>,
}

impl fmt::Display for Unkillable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Unkillable { pid, comm, uid, state, wchan } = self;
        write!(f, "pid {pid} ({comm}, uid {uid}) in state {state}")?;
        wchan.as_ref().map_or(Ok(()), |w| write!(f, ", waiting in {w}"))
    }
}

/// Describes those of `pids` that are still there.
pub fn unkillable(pids: impl IntoIterator<Item = u32>) -> Vec<Unkillable> {
    let one = |pid| {
        let _pinned = PidFd::open(pid).ok()??;
        let stat = Stat::of(pid).ok().filter(|s| !s.is_dead())?;
        Some(Unkillable {
            pid,
            comm: stat.comm,
            uid: process::uid(pid).ok()?,
            state: stat.state,
            wchan: process::wchan(pid),
        })
    };
    pids.into_iter().filter_map(one).collect()
}

/// Sends a signal to exactly this process. [`Sent::Gone`] also when the number is another process's by now.
pub fn signal_same(pid: u32, start_time: u64, signal: i32) -> io::Result<Sent> {
    PidFd::open_same(pid, start_time)?.map_or(Ok(Sent::Gone), |p| p.send(signal))
}

#[cfg(test)]
mod tests {
    use super::*;

    const OWN: u32 = 10;

    /// pid, ppid, session, start, state
    fn table(rows: &[(u32, u32, u32, u64, char)]) -> HashMap<u32, Stat> {
        let stat = |&(pid, ppid, session, start_time, state)| Stat {
            pid,
            comm: "x".into(),
            state,
            ppid,
            pgrp: session,
            session,
            cpu_ticks: 0,
            threads: 1,
            start_time,
            rss_bytes: 0,
        };
        rows.iter().map(|row| (row.0, stat(row))).collect()
    }

    fn check(rows: &[(u32, u32, u32, u64, char)], marked: &[u32], want: &[(u32, Evidence)]) {
        let leader = Some(Leader { pid: 50, start_time: 100 });
        let target = Target { leader, marker_key: "K".into(), marker_prefix: "v".into() };
        assert_eq!(judge(&target, &table(rows), OWN, |p| marked.contains(&p)), want, "{rows:?}");
    }

    #[test]
    fn members_are_found_by_each_kind_of_evidence() {
        use Evidence::*;
        let rows = [
            (10, 1, 10, 1, 'S'),
            (50, 10, 50, 100, 'S'),
            (51, 50, 50, 101, 'S'),
            (52, 51, 52, 102, 'S'),
            (53, 1, 53, 103, 'S'),
            (54, 53, 54, 104, 'S'),
            (60, 10, 60, 90, 'S'),
        ];
        check(&rows, &[53], &[(50, Leader), (51, Session), (52, Descendant), (53, Marker), (54, Descendant)]);
    }

    #[test]
    fn a_recycled_leader_or_session_belongs_to_somebody_else() {
        // The number is another process's now: neither it nor its session is ours.
        check(&[(50, 1, 50, 200, 'S'), (51, 50, 50, 201, 'S')], &[], &[]);
        // The leader is gone and the session's members do not descend from us.
        check(&[(51, 1, 50, 201, 'S')], &[], &[]);
        // The same, come back to us as the subreaper.
        check(&[(51, OWN, 50, 201, 'S')], &[], &[(51, Evidence::Session)]);
        // Older than the leader: the number was somebody else's before.
        check(&[(51, OWN, 50, 99, 'S')], &[], &[]);
    }

    #[test]
    fn the_dead_are_no_members_but_their_children_are() {
        check(&[(50, 10, 50, 100, 'Z'), (52, 50, 52, 120, 'S')], &[], &[(52, Evidence::Descendant)]);
    }

    #[test]
    fn neither_init_nor_we_ourselves_are_ever_members() {
        check(&[(1, 0, 50, 100, 'S'), (OWN, 1, 50, 100, 'S')], &[1, OWN], &[]);
    }

    #[test]
    fn a_circle_in_the_table_ends() {
        check(&[(51, 52, 50, 101, 'S'), (52, 51, 50, 101, 'S')], &[], &[]);
    }

    #[test]
    fn an_unkillable_process_is_described_with_what_it_waits_for() {
        let it = Unkillable { pid: 7, comm: "dd".into(), uid: 0, state: 'D', wchan: Some("nfs_wait".into()) };
        assert_eq!(it.to_string(), "pid 7 (dd, uid 0) in state D, waiting in nfs_wait");
        let own = unkillable([std::process::id(), u32::MAX / 2]);
        assert_eq!(own.len(), 1);
    }
}
