//! What a child of the daemon has, read back from /proc: the kernel's word, not the program's.

use super::{PATIENCE, try_wait_for};
use socialweb_sys::process::Stat;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;

/// What /proc says of one process.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Child {
    pub pid: u32,
    pub parent: u32,
    pub session: u32,
    pub group: u32,
    /// SigBlk, ShdPnd and the like, as /proc/PID/status writes them.
    pub status: BTreeMap<String, String>,
    /// Number and what it leads to.
    pub fds: BTreeMap<i32, String>,
    pub env: BTreeMap<String, String>,
    /// Soft and hard, by the kernel's name for the limit.
    pub limits: BTreeMap<String, (String, String)>,
    pub oom_score_adj: i32,
}

/// What a child is meant to have beside what every child has.
#[derive(Debug, Clone)]
pub struct Expected {
    pub daemon: u32,
    /// Names of all variables, in any order.
    pub env: Vec<&'static str>,
    /// Descriptors beside 0, 1 and 2.
    pub fds: Vec<i32>,
    /// Where it was asked for: RLIMIT_NOFILE.
    pub nofile: Option<&'static str>,
    /// Where it was asked for; else its rank decides, and it is at least the daemon's own.
    pub oom_score_adj: Option<i32>,
}

impl Child {
    /// None when it is gone, or goes while it is read.
    pub fn of(pid: u32) -> Option<Child> {
        let stat = Stat::of(pid).ok()?;
        let read = |name: &str| fs::read_to_string(format!("/proc/{pid}/{name}")).ok();
        let status = read("status")?;
        let status = status.lines().filter_map(|l| l.split_once(':'));
        let env = fs::read(format!("/proc/{pid}/environ")).ok()?;
        let env = env.split(|b| *b == 0).map(String::from_utf8_lossy).filter(|e| !e.is_empty());
        Some(Child {
            pid,
            parent: stat.ppid,
            session: stat.session,
            group: stat.pgrp,
            status: status.map(|(k, v)| (k.to_string(), v.trim().to_string())).collect(),
            fds: descriptors(pid)?,
            env: env.filter_map(|e| e.split_once('=').map(|(k, v)| (k.into(), v.into()))).collect(),
            limits: limits(&read("limits")?),
            oom_score_adj: read("oom_score_adj")?.trim().parse().ok()?,
        })
    }

    /// What is not as it should be, each in a sentence. For programs that change nothing of themselves, such as sleep.
    pub fn violations(&self, expected: &Expected) -> Vec<String> {
        let mut all = Vec::new();
        let mut check = |holds: bool, text: String| {
            if !holds {
                all.push(text);
            }
        };
        for (set, what) in [("SigBlk", "blocks"), ("SigIgn", "ignores"), ("SigCgt", "catches")] {
            let value = self.status.get(set).cloned().unwrap_or_default();
            check(
                value.bytes().all(|b| b == b'0') && !value.is_empty(),
                format!("it {what} signals: {set} is {value}"),
            );
        }
        for (key, want) in [("NoNewPrivs", "1"), ("Umask", "0077")] {
            let value = self.status.get(key).cloned().unwrap_or_default();
            check(value == want, format!("{key} is {value}, not {want}"));
        }
        let numbers: Vec<i32> = [0, 1, 2].into_iter().chain(expected.fds.iter().copied()).collect();
        let has: Vec<i32> = self.fds.keys().copied().collect();
        check(has == numbers, format!("its descriptors are {:?}, not {numbers:?}", self.fds));
        check(self.fds.get(&0).is_some_and(|l| l == "/dev/null"), format!("its input is {:?}", self.fds.get(&0)));
        let names: BTreeSet<&str> = self.env.keys().map(String::as_str).collect();
        let want: BTreeSet<&str> = expected.env.iter().copied().chain(["SOCIALWEB_BIRTH"]).collect();
        check(names == want, format!("its variables are {names:?}, not {want:?}"));
        check(self.session == self.pid && self.group == self.pid, format!("its session is {}", self.session));
        check(self.parent == expected.daemon, format!("its parent is {}", self.parent));
        let least = || Child::of(expected.daemon).map_or(0, |daemon| daemon.oom_score_adj);
        let oom = expected.oom_score_adj.map_or_else(|| self.oom_score_adj >= least(), |n| self.oom_score_adj == n);
        check(oom, format!("its OOM score is {}", self.oom_score_adj));
        all.extend(self.wrong_limits(expected));
        all
    }

