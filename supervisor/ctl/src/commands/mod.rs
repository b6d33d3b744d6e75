//! What each verb does. Answers go to stdout, what a person sees meanwhile and what went wrong to stderr.

mod change;
mod show;

use crate::args::{Ctl, Format, Verb};
use crate::client::Client;
use crate::exit::{CtlError, Exit};
use std::io::{self, Write};

/// What all verbs need.
struct Session {
    client: Client,
    format: Format,
}

/// Runs one command.
///
/// # Errors
/// See [`CtlError`]; its exit code says which kind of ending it was.
pub async fn run(ctl: Ctl) -> Result<Exit, CtlError> {
    change::refuse_before_asking(&ctl.verb)?;
    let client = Client::find(ctl.socket.as_deref(), ctl.state_dir.as_deref()).await?;
    let session = Session { client, format: ctl.output };
    match ctl.verb {
        Verb::Status(args) => session.status(args).await,
        Verb::Start(args) => session.start(args).await,
        Verb::Stop(args) => session.stop(args).await,
        Verb::Restart(args) => session.restart(args).await,
        Verb::Logs(args) => session.logs(args).await,
        Verb::Events(args) => session.events(args).await,
        Verb::Tree { group } => session.tree(group).await,
        Verb::Receipt { group, all } => session.receipt(&group, all).await,
        Verb::Reload { dry_run, allow_empty } => session.reload(dry_run, allow_empty).await,
        Verb::Delete { group, yes, wait } => session.delete(group, yes, wait).await,
        Verb::Metrics => session.metrics().await,
        Verb::Shutdown { wait } => session.shutdown(wait).await,
        Verb::Host(_) => Err(CtlError::Usage("doctor, drill and bundle are run by the whole program".into())),
    }
}

/// Prints now: a follower's output must not wait in a buffer.
///
/// # Errors
/// When stdout cannot be written.
pub fn print(text: &str) -> Result<(), CtlError> {
    let mut out = io::stdout().lock();
    out.write_all(text.as_bytes())?;
    out.flush()?;
    Ok(())
}

/// Tells something beside the answer. A stderr that is gone stops nothing.
pub fn note(text: &str) {
    let _ = writeln!(io::stderr(), "{}", crate::render::clean(text));
}
