//! What a group and a component may take of the host, and how that reaches the kernel's control files. Pure: it says what
//! is to be written where and what cannot be in force; the shell writes and reports.

use crate::name::Rank;
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::fmt;

/// Bounds of one cgroup, as small as can be: 5,000 components have one each. Absent = no bound of ours; a bound of a folder above counts all the same.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Limits {
    /// Bytes; above this the kernel ends a process of it.
    pub memory_max: Option<u64>,
    /// Bytes; above this its processes are slowed and their memory is reclaimed.
    pub memory_high: Option<u64>,
    /// Processor time in thousandths of one core.
    pub cpu_millis: Option<u32>,
    /// Processes and threads.
    pub pids_max: Option<u32>,
    /// Share of the disks beside its sisters, 1 to 10,000; the kernel's own default is 100.
    pub io_weight: Option<u16>,
}

/// One bound of [`Limits`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Bound {
    /// `memory_max`.
    MemoryMax,
    /// `memory_high`.
    MemoryHigh,
    /// `cpu`.
    Cpu,
    /// `pids_max`.
    PidsMax,
    /// `io_weight`.
    IoWeight,
}

/// A cgroup controller that a bound needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Controller {
    /// memory
    Memory,
    /// cpu
    Cpu,
    /// pids
    Pids,
    /// io
    Io,
}

/// The kernel's period for cpu.max in microseconds: its own default.
const PERIOD_USEC: u64 = 100_000;

impl Bound {
    /// All of them, in the order in which they are written. memory.high before memory.max: a lowered pair then reclaims
    /// before it kills.
    pub const ALL: [Bound; 5] = [Bound::MemoryHigh, Bound::MemoryMax, Bound::Cpu, Bound::PidsMax, Bound::IoWeight];

    /// The key in a cluster file.
    pub fn key(self) -> &'static str {
        match self {
            Bound::MemoryMax => "memory_max",
            Bound::MemoryHigh => "memory_high",
            Bound::Cpu => "cpu",
            Bound::PidsMax => "pids_max",
            Bound::IoWeight => "io_weight",
        }
    }

    /// The control file.
    pub fn file(self) -> &'static str {
        match self {
            Bound::MemoryMax => "memory.max",
            Bound::MemoryHigh => "memory.high",
            Bound::Cpu => "cpu.max",
            Bound::PidsMax => "pids.max",
            Bound::IoWeight => "io.weight",
        }
    }

    /// Who provides that file.
    pub fn controller(self) -> Controller {
        match self {
            Bound::MemoryMax | Bound::MemoryHigh => Controller::Memory,
            Bound::Cpu => Controller::Cpu,
            Bound::PidsMax => Controller::Pids,
            Bound::IoWeight => Controller::Io,
        }
    }

    /// What is written for this value; `None` takes the bound away.
    fn text(self, value: Option<u64>) -> String {
        match (self, value) {
            (Bound::Cpu, Some(millis)) => format!("{} {PERIOD_USEC}", millis.saturating_mul(PERIOD_USEC / 1000)),
            (Bound::Cpu, None) => format!("max {PERIOD_USEC}"),
            (Bound::IoWeight, value) => format!("default {}", value.unwrap_or(100)),
            (_, Some(value)) => value.to_string(),
            (_, None) => "max".into(),
        }
    }
}

impl Controller {
    /// All of them.
    pub const ALL: [Controller; 4] = [Controller::Memory, Controller::Cpu, Controller::Pids, Controller::Io];

    /// The kernel's name.
    pub fn as_str(self) -> &'static str {
        match self {
            Controller::Memory => "memory",
            Controller::Cpu => "cpu",
            Controller::Pids => "pids",
            Controller::Io => "io",
        }
    }

    /// The controller of that name.
    pub fn named(name: &str) -> Option<Controller> {
        Controller::ALL.into_iter().find(|c| c.as_str() == name)
    }
}

impl fmt::Display for Bound {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.key())
    }
}

