use crate::common::*;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use socialweb_sys::{Cgroup, Support, Watcher, cgroup::RemoveError, process};
use std::collections::HashSet;
use std::os::fd::AsFd;

#[test]
fn what_forks_twice_and_leaves_its_session_dies_with_its_cgroup() {
    let Some(place) = Place::new("what_forks_twice_and_leaves_its_session_dies_with_its_cgroup") else { return };
    let cgroup = place.cgroup("birth");
    // Yelp/dumb-init issue 191: a session of its own, no parent, TERM ignored.
    let script = "trap '' TERM; (setsid sh -c 'trap \"\" TERM; sleep 60 & sleep 60' &) ; exec sleep 60";
    let spawned = sh(script).spawn(Some(&cgroup)).unwrap();
    until("four processes", || cgroup.pids().unwrap().len() == 4);
    let sessions: HashSet<u32> =
        cgroup.pids().unwrap().iter().filter_map(|p| Some(process::Stat::of(*p).ok()?.session)).collect();
    assert_eq!(sessions.len(), 2, "one really left the session");
    assert!(cgroup.populated().unwrap());
    cgroup.kill().unwrap();
    until("unpopulated", || !cgroup.populated().unwrap());
    wait_for(spawned.pid);
    until("removed", || cgroup.remove().is_ok());
    assert!(!cgroup.exists());
    cgroup.kill().unwrap();
    cgroup.remove().unwrap();
    assert!(cgroup.pids().unwrap().is_empty(), "what is gone answers as empty");
}

#[test]
fn frozen_cgroups_are_thawed_at_every_depth_and_killed_while_frozen() {
    let Some(place) = Place::new("frozen_cgroups_are_thawed_at_every_depth_and_killed_while_frozen") else { return };
    let birth = place.cgroup("birth");
    let inner = birth.child("a").child("b");
    inner.create().unwrap();
    let spawned = sh("while :; do sleep 0.01; done").spawn(Some(&inner)).unwrap();
    exec_ok(&spawned);
    let frozen = |c: &Cgroup| std::fs::read_to_string(c.path().join("cgroup.events")).unwrap().contains("frozen 1");
    inner.freeze().unwrap();
    until("frozen", || frozen(&inner));
    birth.thaw().unwrap();
    until("thawed from above", || !frozen(&inner));
    inner.freeze().unwrap();
    birth.freeze().unwrap();
    until("frozen twice", || frozen(&inner) && frozen(&birth));
    birth.kill().unwrap();
    until("unpopulated", || !birth.populated().unwrap());
    wait_for(spawned.pid);
    until("removed", || birth.remove().is_ok());
}

#[test]
fn what_stands_still_is_listed_whole_and_runs_on_afterwards() {
    let Some(place) = Place::new("what_stands_still_is_listed_whole_and_runs_on_afterwards") else { return };
    let birth = place.cgroup("birth");
    let beat = tempfile::NamedTempFile::new().unwrap();
    let mut command = sh("while :; do (echo >> $BEAT); done");
    command.env.push(("BEAT".into(), beat.path().display().to_string()));
    let spawned = command.spawn(Some(&birth)).unwrap();
    let size = || std::fs::metadata(beat.path()).unwrap().len();
    until("it beats", || size() > 10);
    let still = birth.hold_still(LIMIT).unwrap();
    let (before, pids) = (size(), birth.pids().unwrap());
    std::thread::sleep(std::time::Duration::from_millis(50));
    assert_eq!((size(), birth.pids().unwrap()), (before, pids), "nobody runs, nobody is born");
    drop(still);
    until("it beats again", || size() > before);
    birth.kill().unwrap();
    wait_for(spawned.pid);
    assert!(place.tree.child("missing").hold_still(LIMIT).is_err_and(|e| e.is_gone()));
}

#[test]
fn what_is_frozen_from_above_is_thawed_up_to_the_top_of_the_tree() {
    let Some(place) = Place::new("what_is_frozen_from_above_is_thawed_up_to_the_top_of_the_tree") else { return };
    let birth = place.cgroup("group").child("component").child("1");
    birth.create().unwrap();
    let spawned = sleeper().spawn(Some(&birth)).unwrap();
    exec_ok(&spawned);
    let frozen = || std::fs::read_to_string(birth.path().join("cgroup.events")).unwrap().contains("frozen 1");
    for above in [place.tree.top().clone(), place.tree.child("group")] {
        above.freeze().unwrap();
        until("frozen", frozen);
        place.tree.thaw_above(&birth).unwrap();
        until("thawed", || !frozen());
    }
    let elsewhere = Cgroup::at("/no/such/cgroup");
    place.tree.thaw_above(&elsewhere).unwrap();
    birth.kill().unwrap();
    wait_for(spawned.pid);
}

#[test]
fn a_busy_cgroup_names_what_is_inside() {
    let Some(place) = Place::new("a_busy_cgroup_names_what_is_inside") else { return };
    let birth = place.cgroup("birth");
    let inner = birth.child("nested");
    inner.create().unwrap();
    let spawned = sleeper().spawn(Some(&inner)).unwrap();
    exec_ok(&spawned);
    let error = birth.remove().unwrap_err();
    assert!(error.is_busy());
    let RemoveError::Busy { path, inside } = &error else { panic!("{error}") };
    assert_eq!((path.as_path(), inside), (inner.path(), &vec![format!("pid {} (sleep)", spawned.pid)]));
    assert!(error.to_string().contains("(sleep)"), "{error}");
    end(spawned);
    until("removed", || birth.remove().is_ok());
}

