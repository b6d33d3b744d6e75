//! `guest systemd`: builds what the guest runs, plays the scenes, at most two machines at once, and counts.

use super::image::{self, Image};
use super::machine::{self, Disk, Plan};
use super::scene::{Boot, SCENES, Scene};
use crate::repo::Repo;
use crate::run;
use crate::setup::Install;
use crate::skips::Allowed;
use crate::test::Tally;
use anyhow::{Context, Result, bail};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Mutex;
use std::thread;
use std::time::Instant;

/// The options of `cargo x guest systemd`.
#[derive(clap::Args)]
pub struct Args {
    /// Also the long tests: power loss, a real tenant, and those whose name says so
    #[arg(long)]
    full: bool,
    /// Only tests whose name contains one of these, separated by commas
    #[arg(long, value_delimiter = ',', value_name = "A,B")]
    filter: Vec<String>,
    /// Keep console and files of every machine in build/guest, not only of those that failed
    #[arg(long)]
    keep: bool,
    /// Install nothing; say what is missing
    #[arg(long)]
    no_install: bool,
    /// Machines at once, 1 or 2; each has 2 processors
    #[arg(long, default_value_t = 2, value_name = "N", value_parser = clap::value_parser!(u8).range(1..=2))]
    jobs: u8,
}

/// `cargo x guest systemd`.
pub fn systemd(args: &Args) -> Result<()> {
    let began = Instant::now();
    let repo = Repo::find()?;
    let image = image::ensure(&repo, Install::unless(args.no_install))?;
    let built = build(&repo)?;
    // Two runs would clear each other's folders away.
    let lock = fs::File::create(repo.build().join("guest/run.lock")).context("creating build/guest/run.lock")?;
    lock.lock().context("waiting for another run in this clone")?;
    let runs = repo.build().join("guest/runs");
    let _absent = fs::remove_dir_all(&runs);
    fs::create_dir_all(&runs).with_context(|| format!("creating {}", runs.display()))?;
    let programs = runs.join("programs.ext4");
    pack(&repo, &built, args, &runs.join("programs"), &programs)?;
    let tests = wanted(&list(&built.tests)?, &args.filter);
    let play = Play { image: &image, programs: &programs, runs: &runs, args, tally: Mutex::new(Tally::begun()) };
    let failures = play.all(&tests);
    let _no_longer_needed = fs::remove_file(&programs);
    println!("\nguest: done in {}; what is worth a look is in {}", run::seconds(began.elapsed()), runs.display());
    report(play.tally, failures, args, &repo)
}

fn report(tally: Mutex<Tally>, mut failures: Vec<String>, args: &Args, repo: &Repo) -> Result<()> {
    let tally = tally.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner);
    failures.extend(tally.failures(args.full, &Allowed::elsewhere(repo)?));
    println!("{}", tally.summary());
    if !failures.is_empty() {
        bail!("{}", failures.join("\n"));
    }
    Ok(())
}

/// What cargo made for the guest.
struct Built {
    daemon: PathBuf,
    tests: PathBuf,
}

fn build(repo: &Repo) -> Result<Built> {
    let mut cargo = Command::new("cargo");
    cargo.current_dir(repo.root()).args(["test", "--no-run", "--quiet", "--test", "guest", "--message-format=json"]);
    let (mut daemon, mut tests) = (None, None);
    println!("==> compiling the guest's tests");
    let good = run::lines(&mut cargo, |line| {
        let Ok(message) = serde_json::from_str::<serde_json::Value>(line) else { return };
        let Some(file) = message["executable"].as_str() else { return };
        match (message["target"]["name"].as_str(), message["target"]["kind"][0].as_str()) {
            (Some("socialweb-computer"), Some("bin")) => daemon = Some(PathBuf::from(file)),
            (Some("guest"), Some("test")) => tests = Some(PathBuf::from(file)),
            _ => {}
        }
    })?;
    match (daemon, tests) {
        (Some(daemon), Some(tests)) if good => Ok(Built { daemon, tests }),
        _ => bail!("the guest's tests do not compile: `cargo test --no-run --test guest` says why"),
    }
}

/// The names of all tests, from the program itself: it runs here as well as there.
fn list(tests: &Path) -> Result<Vec<String>> {
    let text = run::output(Command::new(tests).args(["--list", "--format=terse"]))?;
    Ok(text.lines().filter_map(|line| line.strip_suffix(": test")).map(str::to_string).collect())
}

/// What the filter lets through; a scene of several boots is one story and is taken or left as a whole.
fn wanted(tests: &[String], filter: &[String]) -> Vec<String> {
    let fits = |test: &String| filter.is_empty() || filter.iter().any(|part| test.contains(part.as_str()));
    let of = |scene: &Scene| {
        let mine = scene.tests(tests);
        let whole = scene.boots.len() > 1 && mine.iter().any(fits);
        mine.into_iter().filter(move |test| whole || fits(test))
    };
    SCENES.iter().flat_map(of).collect()
}

