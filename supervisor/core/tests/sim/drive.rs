//! Random schedules: any group, any programs, any order, and people who press every button.

use super::laws::{L6_STOP, Violation};
use super::model::Msg;
use super::rng::Rng;
use super::spec;
use super::world::{Chaos, World};
use socialweb_core::budget::{Limits, Rate};
use socialweb_core::{Birth, Event, ExitStatus, Group, Permit, Phase, Time, Why};
use std::time::Duration;

/// One schedule; the world as it is in the end, with the broken law if there is one.
pub fn schedule(seed: u64) -> World {
    let mut rng = Rng(seed);
    let starts = rng.percent(50).then_some(1);
    let limits = Limits {
        concurrent_starts: starts,
        restarts: [None, Some(Rate { burst: 3, per_minute: 30 }), Some(Rate { burst: 1, per_minute: 2 })]
            [rng.below(3) as usize],
        ..Limits::default()
    };
    let mut world = World::new(rng.next(), limits);
    world.chaos = Chaos {
        jitter: [0, 5, 200][rng.below(3) as usize],
        twice: [0, 0, 20][rng.below(3) as usize],
        lost: [0, 0, 0, 5][rng.below(4) as usize],
    };
    for n in 0..=rng.below(2) as usize {
        let spec = spec::random(&mut rng);
        world.add(["demo", "other"][n], spec);
        let model = &mut world.held[n].model;
        model.wild = rng.percent(80);
        model.survivors = rng.below(3) as u32;
        model.survivors_until = Time(rng.below(30_000));
        model.port_taken = rng.percent(20);
        model.path_ms = [0, 30, 12_000][rng.below(3) as usize];
        model.intruders = rng.below(12).saturating_sub(9) as u32;
        model.busy = rng.below(6).saturating_sub(4) as u32;
        model.cgroup_fails = rng.below(6).saturating_sub(4) as u32;
        world.start(n);
    }
    let chance = [2, 8, 20][rng.below(3) as usize];
    for _ in 0..40 + rng.below(200) {
        let n = rng.below(world.held.len() as u64) as usize;
        if rng.percent(chance) || !world.step() {
            press(&mut world, n, &mut rng);
        }
        if world.violation.is_some() {
            return world;
        }
    }
    for n in 0..world.held.len() {
        end(&mut world, n);
    }
    world
}

/// Something that a person, a source or another program does.
fn press(world: &mut World, n: usize, rng: &mut Rng) {
    let declared = world.group(n).spec().cloned();
    let some = world.view(n).components.into_iter().map(|c| c.name).collect::<Vec<_>>();
    let some = rng.pick(&some).cloned();
    match rng.below(16) {
        0..=2 => world.start(n),
        3 | 4 => world.stop(n),
        5 => world.give(n, Event::Restart { component: None, why: Why::Operator }),
        6 | 7 => world.give(n, Event::Restart { component: some, why: Why::Operator }),
        8 | 9 => {
            if let Some(old) = declared {
                let spec = Box::new(spec::random_edit(&old, rng));
                world.give(n, Event::Declared { spec });
            }
        }
        10 => world.give(n, Event::Removed),
        11 => {
            if let Some(spec) = declared {
                world.give(n, Event::Declared { spec: Box::new(spec) });
                world.give(n, Event::Start { why: Why::Reload });
            }
        }
        12 => world.held[n].model.port_taken ^= true,
        13 | 14 => {
            if let Some(of) = some {
                world.crash(n, of.as_str());
            }
        }
        _ => {
            if let Some(component) = some {
                let (birth, status) = (Birth(rng.below(4)), ExitStatus::Code(0));
                let old = world.held[n].model.latest(&component).is_none_or(|r| r.birth != birth);
                if old {
                    world.give(n, Event::Exited { component, birth, status, traces: Default::default() });
                }
            }
        }
    }
}

/// Whatever it was doing: with nobody in the way a stop ends it, and then it can be deleted.
pub fn end(world: &mut World, n: usize) {
    let lossy = world.chaos.lost > 0;
    world.chaos.lost = 0;
    world.held[n].model.heal();
    let Some(spec) = world.group(n).spec().cloned() else { return };
    // Beside the ladders: what was asked for before and got lost is asked for again within a minute.
    let margin = Duration::from_secs(if lossy { 120 } else { 45 });
    let limit = spec.stop_deadline() + margin;
    world.stop(n);
    let began = world.now;
    let parked = world.until(7_200, |w| matches!(w.phase(n), Phase::Parked | Phase::Absent));
    let took = world.now.since(began);
    if world.violation.is_none() && (!parked || took > limit) {
        let what = format!("after {took:?}, allowed {limit:?}: {:#?}", world.view(n));
        world.violation = Some(Violation { law: L6_STOP, what });
    }
    world.give(n, Event::Removed);
    world.give(n, Event::Stop { why: Why::Delete });
    if world.violation.is_none() && world.phase(n) != Phase::Absent {
        let what = "a parked group cannot be deleted".into();
        world.violation = Some(Violation { law: L6_STOP, what });
    }
}

/// Any event at all, true or not; mostly about runs that may exist.
pub fn anything(group: &Group, rng: &mut Rng) -> Event {
    let view = group.view();
    let known = rng.pick(&view.components).cloned();
    let component = known.as_ref().map_or_else(|| spec::name("a"), |c| c.name.clone());
    let current = known.and_then(|c| c.birth).filter(|_| rng.percent(90));
    let birth = current.unwrap_or(Birth(rng.below(9)));
    let status = ExitStatus::Code(rng.below(2) as i32);
    let (why, what) = (String::from("why"), String::from("what"));
    match rng.below(34) {
        0 | 1 => match group.spec() {
            Some(old) if rng.percent(80) => Event::Declared { spec: Box::new(spec::random_edit(old, rng)) },
            _ => Event::Declared { spec: Box::new(spec::random(rng)) },
        },
        2 => Event::Removed,
        3..=5 => Event::Start { why: Why::Operator },
        6 => Event::Stop { why: [Why::Operator, Why::Delete][rng.below(2) as usize].clone() },
        7 => Event::Restart { component: rng.percent(80).then_some(component), why: Why::Operator },
        8 | 9 => Event::SurvivorsReaped { found: vec![] },
        10 => Event::SurvivorsStuck { what },
        11 => Event::PathShut,
        12 | 13 => Event::LeasesGranted,
        14 => Event::LeaseTaken { role: "https".into(), port: 1, holder: what },
        15 | 16 => Event::CgroupMade,
        17 => Event::CgroupFailed { error: why },
        18 | 19 => Event::Granted { permit: Permit::Start },
        20 => Event::Granted { permit: Permit::Restart(component) },
        21 | 22 => Event::Spawned { component, birth, pid: 9 },
        23 => Event::SpawnFailed { component, birth, error: why },
        24 | 25 => Event::Ready { component, birth },
        26 => Event::ProbeFailed { component, birth, why },
        27 => Event::Progress { component, birth },
        28 | 29 => Event::Exited { component, birth, status, traces: Default::default() },
        30 | 31 => Event::CgroupEmpty { component, birth, reaped: vec![] },
        32 => Event::CgroupRemoved { component, birth },
        _ => [Event::GroupRemoved, Event::GroupStuck { what }, Event::Tick][rng.below(3) as usize].clone(),
    }
}
