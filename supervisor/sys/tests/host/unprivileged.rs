//! The same as an ordinary account in a subtree that root gave it: what systemd's Delegate=yes does.

use crate::common::*;
use socialweb_sys::{Cgroup, Output, Support, Tree};
use std::fs;
use std::io::Read;
use std::os::unix::fs::chown;

const NOBODY: u32 = 65534;
const ROLE: &str = "SYS_TEST_UNPRIVILEGED";

#[test]
fn an_ordinary_account_works_inside_its_own_subtree_and_not_outside() {
    const TEST: &str = "an_ordinary_account_works_inside_its_own_subtree_and_not_outside";
    if !nix::unistd::geteuid().is_root() {
        return skip(TEST, "root: only root can become another account (the other tests run as an ordinary one then)");
    }
    let Some(place) = Place::new(TEST) else { return };
    let (given, outside) = (place.cgroup("given"), place.cgroup("outside"));
    for file in ["", "cgroup.procs", "cgroup.threads", "cgroup.subtree_control"] {
        chown(given.path().join(file), Some(NOBODY), Some(NOBODY)).unwrap();
    }
    let run = |home: &Cgroup| {
        // The very test binary again, in the role below; it gives up root by itself.
        let (read, write) = pipe();
        let exe = std::env::current_exe().unwrap().display().to_string();
        let args = ["--exact", "unprivileged::role", "--ignored", "--nocapture"].map(String::from);
        let mut command = socialweb_sys::Command::new([vec![exe], args.to_vec()].concat(), "/");
        command.env = vec![(ROLE.into(), given.path().display().to_string())];
        command.output = Output::Merged(write);
        let spawned = command.spawn(Some(home)).unwrap();
        let mut text = String::new();
        fs::File::from(read).read_to_string(&mut text).unwrap();
        wait_for(spawned.pid);
        text
    };
    let inside = run(&given);
    assert!(inside.contains("role: worked"), "{inside}");
    let refused = run(&outside);
    assert!(refused.contains("role: refused") && refused.contains("common ancestor"), "{refused}");
}

/// Not a test: runs as `nobody`, in a process of its own, started by the test above.
#[test]
#[ignore = "a role of the test above"]
fn role() {
    let Ok(given) = std::env::var(ROLE) else { return };
    let (uid, gid) = (nix::unistd::Uid::from_raw(NOBODY), nix::unistd::Gid::from_raw(NOBODY));
    nix::unistd::setgroups(&[]).unwrap();
    nix::unistd::setresgid(gid, gid, gid).unwrap();
    nix::unistd::setresuid(uid, uid, uid).unwrap();
    // Changing the account makes a process undumpable, and its /proc files root's; a real daemon starts as its account.
    nix::sys::prctl::set_dumpable(true).unwrap();
    let found = Support::detect(Some(given.as_ref()));
    let Some(root) = found.root() else {
        println!("role: refused: {}", found.explain());
        return;
    };
    assert_eq!(Support::detect(None).root(), Some(root), "our own cgroup is found without being told");
    let tree = Tree::new(root, "tree").unwrap();
    let birth = tree.child("demo").child("1");
    birth.create().unwrap();
    let spawned = sh("(setsid sleep 60 &) ; exec sleep 60").spawn(Some(&birth)).unwrap();
    exec_ok(&spawned);
    until("two processes", || birth.pids().unwrap().len() == 2);
    assert_eq!(socialweb_sys::process::uid(spawned.pid).unwrap(), NOBODY);
    birth.kill().unwrap();
    until("unpopulated", || !birth.populated().unwrap());
    wait_for(spawned.pid);
    until("removed", || tree.top().remove().is_ok());
    println!("role: worked: {}", found.explain());
}
