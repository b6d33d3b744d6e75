//! `world`: the world tests of core; with `--minutes`, lives with fresh seeds until then.
//!
//! `cargo x test` runs the same seeds each time. Here each round begins at a seed of its own. The first life that breaks a law
//! ends it, with the seed, a small case and the log of that case; the case is kept in
//! supervisor/core/tests/world/regressions, in the commit that mends what it shows.

use crate::repo::Repo;
use crate::run;
use anyhow::{Context, Result};
use std::process::Command;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// The options of `cargo x world`.
#[derive(clap::Args)]
pub struct Args {
    /// Go on with fresh seeds; begin no round after so many minutes
    #[arg(long)]
    minutes: Option<u64>,
    /// Only the life of this seed
    #[arg(long, conflicts_with = "minutes")]
    seed: Option<u64>,
    /// Also the state spaces that take minutes
    #[arg(long)]
    full: bool,
}

/// Lives of one round: as many as the default run has.
const ROUND: u64 = 100_000;

/// `cargo x world`.
pub fn world(args: &Args) -> Result<()> {
    let repo = Repo::find()?;
    let began = Instant::now();
    if let Some(seed) = args.seed {
        return run::run(&format!("the life of seed {seed}"), lives(&repo).env("SIM_SEED", seed.to_string()));
    }
    let mut all = cargo(&repo);
    if args.full {
        all.env("SOCIALWEB_FULL", "1");
    }
    run::run("the world tests", &mut all)?;
    let Some(minutes) = args.minutes else { return Ok(()) };
    let limit = Duration::from_secs(minutes.saturating_mul(60));
    let mut rounds = 0;
    while began.elapsed() < limit {
        let base = fresh(SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs()));
        let what = format!("round {}: {ROUND} lives from seed {base}", rounds + 1);
        let mut round = lives(&repo);
        round.env("SIM_BASE", base.to_string()).env("SIM_RUNS", ROUND.to_string());
        run::run(&what, &mut round).context("a law is broken; `cargo x world --seed N` repeats it")?;
        rounds += 1;
    }
    println!("\nworld: {} fresh lives in {}, every law held", rounds * ROUND, run::seconds(began.elapsed()));
    Ok(())
}

/// The first seed of a round that begins in this second: above those of the default run and of every earlier round.
fn fresh(second: u64) -> u64 {
    second.saturating_mul(ROUND)
}

fn cargo(repo: &Repo) -> Command {
    let mut cargo = Command::new("cargo");
    cargo.current_dir(repo.root()).args(["test", "--quiet", "--package", "socialweb-core", "--test", "world", "--"]);
    cargo
}

fn lives(repo: &Repo) -> Command {
    let mut cargo = cargo(repo);
    cargo.args(["--exact", "schedules::every_law_holds_in_every_random_life"]);
    cargo
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_seeds_of_two_rounds_and_of_the_default_run_never_meet() {
        assert!(fresh(1_700_000_000) > ROUND);
        assert_eq!(fresh(11) - fresh(10), ROUND);
    }
}
