//! Time to Ready of the demo tenant, through the daemon and through tests/bench/plain.sh, turn by turn.

use super::daemon::Daemon;
use super::plain::Spec;
use super::{Row, median};
use crate::repo::Repo;
use crate::run;
use anyhow::{Context, Result, bail};
use std::fs;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// The bound: the daemon may take this many times the script's time.
const BOUND: f64 = 1.10;

/// Measures.
pub fn measure(repo: &Repo, runs: usize) -> Result<Vec<Row>> {
    let folder = repo.build().join("bench/ready");
    let config = format!("record_events = true\nclusters_dir = {:?}\n", repo.path("config/demo/clusters.d"));
    // Warms the page cache, and records what the daemon runs.
    let (_, spec) = ours(repo, &folder, &config)?;
    let (mut daemon, mut script) = (Vec::new(), Vec::new());
    for run in 1..=runs {
        // Who comes second finds what the first one left: warm caches, pages that are still being written. So they change
        // places from run to run.
        if run % 2 == 0 {
            script.push(plain(repo, &folder, &spec)?);
        }
        daemon.push(ours(repo, &folder, &config)?.0);
        if run % 2 == 1 {
            script.push(plain(repo, &folder, &spec)?);
        }
        let (ours, plain) = (run::seconds(daemon[run - 1]), run::seconds(script[run - 1]));
        println!("    run {run} of {runs}: daemon {ours}, script {plain}");
    }
    let (ours, plain) = (median(&mut daemon), median(&mut script));
    Ok(vec![Row::ratio("demo tenant, exec to Ready", ours, "plain shell script", plain, BOUND)])
}

fn ours(repo: &Repo, folder: &Path, config: &str) -> Result<(Duration, Spec)> {
    let mut daemon = Daemon::start(repo, folder, config)?;
    let time = daemon.until_ready(1)?;
    let spec = Spec::recorded(&daemon.state().join("groups/demo/events.jsonl"))?;
    daemon.stop()?;
    Ok((time, spec))
}

/// On the same, emptied, state folder: every path and port is in the recorded argv.
fn plain(repo: &Repo, folder: &Path, spec: &Spec) -> Result<Duration> {
    let plan = folder.join("plan");
    fs::remove_dir_all(folder.join("state")).context("emptying the state folder")?;
    spec.write_plan(&plan)?;
    let began = Instant::now();
    let mut script = Command::new(repo.path("tests/bench/plain.sh"));
    let mut script = script.arg(&plan).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
    let mut said = String::new();
    let out = script.stdout.take().context("the script has no output")?;
    BufReader::new(out).read_line(&mut said)?;
    let time = began.elapsed();
    // The end of its input tells it to stop everything.
    drop(script.stdin.take());
    let status = script.wait()?;
    if said.trim() != "ready" || !status.success() {
        bail!("tests/bench/plain.sh ended with {status}; {}/*/log says why", plan.display());
    }
    Ok(time)
}
