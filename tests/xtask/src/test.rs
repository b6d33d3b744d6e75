//! `test`: everything that can fail, with what was proven and what was skipped counted at the end.
//!
//! A test that cannot run here prints `SKIP: name: cause: what was missing`, or appends that line to the file that
//! SOCIALWEB_SKIP_FILE names (a thread or process of its own has no captured output), or both. The cause is one word; `--full`
//! accepts only the causes of tests/allowed-skips.txt, and no run one that is not there: see `skips`.

use crate::repo::Repo;
use crate::run;
use crate::setup::{self, Install, Server, go};
use crate::skips::Allowed;
use anyhow::{Context, Result, bail};
use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The options of `cargo x test`.
#[derive(clap::Args)]
pub struct Args {
    /// Also the long tests, and no skip but those whose cause is in tests/allowed-skips.txt
    #[arg(long)]
    full: bool,
    /// Run against this k3s instead of kube-server
    #[arg(long, value_name = "PATH")]
    k3s: Option<PathBuf>,
    /// Install and download nothing; say what is missing
    #[arg(long)]
    no_install: bool,
    /// Only tests whose name contains one of these
    filter: Vec<String>,
}

/// `cargo x test`.
pub fn test(args: &Args) -> Result<()> {
    let repo = Repo::find()?;
    let server = match &args.k3s {
        Some(path) => Server::K3s(fs::canonicalize(path).with_context(|| format!("no k3s at {}", path.display()))?),
        None => Server::choose(None),
    };
    setup::ensure(&repo, Install::unless(args.no_install), &server, || {
        let mut cargo = Command::new("cargo");
        cargo.current_dir(repo.root()).args(["test", "--quiet", "--workspace", "--no-run"]);
        run::run("compiling the tests", &mut cargo)
    })?;
    let mut failures = Vec::new();
    if args.filter.is_empty() {
        failures.extend(go_tests(&repo).err().map(|error| format!("{error:#}")));
    }
    let tally = cargo_tests(&repo, args, &server)?;
    println!("\n{}", tally.summary());
    failures.extend(tally.failures(args.full, &Allowed::here(&repo)?));
    if !failures.is_empty() {
        bail!("{}", failures.join("\n"));
    }
    Ok(())
}

fn go_tests(repo: &Repo) -> Result<()> {
    let _one_at_a_time = go::lock(repo)?;
    run::run("go vet", go::go(repo).args(["vet", "-trimpath", "./kube-server/..."]))?;
    run::run("go test", go::go(repo).args(["test", "-trimpath", "./kube-server/..."]))
}

fn cargo_tests(repo: &Repo, args: &Args, server: &Server) -> Result<Tally> {
    let skips = repo.build().join("skips.txt");
    fs::write(&skips, "").with_context(|| format!("writing {}", skips.display()))?;
    let mut cargo = Command::new("cargo");
    cargo.current_dir(repo.root()).args(["test", "--workspace", "--no-fail-fast"]);
    // What passing tests print is shown too: a skip is among it.
    cargo.args(["--", "--show-output"]).args(&args.filter);
    environment(&mut cargo, repo, server, &skips);
    if args.full {
        cargo.env("SOCIALWEB_FULL", "1");
    }
    println!("==> {}", run::line(&cargo));
    let mut tally = Tally::default();
    tally.green = run::lines(&mut cargo, |line| {
        println!("{line}");
        tally.read(line);
    })?;
    for line in fs::read_to_string(&skips).context("reading build/skips.txt")?.lines() {
        tally.read(line);
    }
    Ok(tally)
}

/// What tests find in their environment.
fn environment(cargo: &mut Command, repo: &Repo, server: &Server, skips: &Path) {
    cargo.env("SOCIALWEB_BIN_DIR", repo.bin());
    cargo.env("SOCIALWEB_KINE", repo.bin().join("kine")).env("SOCIALWEB_BAO", repo.bin().join("bao"));
    cargo.env("SOCIALWEB_KUBECTL", repo.bin().join("kubectl")).env("SOCIALWEB_SKIP_FILE", skips);
    match server {
        Server::K3s(path) => cargo.env("SOCIALWEB_K3S", path),
        Server::KubeServer => cargo.env("SOCIALWEB_KUBE_SERVER", repo.bin().join("kube-server")),
    };
    cargo.env_remove("KUBECONFIG").env_remove("NOTIFY_SOCKET");
}

/// What a run of cargo test, or of a test program elsewhere, said.
#[derive(Debug, Default)]
pub(crate) struct Tally {
    green: bool,
    passed: u64,
    failed: u64,
    ignored: u64,
    /// `name: cause: what was missing`.
    skips: BTreeSet<String>,
}

