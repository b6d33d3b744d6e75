//! Completions, man pages, version: all generated from the command line's own description.

use crate::args::Cli;
use anyhow::Context;
use clap::CommandFactory;
use socialweb_ctl::Exit;
use std::path::Path;

/// Prints a completion script.
///
/// # Errors
/// When it cannot be printed.
pub fn completions(shell: clap_complete::Shell) -> anyhow::Result<Exit> {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Cli::command(), "socialweb-computer", &mut script);
    crate::print(script)?;
    Ok(Exit::Done)
}

/// Prints the main page, or writes all pages into `dir`.
///
/// # Errors
/// When a page cannot be written.
pub fn man(dir: Option<&Path>) -> anyhow::Result<Exit> {
    match dir {
        None => {
            let mut page = Vec::new();
            clap_mangen::Man::new(Cli::command()).render(&mut page)?;
            crate::print(page)?;
        }
        Some(dir) => {
            let into = || format!("cannot write man pages into {}", dir.display());
            std::fs::create_dir_all(dir).with_context(into)?;
            clap_mangen::generate_to(Cli::command(), dir).with_context(into)?;
        }
    }
    Ok(Exit::Done)
}

/// Prints the version.
///
/// # Errors
/// When it cannot be printed.
pub fn version() -> anyhow::Result<Exit> {
    crate::print(format!("socialweb-computer {}\n", env!("CARGO_PKG_VERSION")))?;
    Ok(Exit::Done)
}
