//! What happens to processes, whether or not a daemon lives that could be told.

use super::behave::Stray;
use super::kernel::{Life, Proc, RunId};
use super::run::{Ender, Fate, Msg, reaped};
use super::shell::{Later, Shell};
use socialweb_core::event::ReapedBy;
use socialweb_core::{Birth, Event, ExitStatus, ProbeUse};

impl Shell {
    /// One thing happens to a process of a run.
    pub fn fate(&mut self, birth: Birth, fate: Fate, later: &mut Later<'_>) {
        if let Fate::Slain { pid, start } = fate {
            return self.slain(pid, start, later);
        }
        let id = self.id(birth);
        let current = self.runs.contains_key(&birth);
        let Some(run) = self.runs.get_mut(&birth).or_else(|| self.old.get_mut(&birth)) else { return };
        let leader = later.kernel.leader(id).map(|p| (p.pid, p.life));
        let killed = matches!(fate, Fate::Dies(ExitStatus::Signal(_)) | Fate::OutOfMemory);
        if later.kernel.frozen(id) && !killed && fate != Fate::ProbeFails {
            return run.held.push(fate);
        }
        let component = run.component.clone();
        let serving = run.exec.is_some() && leader.is_some_and(|(_, life)| life == Life::Runs);
        match fate {
            // Also what was on its way to a run of an earlier daemon that had the same birth number.
            Fate::Exec if run.exec.is_some() => {}
            Fate::Exec if run.born && leader.is_none_or(|(_, life)| matches!(life, Life::Zombie(_))) => {}
            Fate::Exec => {
                let pid = leader.map_or_else(|| later.kernel.fork(id, id, true, true).pid, |(pid, _)| pid);
                (run.born, run.exec) = (true, Some(later.now));
                let behaviour = run.behaviour;
                self.stray(id, behaviour.stray, later);
                if current {
                    later.tell(Event::Spawned { component, birth, pid });
                }
                if let Some((ms, code)) = behaviour.exits {
                    later.at(ms, Msg::Kernel(birth, Fate::Dies(ExitStatus::Code(code))));
                }
            }
            Fate::ExecFails if run.exec.is_none() => {
                self.ends(leader.map(|l| l.0), ExitStatus::Code(127), Ender::Itself, later)
            }
            Fate::Dies(_) if killed || serving => {
                let Fate::Dies(status) = fate else { return };
                let by = if killed { Ender::Other } else { Ender::Itself };
                self.ends(leader.map(|l| l.0), status, by, later);
            }
            Fate::OutOfMemory if leader.is_some_and(|(_, life)| !matches!(life, Life::Zombie(_))) => {
                run.oom_kills += 1;
                self.ends(leader.map(|l| l.0), ExitStatus::Signal(9), Ender::OutOfMemory, later);
            }
            Fate::Holds if serving && run.probe == ProbeUse::Readiness => later.tell(Event::Ready { component, birth }),
            Fate::ProbeFails if leader.is_some() && run.probe != ProbeUse::Off => {
                later.tell(Event::ProbeFailed { component, birth, why: "connection refused".into() });
                if run.probe == ProbeUse::Liveness {
                    later.at(1_000, Msg::Kernel(birth, Fate::ProbeFails));
                }
            }
            Fate::Progress if serving && run.probe == ProbeUse::Readiness => {
                later.tell(Event::Progress { component, birth });
                later.at(20_000, Msg::Kernel(birth, Fate::Progress));
            }
            _ => {}
        }
    }

    fn stray(&mut self, id: RunId, stray: Stray, later: &mut Later<'_>) {
        let sister = self.runs.values().find(|r| r.birth != id.birth && !r.removed).map(|r| self.id(r.birth));
        let place = match stray {
            Stray::None => return,
            Stray::Sister => sister.unwrap_or(id),
            Stray::Own | Stray::Bare => id,
        };
        // Without cgroups nobody finds one that has neither the session nor the marker.
        let bare = stray == Stray::Bare;
        later.kernel.fork(id, place, false, !bare || later.kernel.cgroups).marked = !bare;
    }

    fn slain(&mut self, pid: u32, start: u64, later: &mut Later<'_>) {
        let found = later.kernel.procs.iter().find(|p| (p.pid, p.start) == (pid, start) && p.alive());
        let Some(p) = found.cloned() else { return };
        let by = if p.cgroup == p.of { ReapedBy::CgroupKill } else { ReapedBy::MarkerKill };
        if let Some(run) = self.runs.get_mut(&p.of.birth).filter(|_| !p.leader) {
            run.reaped.push(reaped(&p, Some(run), by));
        }
        self.ends(Some(pid), ExitStatus::Signal(9), Ender::Kill, later);
    }

    fn ends(&mut self, pid: Option<u32>, status: ExitStatus, by: Ender, later: &mut Later<'_>) {
        let Some(p) = pid.and_then(|pid| later.kernel.procs.iter().find(|p| p.pid == pid && p.alive()).cloned()) else {
            return;
        };
        later.kernel.end(p.pid, status);
        if let Some(run) = self.runs.get_mut(&p.of.birth).filter(|_| p.leader) {
            run.ended_by = Some(by);
        }
        if p.ours {
            later.at(0, Msg::Wait { pid: p.pid, start: p.start });
        } else {
            self.looks(&p, later);
        }
    }

    pub fn looks(&mut self, gone: &Proc, later: &mut Later<'_>) {
        self.look(gone.of.birth, later);
        if gone.cgroup != gone.of {
            self.look(gone.cgroup.birth, later);
        }
    }
}
