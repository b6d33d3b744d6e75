//! `fuzz`: the property tests (modules named `properties`) once more, with fresh seeds and ever more cases.
//!
//! `cargo x test` tries each property on the same few hundred inputs in every run. Here every round has a seed of its own
//! and more cases than the last; the first failure ends it, with the smallest input and the line that repeats it. What it
//! finds becomes a plain test, in the commit that mends it.

use crate::repo::Repo;
use crate::run;
use anyhow::{Context, Result, bail};
use std::fs::File;
use std::io::Read;
use std::process::Command;
use std::time::{Duration, Instant};

/// The options of `cargo x fuzz`.
#[derive(clap::Args)]
pub struct Args {
    /// Begin no round after this many minutes
    #[arg(long, default_value_t = 5)]
    minutes: u64,
    /// Only properties whose name begins with this
    name: Option<String>,
}

/// Rooms with properties, and the targets that hold them.
const WHERE: &str = "--package socialweb-sys --package socialweb-daemon --package socialweb-ctl --lib --test net";

/// Cases of the first round: twice what every run of the tests tries.
const FIRST: u64 = 512;
/// Beyond this a round takes minutes, and a fresh seed finds more than a longer round.
const MOST: u64 = 65_536;

/// `cargo x fuzz`.
pub fn fuzz(args: &Args) -> Result<()> {
    let repo = Repo::find()?;
    let began = Instant::now();
    let limit = Duration::from_secs(args.minutes.saturating_mul(60));
    let mut rounds = 0;
    loop {
        let (seed, cases) = (fresh_seed()?, cases(rounds));
        run::run(
            &format!("round {}: seed {seed}, {cases} cases of each", rounds + 1),
            &mut round(&repo, args, seed, cases),
        )
        .with_context(|| format!("a property does not hold; again: SOCIALWEB_SEED={seed} SOCIALWEB_CASES={cases}"))?;
        rounds += 1;
        if began.elapsed() >= limit {
            println!("\nfuzz: {rounds} rounds in {}, every property held", run::seconds(began.elapsed()));
            return Ok(());
        }
    }
}

fn round(repo: &Repo, args: &Args, seed: u64, cases: u64) -> Command {
    let mut cargo = Command::new("cargo");
    cargo.current_dir(repo.root()).arg("test").args(["--quiet", "--no-fail-fast"]).args(WHERE.split(' '));
    cargo.arg("--").arg(format!("properties::{}", args.name.as_deref().unwrap_or_default()));
    cargo.env("SOCIALWEB_SEED", seed.to_string()).env("SOCIALWEB_CASES", cases.to_string());
    cargo
}

fn cases(round: u32) -> u64 {
    FIRST.checked_shl(round.min(32)).unwrap_or(MOST).min(MOST)
}

fn fresh_seed() -> Result<u64> {
    let mut bytes = [0; 8];
    let read = File::open("/dev/urandom").and_then(|mut file| file.read_exact(&mut bytes));
    if let Err(error) = read {
        bail!("reading /dev/urandom for a seed: {error}");
    }
    Ok(u64::from_le_bytes(bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rounds_grow_up_to_a_bound() {
        assert_eq!([0, 1, 6, 7, 8, 1000].map(cases), [512, 1024, 32_768, 65_536, 65_536, 65_536]);
    }
}
