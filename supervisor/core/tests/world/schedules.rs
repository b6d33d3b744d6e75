//! Random lives of hosts, every law checked after every step.

use crate::sim::case::Case;
use crate::sim::chance;
use crate::sim::shrink::shrink;
use socialweb_core::Action;
use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

/// Lives in the default run: a fixed number, never a time, so that a slow machine proves as much as a fast one.
const RUNS: u64 = 100_000;

fn number(variable: &str) -> Option<u64> {
    std::env::var(variable).ok().and_then(|text| text.parse().ok())
}

/// What a broken law is reported with: the seed, the law, the small case, and the log of that case, which
/// `record::replay` reads.
pub fn report(name: &str, case: &Case) -> Option<String> {
    let broken = case.run(false).violation?;
    let small = shrink(case.clone(), |c| c.run(false).violation.is_some_and(|v| v.law == broken.law));
    let world = small.run(true);
    let what = world.violation.as_ref().map_or("", |v| &v.what);
    let logs: String = world.held.iter().map(|h| h.text()).collect();
    let json = serde_json::to_string_pretty(&Case { law: broken.law.into(), ..small }).unwrap();
    Some(format!("{logs}\n{json}\n{name} breaks {} at {:?}: {what}", broken.law, world.now))
}

/// Runs the lives of these seeds on all processors; the report of the broken one with the lowest seed.
fn first_broken(seeds: std::ops::Range<u64>) -> Option<(u64, String)> {
    let next = AtomicU64::new(seeds.start);
    let worst: Mutex<Option<u64>> = Mutex::new(None);
    let work = || {
        loop {
            let seed = next.fetch_add(1, Ordering::Relaxed);
            if seed >= seeds.end || worst.lock().unwrap().is_some_and(|w| w < seed) {
                return;
            }
            if chance::case(seed).run(false).violation.is_some() {
                let mut worst = worst.lock().unwrap();
                *worst = Some(worst.map_or(seed, |w| w.min(seed)));
            }
        }
    };
    // A host that has no room for another thread is slower, not wrong.
    std::thread::scope(|scope| {
        let more = std::thread::available_parallelism().map_or(0, |n| n.get() - 1);
        (0..more).for_each(|_| drop(std::thread::Builder::new().spawn_scoped(scope, work)));
        work();
    });
    let seed = worst.into_inner().unwrap()?;
    Some((seed, report(&format!("SIM_SEED={seed}"), &chance::case(seed)).unwrap()))
}

#[test]
fn every_law_holds_in_every_random_life() {
    let base = number("SIM_BASE").unwrap_or(0);
    let seeds = match number("SIM_SEED") {
        Some(seed) => seed..seed + 1,
        None => base..base + number("SIM_RUNS").unwrap_or(RUNS),
    };
    if let Some((_, report)) = first_broken(seeds) {
        panic!("{report}");
    }
}

#[test]
fn a_seed_is_the_same_life_each_time_and_a_case_survives_its_file() {
    for seed in 0..200 {
        let case = chance::case(seed);
        let read: Case = serde_json::from_str(&serde_json::to_string(&case).unwrap()).unwrap();
        assert_eq!(case, read);
        let logs = |case: &Case| case.run(true).held.iter().map(|h| h.text()).collect::<String>();
        assert_eq!(logs(&case), logs(&read), "seed {seed}");
    }
}

/// Lives that never get anywhere break no law either.
#[test]
fn the_lives_reach_every_phase_every_state_and_every_rung() {
    let mut seen: BTreeMap<String, u32> = BTreeMap::new();
    for seed in 0..1_500 {
        let world = chance::case(seed).run(true);
        for action in world.held.iter().flat_map(|h| h.actions.iter().flatten()) {
            match action {
                Action::Publish { view } => {
                    *seen.entry(view.phase.as_str().into()).or_default() += 1;
                    view.components.iter().for_each(|c| *seen.entry(format!(" {}", c.state)).or_default() += 1);
                }
                Action::Receipt { receipt } => {
                    receipt.components.iter().for_each(|c| *seen.entry(format!("{:?}", c.rung)).or_default() += 1);
                }
                _ => {}
            }
        }
    }
    let phases = "Absent Sweeping Starting Ready Degraded Draining Stopping Parked Unavailable";
    let states = "Idle Waiting Preparing Starting Ready Done Backoff Stopping Wedged Failed";
    let rungs = "None Signal Kill Wedged";
    let names = phases.split(' ').chain(rungs.split(' ')).map(String::from);
    for name in names.chain(states.split(' ').map(|s| format!(" {s}"))) {
        assert!(seen.get(&name).is_some_and(|n| *n >= 5), "{name} is hardly ever reached: {seen:?}");
    }
}
