//! 500 groups of two trivial components: time until all are Ready against a bare spawn loop, memory, and idling.

use super::daemon::Daemon;
use super::{Row, median};
use crate::repo::Repo;
use crate::run;
use anyhow::{Context, Result};
use std::fs;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

const GROUPS: usize = 500;
const PROGRAM: [&str; 2] = ["/bin/sleep", "1000000"];

/// The bound: the daemon may take this many times the bare loop's time.
const RATIO: f64 = 5.0;
/// The daemon's proportional memory with all of them up, in KiB.
const PSS_KIB: u64 = 15 * 1024;
/// How long it may not use a single clock tick.
const IDLE: Duration = Duration::from_secs(30);

/// Measures the start, and memory after it.
pub fn measure(repo: &Repo, runs: usize) -> Result<Vec<Row>> {
    let (mut daemon, mut bare) = (Vec::new(), Vec::new());
    let mut memory = 0;
    for run in 1..=runs {
        let (daemon_now, time) = up(repo)?;
        memory = memory.max(pss_kib(daemon_now.pid())?);
        daemon_now.stop()?;
        daemon.push(time);
        bare.push(bare_loop(2 * GROUPS)?);
        println!("    run {run} of {runs}: daemon {}, bare loop {}", run::seconds(time), run::seconds(bare[run - 1]));
    }
    let (ours, loops) = (median(&mut daemon), median(&mut bare));
    let start = Row::ratio("500 groups of 2, exec to Ready", ours, "spawn loop of 1,000", loops, RATIO);
    let pss =
        Row::limit("daemon's PSS with them up", format!("{:.1} MiB", kib_to_mib(memory)), "15 MiB", memory <= PSS_KIB);
    Ok(vec![start, pss])
}

/// Measures the same daemon at rest: no liveness probe, no watchdog. A look at its own files now and then is all that it does,
/// and such a look can be the one that completes a tick of all before it: so the median counts here too.
pub fn idle(repo: &Repo, runs: usize) -> Result<Vec<Row>> {
    let mut seen = Vec::new();
    for run in 1..=runs {
        let (daemon, _) = up(repo)?;
        // The last events of the start are still on their way to disk.
        thread::sleep(Duration::from_secs(2));
        let before = cpu_ticks(daemon.pid())?;
        thread::sleep(IDLE);
        seen.push(cpu_ticks(daemon.pid())? - before);
        daemon.stop()?;
        println!("    run {run} of {runs}: {} ticks in {} s", seen[run - 1], IDLE.as_secs());
    }
    seen.sort_unstable();
    let ticks = seen[seen.len() / 2];
    Ok(vec![Row::limit("CPU ticks in 30 s, 500 groups idle", ticks.to_string(), "0", ticks == 0)])
}

fn up(repo: &Repo) -> Result<(Daemon, Duration)> {
    let folder = repo.build().join("bench/spawn");
    write_groups(&folder.join("clusters.d"))?;
    let config = "watchdog = \"never\"\n[budgets]\nmax_concurrent_starts = \"off\"\n[log]\njournal = \"never\"\n";
    let mut daemon = Daemon::start(repo, &folder, config)?;
    let time = daemon.until_ready(GROUPS)?;
    Ok((daemon, time))
}

fn write_groups(folder: &Path) -> Result<()> {
    let _absent = fs::remove_dir_all(folder);
    fs::create_dir_all(folder).with_context(|| format!("creating {}", folder.display()))?;
    let component = |name: &str| format!("[[component]]\nname = \"{name}\"\nargv = {PROGRAM:?}\n");
    let text = format!("kind = \"exec\"\n{}{}", component("one"), component("two"));
    for number in 0..GROUPS {
        let file = folder.join(format!("group-{number}.toml"));
        fs::write(&file, &text).with_context(|| format!("writing {}", file.display()))?;
    }
    Ok(())
}

/// The standard library uses posix_spawn where nothing but files is redirected.
fn bare_loop(count: usize) -> Result<Duration> {
    let mut children: Vec<Child> = Vec::with_capacity(count);
    let began = Instant::now();
    let mut failed = None;
    for _ in 0..count {
        let mut command = Command::new(PROGRAM[0]);
        match command.args(&PROGRAM[1..]).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn() {
            Ok(child) => children.push(child),
            Err(error) => failed = failed.or(Some(error)),
        }
    }
    let time = began.elapsed();
    for child in &mut children {
        child.kill()?;
        child.wait()?;
    }
    match failed {
        Some(error) => Err(error).context("spawning the bare loop"),
        None => Ok(time),
    }
}

fn pss_kib(pid: u32) -> Result<u64> {
    let text = fs::read_to_string(format!("/proc/{pid}/smaps_rollup")).context("reading the daemon's smaps_rollup")?;
    let line = text.lines().find_map(|line| line.strip_prefix("Pss:")).context("no Pss in smaps_rollup")?;
    line.trim().trim_end_matches(" kB").parse().context("reading Pss")
}

fn kib_to_mib(kib: u64) -> f64 {
    Duration::from_millis(kib).as_secs_f64() * 1000.0 / 1024.0
}

/// utime + stime of all its threads: fields 14 and 15 of /proc/PID/stat.
fn cpu_ticks(pid: u32) -> Result<u64> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).context("reading the daemon's stat")?;
    let (_, fields) = stat.rsplit_once(')').context("no command in stat")?;
    let ticks = fields.split_whitespace().skip(11).take(2).map(str::parse::<u64>);
    Ok(ticks.collect::<Result<Vec<_>, _>>().context("reading utime and stime")?.iter().sum())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_and_ticks_of_a_process_that_worked_are_seen() {
        let began = Instant::now();
        let me = std::process::id();
        while cpu_ticks(me).unwrap() == 0 && began.elapsed() < Duration::from_secs(10) {
            std::hint::black_box(began.elapsed());
        }
        assert!(cpu_ticks(me).unwrap() > 0);
        assert!(pss_kib(me).unwrap() > 100);
        assert!((kib_to_mib(15 * 1024) - 15.0).abs() < 0.001);
    }
}
