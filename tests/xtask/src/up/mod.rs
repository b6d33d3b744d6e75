//! `up` and `down`: the demo tenant, from nothing to Ready and back to nothing.
//!
//! - [`demo`]: folders, the daemon's command line, what it says. [`keeper`]: starts it again when it crashes.
//! - [`show`]: progress and receipt. [`delegate`]: a cgroup of our own. [`detached`]: `up --detach` and `down`.

mod delegate;
pub mod demo;
mod detached;
pub mod keeper;
pub mod show;

pub use detached::{down, keep, up_detached};

use crate::repo::Repo;
use crate::run;
use crate::setup::{self, Install, Server};
use anyhow::{Result, bail};
use demo::Demo;
use keeper::{Keeper, Turn};
use show::Progress;
use socialweb_wire::{GroupStatus, Phase};
use std::process::Command;
use std::time::{Duration, SystemTime};

/// How often the status is asked while somebody waits for it.
const ASK: Duration = Duration::from_millis(200);

/// `cargo x up`.
pub fn up(install: Install) -> Result<()> {
    let demo = prepare(install)?;
    demo.begin_log()?;
    println!("==> starting the daemon and the tenant {}", demo::GROUP);
    let mut keeper = Keeper::start(|| demo.command())?;
    let done = until_asked(&mut keeper, &demo).and_then(|end| match end {
        End::Asked => stop(&mut keeper, &demo),
        End::ByItself(since) => print_receipt(&demo, since),
    });
    done.map_err(|error| error.context(format!("the daemon's last lines:\n{}", demo.log_tail())))
}

/// All that must be there before the daemon starts.
fn prepare(install: Install) -> Result<Demo> {
    delegate::ensure_delegated()?;
    let repo = Repo::find()?;
    let server = Server::choose(None);
    let demo = Demo::new(&repo);
    if demo.status().is_some() {
        bail!("the demo is up already; `cargo x down` takes it down, or says where it runs");
    }
    setup::ensure(&repo, install, &server, || {
        let mut cargo = Command::new("cargo");
        cargo.current_dir(repo.root()).args(["build", "--package", "socialweb-computer", "--bins"]);
        run::run("building the daemon", &mut cargo)
    })?;
    demo.prepare()?;
    Ok(demo)
}

enum End {
    Asked,
    /// Somebody else shut the daemon down, at the earliest at this time.
    ByItself(SystemTime),
}

/// Shows the way to Ready, then rests until something happens.
fn until_asked<F: FnMut() -> Result<Command>>(keeper: &mut Keeper<F>, demo: &Demo) -> Result<End> {
    let began = SystemTime::now();
    let mut progress = Progress::new();
    let mut ready = false;
    loop {
        match keeper.turn(if ready { None } else { Some(ASK) })? {
            Turn::Asked => return Ok(End::Asked),
            Turn::Ended => return Ok(End::ByItself(began)),
            Turn::Restarted(status) => {
                println!("    the daemon ended with {} and was started again", keeper::say(status));
                (ready, progress) = (false, Progress::new());
            }
            Turn::Quiet => {}
        }
        if !ready {
            let group = demo.group();
            progress.show(group.as_ref());
            if let Some(group) = group.filter(|group| group.phase == Phase::Ready) {
                ready = true;
                announce(demo, &group, progress.elapsed());
                println!("    Ctrl-C takes it down");
            }
        }
    }
}

/// What one can do now.
fn announce(demo: &Demo, group: &GroupStatus, elapsed: Duration) {
    println!("\n{} is Ready after {}, with zero nodes", group.name, run::seconds(elapsed));
    let none = "(not told by the daemon)";
    let kubeconfig = group.kubeconfig.as_deref().unwrap_or(none);
    println!("    URL         {}", group.url.as_deref().unwrap_or(none));
    println!("    kubeconfig  {kubeconfig}");
    println!("    try         kubectl --kubeconfig {kubeconfig} get namespaces");
    let socket = format!("{}={}", socialweb_wire::place::SOCKET_ENV, demo.socket().display());
    println!("    look        {socket} {}", demo.ctl_line("status"));
}

/// Asks the daemon to go and shows how it does. Another Ctrl-C changes nothing: every step of the stop has its own limit.
fn stop<F: FnMut() -> Result<Command>>(keeper: &mut Keeper<F>, demo: &Demo) -> Result<()> {
    println!("\n==> stopping, in reverse order");
    let began = SystemTime::now();
    let mut progress = Progress::new();
    keeper.ask_to_stop()?;
    loop {
        match keeper.turn(Some(ASK))? {
            Turn::Ended => return print_receipt(demo, began),
            Turn::Asked => println!("    still stopping; each step has a limit, {} says more", demo.log().display()),
            Turn::Restarted(status) => {
                println!(
                    "    the daemon ended with {} while it stopped; it runs again and is asked again",
                    keeper::say(status)
                );
                keeper.ask_to_stop()?;
            }
            Turn::Quiet => {
                if let Some(group) = demo.group() {
                    progress.show(Some(&group));
                }
            }
        }
    }
}

/// The proof that nothing is left, or an error.
fn print_receipt(demo: &Demo, since: SystemTime) -> Result<()> {
    let receipt = demo.receipt(since)?;
    println!("\n{}", show::receipt(&receipt));
    if !receipt.removed {
        bail!("the receipt says that something is left; {} says more", demo.log().display());
    }
    Ok(())
}
