//! The ladder of one run: the stop signal to the leader, grace, the cgroup's kill; then the leader waited for, the cgroup
//! empty, the cgroup removed. Every rung has a deadline, and what cannot be ended is called Wedged and tried again.

use super::{ASK_AGAIN, Component, Down, EndedRun, Run, State, Verdict};
use crate::action::{Action, ProbeUse, Role};
use crate::end::{End, Sent, Traces};
use crate::event::{ExitStatus, Reaped};
use crate::mutant;
use crate::receipt::Rung;
use crate::time::Time;

/// One run on its way down.
#[derive(Debug, Clone)]
pub(crate) struct Ending {
    pub run: Run,
    pub rung: Rung,
    pub began: Time,
    pub deadline: Time,
    /// The leader: waited for, or never came to be.
    pub leader_gone: bool,
    pub end: Option<End>,
    /// It began because liveness failed.
    pub hung: bool,
    /// The cgroup was seen empty.
    pub empty: bool,
    /// The other processes that were in it.
    pub others: Vec<Reaped>,
    /// The rmdir was asked for and not answered yet.
    pub removing: bool,
    /// It was asked for at least once, so that its answer is one.
    pub remove_asked: bool,
    pub verdict: Verdict,
    pub wedged: bool,
    /// Who does not go away, for people.
    pub lingering: String,
}

impl Component {
    /// Begins the ladder of a living run: the stop signal to the leader, then grace. A run without a process yet has
    /// nobody to signal: its cgroup is killed.
    pub fn begin_ending(&mut self, verdict: Verdict, now: Time, out: &mut Vec<Action>) {
        let grace = match self.down {
            Some(Down::Group) => self.spec.stop.grace,
            _ => self.spec.stop.grace_restart,
        };
        if let State::Ending(ending) = &mut self.state {
            ending.merge(verdict);
            // A restart may be allowed more time than the group's stop that overtakes it.
            if mutant!("l6-a-stop-waits-for-a-restarts-grace") {
                return;
            }
            if ending.rung == Rung::Signal && !ending.removing {
                ending.deadline = ending.deadline.min(now + grace);
            }
            return;
        }
        let Some(run) = self.run().cloned() else { return };
        self.probe_off(&run, out);
        let mut ending = Ending::new(run, verdict, now);
        // Pre and post tasks, and programs whose leader never came to be, get no grace: they hold nothing worth it.
        let born = ending.run.pid.is_some() || mutant!("l5-signals-the-unborn");
        if born && ending.run.role == Role::Main {
            ending.rung = Rung::Signal;
            ending.deadline = now + grace;
            let (component, birth) = (self.spec.name.clone(), ending.run.birth);
            out.push(Action::Signal { component: component.clone(), birth, signal: self.spec.stop.signal });
            out.push(Action::AwaitEmpty { component, birth });
        } else {
            self.kill(&mut ending, now, out);
        }
        self.enter(State::Ending(Box::new(ending)), now);
    }

    /// exec succeeded although the run was being ended already: the kill, and what it found, came before this process.
    pub fn born_late(&mut self, now: Time, out: &mut Vec<Action>) {
        let wait = self.spec.stop.kill_wait;
        if let State::Ending(ending) = &mut self.state
            && !ending.leader_gone
        {
            ending.empty = false;
            ending.deadline = now + wait;
            out.push(Action::KillCgroup { component: self.spec.name.clone(), birth: ending.run.birth });
        }
    }

    /// The leader ended by itself, or never came to be: what it left behind is killed at once, then removed.
    pub fn leader_ended(&mut self, end: Option<End>, verdict: Verdict, now: Time, out: &mut Vec<Action>) {
        if let State::Ending(ending) = &mut self.state {
            // Leader exit never ends the ladder early: the rung and its deadline stay.
            if !ending.leader_gone {
                ending.leader_gone = true;
                ending.end = end;
                self.settle_ending(now, out);
            }
            return;
        }
        let Some(run) = self.run().cloned() else { return };
        self.probe_off(&run, out);
        let mut ending = Ending::new(run, verdict, now);
        ending.leader_gone = true;
        ending.end = end;
        self.kill(&mut ending, now, out);
        ending.rung = Rung::None;
        self.enter(State::Ending(Box::new(ending)), now);
    }

    /// The end of the current run's leader, laid to who caused it.
    pub fn end_of(&self, status: ExitStatus, traces: Traces) -> End {
        let sent = match &self.state {
            State::Ending(e) if e.rung > Rung::None => {
                Some(Sent { rung: e.rung, signal: self.spec.stop.signal, hung: e.hung })
            }
            _ => None,
        };
        End::of(status, traces, sent)
    }

