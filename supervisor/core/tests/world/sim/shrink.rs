//! Makes a case that breaks a law small: whatever can be left out, and breaks the same law without, is left out.

use super::case::{Case, GroupCase};
use super::world::Chaos;

/// Tries at most so many smaller cases.
const TRIES: usize = 4_000;

/// The smallest case found for which `breaks` still holds.
pub fn shrink(mut case: Case, breaks: impl Fn(&Case) -> bool) -> Case {
    let mut tries = 0;
    loop {
        let mut smaller = candidates(&case).into_iter().take_while(|_| {
            tries += 1;
            tries < TRIES
        });
        match smaller.find(|c| *c != case && breaks(c)) {
            Some(found) => case = found,
            None => return case,
        }
    }
}

fn with(case: &Case, change: impl FnOnce(&mut Case)) -> Case {
    let mut case = case.clone();
    change(&mut case);
    case
}

fn candidates(case: &Case) -> Vec<Case> {
    let mut all = Vec::new();
    for n in (0..case.groups.len()).filter(|_| case.groups.len() > 1) {
        all.push(with(case, |c| {
            c.groups.remove(n);
            c.presses.retain(|p| p.group != n);
            c.presses.iter_mut().filter(|p| p.group > n).for_each(|p| p.group -= 1);
        }));
    }
    all.extend((0..case.presses.len()).map(|n| with(case, |c| drop(c.presses.remove(n)))));
    all.push(with(case, |c| c.chaos = Chaos::default()));
    all.push(with(case, |c| c.chaos.lost = 0));
    all.push(with(case, |c| c.chaos.twice = 0));
    all.push(with(case, |c| c.chaos.jitter = 0));
    all.push(with(case, |c| c.no_cgroups = false));
    all.push(with(case, |c| c.tight_pids = false));
    all.push(with(case, |c| c.starts = None));
    all.push(with(case, |c| c.restarts = None));
    for n in 0..case.groups.len() {
        all.extend(smaller_groups(&case.groups[n]).into_iter().map(|g| with(case, |c| c.groups[n] = g)));
    }
    for (n, press) in case.presses.iter().enumerate() {
        let after = press.after;
        all.extend([0, after / 2, after.saturating_sub(1)].map(|after| with(case, |c| c.presses[n].after = after)));
    }
    all.push(with(case, |c| c.seed = 1));
    // One step less of one press is one more of the next, so that what follows stays where it was.
    for n in 1..case.presses.len() {
        all.push(with(case, |c| {
            let gone = c.presses.remove(n - 1);
            c.presses[n - 1].after += gone.after;
        }));
    }
    all
}

fn smaller_groups(group: &GroupCase) -> Vec<GroupCase> {
    let change = |f: &dyn Fn(&mut GroupCase)| {
        let mut group = group.clone();
        f(&mut group);
        group
    };
    let mut all = Vec::new();
    for shape in ["a", "a b", "a b:a", "a b:a c:b"] {
        if shape.len() < group.shape.len() {
            all.push(change(&|g| g.shape = shape.into()));
        }
    }
    for key in group.programs.keys() {
        all.push(change(&|g| drop(g.programs.remove(key))));
        all.push(change(&|g| {
            g.programs.get_mut(key).into_iter().for_each(|all| all.truncate(all.len().saturating_sub(1)))
        }));
        for n in 0..group.programs[key].len() {
            all.push(change(&|g| {
                if let Some(all) = g.programs.get_mut(key) {
                    all[n] = Default::default();
                }
            }));
        }
    }
    all.extend((0..group.traits.len()).map(|n| change(&|g| drop(g.traits.remove(n)))));
    all.push(change(&|g| g.survivors = 0));
    all.push(change(&|g| g.survivors_until = 0));
    all.push(change(&|g| g.port_taken = false));
    all.push(change(&|g| g.path_ms = 0));
    all.push(change(&|g| g.path_ms = g.path_ms.min(1_000)));
    all.push(change(&|g| g.intruders = 0));
    all.push(change(&|g| g.busy = 0));
    all.push(change(&|g| g.cgroup_fails = 0));
    all
}
