//! The verbs of `ctl` that look at the host itself: `doctor`, `drill`, `bundle`. They use the admin client where a daemon
//! answers, and the daemon crate's eyes where none does.

mod bundle;
mod doctor;
mod drill;

use socialweb_ctl::args::Format;
use socialweb_ctl::client::{Client, ClientError, Route};
use socialweb_ctl::{Ctl, CtlError, Exit, HostVerb};
use socialweb_daemon::doctor::{Asked, Place, Seen};
use socialweb_wire::HostStatus;
use std::path::PathBuf;
use std::time::Duration;

/// How long a daemon may take to say how it is before the host is looked at without it.
const PATIENCE: Duration = Duration::from_secs(30);

/// Runs one.
///
/// # Errors
/// What kept it from its answer; what it found is no error.
pub async fn run(ctl: Ctl, verb: HostVerb) -> anyhow::Result<Exit> {
    match verb {
        HostVerb::Doctor { config } => doctor::run(&ctl, config).await,
        HostVerb::Drill { timeout } => Ok(drill::run(&ctl, timeout).await.unwrap_or_else(told)),
        HostVerb::Bundle { file, config, lines } => bundle::run(&ctl, file, config, lines).await,
    }
}

fn told(error: CtlError) -> Exit {
    socialweb_ctl::exit::tell(&error)
}

/// What the socket said.
struct Found {
    client: Option<Client>,
    status: Option<HostStatus>,
    place: Place,
}

/// Looks for the daemon, and goes on without it.
async fn look(ctl: &Ctl, config: Option<PathBuf>) -> Found {
    let (client, socket) = match Client::find(ctl.socket.as_deref(), ctl.state_dir.as_deref()).await {
        Ok(client) => {
            let socket = client.socket().display().to_string();
            (Some(client), socket)
        }
        Err(ClientError::NotReachable { socket, others, .. }) => (None, format!("{socket}{others}")),
        Err(_) => (None, "any socket".into()),
    };
    let (seen, status) = match &client {
        Some(client) => ask(client).await,
        None => (Seen::Absent, None),
    };
    let client = client.filter(|_| status.is_some());
    let asked = Asked { seen, socket, config, state_dir: ctl.state_dir.clone() };
    Found { client, status, place: Place::find(asked) }
}

async fn ask(client: &Client) -> (Seen, Option<HostStatus>) {
    let answer = client.get::<HostStatus, ()>(Route::to(&["status"]));
    match tokio::time::timeout(PATIENCE, answer).await {
        Ok(Ok(status)) => (Seen::Answers { pid: status.pid }, Some(status)),
        Ok(Err(error)) if !error.is_unreachable() => {
            // A refusal is an answer.
            (client.peer().map_or(Seen::Absent, |peer| Seen::Answers { pid: peer.pid }), None)
        }
        _ => {
            let silent = client.peer().and_then(|peer| Some(Seen::Silent { pid: peer.pid, state: peer.state()? }));
            (silent.unwrap_or(Seen::Absent), None)
        }
    }
}

/// The format as the renderings take it.
fn whole<T: serde::Serialize>(format: Format, value: &T, text: impl FnOnce() -> String) -> Result<String, CtlError> {
    socialweb_ctl::render::whole(format, value, |_| text())
}