    /// Nothing of the run is left in its cgroup.
    pub fn emptied(&mut self, reaped: Vec<Reaped>, now: Time, out: &mut Vec<Action>) {
        if let State::Ending(ending) = &mut self.state {
            ending.empty = true;
            ending.note(reaped);
            self.settle_ending(now, out);
        }
    }

    /// Says who is still there.
    pub fn lingers(&mut self, what: String) {
        if let State::Ending(ending) = &mut self.state {
            ending.lingering = what;
        }
    }

    /// Asks for the rmdir once the leader is waited for and the cgroup is empty.
    fn settle_ending(&mut self, now: Time, out: &mut Vec<Action>) {
        if let State::Ending(ending) = &mut self.state
            && (ending.leader_gone || mutant!("l3-does-not-wait-for-the-leader"))
            && (ending.empty || mutant!("l3-the-leaders-exit-is-the-end"))
            && !ending.removing
        {
            ending.removing = true;
            ending.remove_asked = true;
            ending.deadline = now + ASK_AGAIN;
            out.push(Action::RemoveCgroup { component: self.spec.name.clone(), birth: ending.run.birth });
        }
    }

    /// The ladder's deadline passed: the next rung. A removal that did not work means that somebody came in: killed again.
    pub fn ending_due(&mut self, now: Time, out: &mut Vec<Action>) {
        let State::Ending(mut ending) = std::mem::replace(&mut self.state, State::Idle) else { return };
        ending.removing = false;
        ending.empty = false;
        if mutant!("l6-never-kills") {
            ending.deadline = now + ASK_AGAIN;
        } else if ending.rung < Rung::Kill {
            self.kill(&mut ending, now, out);
        } else {
            ending.wedged = true;
            ending.rung = Rung::Wedged;
            ending.deadline = now + ASK_AGAIN;
            out.push(Action::KillCgroup { component: self.spec.name.clone(), birth: ending.run.birth });
        }
        self.state = State::Ending(ending);
    }

    fn kill(&self, ending: &mut Ending, now: Time, out: &mut Vec<Action>) {
        ending.rung = Rung::Kill;
        ending.deadline = now + self.spec.stop.kill_wait;
        out.push(Action::KillCgroup { component: self.spec.name.clone(), birth: ending.run.birth });
    }

    fn probe_off(&self, run: &Run, out: &mut Vec<Action>) {
        if run.role == Role::Main && run.pid.is_some() {
            out.push(Action::Probe { component: self.spec.name.clone(), birth: run.birth, what: ProbeUse::Off });
        }
    }
}

impl Ending {
    fn new(run: Run, verdict: Verdict, now: Time) -> Self {
        Ending {
            run,
            rung: Rung::None,
            began: now,
            deadline: now,
            leader_gone: false,
            end: None,
            hung: false,
            empty: false,
            others: Vec::new(),
            removing: false,
            remove_asked: false,
            verdict,
            wedged: false,
            lingering: String::new(),
        }
    }

    /// A wish to be down outranks whatever the run's end meant before.
    fn merge(&mut self, verdict: Verdict) {
        if verdict == Verdict::Down {
            self.verdict = Verdict::Down;
        }
    }

    /// One process is one line, however often the question was answered.
    fn note(&mut self, reaped: Vec<Reaped>) {
        for one in reaped {
            let same = |o: &Reaped| o.start_time == one.start_time || mutant!("l14-a-number-is-a-process");
            if !self.others.iter().any(|o| o.pid == one.pid && same(o)) {
                self.others.push(one);
            }
        }
    }

    pub(super) fn describe(&self) -> String {
        match (self.removing, self.rung) {
            (true, _) => format!("{}removing its cgroup", self.ended()),
            (false, Rung::Signal) if self.leader_gone => format!("{}others of it are still there", self.ended()),
            (false, Rung::Signal) => "asked to stop".into(),
            (false, _) if self.leader_gone => format!("{}what it left is killed", self.ended()),
            (false, _) => "killed, waiting for its last process".into(),
        }
    }

    /// How the main process ended, as the first half of a sentence; empty while it is not known.
    fn ended(&self) -> String {
        self.end.map(|end| format!("{} ended with {end}; ", self.run.role)).unwrap_or_default()
    }
}

impl From<&Ending> for EndedRun {
    fn from(ending: &Ending) -> Self {
        EndedRun {
            birth: ending.run.birth,
            pid: ending.run.pid,
            end: ending.end,
            rung: ending.rung,
            began: ending.began,
            others: ending.others.clone(),
        }
    }
}
