//! Answers as text. Pure: an answer and a format in, a string out.
//!
//! Text that comes from components (log lines, command names, probe answers) is shown with its control characters spelled
//! out: a tenant must not be able to write to the operator's terminal.

pub mod check;
pub mod lines;
pub mod metrics;
pub mod plan;
pub mod receipt;
pub mod status;
pub mod tree;

#[cfg(test)]
mod properties;

use crate::args::Format;
use crate::exit::CtlError;
use comfy_table::{Table, presets};
use serde::Serialize;
use std::borrow::Cow;
use std::fmt::Write;

/// An answer in a format; `table` makes the text for people, and is told whether the screen is wide.
///
/// # Errors
/// When it cannot be written as YAML.
pub fn whole<T: Serialize>(format: Format, value: &T, table: impl FnOnce(bool) -> String) -> Result<String, CtlError> {
    Ok(match format {
        Format::Table => table(false),
        Format::Wide => table(true),
        Format::Json => json(value, serde_json::to_string_pretty),
        Format::Yaml => serde_norway::to_string(value)?,
    })
}

/// One value of a stream: a line of JSON, or a YAML document.
///
/// # Errors
/// When it cannot be written as YAML.
pub fn one_of_many<T: Serialize>(format: Format, value: &T, text: impl FnOnce() -> String) -> Result<String, CtlError> {
    Ok(match format {
        Format::Table | Format::Wide => text(),
        Format::Json => json(value, serde_json::to_string),
        Format::Yaml => format!("---\n{}", serde_norway::to_string(value)?),
    })
}

fn json<T: Serialize>(value: &T, write: impl Fn(&T) -> serde_json::Result<String>) -> String {
    // The wire's types have no keys or numbers that JSON cannot hold.
    write(value).map(|text| text + "\n").unwrap_or_default()
}

/// Text with its control characters spelled out; a tab stays.
pub fn clean(text: &str) -> Cow<'_, str> {
    spell_out(text, |c| c == '\t')
}

/// Text without what a terminal would obey: colours, cursor movements, titles, bells. A tab stays.
pub fn bare(text: &str) -> Cow<'_, str> {
    let obeyed = |c: char| (c.is_control() && c != '\t') || turns_text(c);
    if !text.chars().any(obeyed) {
        return Cow::Borrowed(text);
    }
    let mut out = String::with_capacity(text.len());
    let mut chars = text.chars().peekable();
    while let Some(c) = chars.next() {
        match c {
            '\x1b' => match chars.next() {
                Some('[') => skip_parameters(&mut chars),
                // Strings for the terminal: titles, links, answers. They end with BEL or with ESC and a backslash.
                Some(']' | 'P' | '_' | '^' | 'X') => skip_string(&mut chars),
                // Two or three characters: a character set, a mode.
                Some('(' | ')' | '*' | '+' | '#' | '%') => drop(chars.next()),
                _ => {}
            },
            '\u{9b}' => skip_parameters(&mut chars),
            '\u{9d}' | '\u{90}' => skip_string(&mut chars),
            c if obeyed(c) => {}
            c => out.push(c),
        }
    }
    Cow::Owned(out)
}

/// Parameters and final byte of a control sequence (ECMA-48); one that breaks off is left where it breaks.
fn skip_parameters(chars: &mut std::iter::Peekable<std::str::Chars<'_>>) {
    while chars.next_if(|c| ('\x20'..='\x3f').contains(c)).is_some() {}
    let _ = chars.next_if(|c| ('\x40'..='\x7e').contains(c));
}

fn skip_string(chars: &mut std::iter::Peekable<std::str::Chars<'_>>) {
    while let Some(c) = chars.next() {
        if matches!(c, '\x07' | '\u{9c}') || (c == '\x1b' && chars.next_if_eq(&'\\').is_some()) {
            return;
        }
    }
}

/// The same as [`clean`] for text of several lines.
pub fn clean_lines(text: &str) -> Cow<'_, str> {
    spell_out(text, |c| c == '\t' || c == '\n')
}

fn spell_out(text: &str, harmless: impl Fn(char) -> bool) -> Cow<'_, str> {
    let obeyed = |c: char| (c.is_control() && !harmless(c)) || turns_text(c);
    if !text.chars().any(obeyed) {
        return Cow::Borrowed(text);
    }
    let mut out = String::with_capacity(text.len() + 16);
    for c in text.chars() {
        // Writing to a String cannot fail.
        let _ = match c as u32 {
            code if obeyed(c) && code < 0x100 => write!(out, "\\x{code:02x}"),
            code if obeyed(c) => write!(out, "\\u{{{code:x}}}"),
            _ => write!(out, "{c}"),
        };
    }
    Cow::Owned(out)
}