    fn wrong_limits(&self, expected: &Expected) -> Vec<String> {
        let mut want = limits(&fs::read_to_string(format!("/proc/{}/limits", expected.daemon)).unwrap_or_default());
        want.insert("Max core file size".into(), ("0".into(), "0".into()));
        if let Some(nofile) = expected.nofile {
            want.insert("Max open files".into(), (nofile.into(), nofile.into()));
        }
        let differs = |(name, limit): &(&String, &(String, String))| want.get(*name) != Some(limit);
        self.limits.iter().filter(differs).map(|(name, limit)| format!("{name} is {limit:?}")).collect()
    }
}

/// What every leader is free of, whatever its program does to itself: the daemon's descriptors, its variables, its session.
/// What the loader opens and what a shell blocks for a moment goes away, so it is waited for.
pub fn assert_nothing_of_the_daemons(daemon: u32, pid: u32) {
    let mut last = Vec::new();
    let clean = try_wait_for(|| {
        let (Some(daemon), Some(child)) = (Child::of(daemon), Child::of(pid)) else { return Some(()) };
        last = taken_over(&daemon, &child);
        last.is_empty().then_some(())
    });
    assert!(clean.is_some(), "after {} s: {last:?}", PATIENCE.as_secs());
}

fn taken_over(daemon: &Child, child: &Child) -> Vec<String> {
    let mut all = Vec::new();
    // Sockets and anonymous files of the daemon; a child's pipe ends in the daemon, so pipes are shared.
    let private = |link: &str| link.starts_with("socket:") || link.contains(" (deleted)");
    let daemons: BTreeSet<&String> = daemon.fds.values().filter(|l| private(l)).collect();
    all.extend(
        child
            .fds
            .iter()
            .filter(|(_, l)| daemons.contains(l))
            .map(|(n, l)| format!("descriptor {n} is the daemon's {l}")),
    );
    for name in ["HOME", "NOTIFY_SOCKET", "KUBECONFIG", "XDG_RUNTIME_DIR", "LD_LIBRARY_PATH"] {
        let same = child.env.get(name).is_some_and(|value| daemon.env.get(name) == Some(value));
        all.extend(same.then(|| format!("its {name} is the daemon's")));
    }
    if child.parent == daemon.pid {
        all.extend((child.session == daemon.session).then(|| "it is in the daemon's session".to_string()));
        let value = child.status.get("NoNewPrivs");
        all.extend(value.is_none_or(|v| v != "1").then(|| format!("NoNewPrivs is {value:?}")));
    }
    all
}

fn descriptors(pid: u32) -> Option<BTreeMap<i32, String>> {
    let entries = fs::read_dir(format!("/proc/{pid}/fd")).ok()?.flatten();
    let leads_to = |e: &fs::DirEntry| fs::read_link(e.path()).ok().map(|l| l.display().to_string());
    Some(entries.filter_map(|e| Some((e.file_name().to_str()?.parse().ok()?, leads_to(&e)?))).collect())
}

/// "Max open files            1024                 4096                 files"
fn limits(text: &str) -> BTreeMap<String, (String, String)> {
    let one = |line: &str| {
        let (name, rest) = line.split_at_checked(26)?;
        let mut values = rest.split_whitespace();
        Some((name.trim().to_string(), (values.next()?.into(), values.next()?.into())))
    };
    text.lines().skip(1).filter_map(one).collect()
}
