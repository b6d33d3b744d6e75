//! What a group asks the world to do. No action is assumed to have worked: its outcome comes back as an event.

use crate::name::{Birth, ComponentName};
use crate::receipt::Receipt;
use crate::shared::Shared;
use crate::view::GroupView;
use serde::{Deserialize, Serialize};

/// One output of [`crate::Group::handle`].
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", tag = "action")]
pub enum Action {
    /// Find and end all that an earlier run of this group left. Answer: SurvivorsReaped or SurvivorsStuck.
    ReapSurvivors,
    /// See that the leased ports are free. Answer: LeasesGranted or LeaseTaken.
    Lease,
    /// Ask the host-wide budget. Answer: Granted, possibly much later.
    Request {
        /// For what.
        permit: Permit,
    },
    /// Give a permit back, or withdraw the request for it. No answer.
    Return {
        /// For what.
        permit: Permit,
    },
    /// Make the group's cgroup. Answer: CgroupMade or CgroupFailed.
    MakeCgroup,
    /// Write the launch's files and start the program in a cgroup of its own. Answer: Spawned or SpawnFailed, and for a
    /// spawned one later Exited.
    Spawn {
        /// The component.
        component: ComponentName,
        /// The run; names the cgroup.
        birth: Birth,
        /// Which of the component's programs.
        role: Role,
    },
    /// Begin (or with Off: end) probing a run. Answers: Ready, ProbeFailed, ProbeRecovered, Progress.
    Probe {
        /// The component.
        component: ComponentName,
        /// The run.
        birth: Birth,
        /// To what end.
        what: ProbeUse,
    },
    /// Thaw the run's cgroup and send this signal to its leader through the pidfd. No answer: Exited may follow.
    Signal {
        /// The component.
        component: ComponentName,
        /// The run.
        birth: Birth,
        /// Signal number.
        signal: i32,
    },
    /// Tell when nothing of the run is left, without killing. Answer: CgroupEmpty.
    AwaitEmpty {
        /// The component.
        component: ComponentName,
        /// The run.
        birth: Birth,
    },
    /// Kill all that is in the run's cgroup or carries its marker. Answer: CgroupEmpty.
    KillCgroup {
        /// The component.
        component: ComponentName,
        /// The run.
        birth: Birth,
    },
    /// Remove the run's cgroup. Answer: CgroupRemoved.
    RemoveCgroup {
        /// The component.
        component: ComponentName,
        /// The run.
        birth: Birth,
    },
    /// Remove the group's cgroup and sweep once more for its marker. Answer: GroupRemoved or GroupStuck.
    RemoveGroup,
    /// Shut the tenant's path. Answer: PathShut.
    ShutPath,
    /// The group is down for good or for now: its ports are no longer probed. No answer; leases stay (law L9).
    Release,
    /// Show this. No answer.
    Publish {
        /// The new view.
        view: Shared<GroupView>,
    },
    /// Keep and announce this proof of a stop. No answer.
    Receipt {
        /// The proof.
        receipt: Box<Receipt>,
    },
}

/// Which program of a component a run executes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Role {
    /// `launch`.
    Main,
    /// `pre[n]`.
    Pre(usize),
    /// `post[n]`.
    Post(usize),
}

/// What probing is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ProbeUse {
    /// Until it holds once.
    Readiness,
    /// Again and again.
    Liveness,
    /// Stop probing.
    Off,
}

/// A host-wide allowance.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", tag = "permit", content = "component")]
pub enum Permit {
    /// To bring a group up. Held until it is up or has given up.
    Start,
    /// To restart this component once. Spent when granted.
    Restart(ComponentName),
}