#[test]
fn one_watcher_tells_which_of_many_cgroups_emptied() {
    let Some(place) = Place::new("one_watcher_tells_which_of_many_cgroups_emptied") else { return };
    let mut watcher = Watcher::new().unwrap();
    let all: Vec<Cgroup> = (0..1_000).map(|i| place.cgroup("g").child(&i.to_string())).collect();
    let ids: Vec<_> = all.iter().map(|c| c.create().map(|()| watcher.add(c).unwrap()).unwrap()).collect();
    assert_eq!(watcher.len(), 1_000);
    assert_eq!(watcher.add(&all[5]).unwrap(), ids[5], "adding twice is one watch");
    assert!(watcher.read_events().unwrap().is_empty());
    let spawned: Vec<_> = [7, 700].iter().map(|i| sleeper().spawn(Some(&all[*i])).unwrap()).collect();
    spawned.iter().for_each(exec_ok);
    // The watch is added before the look, so an end in between is never missed.
    all[7].kill().unwrap();
    all[700].kill().unwrap();
    let mut waiting = HashSet::from([ids[7], ids[700]]);
    while !waiting.is_empty() {
        let mut fds = [PollFd::new(watcher.as_fd(), PollFlags::POLLIN)];
        assert!(poll(&mut fds, PollTimeout::from(60_000u16)).unwrap() > 0, "no event ever came");
        for id in watcher.read_events().unwrap() {
            let at = ids.iter().position(|i| *i == id).unwrap();
            assert!(at == 7 || at == 700, "an event of a cgroup in which nothing happened: {at}");
            if !all[at].populated().unwrap() {
                waiting.remove(&id);
            }
        }
    }
    for s in spawned {
        wait_for(s.pid);
    }
    watcher.remove(ids[7]);
    watcher.remove(ids[7]);
    assert_eq!(watcher.len(), 999);
    assert_eq!(watcher.add(&place.tree.child("missing")).unwrap_err().kind(), std::io::ErrorKind::NotFound);
}

#[test]
fn a_member_in_a_threaded_cgroup_of_its_own_is_still_found_and_killed() {
    const TEST: &str = "a_member_in_a_threaded_cgroup_of_its_own_is_still_found_and_killed";
    let Some(place) = Place::new(TEST) else { return };
    let birth = place.cgroup("component").child("1");
    let threaded = birth.child("t");
    threaded.create().unwrap();
    let spawned = sleeper().spawn(Some(&birth)).unwrap();
    exec_ok(&spawned);
    let write = |file: &str, value: &str| std::fs::write(threaded.path().join(file), value);
    if let Err(e) = write("cgroup.type", "threaded").and_then(|()| write("cgroup.threads", &spawned.pid.to_string())) {
        end(spawned);
        return skip(TEST, &format!("threaded: no threaded cgroups here ({e})"));
    }
    assert!(std::fs::read_to_string(threaded.path().join("cgroup.procs")).is_err(), "the kernel lists threads only");
    assert_eq!(birth.pids().unwrap(), [spawned.pid]);
    assert_eq!(threaded.pids().unwrap(), [spawned.pid]);
    // The kernel has no cgroup.kill for a threaded cgroup.
    threaded.kill().unwrap();
    until("unpopulated", || !birth.populated().unwrap());
    wait_for(spawned.pid);
}

#[test]
fn the_path_of_a_process_leads_back_to_its_cgroup() {
    let Some(place) = Place::new("the_path_of_a_process_leads_back_to_its_cgroup") else { return };
    let birth = place.cgroup("demo").child("kine").child("3");
    birth.create().unwrap();
    let spawned = sleeper().spawn(Some(&birth)).unwrap();
    let path = process::cgroup(spawned.pid).unwrap().unwrap();
    assert_eq!(place.tree.parts(&path), Some(vec!["demo", "kine", "3"]));
    assert_eq!(place.tree.parts(&process::cgroup(std::process::id()).unwrap().unwrap()), None);
    assert_eq!(place.cgroup("demo").children().unwrap(), [place.cgroup("demo").child("kine")]);
    end(spawned);
}

#[test]
fn processor_time_is_counted_without_any_controller() {
    let Some(place) = Place::new("processor_time_is_counted_without_any_controller") else { return };
    let birth = place.cgroup("birth");
    let before = birth.counters().unwrap();
    let spawned = sh("i=0; while [ $i -lt 20000 ]; do i=$((i+1)); done").spawn(Some(&birth)).unwrap();
    wait_for(spawned.pid);
    assert!(birth.counters().unwrap().cpu_usec > before.cpu_usec);
}

#[test]
fn detection_leaves_nothing_behind_and_takes_an_explicit_root() {
    let Some(place) = Place::new("detection_leaves_nothing_behind_and_takes_an_explicit_root") else { return };
    let root = place.cgroup("root");
    let support = Support::detect(Some(root.path()));
    assert_eq!(support.root(), Some(root.path()), "{}", support.explain());
    assert!(root.children().unwrap().is_empty());
    assert!(support.explain().contains(root.path().to_str().unwrap()));
    let missing = Support::detect(Some(place.tree.child("missing").path()));
    assert_eq!(missing.word(), "none");
}
