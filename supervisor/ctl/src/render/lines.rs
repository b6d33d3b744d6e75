//! Log lines and events for people, a line each.

use super::{clean, clock};
use socialweb_wire::{EventLine, Level, LogLine};

/// A log line: as it was written when one component was asked for, else with its component before it.
pub fn log(line: &LogLine, with_component: bool) -> String {
    let text = clean(&line.text);
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
