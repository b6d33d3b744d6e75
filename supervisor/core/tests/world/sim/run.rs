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
        matches!(self, Fate::Exec | Fate::ExecFails | Fate::Dies(_) | Fate::Slain { .. })
    }
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
