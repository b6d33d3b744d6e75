//! What goes on: log lines and events, past and coming, for those who follow.

use super::Host;
use crate::admin::Feed;
use crate::logs::{Followed, Follower, LogLine, Source};
use socialweb_core::{ComponentName, GroupName};
use socialweb_wire as wire;
use std::sync::Arc;
use std::time::UNIX_EPOCH;
use tokio::sync::broadcast;

/// Lines that a slow follower may lag behind before it is told how many it missed.
const FOLLOW: usize = 1024;

impl Host {
    pub(super) fn log_feed(
        &self,
        group: &GroupName,
        component: Option<ComponentName>,
        tail: usize,
        follow: bool,
    ) -> Result<Feed<wire::LogLine>, wire::ApiError> {
        let held = self.known(group)?;
        let names: Vec<ComponentName> = match &component {
            Some(name) => {
                let exists = held.machine.spec().is_some_and(|s| s.component(name).is_some());
                if !exists {
                    return Err(wire::ApiError::no_component(group.as_str(), name.as_str()));
                }
                vec![name.clone()]
            }
            None => {
                held.machine.spec().map(|s| s.components.iter().map(|c| c.name.clone()).collect()).unwrap_or_default()
            }
        };
        // The subscription comes first: a line in between is doubled, never missed; and nothing comes in between, because
        // the log task and this one take turns.
        let follower = follow.then(|| self.logs.follow(group.clone(), component, FOLLOW));
        let mut past = Vec::new();
        for component in names {
            let source = Source { group: group.clone(), component };
            let lines = self.logs.tail(&source, &self.state.layout().logs(group), tail);
            let lines = lines
                .map_err(|e| wire::ApiError::new(wire::ErrorCode::Failed, format!("a log cannot be read: {e}")))?;
            past.extend(lines.lines);
        }
        past.sort_by_key(|line| line.at);
        let skip = past.len().saturating_sub(tail);
        let past = past.iter().skip(skip).map(|line| Arc::new(log_line(line))).collect();
        Ok(Feed { past, live: follower.map(relay) })
    }

    pub(super) fn event_feed(
        &self,
        group: Option<&GroupName>,
        tail: usize,
        follow: bool,
    ) -> Result<Feed<wire::EventLine>, wire::ApiError> {
        if let Some(group) = group {
            self.known(group)?;
        }
        let live = follow.then(|| self.told.subscribe());
        let (_, all) = self.ring.since(0);
        let about = |line: &wire::EventLine| group.is_none_or(|g| line.group.as_deref() == Some(g.as_str()));
        let mut past: Vec<_> = all.map(|(_, line)| Arc::clone(line)).filter(|line| about(line)).collect();
        past.drain(..past.len().saturating_sub(tail));
        Ok(Feed { past, live })
    }
}

fn log_line(line: &LogLine) -> wire::LogLine {
    let since = line.at.duration_since(UNIX_EPOCH).unwrap_or_default();
    wire::LogLine {
        time_ms: u64::try_from(since.as_millis()).unwrap_or(u64::MAX),
        group: line.source.group.to_string(),
        component: line.source.component.to_string(),
        birth: Some(line.birth.0),
        level: match line.priority.number() {
            0..=3 => wire::Level::Error,
            4 => wire::Level::Warning,
            7 => wire::Level::Debug,
            _ => wire::Level::Info,
        },
        text: line.text.clone(),
    }
}

/// Hands a follower's lines on in the wire's shape. The channel is the follower's own, so a hole in the one becomes a hole
/// in the other: what was missed is told by a line.
fn relay(mut follower: Follower) -> broadcast::Receiver<Arc<wire::LogLine>> {
    let (tx, rx) = broadcast::channel(FOLLOW);
    tokio::spawn(async move {
        while let Some(followed) = follower.next().await {
            let line = match followed {
                Followed::Line(line) => log_line(&line),
                Followed::Missed(n) => missed_line(n),
            };
            if tx.send(Arc::new(line)).is_err() {
                return;
            }
        }
    });
    rx
}

fn missed_line(n: u64) -> wire::LogLine {
    wire::LogLine {
        time_ms: super::say::unix_ms(),
        group: String::new(),
        component: String::new(),
        birth: None,
        level: wire::Level::Warning,
        text: format!("({n} lines were not shown: they came faster than they were read)"),
    }
}
