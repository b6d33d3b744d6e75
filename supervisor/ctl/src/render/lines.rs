//! Log lines and events for people, a line each.

use super::{bare, clean, clock};
use socialweb_wire::{EventLine, Level, LogLine};
use std::collections::BTreeMap;

/// A log line, with its component before it unless one was asked for. Colours and what else a terminal would obey are left
/// out: `-o json` has the line as it was written.
pub fn log(line: &LogLine, with_component: bool) -> String {
    let text = bare(&line.text);
    if with_component { format!("{:<16} | {text}\n", clean(&line.component)) } else { format!("{text}\n") }
}

/// The run that each component wrote in last, to see where the next one begins.
#[derive(Debug, Default)]
pub struct Runs(BTreeMap<String, u64>);

impl Runs {
    /// True when the line is the first of another run than the one before. The first run that is seen begins nothing: what
    /// was before it was not asked for.
    pub fn is_next(&mut self, line: &LogLine) -> bool {
        let Some(birth) = line.birth else { return false };
        self.0.insert(line.component.clone(), birth).is_some_and(|before| before != birth)
    }
}

/// The mark between two runs of a component; `pid` where it is known.
pub fn run_began(line: &LogLine, pid: Option<u32>, with_component: bool) -> String {
    let pid = pid.map(|pid| format!(", pid {pid}")).unwrap_or_default();
    let text = format!("--- a new run{pid}, its first line at {} ---", clock(line.time_ms));
    if with_component { format!("{:<16} | {text}\n", clean(&line.component)) } else { format!("{text}\n") }
}

/// An event.
pub fn event(line: &EventLine) -> String {
    let subject = match (&line.group, &line.component) {
        (Some(group), Some(component)) => format!(" {}/{}:", clean(group), clean(component)),
        (Some(group), None) => format!(" {}:", clean(group)),
        (None, _) => String::new(),
    };
    let level = match line.level {
        Level::Error => "ERROR",
        Level::Warning => "WARN ",
        Level::Info => "INFO ",
        Level::Debug => "DEBUG",
    };
    format!("{} {level}{subject} {}\n", clock(line.time_ms), clean(&line.text))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mark_stands_where_a_component_goes_on_in_another_run() {
        let line = |component: &str, birth| LogLine {
            time_ms: 1_700_000_000_123,
            group: "demo".into(),
            component: component.into(),
            birth,
            level: Level::Info,
            text: String::new(),
        };
        let mut runs = Runs::default();
        let lines = [("a", Some(1)), ("b", Some(2)), ("a", Some(1)), ("a", None), ("a", Some(3)), ("b", Some(2))];
        let marks: Vec<bool> = lines.iter().map(|(of, birth)| runs.is_next(&line(of, *birth))).collect();
        assert_eq!(marks, [false, false, false, false, true, false]);
        let text = run_began(&line("a", Some(3)), Some(7), true);
        assert_eq!(text, "a                | --- a new run, pid 7, its first line at 2023-11-14T22:13:20.123Z ---\n");
        assert!(run_began(&line("a", Some(3)), None, false).starts_with("--- a new run, its first"));
    }
}
