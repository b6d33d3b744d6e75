//! `ctl bundle`.

use super::{Found, look, whole};
use anyhow::Context;
use serde::Serialize;
use serde::de::DeserializeOwned;
use socialweb_ctl::client::{Client, Line, Lines, Route};
use socialweb_ctl::{Ctl, Exit};
use socialweb_daemon::bundle::{self, Told};
use socialweb_daemon::doctor;
use socialweb_wire::{EventLine, FeedQuery, GroupTree, HostStatus, LogLine};
use std::path::PathBuf;
use std::time::{Duration, UNIX_EPOCH};

/// Lines of the past that are asked for of the host's events: all that the daemon keeps.
const EVENTS: u32 = 1000;
/// How long one question may take; what does not come in time is left out.
const ANSWER: Duration = Duration::from_secs(20);

/// Packs the file.
///
/// # Errors
/// When it exists, or cannot be written.
pub(super) async fn run(ctl: &Ctl, file: Option<PathBuf>, config: Option<PathBuf>, lines: u32) -> anyhow::Result<Exit> {
    let file = file.unwrap_or_else(usual_name);
    let Found { client, status, place } = look(ctl, config).await;
    let told = match (&client, &status) {
        (Some(client), Some(status)) => ask(client, status, lines).await,
        _ => Told::default(),
    };
    let report = doctor::examine(&place);
    let entries = bundle::collect(&place, &told, &report, lines as usize);
    let written = bundle::write(&file, &entries)?;
    let text = || {
        format!(
            "{}: {} files, {} KiB; secrets are left out as far as they are known: look through it before you send it\n",
            written.file.display(),
            written.entries.len(),
            written.bytes >> 10
        )
    };
    crate::print(whole(ctl.output, &written, text).context("cannot print the answer")?)?;
    Ok(Exit::Done)
}

fn usual_name() -> PathBuf {
    format!("socialweb-bundle-{}.tar", UNIX_EPOCH.elapsed().unwrap_or_default().as_secs()).into()
}

/// What only the daemon knows. Each question that is not answered is left out.
async fn ask(client: &Client, status: &HostStatus, lines: u32) -> Told {
    let mut told = Told::default();
    told.files.push(("status.json".into(), json(status)));
    let feed = |tail| FeedQuery { group: None, component: None, tail: Some(tail), follow: false };
    let events = stream::<EventLine>(client, &["events"], &feed(EVENTS)).await;
    told.files.push(("events.ndjson".into(), events.iter().map(json).collect()));
    if let Ok(Ok(text)) = tokio::time::timeout(ANSWER, client.text("metrics")).await {
        told.files.push(("metrics.txt".into(), text));
    }
    for group in &status.groups {
        let route = ["groups", &group.name, "tree"];
        if let Ok(Ok(tree)) = tokio::time::timeout(ANSWER, client.get::<GroupTree, ()>(Route::to(&route))).await {
            told.files.push((format!("tree/{}.json", group.name), json(&tree)));
        }
        let written = stream::<LogLine>(client, &["groups", &group.name, "logs"], &feed(lines)).await;
        let text = |line: &LogLine| format!("{} {} {}\n", line.time_ms, line.component, line.text);
        told.logs.insert(group.name.clone(), written.iter().map(text).collect());
    }
    told
}

fn json(value: &impl Serialize) -> String {
    serde_json::to_string(value).unwrap_or_default() + "\n"
}

/// The lines of the past; what came before an error or the limit.
async fn stream<T: DeserializeOwned>(client: &Client, parts: &[&str], query: &FeedQuery) -> Vec<T> {
    let mut found = Vec::new();
    let read = async {
        let mut lines: Lines<T> = client.stream(Route { parts, query: Some(query) }).await.ok()?;
        while let Some(line) = lines.next().await.ok()? {
            if let Line::Item(item) = line {
                found.push(item);
            }
        }
        Some(())
    };
    let _ = tokio::time::timeout(ANSWER, read).await;
    found
}
