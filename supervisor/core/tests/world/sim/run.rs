//! One run of a component as the shell keeps it, and what can be on its way to it.

use super::behave::Behaviour;
use super::kernel::Proc;
use socialweb_core::event::ReapedBy;
use socialweb_core::{Birth, ComponentName, Event, ExitStatus, ProbeUse, Rank, Reaped, Role, Time};

/// What is on its way.
#[derive(Debug, Clone, PartialEq)]
pub enum Msg {
    Event(Event),
    /// Looked at when it arrives, so that the answer is true.
    Lease,
    Reap,
    Path,
    RemoveGroup,
    /// The daemon waits for a dead child.
    Wait {
        pid: u32,
        start: u64,
    },
    Kernel(Birth, Fate),
}

/// What happens to a process.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Fate {
    Exec,
    ExecFails,
    /// The leader ends.
    Dies(ExitStatus),
    /// The kernel ends the leader, out of memory.
    OutOfMemory,
    /// A kill arrives.
    Slain {
        pid: u32,
        start: u64,
    },
    Holds,
    ProbeFails,
    Progress,
}

impl Fate {
    /// It happens without a daemon too.
    pub fn is_the_kernels(self) -> bool {
        matches!(self, Fate::Exec | Fate::ExecFails | Fate::Dies(_) | Fate::OutOfMemory | Fate::Slain { .. })
    }
}

/// What truly ended a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ender {
    Itself,
    /// The daemon's kill.
    Kill,
    /// Somebody else's kill.
    Other,
    OutOfMemory,
}

/// One run: first what is true, then what the group was told or did.
#[derive(Debug, Clone)]
pub struct Run {
    pub component: ComponentName,
    pub birth: Birth,
    pub role: Role,
    pub rank: Rank,
    pub behaviour: Behaviour,
    pub born: bool,
    pub exec: Option<Time>,
    pub killed: Option<Time>,
    /// What it would have done while it was frozen.
    pub held: Vec<Fate>,
    pub reaped: Vec<Reaped>,
    pub empty_asked: bool,
    pub removed: bool,
    pub probe: ProbeUse,
    /// The stop signal was sent to its leader; and whether it, or the kill, was sent before the leader's end was told.
    pub signalled: bool,
    pub signalled_first: bool,
    pub killed_first: bool,
    /// Who truly ended its leader.
    pub ended_by: Option<Ender>,
    /// Processes of it that the kernel ended, out of memory.
    pub oom_kills: u64,
    pub told_spawned: bool,
    pub told_end: bool,
    pub told_empty: bool,
    pub touched: bool,
    /// It ended well, and that makes it Done.
    pub well: bool,
}

impl Run {
    pub fn new(component: ComponentName, birth: Birth, role: Role, behaviour: Behaviour) -> Self {
        Run {
            component,
            birth,
            role,
            rank: Rank(0),
            behaviour,
            born: false,
            exec: None,
            killed: None,
            held: Vec::new(),
            reaped: Vec::new(),
            empty_asked: false,
            removed: false,
            probe: ProbeUse::Off,
            signalled: false,
            signalled_first: false,
            killed_first: false,
            ended_by: None,
            oom_kills: 0,
            told_spawned: false,
            told_end: false,
            told_empty: false,
            touched: false,
            well: false,
        }
    }
}

/// How a receipt names a process.
pub fn reaped(p: &Proc, run: Option<&Run>, by: ReapedBy) -> Reaped {
    let component = run.map(|r| r.component.clone());
    Reaped { component, pid: p.pid, start_time: p.start, command: "stray".into(), by }
}
