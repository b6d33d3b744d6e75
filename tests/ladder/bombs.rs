//! Many processes, and such as leave their parents and sessions.

use crate::world::*;
use socialweb_wire::{Phase, Rung};

in_worlds!(a_fork_bomb_of_a_thousand_is_ended: with_cgroups, as_nobody_in_a_delegated_subtree, without_cgroups);

fn a_fork_bomb_of_a_thousand_is_ended(stage: Stage) {
    let stage = stage.started("troubled", &nasty("exec $BOMB 9"));
    stage.wait_size("troubled", "nasty", "bomb", 1023);
    stage.stop("troubled");
    assert_eq!(stage.daemon.marked().len(), 1, "only the steady one\n{}", stage.daemon.log());
    let receipt = stage.daemon.receipts("troubled").pop().unwrap();
    assert!(receipt.removed && receipt.components[0].rung == Rung::Kill, "{receipt:?}");
    assert!(receipt.components[0].others.len() >= 1022, "each is named: {}", receipt.components[0].others.len());
    stage.end();
}

in_worlds!(who_forks_twice_is_ended_with_and_without_a_session_of_its_own:
    with_cgroups, as_nobody_in_a_delegated_subtree, without_cgroups);

fn who_forks_twice_is_ended_with_and_without_a_session_of_its_own(stage: Stage) {
    let text = nasty("($STAY plain &) ; (setsid $STAY apart &) ; $STAY leader");
    let stage = stage.started("troubled", &text);
    let all = ["plain", "apart", "leader"].map(|name| stage.shown("troubled", "nasty", name));
    stage.stop("troubled");
    assert!(all.iter().all(|p| !p.lives()), "{all:?}\n{}", stage.daemon.log());
    stage.end();
}

in_worlds!(of_twenty_stubborn_children_with_a_grandchild_each_none_is_left:
    with_cgroups, as_nobody_in_a_delegated_subtree, without_cgroups);

fn of_twenty_stubborn_children_with_a_grandchild_each_none_is_left(stage: Stage) {
    let names: Vec<String> = (0..20).map(|n| format!("stubborn-{n}")).collect();
    let components: Vec<String> =
        names.iter().map(|name| component(name, "(setsid $STAY grandchild &) ; $STAY child", SHORT)).collect();
    let stage = stage.started("stubborn", &group(&components));
    let shown = |file: &'static str| names.iter().map(move |name| (name, file));
    let all: Vec<Shown> =
        shown("child").chain(shown("grandchild")).map(|(name, file)| stage.shown("stubborn", name, file)).collect();
    assert_eq!(all.iter().filter(|p| p.lives()).count(), 40, "all are there before");
    stage.stop("stubborn");
    let left = all.iter().filter(|p| p.lives()).count();
    println!("{}: of 40 processes {left} are left", stage.name);
    assert_eq!(left, 0, "{}", stage.daemon.log());
    assert_eq!(stage.daemon.group("stubborn").phase, Phase::Parked);
    stage.end();
}
