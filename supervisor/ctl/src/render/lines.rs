//! Log lines and events for people, a line each.

use super::{bare, clean, clock};
use socialweb_wire::{EventLine, Level, LogLine};

/// A log line, with its component before it unless one was asked for. Colours and what else a terminal would obey are left
/// out: `-o json` has the line as it was written.
pub fn log(line: &LogLine, with_component: bool) -> String {
    let text = bare(&line.text);
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
