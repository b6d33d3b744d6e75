//! `check`: every rule that a machine can hold us to. All steps run; all failures are listed at the end, not the first.
//!
//! - [`tree`]: ASCII, and no paths of the machine that somebody happened to work on. [`promises`]: docs/promises.md
//!   names what exists. [`units`]: the systemd units.

mod promises;
mod tree;
mod units;

use crate::repo::Repo;
use crate::run;
use crate::setup::go;
use anyhow::{Result, bail};
use std::io::IsTerminal;
use std::process::Command;
use std::time::Instant;

/// How much is checked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Extent {
    /// What answers within 10 s.
    Fast,
    /// Everything but the tests that start real processes.
    All,
}

/// What a step found out.
enum Outcome {
    Good,
    /// Could not be asked here; counted, and no failure.
    Skipped(String),
}

type Step = (&'static str, fn(&Repo) -> Result<Outcome>);

const FAST: &[Step] = &[
    ("ascii and paths", ascii),
    ("promises", promises::verify),
    ("fmt", fmt),
    ("clippy", clippy),
    ("unit tests of the core", core_tests),
];

/// The Go steps come last: a Go build that runs meanwhile then had time to fill the cache.
const ALL: &[Step] = &[
    ("ascii and paths", ascii),
    ("promises", promises::verify),
    ("fmt", fmt),
    ("clippy", clippy),
    ("docs", docs),
    ("deny", deny),
    ("systemd units", units::verify),
    ("unit tests", unit_tests),
    ("gofmt", gofmt),
    ("go vet", go_vet),
];

/// `cargo x check`.
pub fn check(extent: Extent) -> Result<()> {
    let repo = Repo::find()?;
    let steps = if extent == Extent::Fast { FAST } else { ALL };
    let (mut failures, mut skipped) = (Vec::new(), 0);
    for (name, step) in steps {
        let began = Instant::now();
        println!("==> {name}");
        match step(&repo) {
            Ok(Outcome::Good) => println!("    {name}: good ({})", run::seconds(began.elapsed())),
            Ok(Outcome::Skipped(why)) => {
                skipped += 1;
                println!("SKIP: check {name}: {why}");
            }
            Err(error) => {
                println!("    {name}: FAILED ({})", run::seconds(began.elapsed()));
                failures.push(format!("{name}: {error:#}"));
            }
        }
    }
    let good = steps.len() - failures.len() - skipped;
    println!("\ncheck: {good} steps good, {} failed, {skipped} skipped", failures.len());
    if !failures.is_empty() {
        bail!("check failed:\n{}", failures.join("\n"));
    }
    Ok(())
}

fn ascii(repo: &Repo) -> Result<Outcome> {
    let faults = tree::faults(repo)?;
    if !faults.is_empty() {
        bail!("{} lines:\n{}", faults.len(), faults.join("\n"));
    }
    Ok(Outcome::Good)
}

fn cargo(repo: &Repo, words: &str) -> Command {
    let mut command = Command::new("cargo");
    command.current_dir(repo.root()).args(words.split(' '));
    command
}

/// Its output is shown; a failure names the command to repeat.
fn passes(command: &mut Command) -> Result<Outcome> {
    let status = command.status()?;
    if !status.success() {
        bail!("`{}` ended with {status}", run::line(command));
    }
    Ok(Outcome::Good)
}

fn fmt(repo: &Repo) -> Result<Outcome> {
    let mut command = cargo(repo, "fmt --all --check");
    if !std::io::stdout().is_terminal() {
        // rustfmt colours its differences by TERM alone.
        command.env("TERM", "dumb");
    }
    passes(&mut command)
}

fn clippy(repo: &Repo) -> Result<Outcome> {
    passes(&mut cargo(repo, "clippy --quiet --workspace --all-targets -- -D warnings"))
}

fn docs(repo: &Repo) -> Result<Outcome> {
    let mut command = cargo(repo, "doc --quiet --workspace --no-deps --document-private-items");
    passes(command.env("RUSTDOCFLAGS", "-D warnings -A rustdoc::private_intra_doc_links"))
}

/// Advisories need a database from outside and are left to who has it.
fn deny(repo: &Repo) -> Result<Outcome> {
    if run::on_path("cargo-deny").is_none() {
        return Ok(Outcome::Skipped("cargo-deny is not installed (`cargo install cargo-deny`)".into()));
    }
    passes(&mut cargo(repo, "deny --offline check bans licenses sources"))
}

fn core_tests(repo: &Repo) -> Result<Outcome> {
    passes(&mut cargo(repo, "test --quiet --package socialweb-core --lib"))
}

fn unit_tests(repo: &Repo) -> Result<Outcome> {
    passes(&mut cargo(repo, "test --quiet --workspace --lib --bins --no-fail-fast"))
}

fn gofmt(repo: &Repo) -> Result<Outcome> {
    if run::on_path("gofmt").is_none() {
        return Ok(Outcome::Skipped("gofmt is not on PATH; it comes with Go".into()));
    }
    let bad = run::output(Command::new("gofmt").current_dir(repo.upstream()).args(["-l", "."]))?;
    if !bad.trim().is_empty() {
        bail!("not formatted, `gofmt -w` does it: {}", bad.trim().replace('\n', ", "));
    }
    Ok(Outcome::Good)
}

fn go_vet(repo: &Repo) -> Result<Outcome> {
    if run::on_path("go").is_none() {
        return Ok(Outcome::Skipped("go is not on PATH".into()));
    }
    let _one_at_a_time = go::lock(repo)?;
    passes(go::go(repo).args(["vet", "-trimpath", "./kube-server/..."]))
}