impl Limits {
    /// The value of one bound, in the unit of its field.
    pub fn of(&self, bound: Bound) -> Option<u64> {
        match bound {
            Bound::MemoryMax => self.memory_max,
            Bound::MemoryHigh => self.memory_high,
            Bound::Cpu => self.cpu_millis.map(u64::from),
            Bound::PidsMax => self.pids_max.map(u64::from),
            Bound::IoWeight => self.io_weight.map(u64::from),
        }
    }

    /// Takes one bound over from another set.
    pub fn take(&mut self, bound: Bound, from: &Limits) {
        match bound {
            Bound::MemoryMax => self.memory_max = from.memory_max,
            Bound::MemoryHigh => self.memory_high = from.memory_high,
            Bound::Cpu => self.cpu_millis = from.cpu_millis,
            Bound::PidsMax => self.pids_max = from.pids_max,
            Bound::IoWeight => self.io_weight = from.io_weight,
        }
    }

    /// The bounds in which two differ.
    pub fn changed(&self, other: &Limits) -> Vec<Bound> {
        Bound::ALL.into_iter().filter(|b| self.of(*b) != other.of(*b)).collect()
    }
}

/// One control file to write.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Write {
    /// For this bound.
    pub bound: Bound,
    /// The text.
    pub text: String,
}

/// What brings one cgroup from one set of bounds to another.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Steps {
    /// To write, in this order.
    pub writes: Vec<Write>,
    /// Wanted, and not in force whatever is written: their controller is not there.
    pub missing: Vec<Bound>,
}

/// What to write so that a cgroup that has `before` in force has `wanted`. A fresh cgroup has nothing in force. A bound that
/// is there already is not written again: the kernel would reclaim anew.
pub fn decide(wanted: &Limits, before: &Limits, controllers: &BTreeSet<Controller>) -> Steps {
    let mut steps = Steps::default();
    for bound in Bound::ALL {
        let there = controllers.contains(&bound.controller());
        match (wanted.of(bound), before.of(bound)) {
            (Some(_), _) if !there => steps.missing.push(bound),
            (new, old) if new != old && there => steps.writes.push(Write { bound, text: bound.text(new) }),
            _ => {}
        }
    }
    steps
}

/// How much of core dumps a group may keep on disk; older ones go first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct CoreBudget {
    /// Bytes of all of them together.
    pub bytes: u64,
    /// Number of files.
    pub count: u32,
}

impl Default for CoreBudget {
    /// One of a server with 300 MiB, and a few of smaller programs.
    fn default() -> Self {
        CoreBudget { bytes: 1 << 30, count: 5 }
    }
}

impl CoreBudget {
    /// Of dumps given by size, youngest first: how many of them are kept. Disk space is what they take from all others, so
    /// the youngest goes too when it alone is too large.
    pub fn keeps(&self, sizes: impl IntoIterator<Item = u64>) -> usize {
        let mut bytes = 0u64;
        let fits = |size: &u64| {
            bytes = bytes.saturating_add(*size);
            bytes <= self.bytes
        };
        sizes.into_iter().take(self.count as usize).take_while(fits).count()
    }
}

/// Above the daemon, so that it is the last to be ended when the host has no memory left.
const OOM_BASE: i32 = 100;
/// Between two ranks; the kernel's scale counts thousandths of the host's memory.
const OOM_STEP: i32 = 20;
/// The kernel's highest.
const OOM_MAX: i32 = 1000;

/// The oom_score_adj of one component, and whether the wish for it can be met.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OomScore {
    /// What to set.
    pub score: i32,
    /// It was asked for lower than this daemon may set it.
    pub refused: bool,
}

