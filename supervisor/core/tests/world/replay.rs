//! A recorded log is a bug report: it replays to the same actions and the same view.

use crate::sim::chance;
use crate::sim::world::World;
use socialweb_core::record::{ReplayError, replay};

fn life(seed: u64) -> World {
    chance::case(seed).run(true)
}

#[test]
fn a_recorded_run_replays_to_the_same_actions_and_the_same_view() {
    let mut events = 0;
    for seed in 0..300 {
        let world = life(seed);
        for n in 0..world.held.len() {
            let mut steps = world.held[n].actions.iter();
            let group = replay(&world.held[n].text(), |entry, actions, _| {
                assert_eq!(steps.next().unwrap(), actions, "seed {seed}, {entry:?}");
                events += 1;
            });
            assert_eq!(steps.next(), None);
            assert_eq!(group.unwrap().view(), world.view(n), "seed {seed}");
        }
    }
    assert!(events > 10_000, "{events}");
}

#[test]
fn a_last_line_that_was_cut_off_is_left_out() {
    let text = life(3).held[0].text();
    let lines = text.lines().count();
    let count = |text: &str| {
        let mut seen = 0;
        replay(text, |_, _, _| seen += 1).map(|_| seen)
    };
    assert_eq!(count(&text).unwrap(), lines - 1);
    let last = text.trim_end().rfind('\n').unwrap() + 1;
    for cut in last..text.len() - 1 {
        assert_eq!(count(&text[..cut]).unwrap(), lines - 2, "cut at {cut}");
    }
}

#[test]
fn what_is_no_log_is_refused_and_the_line_is_named() {
    let text = life(3).held[0].text();
    let refused = |text: &str| replay(text, |_, _, _| {}).unwrap_err();
    assert!(matches!(refused(""), ReplayError::Empty));
    assert!(matches!(refused("nonsense\n"), ReplayError::BadLine { line: 1, what: "header", .. }));
    let newer = text.replacen("\"schema\":1", "\"schema\":2", 1);
    assert!(matches!(refused(&newer), ReplayError::Schema { found: 2 }));
    // Another schema may have another header.
    assert!(matches!(refused("{\"schema\":2,\"cluster\":\"demo\"}\n"), ReplayError::Schema { found: 2 }));
    let mut lines: Vec<_> = text.lines().collect();
    lines[2] = "{\"at\":1,\"event\":\"unheard-of\"}";
    let error = refused(&(lines.join("\n") + "\n"));
    assert_eq!(error.to_string(), "line 3 of the log is no recorded event");
}
