//! Processes, read from the kernel when asked.

use serde::{Deserialize, Serialize};

/// All processes of one group.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct GroupTree {
    /// The group.
    pub group: String,
    /// Its components that have processes, by rank, then name.
    pub components: Vec<ComponentTree>,
    /// Processes in the group's cgroup that belong to no component.
    pub strays: Vec<Process>,
}

/// All processes of one component.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ComponentTree {
    /// The component.
    pub name: String,
    /// The run.
    pub birth: Option<u64>,
    /// Its cgroup, relative to the cgroup root; absent where there is none.
    pub cgroup: Option<String>,
    /// The leader first, then by pid.
    pub processes: Vec<Process>,
}

/// One process.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Process {
    /// Process id.
    pub pid: u32,
    /// Its parent's.
    pub ppid: u32,
    /// Command name, at most 15 bytes.
    pub comm: String,
    /// The kernel's state letter: R, S, D, T, Z.
    pub state: String,
    /// Resident memory.
    pub rss_bytes: u64,
    /// CPU time used so far.
    pub cpu_usec: u64,
}

impl GroupTree {
    /// How many processes there are.
    pub fn len(&self) -> usize {
        self.strays.len() + self.components.iter().map(|c| c.processes.len()).sum::<usize>()
    }

    /// True when the group has no process.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}
