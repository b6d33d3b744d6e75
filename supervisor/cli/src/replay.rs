//! `internal replay`: a recorded event log (`events.jsonl` of a group) as text: what came in, what the machine then asked
//! for, and where the group stood. A bug report is such a file.

use anyhow::Context;
use socialweb_core::record::{Entry, replay};
use socialweb_core::{Action, Group};
use socialweb_ctl::Exit;
use std::fmt::Write;
use std::path::Path;

/// Replays `file`; `last` leaves the steps out and shows only the state at its end.
///
/// # Errors
/// When the file cannot be read, or is no such log.
pub fn run(file: &Path, last: bool) -> anyhow::Result<Exit> {
    let text = std::fs::read_to_string(file).with_context(|| format!("cannot read {}", file.display()))?;
    crate::print(render(&text, last).with_context(|| format!("cannot replay {}", file.display()))?)?;
    Ok(Exit::Done)
}

fn render(text: &str, last: bool) -> anyhow::Result<String> {
    let mut out = String::new();
    let group = replay(text, |entry, actions, group| {
        if !last {
            step(&mut out, entry, actions, group);
        }
    })?;
    let view = group.view();
    // Writing to a String cannot fail, here and below.
    let _ = writeln!(out, "{}: {} {}", view.name, view.phase.as_str(), view.reason);
    for component in &view.components {
        let _ = writeln!(out, "  {} {} {}", component.name, component.state, component.detail);
    }
    Ok(out)
}

fn step(out: &mut String, entry: &Entry, actions: &[Action], group: &Group) {
    let (seconds, millis) = (entry.at.0 / 1_000, entry.at.0 % 1_000);
    let phase = group.view().phase.as_str();
    let _ = writeln!(out, "{seconds}.{millis:03} {} -> {phase}", json(&entry.event));
    // A view after each step says nothing that the line above does not.
    for action in actions.iter().filter(|action| !matches!(action, Action::Publish { .. })) {
        let _ = writeln!(out, "    {}", json(action));
    }
}

fn json<T: serde::Serialize>(value: &T) -> String {
    serde_json::to_string(value).unwrap_or_else(|error| format!("({error})"))
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOG: &str = concat!(
        r#"{"schema":1,"group":"demo","seed":1,"first_birth":1}"#,
        "\n",
        r#"{"at":1500,"event":"start","why":{"why":"operator"}}"#,
        "\n",
        r#"{"at":2000,"event":"tick"}"#,
        "\n",
        r#"{"at":2001,"event":"the writer was kil"#,
    );

    #[test]
    fn each_step_is_shown_with_its_time_and_the_phase_after_it() {
        let text = render(LOG, false).unwrap();
        assert!(text.contains("1.500 {\"event\":\"start\"") && text.contains("2.000 {\"event\":\"tick\"}"), "{text}");
        assert!(text.lines().last().unwrap().starts_with("demo: Absent"), "{text}");
        let end = render(LOG, true).unwrap();
        assert!(text.ends_with(&end) && end.lines().count() == 1, "{end}");
    }

    #[test]
    fn what_is_no_log_is_refused_with_its_line() {
        let error = render(&LOG.replace("tick", "tock"), true).unwrap_err();
        assert!(error.to_string().contains("line 3"), "{error}");
    }
}
