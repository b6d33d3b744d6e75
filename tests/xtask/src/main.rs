//! The verbs of `cargo x`: what people and CI type to run, test, check and measure this project.
//!
//! This room does its own set-up, shows what it waits for, and fails loudly. It knows the daemon only from outside: its command
//! line, the admin API's types (socialweb-wire) and its files. It is no part of the product.
//!
//! Map:
//! - [`repo`]: where things are. [`run`]: running other programs and saying how long they took.
//! - [`setup`]: the binaries that a tenant needs, in build/bin.
//! - [`up`]: `up` and `down`, the demo tenant.
//! - [`mod@test`]: all tests, with counted skips.
//! - [`check`]: all checks, with all failures listed.
//! - [`mod@bench`]: the bounds on speed and size.
//! - [`fuzz`]: the property tests with fresh seeds.
//! - [`mod@guest`]: the tests that need a real systemd, in QEMU.
//! - [`world`]: the world tests of core, on fresh seeds.
//! - [`bump`]: the upgrade of the upstream pins.
#![forbid(unsafe_code)]

mod bench;
mod bump;
mod check;
mod fuzz;
mod guest;
mod repo;
mod run;
mod setup;
mod skips;
mod test;
mod up;
mod world;

use clap::{Parser, Subcommand};
use std::path::PathBuf;
use std::process::ExitCode;

#[derive(Parser)]
#[command(name = "cargo x", about = "Run, test, check and measure the project", disable_version_flag = true)]
struct Args {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Subcommand)]
enum Verb {
    /// Bring the demo tenant up; Ctrl-C takes it down
    Up {
        /// Return when it is Ready; `cargo x down` takes it down
        #[arg(long)]
        detach: bool,
        /// Install and download nothing; say what is missing
        #[arg(long)]
        no_install: bool,
    },
    /// Take down what `up --detach` started
    Down,
    /// Run all tests, the real ones included
    Test(test::Args),
    /// Format, lint, licences, docs, ASCII, unit tests: lists all failures
    Check {
        /// Only what answers within 10 s: format, lint, ASCII, the core's unit tests
        #[arg(long)]
        fast: bool,
    },
    /// Try the property tests on fresh inputs, more with every round
    Fuzz(fuzz::Args),
    /// Tests under a real systemd, in a virtual machine
    Guest {
        #[command(subcommand)]
        verb: guest::Verb,
    },
    /// The world tests of core; with --minutes also lives with fresh seeds
    World(world::Args),
    /// Measure time to Ready, spawning and idling against their bounds
    Bench(bench::Args),
    /// Prepare an upgrade of Kubernetes in components/upstream
    BumpKube {
        /// The version: 1.37 for its newest patch, or 1.37.0
        version: String,
    },
    /// Build and fetch what a tenant needs into build/bin (`up` and `test` do it by themselves)
    Setup {
        /// Install and download nothing; say what is missing
        #[arg(long)]
        no_install: bool,
        /// This k3s is there, so kube-server need not be built
        #[arg(long, value_name = "PATH")]
        k3s: Option<PathBuf>,
    },
    /// Keep the demo's daemon running, as the unit's Restart= would
    #[command(hide = true)]
    Keep,
}

fn main() -> ExitCode {
    let done = match Args::parse().verb {
        Verb::Up { detach: false, no_install } => up::up(setup::Install::unless(no_install)),
        Verb::Up { detach: true, no_install } => up::up_detached(setup::Install::unless(no_install)),
        Verb::Down => up::down(),
        Verb::Keep => up::keep(),
        Verb::Test(args) => test::test(&args),
        Verb::Check { fast } => check::check(if fast { check::Extent::Fast } else { check::Extent::All }),
        Verb::Fuzz(args) => fuzz::fuzz(&args),
        Verb::Guest { verb } => guest::guest(&verb),
        Verb::World(args) => world::world(&args),
        Verb::Bench(args) => bench::bench(&args),
        Verb::BumpKube { version } => bump::bump(&version),
        Verb::Setup { no_install, k3s } => setup::setup(setup::Install::unless(no_install), k3s),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("cargo x: {error:#}");
            ExitCode::FAILURE
        }
    }
}
