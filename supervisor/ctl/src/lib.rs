//! The admin client: `socialweb-computer ctl`, with supervisorctl's habits.
//!
//! It asks the daemon over the admin socket, renders what it is told, and waits where a person would wait, saying what for.
//! It knows nothing that the daemon did not say: it reads no state folder, signals no process, and prints as success only
//! what a status showed (law L14).
//!
//! Map:
//! - [`args`] - the command line.
//! - [`client`] - one request, or one stream of lines.
//! - [`commands`] - what each verb does.
//! - [`wait`] - is it done? Pure.
//! - [`progress`] - what a person sees meanwhile.
//! - [`render`] - answers as table, JSON, YAML. Pure.
//! - [`exit`] - how a command ends.
#![forbid(unsafe_code)]

pub mod args;
pub mod client;
pub mod commands;
pub mod exit;
pub mod progress;
pub mod render;
pub mod wait;

pub use args::Ctl;
pub use exit::{CtlError, Exit};

/// Runs one command; errors are told on stderr. Needs a tokio runtime and an installed rustls provider.
pub async fn run(ctl: Ctl) -> Exit {
    match commands::run(ctl).await {
        Ok(exit) => exit,
        Err(error) => exit::tell(&error),
    }
}
