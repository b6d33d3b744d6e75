//! What a program of the model does.

use super::case::usual;
use super::rng::Rng;
use serde::{Deserialize, Serialize};
use socialweb_core::Role;

/// How a spawn goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Exec {
    /// exec after so many ms; the child is in its cgroup at once.
    Works(u64),
    /// exec fails after so many ms.
    Fails(u64),
    /// Never execs; can be killed.
    Hangs,
    /// The child is in its cgroup only after so many ms: a kill before that finds nobody.
    Late(u64),
}

/// A second process of a program: in a session of its own, deaf to all but the kill.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Stray {
    None,
    /// In the run's cgroup.
    Own,
    /// In the run's cgroup, without the marker in its environment.
    Bare,
    /// It moved into the cgroup of another component of its group.
    Sister,
}

/// One program.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Behaviour {
    #[serde(skip_serializing_if = "normal_exec")]
    pub exec: Exec,
    /// The readiness probe holds so many ms after exec.
    pub ready: Option<u64>,
    /// Ends by itself so many ms after exec, with this status.
    #[serde(skip_serializing_if = "usual")]
    pub exits: Option<(u64, i32)>,
    /// Ends so many ms after the stop signal.
    pub term: Option<u64>,
    #[serde(skip_serializing_if = "no_stray")]
    pub stray: Stray,
    /// For so many ms after the first kill nothing of it goes away.
    #[serde(skip_serializing_if = "usual")]
    pub unkillable: u64,
    /// The liveness probe fails from so many ms after exec on.
    #[serde(skip_serializing_if = "usual")]
    pub hangs: Option<u64>,
    /// The cgroup's counters grow until it is ready.
    #[serde(skip_serializing_if = "usual")]
    pub progress: bool,
}

fn normal_exec(exec: &Exec) -> bool {
    *exec == Exec::Works(2)
}

fn no_stray(stray: &Stray) -> bool {
    *stray == Stray::None
}

impl Default for Behaviour {
    fn default() -> Self {
        Self::normal()
    }
}

impl Behaviour {
    pub fn normal() -> Self {
        Behaviour {
            exec: Exec::Works(2),
            ready: Some(50),
            exits: None,
            term: Some(20),
            stray: Stray::None,
            unkillable: 0,
            hangs: None,
            progress: false,
        }
    }

    pub fn exits(after: u64, code: i32) -> Self {
        Behaviour { exits: Some((after, code)), ready: None, ..Self::normal() }
    }

    pub fn serves(until: u64, code: i32) -> Self {
        Behaviour { exits: Some((until, code)), ..Self::normal() }
    }

    pub fn ignores_term() -> Self {
        Behaviour { term: None, ..Self::normal() }
    }

    pub fn never_ready() -> Self {
        Behaviour { ready: None, ..Self::normal() }
    }

    pub fn leaves_stray() -> Self {
        Behaviour { stray: Stray::Own, ..Self::normal() }
    }

    pub fn unkillable(ms: u64) -> Self {
        Behaviour { unkillable: ms, ..Self::ignores_term() }
    }

    pub fn exec(exec: Exec) -> Self {
        Behaviour { exec, ..Self::normal() }
    }

    pub fn slow(ready: u64) -> Self {
        Behaviour { ready: Some(ready), progress: true, ..Self::normal() }
    }

    pub fn hangs(after: u64) -> Self {
        Behaviour { hangs: Some(after), ..Self::normal() }
    }

    /// What a program does of which nobody said anything.
    pub fn usual(role: Role, ends: bool) -> Self {
        if role == Role::Main && !ends { Self::normal() } else { Self::exits(5, 0) }
    }

    pub fn random(rng: &mut Rng, role: Role, ends: bool) -> Self {
        let mut b = match rng.below(20) {
            0 => Self::ignores_term(),
            1 => Self::exits(rng.below(300), 1),
            2 => Self::serves(rng.below(3_000), rng.below(2) as i32),
            3 => Self::never_ready(),
            4 => Self::leaves_stray(),
            5 => Behaviour { stray: [Stray::Bare, Stray::Sister][rng.below(2) as usize], ..Self::normal() },
            6 => Self::unkillable(rng.below(30_000)),
            7 => Self::exec(Exec::Fails(rng.below(100))),
            8 => Self::exec(Exec::Hangs),
            9 => Self::exec(Exec::Late(rng.below(8_000))),
            10 => Self::slow(rng.below(200_000)),
            11 => Self::hangs(rng.below(20_000)),
            _ => Self::usual(role, ends),
        };
        if ends && b.exits.is_none() && rng.percent(80) {
            b.exits = Some((rng.below(500), i32::from(rng.percent(20))));
        }
        b
    }
}