/// The programs' disk: ours, the units, and with --full what a tenant needs.
fn pack(repo: &Repo, built: &Built, args: &Args, folder: &Path, to: &Path) -> Result<()> {
    fs::create_dir_all(folder.join("bin"))?;
    let mut files = vec![(built.daemon.clone(), "bin/socialweb-computer"), (built.tests.clone(), "bin/guest")];
    if args.full {
        for (name, place) in [("kine", "bin/kine"), ("bao", "bin/bao"), ("kube-server", "bin/kube-server")] {
            files.extend(Some(repo.bin().join(name)).filter(|file| file.is_file()).map(|file| (file, place)));
        }
    }
    for (file, place) in files {
        fs::copy(&file, folder.join(place)).with_context(|| format!("copying {}", file.display()))?;
    }
    run::output(Command::new("cp").arg("-r").arg(repo.path("units")).arg(folder))?;
    machine::disk_of(folder, to)?;
    fs::remove_dir_all(folder).with_context(|| format!("removing {}", folder.display()))
}

/// Everything that the scenes share.
struct Play<'a> {
    image: &'a Image,
    programs: &'a Path,
    runs: &'a Path,
    args: &'a Args,
    tally: Mutex<Tally>,
}

impl Play<'_> {
    /// Plays all scenes; gives back what went wrong besides failed tests.
    fn all(&self, tests: &[String]) -> Vec<String> {
        let queue: Mutex<Vec<&Scene>> = Mutex::new(SCENES.iter().rev().collect());
        let next = || queue.lock().ok()?.pop();
        let worker = || {
            let mut failures = Vec::new();
            while let Some(scene) = next() {
                failures
                    .extend(self.scene(scene, &scene.tests(tests)).err().map(|e| format!("{}: {e:#}", scene.title())));
            }
            failures
        };
        thread::scope(|scope| {
            let workers: Vec<_> = (0..self.args.jobs).map(|_| scope.spawn(worker)).collect();
            let done = workers.into_iter().map(|w| w.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)));
            done.flatten().collect()
        })
    }

    fn scene(&self, scene: &Scene, tests: &[String]) -> Result<()> {
        if scene.long && !self.args.full {
            tests.iter().for_each(|test| self.skip(test));
            return Ok(());
        }
        if tests.is_empty() {
            return Ok(());
        }
        let folder = self.runs.join(scene.title());
        fs::create_dir_all(&folder)?;
        let disk = Disk::of(self.image, scene.boots.len(), &folder)?;
        let good = self.boots(scene, tests, &disk, &folder);
        if let Disk::Kept(copy) = &disk {
            fs::remove_file(copy)?;
        }
        if good.is_ok() && !self.args.keep {
            fs::remove_dir_all(&folder)?;
        }
        good
    }

    /// One boot after the other; what comes after a red one would only show that again.
    fn boots(&self, scene: &Scene, tests: &[String], disk: &Disk, folder: &Path) -> Result<()> {
        for (number, boot) in scene.boots.iter().enumerate() {
            let here = boot.tests(tests);
            let folder = folder.join(format!("boot-{}", number + 1));
            if let Err(error) = self.boot(scene, boot, &here, disk, folder) {
                let later = scene.boots[number + 1..].iter().flat_map(|b| b.tests(tests)).count();
                self.with_tally(|tally| tally.lose(later as u64));
                return Err(error);
            }
        }
        Ok(())
    }

    fn boot(&self, scene: &Scene, boot: &Boot, tests: &[String], disk: &Disk, folder: PathBuf) -> Result<()> {
        let began = Instant::now();
        let title = scene.title();
        println!("==> {title}: booting for {} tests", tests.len());
        let machine = machine::Boot { image: self.image, disk, programs: self.programs, memory: scene.memory, folder };
        let plan = Plan { tests: tests.to_vec(), full: self.args.full, end: boot.end, limit: scene.limit() };
        let mut own = Tally::begun();
        let ran = machine.run(&plan, |line| {
            println!("[{title} {:>4.0} s] {line}", began.elapsed().as_secs_f64());
            own.read(line);
        });
        // A machine that died took its tests with it.
        own.lose((tests.len() as u64).saturating_sub(own.ran()));
        let bad = own.failures(false, &Allowed::default());
        self.with_tally(|tally| tally.add(own));
        println!("    {title}: {} done in {}", boot.name, run::seconds(began.elapsed()));
        ran?;
        if !bad.is_empty() {
            bail!("{}; see {}", bad.join("; "), machine.folder.display());
        }
        Ok(())
    }

    fn skip(&self, test: &str) {
        println!("SKIP: {test}: long: only with --full");
        self.with_tally(Tally::leave_out);
    }

    fn with_tally(&self, change: impl FnOnce(&mut Tally)) {
        change(&mut self.tally.lock().unwrap_or_else(std::sync::PoisonError::into_inner));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_filter_is_any_part_of_a_name() {
        let names = ["stop::ranks", "stop::time", "reboot::first_boot::up", "reboot::second_boot::again"];
        let tests: Vec<String> = names.map(str::to_string).to_vec();
        assert_eq!(wanted(&tests, &[]), tests);
        assert_eq!(wanted(&tests, &["ranks".into()]), tests[..1]);
        assert_eq!(wanted(&tests, &["again".into()]), tests[2..]);
        assert!(wanted(&tests, &["nothing".into()]).is_empty());
    }
}
