//! The `socialweb-computer` program: sub-commands, each a thin call into a room.
//!
//! It holds no mechanism of its own but the command line: parsing it, choosing the room, and turning what comes back into
//! an exit code ([`socialweb_ctl::Exit`]: 0 done, 1 failed, 2 wrong usage, 3 daemon not reachable, 4 timed out).
//!
//! Map:
//! - [`argv`] - single-dash long flags.
//! - [`args`] - the command line.
//! - [`run`] - the daemon.
//! - [`config`] - `config check`, `config schema`.
//! - [`internal`] - programs of a group, started by the daemon.
//! - [`replay`] - `internal replay`: a recorded event log as text.
//! - [`ops`] - `ctl doctor`, `ctl drill`, `ctl bundle`.
//! - [`pages`] - completions, man pages, version.
#![forbid(unsafe_code)]

pub mod args;
pub mod argv;
pub mod config;
pub mod internal;
pub mod ops;
pub mod pages;
pub mod replay;
pub mod run;

use anyhow::Context;
use args::{Cli, Command};
use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{CommandFactory, FromArgMatches};
use socialweb_ctl::Exit;
use socialweb_ctl::args::Verb;
use std::ffi::OsString;
use std::future::Future;
use std::io::{self, Write};

/// Runs the program with these arguments, the program's name first. Needs an installed rustls provider.
pub fn main_with(argv: impl IntoIterator<Item = OsString>) -> Exit {
    let mut command = Cli::command();
    let argv = argv::normalise(argv, &mut command);
    let parsed = command.try_get_matches_from(argv).and_then(|matches| Cli::from_arg_matches(&matches));
    match parsed {
        Ok(cli) => dispatch(cli.command).unwrap_or_else(|error| tell(&error)),
        Err(error) => {
            // Help that cannot be printed has no other reader.
            let _ = error.print();
            if let Some(tip) = format_tip(&error) {
                let _ = writeln!(io::stderr(), "\n  tip: {tip}");
            }
            if error.exit_code() == 0 { Exit::Done } else { Exit::Usage }
        }
    }
}

/// Other programs' flag for what is `-o` here.
fn format_tip(error: &clap::Error) -> Option<String> {
    let flag = match error.get(ContextKind::InvalidArg)? {
        ContextValue::String(flag) => flag.trim_start_matches('-'),
        _ => return None,
    };
    let known = error.kind() == ErrorKind::UnknownArgument && ["json", "yaml", "wide"].contains(&flag);
    known.then(|| format!("every verb of ctl prints {flag} with `-o {flag}`"))
}

fn dispatch(command: Command) -> anyhow::Result<Exit> {
    match command {
        Command::Run(args) => run::run(args),
        Command::Ctl(ctl) => match ctl.verb.clone() {
            Verb::Host(verb) => block_on(ops::run(ctl, verb)),
            _ => block_on(async { Ok(socialweb_ctl::run(ctl).await) }),
        },
        Command::Config { verb } => config::run(verb),
        Command::Internal { task } => internal::run(task),
        Command::Completions { shell } => pages::completions(shell),
        Command::Man { dir } => pages::man(dir.as_deref()),
        Command::Version => pages::version(),
    }
}

fn block_on<T>(task: impl Future<Output = anyhow::Result<T>>) -> anyhow::Result<T> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.context("cannot make a runtime")?.block_on(task)
}

/// Prints to stdout, now. Rust ignores SIGPIPE, so a reader that left shows as an error here: see [`tell`].
fn print(text: impl AsRef<[u8]>) -> anyhow::Result<()> {
    let mut out = io::stdout().lock();
    out.write_all(text.as_ref())?;
    out.flush()?;
    Ok(())
}

/// Tells an error with its causes on stderr, once. A reader of stdout that left (`| head`) is no error.
fn tell(error: &anyhow::Error) -> Exit {
    let broken = |cause: &(dyn std::error::Error + 'static)| {
        cause.downcast_ref::<io::Error>().is_some_and(|e| e.kind() == io::ErrorKind::BrokenPipe)
    };
    if broken(error.root_cause()) {
        return Exit::Done;
    }
    let mut text = format!("error: {error}\n");
    for cause in error.chain().skip(1) {
        text.push_str(&format!("  because: {cause}\n"));
    }
    let _ = io::stderr().write_all(text.as_bytes());
    Exit::Failed
}

#[cfg(test)]
mod tests;
