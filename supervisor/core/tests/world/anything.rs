//! Lies, nonsense and repetitions, whatever the phase: no panic, no loop.

use crate::sim::chance;
use crate::sim::rng::Rng;
use crate::sim::spec::name;
use socialweb_core::{Birth, Event, ExitStatus, Group, GroupName, Permit, Time, Why};
use std::time::Duration;

#[test]
fn no_event_in_any_phase_panics_or_makes_it_spin() {
    for seed in 0..1_000 {
        let mut rng = Rng(seed);
        let mut group = Group::new(GroupName::new("demo").unwrap(), seed, Birth(1));
        let mut now = Time(0);
        let mut log = Vec::new();
        for _ in 0..300 {
            let event = anything(&group, &mut rng);
            log.push((now, event.clone()));
            group.handle(now, event);
            let ticks = (0..100).take_while(|_| {
                let due = group.next_deadline().is_some_and(|d| d <= now);
                due.then(|| group.handle(now, Event::Tick)).is_some()
            });
            assert!(ticks.count() < 100, "seed {seed} spins: {:#?}\n{log:?}", group.view());
            now = now + Duration::from_millis(rng.below(3_000));
        }
    }
}

/// Any event at all, true or not; mostly about runs that may exist.
fn anything(group: &Group, rng: &mut Rng) -> Event {
    let view = group.view();
    let known = rng.pick(&view.components).cloned();
    let component = known.as_ref().map_or_else(|| name("a"), |c| c.name.clone());
    let current = known.and_then(|c| c.birth).filter(|_| rng.percent(90));
    let birth = current.unwrap_or(Birth(rng.below(9)));
    let status = ExitStatus::Code(rng.below(2) as i32);
    let (why, what) = (String::from("why"), String::from("what"));
    match rng.below(34) {
        0 | 1 => Event::Declared { spec: Box::new(chance::spec(rng)) },
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
