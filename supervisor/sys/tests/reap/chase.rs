//! What forks and exits without a pause, as a look at /proc and as the chase meet it.

use super::*;
use socialweb_sys::process::{ChaseLimits, chase, environ_value};
use std::time::Duration;

const KEY: &str = "SOCIALWEB_TEST_HOP";

/// Begins to hop, and has done so for a while: its dead come to us.
fn hopper(value: &str) -> Spawned {
    become_subreaper().unwrap();
    let mut command = sh("exec python3 -c 'import os\nwhile True:\n  if os.fork(): os._exit(0)'");
    command.env.push((KEY.into(), value.into()));
    let spawned = command.spawn(None).unwrap();
    let mut ended = 0;
    until("it hops", || {
        ended += collect();
        ended > 20
    });
    spawned
}

fn collect() -> usize {
    let mut ended = 0;
    while let Some(zombie) = next_zombie().unwrap() {
        zombie.collect().unwrap();
        ended += 1;
    }
    ended
}

#[test]
fn what_hops_is_caught_and_nobody_else_is_touched() {
    let _alone = alone();
    let other = sleeper().spawn(None).unwrap();
    let value = format!("{}-hop", std::process::id());
    hopper(&value);
    let limits = ChaseLimits { longest: Duration::from_secs(5), quiet: Duration::from_millis(30) };
    let belongs = |pid| environ_value(pid, KEY).filter(|v| *v == value);
    let mut caught = 0;
    // Each of these is one race, and there is no end to them while it lives.
    until("no child of it is left", || {
        caught += chase(limits, belongs).unwrap().len();
        collect();
        let only = process::children().unwrap();
        only == [other.pid]
    });
    assert!(caught > 0);
    assert!(process::alive(other.pid, other.start_time));
    end(other);
    reap_all();
}

#[test]
fn a_chase_of_nobody_ends_by_itself() {
    let limits = ChaseLimits { longest: Duration::from_secs(5), quiet: Duration::from_millis(1) };
    assert!(chase(limits, |_| None).unwrap().is_empty());
}
