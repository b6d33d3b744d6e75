//! Cases drawn from a seed: any group, any programs, any order, and people who press every button. The same seed gives the
//! same case.

use super::behave::Behaviour;
use super::case::{Button, Case, Edit, GroupCase, Press, Trait};
use super::rng::Rng;
use super::world::Chaos;
use socialweb_core::{GroupSpec, Role};

const SHAPES: [&str; 8] =
    ["a", "a b:a", "a b", "a b:a", "a b c:a,b", "a b:a c:b", "a b:a c:a d:b,c", "a b:a c:b d:b e:d"];

pub fn case(seed: u64) -> Case {
    let mut rng = Rng(seed);
    let groups: Vec<_> = (0..[1, 1, 1, 1, 1, 1, 1, 2, 2, 3][rng.below(10) as usize]).map(|_| group(&mut rng)).collect();
    let presses = rng.below(10);
    let gap = [4, 12, 30][rng.below(3) as usize];
    Case {
        seed: rng.next(),
        starts: rng.percent(50).then_some(1),
        restarts: [None, Some((3, 30)), Some((1, 2))][rng.below(3) as usize],
        chaos: Chaos {
            jitter: [0, 5, 200][rng.below(3) as usize],
            twice: [0, 0, 20][rng.below(3) as usize],
            lost: [0, 0, 0, 5][rng.below(4) as usize],
        },
        no_cgroups: rng.percent(10),
        tight_pids: rng.percent(30),
        presses: (0..presses).map(|_| press(&mut rng, &groups, gap)).collect(),
        groups,
        ..Case::default()
    }
}

fn group(rng: &mut Rng) -> GroupCase {
    let shape = rng.pick(&SHAPES).unwrap().to_string();
    let names = names(&shape);
    let wild = rng.percent(70);
    let mut traits = Vec::new();
    let mut programs = std::collections::BTreeMap::new();
    for name in &names {
        let mut ends = false;
        while rng.percent(35) {
            let one = any_trait(rng);
            ends ^= one == Trait::OneShot;
            traits.push((name.clone(), one));
        }
        for (key, role) in [("", Role::Main), (".pre", Role::Pre(0)), (".post", Role::Post(0))] {
            let ends = ends || role != Role::Main;
            let behaviours = (0..rng.below(4)).map(|_| Behaviour::random(rng, role, ends)).collect::<Vec<_>>();
            if wild && !behaviours.is_empty() {
                programs.insert(format!("{name}{key}"), behaviours);
            }
        }
    }
    GroupCase {
        shape,
        traits,
        programs,
        survivors: rng.below(9).saturating_sub(6) as u32,
        survivors_until: rng.below(30_000),
        port_taken: rng.percent(10),
        path_ms: [0, 30, 12_000][rng.below(3) as usize],
        intruders: rng.below(12).saturating_sub(9) as u32,
        busy: rng.below(6).saturating_sub(4) as u32,
        cgroup_fails: rng.below(12).saturating_sub(10) as u32,
    }
}

/// A small group of any shape.
pub fn spec(rng: &mut Rng) -> GroupSpec {
    group(rng).spec()
}

fn names(shape: &str) -> Vec<String> {
    shape.split(' ').map(|word| word.split(':').next().unwrap_or_default().to_string()).collect()
}

fn any_trait(rng: &mut Rng) -> Trait {
    use Trait::*;
    let all =
        [OneShot, StopGroup, Never, WithDependents, WithDependents, Pre, Post, Liveness, Running, LongRestartGrace];
    *rng.pick(&all).unwrap()
}

fn press(rng: &mut Rng, groups: &[GroupCase], gap: u64) -> Press {
    let group = rng.below(groups.len() as u64) as usize;
    let some = rng.pick(&names(&groups[group].shape)).cloned().unwrap_or_default();
    let what = match rng.below(26) {
        0 | 1 => Button::Start,
        2..=4 => Button::Stop,
        5 => Button::Restart,
        6 | 7 => Button::RestartOne(some),
        8..=10 => Button::Edit(edit(rng, some)),
        11 => Button::Removed,
        12 => Button::Reload,
        13 => Button::Port(rng.percent(60)),
        14 => Button::Crash(some),
        15 => Button::Oom(some),
        16 => Button::Freeze(some),
        17 => Button::Sigstop(some),
        18 => Button::Late(some, rng.below(4)),
        19 => Button::KillDaemon(None),
        20..=22 => Button::KillDaemon(Some(rng.below(3) as usize)),
        23 => Button::DiskFull(rng.percent(60)),
        24 => Button::Stall(rng.below(90_000)),
        _ => Button::Wall(rng.below(200_000) as i64 - 100_000),
    };
    Press { after: rng.below(gap) as u32, group, what }
}

fn edit(rng: &mut Rng, of: String) -> Edit {
    let new = ["v", "w", "x"][rng.below(3) as usize].to_string();
    match rng.below(7) {
        0 => Edit::Drop(of),
        1 => Edit::Above(of, new),
        2 => Edit::Below(of, new),
        3 | 4 => Edit::Argv(of),
        5 => Edit::Toggle(of, any_trait(rng)),
        _ => Edit::ClearNeeds(of),
    }
}
