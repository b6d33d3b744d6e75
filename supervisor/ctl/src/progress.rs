//! What a person sees while a command waits: one line on a terminal that changes in place, else one line per change.

use std::io::{self, IsTerminal, Write};
use std::time::{Duration, Instant};

/// The line.
pub struct Progress<W: Write> {
    out: W,
    in_place: bool,
    began: Instant,
    shown: String,
}

impl Progress<io::Stderr> {
    /// On stderr.
    pub fn on_stderr() -> Self {
        Progress::new(io::stderr(), io::stderr().is_terminal())
    }
}

impl<W: Write> Progress<W> {
    /// On `out`; `in_place` when it is a terminal.
    pub fn new(out: W, in_place: bool) -> Self {
        Progress { out, in_place, began: Instant::now(), shown: String::new() }
    }

    /// Since the waiting began.
    pub fn elapsed(&self) -> Duration {
        self.began.elapsed()
    }

    /// Shows what is being waited for now. A stderr that is gone stops nothing.
    pub fn show(&mut self, text: &str) {
        let text = crate::render::clean(text);
        if self.in_place {
            // Line wrap is switched off for the moment, so that a long sentence is cut at the edge and stays one line.
            let _ = write!(self.out, "\r\x1b[K\x1b[?7l[{:>3} s] {text}\x1b[?7h", self.began.elapsed().as_secs());
            let _ = self.out.flush();
        } else if self.shown != text {
            let _ = writeln!(self.out, "{text}");
        }
        self.shown = text.into_owned();
    }

    /// Shows the same again: on a terminal the seconds go on.
    pub fn tick(&mut self) {
        if self.in_place && !self.shown.is_empty() {
            let text = self.shown.clone();
            self.show(&text);
        }
    }

    /// Takes the line away.
    pub fn clear(&mut self) {
        if self.in_place && !self.shown.is_empty() {
            let _ = write!(self.out, "\r\x1b[K");
            let _ = self.out.flush();
        }
        self.shown.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(in_place: bool) -> String {
        let mut out = Vec::new();
        let mut progress = Progress::new(&mut out, in_place);
        progress.show("demo is Starting");
        progress.tick();
        progress.show("demo is Starting");
        progress.show("k3s is Starting\x1b[2J");
        progress.clear();
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn without_a_terminal_each_change_is_one_line() {
        assert_eq!(shown(false), "demo is Starting\nk3s is Starting\\x1b[2J\n");
    }

    #[test]
    fn on_a_terminal_one_line_changes_in_place_and_goes_away() {
        let text = shown(true);
        assert_eq!((text.matches('\n').count(), text.matches("demo is Starting").count()), (0, 3));
        assert!(text.ends_with("\r\x1b[K") && !text.contains("\x1b[2J"));
    }
}
