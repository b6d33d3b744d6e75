//! The owner of all waits needs a process of its own: every child of this test binary is somebody's zombie here, so the tests run
//! one after the other.
#![allow(clippy::unwrap_used, reason = "in tests a panic is the report")]

mod chase;
#[path = "../common/mod.rs"]
mod common;

use common::*;
use socialweb_sys::fallback::{Evidence, Leader, Step, Sweep, Target, members};
use socialweb_sys::reap::{Status, Zombie, become_subreaper, next_zombie, peek};
use socialweb_sys::{Spawned, process};
use std::sync::{Mutex, MutexGuard};

fn alone() -> MutexGuard<'static, ()> {
    static ONE: Mutex<()> = Mutex::new(());
    ONE.lock().unwrap_or_else(|broken| broken.into_inner())
}

fn next() -> Zombie {
    let mut zombie = None;
    until("a zombie", || {
        zombie = next_zombie().unwrap();
        zombie.is_some()
    });
    zombie.unwrap()
}

/// Takes every zombie until no child is left.
fn reap_all() {
    until("no children", || {
        while let Some(zombie) = next_zombie().unwrap() {
            zombie.collect().unwrap();
        }
        nix::sys::wait::waitid(
            nix::sys::wait::Id::All,
            nix::sys::wait::WaitPidFlag::WEXITED
                | nix::sys::wait::WaitPidFlag::WNOHANG
                | nix::sys::wait::WaitPidFlag::WNOWAIT,
        ) == Err(nix::Error::ECHILD)
    });
}

#[test]
fn every_status_is_told_and_a_living_child_is_not_taken_for_an_ended_one() {
    let _alone = alone();
    assert_eq!(peek().unwrap(), None, "no children is no error");
    let sleeper = sleeper().spawn(None).unwrap();
    assert_eq!(peek().unwrap(), None, "zero means alive");
    assert!(socialweb_sys::reap::reap(sleeper.pid).is_err_and(|e| e.kind() == std::io::ErrorKind::WouldBlock));
    let check = |script: &str, want: Status| {
        let spawned = sh(script).spawn(None).unwrap();
        let zombie = next();
        assert_eq!((zombie.pid, zombie.start_time), (spawned.pid, spawned.start_time));
        assert_eq!(next(), zombie, "a look takes nothing away");
        assert_eq!(zombie.collect().unwrap(), want, "{script}");
    };
    check("exit 0", Status::Exited(0));
    check("exit 42", Status::Exited(42));
    check("kill -9 $$", Status::Killed { signal: 9, core: false });
    // A real-time signal has no name in many libraries, and is a status all the same.
    check("kill -40 $$", Status::Killed { signal: 40, core: false });
    end(sleeper);
    reap_all();
}

#[test]
fn an_orphan_comes_back_and_its_zombie_still_shows_its_cgroup() {
    let _alone = alone();
    let Some(place) = Place::new("an_orphan_comes_back_and_its_zombie_still_shows_its_cgroup") else { return };
    become_subreaper().unwrap();
    assert!(nix::sys::prctl::get_child_subreaper().unwrap());
    let birth = place.cgroup("demo").child("kine").child("1");
    birth.create().unwrap();
    let spawned = sh("(setsid sh -c 'exec sleep 60' &) ; exit 3").spawn(Some(&birth)).unwrap();
    let leader = next();
    assert_eq!((leader.pid, leader.clone().collect().unwrap()), (spawned.pid, Status::Exited(3)));
    let orphan = || birth.pids().unwrap().first().copied();
    until("the orphan is our child", || {
        orphan()
            .and_then(|p| process::Stat::of(p).ok())
            .is_some_and(|s| s.ppid == std::process::id() && s.comm == "sleep")
    });
    let orphan = orphan().unwrap();
    assert!(birth.populated().unwrap(), "the leader's exit is not the end");
    birth.kill().unwrap();
    let zombie = next();
    assert_eq!((zombie.pid, zombie.comm.as_str()), (orphan, "sleep"));
    assert_eq!(place.tree.parts(zombie.cgroup.as_deref().unwrap()), Some(vec!["demo", "kine", "1"]));
    until("a zombie does not populate", || !birth.populated().unwrap());
    // Even after the cgroup is gone the zombie says where it was.
    until("removed", || birth.remove().is_ok());
    assert_eq!(place.tree.parts(next().cgroup.as_deref().unwrap()), Some(vec!["demo", "kine", "1"]));
    assert_eq!(zombie.collect().unwrap(), Status::Killed { signal: 9, core: false });
    reap_all();
}

