//! Which skips of tests are accepted: tests/allowed-skips.txt, held against what this machine has.

use crate::repo::Repo;
use anyhow::{Context, Result, bail};
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

/// Causes of skips that are accepted, each with what makes it a lie.
#[derive(Debug, Default)]
pub(crate) struct Allowed(BTreeMap<String, Excuse>);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Excuse {
    /// Wherever it is said.
    Good,
    /// Not on this machine, which has what the test says it lacks.
    Lame,
}

impl Allowed {
    /// The committed list, for tests that run on this machine.
    pub(crate) fn here(repo: &Repo) -> Result<Allowed> {
        Allowed::parse(&text(repo)?, |fact| fact == PRIVILEGED && is_privileged())
    }

    /// The same for tests that run elsewhere, such as in a guest.
    pub(crate) fn elsewhere(repo: &Repo) -> Result<Allowed> {
        Allowed::parse(&text(repo)?, |_| false)
    }

    /// `cause` or `cause unless FACT` a line, each with its reason behind a `#`.
    fn parse(text: &str, holds: impl Fn(&str) -> bool) -> Result<Allowed> {
        let mut all = BTreeMap::new();
        for line in text.lines() {
            let words: Vec<&str> = line.split('#').next().unwrap_or_default().split_whitespace().collect();
            let excuse = match words[..] {
                [] => continue,
                [_] => Excuse::Good,
                [_, "unless", PRIVILEGED] if holds(PRIVILEGED) => Excuse::Lame,
                [_, "unless", PRIVILEGED] => Excuse::Good,
                _ => {
                    bail!("not understood: {line:?}; write `cause` or `cause unless {PRIVILEGED}`, and why behind a #")
                }
            };
            all.insert(words[0].to_string(), excuse);
        }
        Ok(Allowed(all))
    }

    /// Why this skip (`name: cause: what was missing`) is not accepted; None when it is. `full`: only listed causes are.
    pub(crate) fn refusal(&self, skip: &str, full: bool) -> Option<String> {
        match self.0.get(cause(skip)) {
            Some(Excuse::Good) => None,
            Some(Excuse::Lame) => Some(format!("this machine has what a test says it lacks: {skip}")),
            None => full.then(|| format!("--full does not accept the skip {skip}")),
        }
    }
}

/// The word after the test's name, which may itself hold `::`.
fn cause(skip: &str) -> &str {
    skip.split(": ").nth(1).map_or("", str::trim)
}

fn text(repo: &Repo) -> Result<String> {
    let path = repo.path("tests/allowed-skips.txt");
    fs::read_to_string(&path).with_context(|| format!("reading {}", path.display()))
}

/// What `is_privileged` tells.
const PRIVILEGED: &str = "privileged";

/// True for root where a cgroup can be made below our own: then nothing keeps a test from a cgroup or another account.
fn is_privileged() -> bool {
    let made = || {
        let cgroup = own_cgroup()?.join(format!("xtask-{}", std::process::id()));
        fs::create_dir(&cgroup).ok()?;
        let whole = cgroup.join("cgroup.kill").exists();
        fs::remove_dir(&cgroup).ok()?;
        whole.then_some(())
    };
    nix::unistd::geteuid().is_root() && made().is_some()
}

/// Our own cgroup, below where cgroup2 is mounted.
fn own_cgroup() -> Option<PathBuf> {
    let mounts = fs::read_to_string("/proc/self/mountinfo").ok()?;
    let mount = mounts.lines().find(|line| line.contains(" - cgroup2 "))?.split(' ').nth(4)?;
    let own = fs::read_to_string("/proc/self/cgroup").ok()?;
    let path = own.lines().find_map(|line| line.strip_prefix("0::"))?;
    Some(Path::new(mount).join(path.trim_start_matches('/')))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refusals(list: &str, privileged: bool, full: bool) -> Vec<String> {
        let allowed = Allowed::parse(list, |_| privileged).unwrap();
        let skips = ["a::b: kvm: no device", "c: root: not root", "d: bao: not there"];
        skips.iter().filter_map(|skip| allowed.refusal(skip, full)).collect()
    }

    #[test]
    fn full_accepts_only_listed_causes_and_nobody_a_cause_that_is_not_there() {
        let list = "# Causes.\nkvm  # none\n\nroot unless privileged # only root can\n";
        let (unlisted, lame) = (
            "--full does not accept the skip d: bao: not there",
            "this machine has what a test says it lacks: c: root: not root",
        );
        assert!(refusals(list, false, false).is_empty());
        assert_eq!(refusals(list, false, true), [unlisted]);
        assert_eq!(refusals(list, true, false), [lame]);
        assert_eq!(refusals(list, true, true), [lame, unlisted]);
    }

    #[test]
    fn a_line_that_is_not_understood_is_an_error_that_says_what_to_write() {
        let error = Allowed::parse("root if lucky", |_| true).unwrap_err();
        assert!(error.to_string().contains("unless privileged"), "{error}");
    }

    #[test]
    fn the_committed_list_is_read() {
        let Allowed(all) = Allowed::elsewhere(&Repo::find().unwrap()).unwrap();
        assert!(
            ["cgroup2", "firecracker", "k3s", "kvm", "root"].iter().all(|cause| all.contains_key(*cause)),
            "{all:?}"
        );
        let is_a_word = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_';
        assert!(all.keys().all(|cause| cause.chars().all(is_a_word)), "a comment was read as a cause: {all:?}");
    }
}
