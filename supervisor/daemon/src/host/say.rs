//! What happened, for people: event lines (admin socket), the daemon's own log, systemd's status line.

use super::Host;
use crate::manager::Manager;
use socialweb_core::{Birth, Cause, ComponentName, End, Event, GroupName, GroupView, Phase, Receipt, Role};
use socialweb_wire::{EventLine, Level, counted};
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

/// Milliseconds since 1970, for people only.
pub(crate) fn unix_ms() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

/// A number of things that something was done to.
fn were(n: usize, noun: &str) -> String {
    format!("{} {}", counted(n, noun), if n == 1 { "was" } else { "were" })
}

impl Host {
    /// Something to look at, about a group or about the host.
    pub fn warn(&mut self, group: Option<&GroupName>, text: String) {
        self.say(group, None, None, Level::Warning, text);
    }

    /// Something about the host as a whole.
    pub fn say_host(&mut self, text: String) {
        self.say(None, None, None, Level::Info, text);
    }

    fn say(
        &mut self,
        group: Option<&GroupName>,
        component: Option<String>,
        birth: Option<u64>,
        level: Level,
        text: String,
    ) {
        // A field without a value is left out of the line.
        let (name, part) = (group.map(GroupName::as_str), component.as_deref());
        match level {
            Level::Error => tracing::error!(group = name, component = part, "{text}"),
            Level::Warning => tracing::warn!(group = name, component = part, "{text}"),
            Level::Debug => tracing::debug!(group = name, component = part, "{text}"),
            Level::Info => tracing::info!(group = name, component = part, "{text}"),
        }
        if level == Level::Debug {
            // A slow tenant's probes would push everything else out of the ring.
            return;
        }
        let seq = self.ring.next_number();
        let group = group.map(ToString::to_string);
        let line = Arc::new(EventLine { seq, time_ms: unix_ms(), group, component, birth, level, text });
        self.ring.push(Arc::clone(&line));
        // Nobody listening is fine.
        let _ = self.told.send(line);
    }

    /// The events that people want to read; the rest is in the recorded log.
    pub(super) fn say_event(&mut self, group: &GroupName, event: &Event) {
        let (level, text) = match event {
            Event::Start { why } => (Level::Info, format!("start: {why}")),
            Event::Stop { why } => (Level::Info, format!("stop: {why}")),
            Event::Restart { why, .. } => (Level::Info, format!("restart: {why}")),
            Event::SurvivorsReaped { found } if !found.is_empty() => {
                (Level::Warning, format!("of an earlier run, {} ended", were(found.len(), "process")))
            }
            Event::SurvivorsStuck { what } | Event::GroupStuck { what } => (Level::Error, what.clone()),
            Event::Lingers { what, .. } => (Level::Warning, format!("killed, and still there: {what}")),
            Event::LeaseTaken { role, port, holder } => (
                Level::Error,
                format!("port {port} ({role}) is in use by {holder}; the group waits, the port does not move"),
            ),
            Event::CgroupFailed { error } | Event::SpawnFailed { error, .. } => (Level::Error, error.clone()),
            Event::Spawned { pid, .. } => (Level::Info, format!("started, pid {pid}")),
            Event::Ready { .. } => (Level::Info, "ready".into()),
            Event::ProbeFailed { why, .. } => (Level::Debug, why.clone()),
            _ => return,
        };
        let (component, birth) = event.birth().map_or((None, None), |(c, b)| (Some(c.to_string()), Some(b.0)));
        self.say(Some(group), component, birth, level, text);
    }

    /// The one record of an end. What nobody here wanted is worth a look.
    pub(super) fn say_end(&mut self, group: &GroupName, component: &ComponentName, birth: Birth, end: &End) {
        // A task that did its work, or a one-shot: no crash, and not to be taken for one.
        if let Some(role) = self.groups.get(group).and_then(|held| held.machine.done_of(component, birth)) {
            let what = if role == Role::Main { "done".to_string() } else { format!("{role} is done") };
            let text = format!("{what} ({})", end.status);
            return self.say(Some(group), Some(component.to_string()), Some(birth.0), Level::Info, text);
        }
        let loud = end.traces.oom_kills > 0 || end.traces.core_dumped || end.by == Cause::Unknown;
        let level = if loud { Level::Warning } else { Level::Info };
        self.say(Some(group), Some(component.to_string()), Some(birth.0), level, format!("ended with {end}"));
    }

    pub(super) fn say_change(&mut self, group: &GroupName, before: &GroupView) {
        let Some(view) = self.groups.get(group).map(|h| h.view.clone()) else { return };
        for c in &view.components {
            let old = before.components.iter().find(|o| o.name == c.name);
            // The wait for the restart budget is over at once on a quiet host.
            let waits = c.state == "Backoff" && !c.detail.starts_with("waiting for the host-wide");
            let loud = waits || matches!(c.state.as_str(), "Wedged" | "Failed");
            if loud && old.is_none_or(|o| o.state != c.state) {
                let level = if c.state == "Backoff" { Level::Warning } else { Level::Error };
                let text = format!("{}: {}", c.state, c.detail);
                self.say(Some(group), Some(c.name.to_string()), None, level, text);
            }
        }
        if view.phase == before.phase {
            return;
        }
        let level = match view.phase {
            Phase::Unavailable => Level::Error,
            Phase::Degraded => Level::Warning,
            _ => Level::Info,
        };
        let reason = if view.reason.is_empty() { String::new() } else { format!(": {}", view.reason) };
        self.say(Some(group), None, None, level, format!("{}{reason}", view.phase.as_str()));
    }

    pub(super) fn say_receipt(&mut self, group: &GroupName, receipt: &Receipt) {
        let json = serde_json::to_string(receipt).unwrap_or_default();
        tracing::info!(group = group.as_str(), receipt = json.as_str(), "receipt");
        let (n, ms) = (counted(receipt.components.len(), "component"), receipt.elapsed_ms);
        let text = format!("down in {ms} ms, {n} proven gone: {}", receipt.why);
        self.say(Some(group), None, None, Level::Info, text);
    }

    /// systemd's status line, when it changed.
    pub(super) fn tell_status(&mut self, manager: &Manager) {
        if !manager.listens() {
            return;
        }
        let count = |phase: Phase| self.groups.values().filter(|h| h.view.phase == phase).count();
        let text = format!(
            "{}: {} ready, {} starting, {} degraded, {} unavailable",
            counted(self.groups.len(), "group"),
            count(Phase::Ready),
            count(Phase::Starting) + count(Phase::Sweeping),
            count(Phase::Degraded),
            count(Phase::Unavailable)
        );
        if self.status_line != text {
            manager.status(&text);
            self.status_line = text;
        }
    }
}