const KEY: &str = "SOCIALWEB_TEST_RUN";

fn run(script: &str) -> (Spawned, Target) {
    let mut command = sh(script);
    let value = format!("sys-reap-{}", std::process::id());
    command.env.push((KEY.into(), format!("{value}/x")));
    let spawned = command.spawn(None).unwrap();
    exec_ok(&spawned);
    let leader = Some(Leader { pid: spawned.pid, start_time: spawned.start_time });
    (spawned, Target { leader, marker_key: KEY.into(), marker_prefix: value })
}

fn sweep(target: &Target) -> usize {
    let mut sweep = Sweep::new(target.clone());
    let mut killed = 0;
    until("two clean looks", || match sweep.step().unwrap() {
        Step::Killed(list) => {
            assert!(list.iter().all(|k| !k.refused));
            killed += list.len();
            false
        }
        Step::CleanOnce => false,
        Step::Gone => true,
    });
    killed
}

#[test]
fn without_cgroups_a_run_is_found_by_marker_session_and_descent_and_killed_whole() {
    let _alone = alone();
    become_subreaper().unwrap();
    // One in a session of its own with the marker, one in the session without it, one that has neither but a parent.
    let script = "trap '' TERM; (setsid sleep 60 &) ; env -i sleep 60 & env -i setsid sleep 60 & wait";
    let (spawned, target) = run(script);
    let kinds =
        || members(&target).unwrap().iter().map(|m| (m.process.stat.comm.clone(), m.evidence)).collect::<Vec<_>>();
    until("all three sleep", || kinds().iter().filter(|(comm, _)| comm == "sleep").count() == 3);
    let seen = kinds();
    assert!(seen.iter().any(|(_, e)| *e == Evidence::Leader), "{seen:?}");
    for evidence in [Evidence::Marker, Evidence::Session, Evidence::Descendant] {
        assert!(seen.iter().any(|(comm, e)| comm == "sleep" && *e == evidence), "{evidence:?} in {seen:?}");
    }
    assert!(sweep(&target) >= 4);
    assert!(!process::alive(spawned.pid, spawned.start_time));
    reap_all();
    assert!(members(&target).unwrap().is_empty());
}

#[test]
fn without_cgroups_a_leader_that_ended_does_not_hide_its_session() {
    let _alone = alone();
    become_subreaper().unwrap();
    // process-compose issue 520: the leader exits on TERM, a child in its group ignores it.
    let (spawned, target) = run("env -i sh -c 'trap \"\" TERM; while :; do sleep 0.05; done' & exit 0");
    let leader = next();
    assert_eq!(leader.pid, spawned.pid);
    assert!(!members(&target).unwrap().is_empty(), "while the leader is a zombie");
    leader.collect().unwrap();
    assert!(!members(&target).unwrap().is_empty(), "and after it was waited for: the orphan is our child");
    assert!(sweep(&target) >= 1);
    reap_all();
    // The same number with another start is somebody else: nothing of it is touched.
    let (stranger, mut target) = run("exec sleep 60");
    target.marker_prefix = "another".into();
    target.leader = Some(Leader { pid: stranger.pid, start_time: stranger.start_time + 1 });
    assert_eq!(sweep(&target), 0);
    assert!(process::alive(stranger.pid, stranger.start_time));
    end(stranger);
    reap_all();
}
