//! `bench`: the bounds on speed and size, as ratios measured in one run on one machine, and kept in docs/benchmarks.md.
//!
//! - [`ready`]: the demo tenant against a shell script. [`spawn`]: 500 groups: start, memory, idling. [`flood`]: a child
//!   that writes without end.
//! - [`plain`]: the script's plan, from the daemon's own spec. [`daemon`]: what is measured. [`report`]: the table.

mod daemon;
mod flood;
mod plain;
mod ready;
mod report;
mod spawn;

use crate::repo::Repo;
use crate::run;
use crate::setup::{self, Install, Server, debian};
use anyhow::{Result, bail};
use std::process::Command;
use std::time::Duration;

/// The options of `cargo x bench`.
#[derive(clap::Args)]
pub struct Args {
    /// What to measure; everything when nothing is named
    what: Vec<What>,
    /// Runs of each; the median counts
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u8).range(1..))]
    runs: u8,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum What {
    /// Time to Ready of the demo tenant against a plain shell script
    Ready,
    /// 500 groups of two components against a bare spawn loop, and the daemon's memory
    Spawn,
    /// CPU of the daemon with 500 groups at rest
    Idle,
    /// Output of one child that floods, against a pipe that is only emptied
    Flood,
}

/// One line of the table.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Row {
    what: String,
    ours: String,
    reference: String,
    bound: String,
    good: bool,
}

impl Row {
    fn ratio(what: &str, ours: Duration, against: &str, reference: Duration, bound: f64) -> Row {
        let ratio = ours.as_secs_f64() / reference.as_secs_f64();
        Row {
            what: what.into(),
            ours: format!("{:.2} s", ours.as_secs_f64()),
            reference: format!("{against} {:.2} s", reference.as_secs_f64()),
            bound: format!("{ratio:.2} of at most {bound:.2}"),
            good: ratio <= bound,
        }
    }

    fn limit(what: &str, ours: String, bound: &str, good: bool) -> Row {
        Row { what: what.into(), ours, reference: "-".into(), bound: format!("at most {bound}"), good }
    }
}

/// `cargo x bench`.
pub fn bench(args: &Args) -> Result<()> {
    let repo = Repo::find()?;
    let all = [What::Ready, What::Spawn, What::Idle, What::Flood];
    let what = if args.what.is_empty() { all.to_vec() } else { args.what.clone() };
    prepare(&repo, &what)?;
    let runs = usize::from(args.runs);
    let mut rows = Vec::new();
    for what in what {
        println!("==> measuring {what:?}");
        rows.extend(match what {
            What::Ready => ready::measure(&repo, runs)?,
            What::Spawn => spawn::measure(&repo, runs)?,
            What::Idle => spawn::idle(&repo, runs)?,
            What::Flood => flood::measure(&repo, runs)?,
        });
    }
    println!("\n{}", report::table(&rows));
    report::keep(&repo, &rows, runs)?;
    let missed: Vec<&str> = rows.iter().filter(|row| !row.good).map(|row| row.what.as_str()).collect();
    if !missed.is_empty() {
        bail!("bounds not met: {}", missed.join(", "));
    }
    Ok(())
}

fn prepare(repo: &Repo, what: &[What]) -> Result<()> {
    let build = || {
        let mut cargo = Command::new("cargo");
        cargo.current_dir(repo.root()).args(["build", "--release", "--package", "socialweb-computer", "--bins"]);
        run::run("building the daemon, optimised", &mut cargo)
    };
    if !what.contains(&What::Ready) {
        return build();
    }
    setup::ensure(repo, Install::Allowed, &Server::choose(None), build)?;
    // The script's probes.
    debian::ensure_command(Install::Allowed, "curl", "curl")
}

fn median(times: &mut [Duration]) -> Duration {
    times.sort();
    times[times.len() / 2]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ratio_above_its_bound_is_not_good() {
        let row = |ms| Row::ratio("x", Duration::from_millis(ms), "y", Duration::from_millis(1000), 1.10);
        assert!(row(1100).good);
        assert!(!row(1101).good);
        assert_eq!(row(1050).bound, "1.05 of at most 1.10");
    }

    #[test]
    fn one_slow_run_does_not_move_the_median() {
        let mut times = [9, 1, 2].map(Duration::from_secs);
        assert_eq!(median(&mut times), Duration::from_secs(2));
    }
}