impl Tally {
    /// Of a run that is good until something says otherwise.
    pub(crate) fn begun() -> Tally {
        Tally { green: true, ..Tally::default() }
    }

    /// Tests that ran to an end.
    pub(crate) fn ran(&self) -> u64 {
        self.passed + self.failed + self.ignored
    }

    /// Takes over what another run said.
    pub(crate) fn add(&mut self, other: Tally) {
        self.green &= other.green && other.failed == 0;
        self.passed += other.passed;
        self.failed += other.failed;
        self.ignored += other.ignored;
        self.skips.extend(other.skips);
    }

    /// Counts tests that never came to an end.
    pub(crate) fn lose(&mut self, tests: u64) {
        self.green &= tests == 0;
        self.failed += tests;
    }

    /// Counts a test that was left out before it could begin.
    pub(crate) fn leave_out(&mut self) {
        self.ignored += 1;
    }

    /// Takes in one line of output.
    pub(crate) fn read(&mut self, line: &str) {
        if let Some((_, skip)) = line.split_once("SKIP: ") {
            self.skips.insert(skip.trim().to_string());
        }
        let Some(result) = line.strip_prefix("test result: ") else { return };
        let counted = |word: &str| -> u64 {
            let part = result.split([';', '.']).find_map(|part| part.trim().strip_suffix(word));
            part.and_then(|number| number.trim().parse().ok()).unwrap_or(0)
        };
        self.passed += counted(" passed");
        self.failed += counted(" failed");
        self.ignored += counted(" ignored");
    }

    /// libtest counts a test that skipped itself as passed; it proved nothing.
    fn proven(&self) -> u64 {
        self.passed.saturating_sub(self.skips.len() as u64)
    }

    /// The skips, and the numbers on the last line.
    pub(crate) fn summary(&self) -> String {
        let skips: String = self.skips.iter().map(|skip| format!("SKIP: {skip}\n")).collect();
        let skipped = self.skips.len() as u64 + self.ignored;
        let (proven, failed) = (self.proven(), self.failed);
        // The second line is the plain one that CI systems read.
        format!("{skips}proven {proven}, skipped {skipped}\n{proven} passed, {failed} failed, {skipped} skipped")
    }

    /// Why the run is no good; empty when it is.
    pub(crate) fn failures(&self, full: bool, allowed: &Allowed) -> Vec<String> {
        let mut failures = Vec::new();
        if !self.green {
            failures.push(format!("{} tests failed; their own report is above", self.failed));
        }
        if self.green && self.passed == 0 {
            failures.push("no test ran; does the filter fit a name?".to_string());
        }
        failures.extend(self.skips.iter().filter_map(|skip| allowed.refusal(skip, full)));
        failures
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tally(lines: &[&str]) -> Tally {
        let mut tally = Tally { green: true, ..Tally::default() };
        lines.iter().for_each(|line| tally.read(line));
        tally
    }

    #[test]
    fn what_skipped_itself_is_not_counted_as_proven_and_is_counted_once() {
        let tally = tally(&[
            "test result: ok. 12 passed; 0 failed; 1 ignored; 0 measured; 0 filtered out; finished in 0.1s",
            "test result: ok. 3 passed; 0 failed; 0 ignored; 0 measured; 9 filtered out; finished in 0.1s",
            "SKIP: host::a: kvm: no device",
            "SKIP: host::a: kvm: no device",
        ]);
        assert_eq!(
            tally.summary(),
            "SKIP: host::a: kvm: no device\nproven 14, skipped 2\n14 passed, 0 failed, 2 skipped"
        );
    }

    #[test]
    fn a_run_without_any_test_or_with_a_red_one_fails() {
        assert_eq!(tally(&[]).failures(false, &Allowed::default()).len(), 1);
        let mut red = tally(&["test result: FAILED. 3 passed; 1 failed; 0 ignored"]);
        red.green = false;
        assert_eq!(red.failures(false, &Allowed::default()), ["1 tests failed; their own report is above"]);
    }

    #[test]
    fn a_test_that_never_ended_is_a_failed_one_and_one_left_out_is_not() {
        let mut all = Tally::begun();
        all.add(tally(&["test result: ok. 3 passed; 0 failed"]));
        all.leave_out();
        assert!(all.failures(false, &Allowed::default()).is_empty());
        assert_eq!(all.summary(), "proven 3, skipped 1\n3 passed, 0 failed, 1 skipped");
        all.lose(2);
        assert_eq!((all.ran(), all.failures(false, &Allowed::default()).len()), (6, 1));
    }
}