/// No control character, and yet the terminal shows the text around it elsewhere: the marks that turn the direction of
/// writing, and the separators of lines and paragraphs.
fn turns_text(c: char) -> bool {
    matches!(c, '\u{200e}' | '\u{200f}' | '\u{061c}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

/// Columns without lines between them, two spaces apart.
fn grid(header: &[&str], rows: Vec<Vec<String>>) -> String {
    let mut table = Table::new();
    table.load_style(presets::NOTHING).set_header(header.to_vec());
    for row in rows {
        table.add_row(row.iter().map(|cell| clean(cell).into_owned()).collect::<Vec<_>>());
    }
    for column in table.column_iter_mut() {
        column.set_padding((0, 2));
    }
    table.trim_fmt() + "\n"
}

/// An age as people say it: `12s`, `3m12s`, `2h5m`, `4d3h`.
fn age(seconds: u64) -> String {
    match seconds {
        0..60 => format!("{seconds}s"),
        60..3_600 => format!("{}m{}s", seconds / 60, seconds % 60),
        3_600..86_400 => format!("{}h{}m", seconds / 3_600, seconds / 60 % 60),
        _ => format!("{}d{}h", seconds / 86_400, seconds / 3_600 % 24),
    }
}

/// Memory as people say it, in powers of 1024.
fn memory(bytes: Option<u64>) -> String {
    match bytes {
        None => "-".into(),
        Some(bytes) if bytes < 10 << 20 => format!("{} KiB", bytes >> 10),
        Some(bytes) if bytes < 10 << 30 => format!("{} MiB", bytes >> 20),
        Some(bytes) => format!("{} GiB", bytes >> 30),
    }
}

/// CPU time in seconds.
fn cpu(usec: Option<u64>) -> String {
    usec.map_or("-".into(), |usec| format!("{}.{:02}s", usec / 1_000_000, usec / 10_000 % 100))
}

fn or_dash<T: ToString>(value: Option<T>) -> String {
    value.map_or("-".into(), |value| value.to_string())
}

/// A wall-clock time in UTC.
fn clock(time_ms: u64) -> String {
    let at = std::time::UNIX_EPOCH.checked_add(std::time::Duration::from_millis(time_ms));
    // humantime refuses years past 9999.
    at.filter(|_| time_ms < 253_402_300_800_000)
        .map_or_else(|| time_ms.to_string(), |at| humantime::format_rfc3339_millis(at).to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_told_as_people_say_them() {
        assert_eq!([0, 59, 60, 3_725, 90_000].map(age), ["0s", "59s", "1m0s", "1h2m", "1d1h"]);
        let sizes = [None, Some(4 << 10), Some(9 << 20), Some(46 << 20), Some(3 << 30), Some(20 << 30)];
        assert_eq!(sizes.map(memory), ["-", "4 KiB", "9216 KiB", "46 MiB", "3072 MiB", "20 GiB"]);
        assert_eq!([None, Some(1_239_999), Some(60_000_000)].map(cpu), ["-", "1.23s", "60.00s"]);
        assert_eq!(clock(1_700_000_000_123), "2023-11-14T22:13:20.123Z");
        assert_eq!(clock(u64::MAX), u64::MAX.to_string());
    }

    #[test]
    fn a_component_cannot_write_to_the_terminal() {
        assert_eq!(clean("plain\ttext"), "plain\ttext");
        assert_eq!(clean("\x1b[2J\u{9b}1m\r\nx\x07"), "\\x1b[2J\\x9b1m\\x0d\\x0ax\\x07");
        assert_eq!(clean_lines("a\n\x1b"), "a\n\\x1b");
        assert_eq!(clean("exe.\u{202e}txt"), "exe.\\u{202e}txt");
        assert_eq!(bare("plain\ttext"), "plain\ttext");
        assert_eq!(bare("\x1b[1;31mred\x1b[0m \u{9b}2Jx\r"), "red x");
        assert_eq!(bare("\x1b]0;title\x07a\x1b]8;;http://x\x1b\\b\x1b(Bc\x07\x08"), "abc");
        assert_eq!(bare("exe.\u{202e}txt"), "exe.txt");
        assert_eq!(bare("cut off \x1b[3"), "cut off ");
        assert_eq!(bare("\x1b[3\u{e9}"), "\u{e9}", "what does not belong to the sequence stays");
        assert!(!grid(&["A"], vec![vec!["\x1b]0;title\x07".into()]]).contains('\x1b'));
    }
}
