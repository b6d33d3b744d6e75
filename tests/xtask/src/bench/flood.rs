//! One child that writes as fast as it is let: under the daemon, which cuts, keeps and counts every line, against a pipe
//! that somebody only empties.

use super::daemon::Daemon;
use super::{Row, median};
use crate::repo::Repo;
use crate::run;
use anyhow::{Context, Result, bail};
use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

/// What it writes: lines of 100 bytes.
const BYTES: u64 = 1_000_000_000;
const LINE: u64 = 100;
/// The bound: how many times longer it may take than into a pipe that is only emptied.
const RATIO: f64 = 20.0;
/// The bound that an operator feels: nobody who writes less than this is held back.
const LEAST: u64 = 100_000_000;
/// Far above both.
const LIMIT: Duration = Duration::from_secs(600);

/// Measures the writer's own time, from its first byte to its last.
pub fn measure(repo: &Repo, runs: usize) -> Result<Vec<Row>> {
    let folder = repo.build().join("bench/flood");
    let (mut ours, mut plain) = (Vec::new(), Vec::new());
    for run in 1..=runs {
        ours.push(under_the_daemon(repo, &folder)?);
        plain.push(into_cat(&folder)?);
        println!(
            "    run {run} of {runs}: daemon {}, cat {}",
            run::seconds(ours[run - 1]),
            run::seconds(plain[run - 1])
        );
    }
    let (ours, plain) = (median(&mut ours), median(&mut plain));
    let ratio = Row::ratio("1 GB of lines from one child", ours, "into cat", plain, RATIO);
    let rate = (BYTES as f64 / ours.as_secs_f64()) as u64;
    let rate = Row {
        what: "rate at which it is not held back".into(),
        ours: format!("{} MB/s", rate / 1_000_000),
        reference: "-".into(),
        bound: format!("at least {} MB/s", LEAST / 1_000_000),
        good: rate >= LEAST,
    };
    Ok(vec![ratio, rate])
}

/// Writes the flood, and then into `took` how many nanoseconds that took.
fn writer(folder: &Path) -> String {
    let line = "x".repeat(usize::try_from(LINE).unwrap_or(100) - 1);
    let took = folder.join("took");
    format!(
        "began=$(date +%s%N); yes {line} | head -c {BYTES}; ended=$(date +%s%N); echo $((ended - began)) > {}.new; mv {}.new {}",
        took.display(),
        took.display(),
        took.display()
    )
}

fn took(folder: &Path) -> Option<Duration> {
    fs::read_to_string(folder.join("took")).ok()?.trim().parse().ok().map(Duration::from_nanos)
}

fn under_the_daemon(repo: &Repo, folder: &Path) -> Result<Duration> {
    let clusters = folder.join("clusters.d");
    fs::create_dir_all(&clusters).with_context(|| format!("creating {}", clusters.display()))?;
    let _absent = fs::remove_file(folder.join("took"));
    let text = format!(
        "kind = \"exec\"\n[[component]]\nname = \"loud\"\nargv = [\"/bin/sh\", \"-c\", '''{}; exec sleep 100000''']\n\
         env = {{ PATH = \"/usr/bin:/bin\" }}\nstop = {{ grace = \"1s\" }}\n",
        writer(folder)
    );
    fs::write(clusters.join("flood.toml"), text).context("writing the flood's cluster file")?;
    let mut daemon = Daemon::start(repo, folder, "watchdog = \"never\"\n[log]\njournal = \"never\"\n")?;
    daemon.until_ready(1)?;
    let began = Instant::now();
    let time = loop {
        if let Some(time) = took(folder) {
            break time;
        }
        if began.elapsed() > LIMIT {
            bail!("the flood is not through after {}", run::seconds(began.elapsed()));
        }
        thread::sleep(Duration::from_millis(50));
    };
    daemon.stop()?;
    Ok(time)
}

fn into_cat(folder: &Path) -> Result<Duration> {
    let _absent = fs::remove_file(folder.join("took"));
    let mut flood = Command::new("/bin/sh");
    flood.args(["-c", &writer(folder)]).stdin(Stdio::null()).stdout(Stdio::piped());
    let mut flood = flood.spawn().context("starting the flood")?;
    let pipe = flood.stdout.take().context("the flood has no output")?;
    let status = Command::new("cat").stdin(Stdio::from(pipe)).stdout(Stdio::null()).status().context("running cat")?;
    if !flood.wait()?.success() || !status.success() {
        bail!("the flood into cat failed");
    }
    took(folder).context("the flood left no time")
}