/// Later ranks die first, and the daemon last. `asked` is the component's own wish, `own` the daemon's score. Without
/// `may_lower` (CAP_SYS_RESOURCE) the kernel lets a score only be raised; what was asked for lower starts with the daemon's.
pub fn oom_score(asked: Option<i32>, rank: Rank, own: i32, may_lower: bool) -> OomScore {
    let by_rank = own.max(0).saturating_add(OOM_BASE).saturating_add(OOM_STEP.saturating_mul(rank.0.into()));
    let wanted = asked.unwrap_or(by_rank).min(OOM_MAX);
    let refused = wanted < own && !may_lower;
    OomScore { score: if refused { own } else { wanted }, refused }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all() -> BTreeSet<Controller> {
        Controller::ALL.into()
    }

    fn check(wanted: Limits, before: Limits, have: &BTreeSet<Controller>, expect: &str) {
        let steps = decide(&wanted, &before, have);
        let writes = steps.writes.iter().map(|w| format!("{}={}", w.bound.file(), w.text));
        let missing = steps.missing.iter().map(|b| format!("!{b}"));
        assert_eq!(writes.chain(missing).collect::<Vec<_>>().join("; "), expect);
    }

    #[test]
    fn a_bound_is_written_where_its_controller_is_and_named_where_it_is_not() {
        let none = Limits::default();
        let some = Limits { memory_max: Some(1 << 20), cpu_millis: Some(1500), ..none };
        check(none, none, &all(), "");
        check(some, none, &all(), "memory.max=1048576; cpu.max=150000 100000");
        check(some, none, &[Controller::Cpu].into(), "cpu.max=150000 100000; !memory_max");
        check(some, none, &BTreeSet::new(), "!memory_max; !cpu");
        check(some, some, &all(), "");
        check(some, some, &BTreeSet::new(), "!memory_max; !cpu");
    }

    #[test]
    fn a_bound_that_is_taken_away_gets_the_kernels_default() {
        let none = Limits::default();
        let full = Limits {
            memory_max: Some(2),
            memory_high: Some(1),
            cpu_millis: Some(1),
            pids_max: Some(5),
            io_weight: Some(7),
        };
        check(full, none, &all(), "memory.high=1; memory.max=2; cpu.max=100 100000; pids.max=5; io.weight=default 7");
        check(
            none,
            full,
            &all(),
            "memory.high=max; memory.max=max; cpu.max=max 100000; pids.max=max; io.weight=default 100",
        );
        check(none, full, &BTreeSet::new(), "");
        check(Limits { pids_max: Some(6), ..full }, full, &all(), "pids.max=6");
        assert_eq!(full.changed(&Limits { memory_max: None, ..full }), [Bound::MemoryMax]);
    }

    #[test]
    fn the_youngest_dumps_are_kept_within_both_bounds() {
        let budget = CoreBudget { bytes: 10, count: 3 };
        let check = |sizes: &[u64], kept| assert_eq!(budget.keeps(sizes.iter().copied()), kept, "{sizes:?}");
        check(&[], 0);
        check(&[4, 4], 2);
        check(&[4, 4, 4], 2);
        check(&[1, 1, 1, 1], 3);
        check(&[11, 1], 0);
        check(&[10], 1);
        check(&[u64::MAX, u64::MAX], 0);
    }

    #[test]
    fn later_ranks_die_first_and_the_daemon_last() {
        for own in [-1000, -500, 0, 200, 1000] {
            let score = |rank| oom_score(None, Rank(rank), own, false);
            let scores: Vec<i32> = (0..4).map(|rank| score(rank).score).collect();
            assert!(scores.is_sorted() && scores[0] >= own && !score(0).refused, "{own}: {scores:?}");
        }
        assert!(oom_score(None, Rank(1), 0, false).score < oom_score(None, Rank(2), 0, false).score);
        assert_eq!(oom_score(None, Rank(u16::MAX), 0, false).score, 1000);
    }

    #[test]
    fn a_score_that_may_not_be_lowered_is_the_daemons_own_and_said() {
        let check = |asked, own, may, score, refused| {
            assert_eq!(oom_score(Some(asked), Rank(3), own, may), OomScore { score, refused });
        };
        check(-500, 0, false, 0, true);
        check(-500, 0, true, -500, false);
        check(0, 0, false, 0, false);
        check(300, 200, false, 300, false);
        check(100, 200, false, 200, true);
    }
}
