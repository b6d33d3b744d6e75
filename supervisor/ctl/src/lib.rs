//! The admin client: `socialweb-computer ctl`, with supervisorctl's habits.
//!
//! It asks the daemon over the admin socket, renders what it is told, and waits where a person would wait, saying what for.
//! It knows nothing that the daemon did not say: it reads no state folder, signals no process, and prints as success only
//! what a status showed (law L14). The verbs that look at the host itself ([`HostVerb`]) are run by the program that has
//! this crate and the daemon's; they share the command line, the client and the renderings.
//!
//! Map:
//! - [`args`] - the command line.
//! - [`client`] - one request, or one stream of lines.
//! - [`peer`] - the process at the other end, when it does not answer.
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
pub mod peer;
pub mod progress;
pub mod render;
pub mod wait;

pub use args::{Ctl, HostVerb};
pub use exit::{CtlError, Exit};

/// Runs one command; errors are told on stderr. Needs a tokio runtime and an installed rustls provider.
pub async fn run(ctl: Ctl) -> Exit {
    match commands::run(ctl).await {
        Ok(exit) => exit,
        Err(error) => exit::tell(&error),
    }
}
