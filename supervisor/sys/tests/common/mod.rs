//! What the tests with real processes share.
#![allow(dead_code, clippy::unwrap_used, reason = "each test binary uses its part; in tests a panic is the report")]

use socialweb_sys::{Cgroup, Command, Output, Spawned, Support, Tree, reap};
use std::io;
use std::os::fd::OwnedFd;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

/// Far longer than anything here takes; only a broken test waits for it.
pub const LIMIT: Duration = Duration::from_secs(120);

/// Says what a test could not do, and why.
pub fn skip(test: &str, reason: &str) {
    eprintln!("SKIP: {test}: {reason}");
}

/// Waits for a state, looking often.
pub fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let end = Instant::now() + LIMIT;
    while !holds() {
        assert!(Instant::now() < end, "never happened: {what}");
        std::thread::sleep(Duration::from_millis(2));
    }
}

pub fn support() -> &'static Support {
    static SUPPORT: OnceLock<Support> = OnceLock::new();
    SUPPORT.get_or_init(|| Support::detect(None))
}

/// A cgroup tree of one test; killed and removed at the end.
pub struct Place {
    pub tree: Tree,
}

impl Place {
    /// `None` (and a SKIP line) where there is no cgroup2 for us.
    pub fn new(test: &str) -> Option<Place> {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let Some(root) = support().root() else {
            skip(test, &format!("cgroup2: {}", support().explain()));
            return None;
        };
        let name = format!("sys-test-{}-{}", std::process::id(), NUMBER.fetch_add(1, Ordering::Relaxed));
        Some(Place { tree: Tree::new(root, &name).unwrap() })
    }

    pub fn cgroup(&self, name: &str) -> Cgroup {
        let cgroup = self.tree.child(name);
        cgroup.create().unwrap();
        cgroup
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let top = self.tree.top();
        let end = Instant::now() + LIMIT;
        let _ = top.kill();
        while let Err(e) = top.remove() {
            if Instant::now() > end {
                eprintln!("left behind: {e}");
                break;
            }
            let _ = top.kill();
            std::thread::sleep(Duration::from_millis(2));
        }
    }
}

/// A shell script with a usual PATH.
pub fn sh(script: &str) -> Command {
    let mut command = Command::new(vec!["/bin/sh".into(), "-c".into(), script.into()], "/");
    command.env.push(("PATH".into(), "/usr/bin:/bin".into()));
    command
}

/// A program that only waits.
pub fn sleeper() -> Command {
    Command::new(vec!["/bin/sleep".into(), "1000".into()], "/")
}

/// A script whose output can be read.
pub fn sh_with_pipe(script: &str) -> (Command, std::fs::File) {
    let (read, write) = pipe();
    let mut command = sh(script);
    command.output = Output::Merged(write);
    (command, read.into())
}

pub fn pipe() -> (OwnedFd, OwnedFd) {
    nix::unistd::pipe2(nix::fcntl::OFlag::O_CLOEXEC).unwrap()
}

pub fn exec_ok(spawned: &Spawned) {
    until("exec", || match spawned.exec.read_result() {
        Err(e) if e.kind() == io::ErrorKind::WouldBlock => false,
        other => {
            other.unwrap().unwrap();
            true
        }
    });
}

/// Waits for one child of ours by its number.
pub fn wait_for(pid: u32) -> reap::Status {
    let mut status = None;
    until("the end of a child", || match reap::reap(pid) {
        Err(e) if e.kind() == io::ErrorKind::WouldBlock => false,
        other => {
            status = Some(other.unwrap());
            true
        }
    });
    status.unwrap()
}

/// Kills one child of ours and waits for it.
pub fn end(spawned: Spawned) {
    spawned.pidfd.send(libc::SIGKILL).unwrap();
    wait_for(spawned.pid);
}

/// A line of /proc/PID/status.
pub fn status_field(pid: u32, key: &str) -> String {
    let text = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    text.lines().find_map(|l| l.strip_prefix(key)?.strip_prefix(':')).unwrap().trim().to_string()
}
