//! From bytes to lines.

use socialweb_core::{Birth, ComponentName, GroupName};
use std::borrow::Cow;
use std::io::BufRead;
use std::sync::Arc;
use std::time::SystemTime;

/// Longest line in bytes; a longer one is cut into pieces of this size, each but the last flagged. 16 KiB is where
/// containerd and docker cut, so nobody's tools meet a new limit.
pub const MAX_LINE: usize = 16 * 1024;

/// syslog's priority: 0 emergency to 7 debug.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Priority(u8);

impl Priority {
    /// What a line without a recognizable level gets.
    pub const INFO: Priority = Priority(6);

    /// 0 to 7; larger numbers count as 7.
    pub fn new(n: u8) -> Self {
        Priority(n.min(7))
    }

    /// The number.
    pub fn number(self) -> u8 {
        self.0
    }
}

/// Which component wrote.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Source {
    /// Its group.
    pub group: GroupName,
    /// Its name.
    pub component: ComponentName,
}

/// One line, or one piece of an overlong one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LogLine {
    /// Who wrote it.
    pub source: Arc<Source>,
    /// In which run.
    pub birth: Birth,
    /// When it was read.
    pub at: SystemTime,
    /// As far as the line tells.
    pub priority: Priority,
    /// True when the next line of the same run continues this one.
    pub continues: bool,
    /// Valid UTF-8 without newline and NUL; what was neither stands as U+FFFD. Terminal escapes are left in: whoever
    /// prints to a terminal makes them harmless.
    pub text: String,
}

/// Cuts a byte stream into lines and keeps the unfinished one.
#[derive(Debug, Default)]
pub(super) struct Splitter {
    partial: Vec<u8>,
    /// The unfinished line began with pieces that were already given out.
    within: bool,
}

/// A raw line: its bytes, whether the next continues it, and whether it continues the one before.
pub(super) struct Raw<'a> {
    pub bytes: &'a [u8],
    pub continues: bool,
    pub continued: bool,
}

impl Splitter {
    /// Takes bytes in and gives the finished lines to `out`.
    pub fn feed(&mut self, mut bytes: &[u8], mut out: impl FnMut(Raw<'_>)) {
        while let Some(at) = find(b'\n', bytes) {
            let (line, rest) = (&bytes[..at], &bytes[at + 1..]);
            if self.partial.is_empty() {
                self.cut(line, &mut out);
            } else {
                let mut whole = std::mem::take(&mut self.partial);
                whole.extend_from_slice(line);
                self.cut(&whole, &mut out);
            }
            bytes = rest;
        }
        self.keep(bytes, &mut out);
    }

    /// Gives out a finished line in pieces of at most [`MAX_LINE`].
    fn cut(&mut self, mut line: &[u8], out: &mut impl FnMut(Raw<'_>)) {
        while line.len() > MAX_LINE {
            line = self.piece(line, out);
        }
        let continued = std::mem::take(&mut self.within);
        let bytes = line.strip_suffix(b"\r").unwrap_or(line);
        out(Raw { bytes, continues: false, continued });
    }

    fn piece<'a>(&mut self, line: &'a [u8], out: &mut impl FnMut(Raw<'_>)) -> &'a [u8] {
        let (bytes, rest) = line.split_at(char_boundary(line));
        out(Raw { bytes, continues: true, continued: self.within });
        self.within = true;
        rest
    }

    /// Keeps the unfinished line, never more than [`MAX_LINE`] of it.
    fn keep(&mut self, bytes: &[u8], out: &mut impl FnMut(Raw<'_>)) {
        self.partial.extend_from_slice(bytes);
        if self.partial.len() > MAX_LINE {
            let whole = std::mem::take(&mut self.partial);
            let mut rest = &whole[..];
            while rest.len() > MAX_LINE {
                rest = self.piece(rest, out);
            }
            self.partial = rest.to_vec();
        } else if self.partial.is_empty() {
            self.partial = Vec::new();
        }
    }

    /// The stream is over: the unfinished line is finished.
    pub fn finish(&mut self, mut out: impl FnMut(Raw<'_>)) {
        if !self.partial.is_empty() {
            let whole = std::mem::take(&mut self.partial);
            self.cut(&whole, &mut out);
        }
    }

    /// Heap bytes held.
    #[cfg(test)]
    pub fn held(&self) -> usize {
        self.partial.capacity()
    }
}

/// Where the byte is first. Not byte by byte: a flood goes through here, and this search of the standard library looks at many
/// at a time.
fn find(byte: u8, mut bytes: &[u8]) -> Option<usize> {
    let all = bytes;
    // Reading from memory cannot fail.
    let n = bytes.skip_until(byte).unwrap_or(0);
    (all[..n].last() == Some(&byte)).then(|| n - 1)
}

/// Where to cut so that no UTF-8 character is torn: [`MAX_LINE`] or up to three bytes before.
fn char_boundary(line: &[u8]) -> usize {
    (MAX_LINE - 3..=MAX_LINE).rev().find(|at| line[*at] & 0xc0 != 0x80).unwrap_or(MAX_LINE)
}

/// Splits a raw line into its priority and its text; a continuation has the priority of what it continues.
pub(super) fn interpret(raw: &Raw<'_>, previous: Priority) -> (Priority, String) {
    if raw.continued {
        return (previous, clean(raw.bytes));
    }
    match syslog_prefix(raw.bytes) {
        Some((priority, rest)) => (priority, clean(rest)),
        None => (level_of(raw.bytes).unwrap_or(Priority::INFO), clean(raw.bytes)),
    }
}

fn clean(bytes: &[u8]) -> String {
    // What is text, as nearly all is, is only copied; a search for what has to be replaced goes byte by byte.
    let text = std::str::from_utf8(bytes).map_or_else(|_| String::from_utf8_lossy(bytes), Cow::Borrowed);
    match find(0, text.as_bytes()) {
        Some(_) => text.replace('\0', "\u{fffd}"),
        None => text.into_owned(),
    }
}

/// `<N>` at the start, as systemd reads it; it is taken off.
fn syslog_prefix(bytes: &[u8]) -> Option<(Priority, &[u8])> {
    match bytes {
        [b'<', n @ b'0'..=b'7', b'>', rest @ ..] => Some((Priority(n - b'0'), rest)),
        _ => None,
    }
}

/// A level stands near the start: only this much is searched.
const HEAD: usize = 256;

fn level_of(bytes: &[u8]) -> Option<Priority> {
    let head = &bytes[..bytes.len().min(HEAD)];
    match head {
        [l @ (b'I' | b'W' | b'E' | b'F'), a, b, c, d, ..] if [a, b, c, d].iter().all(|x| x.is_ascii_digit()) => {
            klog(*l)
        }
        [b'{', ..] => value_after(head, b"\"level\":").or_else(|| value_after(head, b"\"@level\":")),
        _ => value_after(head, b"level=").or_else(|| bracketed(head)),
    }
}

fn klog(letter: u8) -> Option<Priority> {
    word(match letter {
        b'I' => b"info",
        b'W' => b"warning",
        b'E' => b"error",
        _ => b"fatal",
    })
}

/// The word after a key that stands at the start or after a separator, quoted or not.
fn value_after(head: &[u8], key: &[u8]) -> Option<Priority> {
    let end = ends_of(key, head).find(|end| match end - key.len() {
        0 => true,
        at => matches!(head[at - 1], b' ' | b'\t' | b',' | b'{'),
    })?;
    let value = head[end..].trim_ascii_start();
    let value = value.strip_prefix(b"\"").unwrap_or(value);
    let end = value.iter().position(|b| !b.is_ascii_alphabetic()).unwrap_or(value.len());
    word(&value[..end])
}

/// Behind each occurrence of the key. Its last byte is rare in a line, so that is what is looked for.
fn ends_of<'a>(key: &'a [u8], head: &'a [u8]) -> impl Iterator<Item = usize> + 'a {
    let last = key.last().copied().unwrap_or_default();
    let mut searched = 0;
    let next = move || {
        searched += find(last, &head[searched..])? + 1;
        Some(searched)
    };
    std::iter::from_fn(next).filter(move |end| head[..*end].ends_with(key))
}

/// `TIMESTAMP [WARN]  ...`, as OpenBao and others of hclog's family write: the second word of the line, or the first.
fn bracketed(head: &[u8]) -> Option<Priority> {
    let open = find(b'[', head)?;
    if head[..open].iter().filter(|b| **b == b' ').count() > 2 {
        return None;
    }
    let rest = &head[open + 1..];
    word(&rest[..rest.iter().position(|b| *b == b']')?])
}

fn word(word: &[u8]) -> Option<Priority> {
    const WORDS: [(&[u8], u8); 14] = [
        (b"trace", 7),
        (b"debug", 7),
        (b"info", 6),
        (b"notice", 5),
        (b"warn", 4),
        (b"warning", 4),
        (b"err", 3),
        (b"error", 3),
        (b"crit", 2),
        (b"critical", 2),
        (b"fatal", 2),
        (b"dpanic", 2),
        (b"panic", 2),
        (b"alert", 1),
    ];
    WORDS.iter().find(|(w, _)| w.eq_ignore_ascii_case(word)).map(|(_, n)| Priority(*n))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    /// The pieces that come of `chunks`, with their flags.
    fn split(chunks: &[&[u8]]) -> Vec<(Vec<u8>, bool)> {
        let mut got = Vec::new();
        let mut splitter = Splitter::default();
        for chunk in chunks {
            splitter.feed(chunk, |r| got.push((r.bytes.to_vec(), r.continues)));
        }
        splitter.finish(|r| got.push((r.bytes.to_vec(), r.continues)));
        got
    }

    #[test]
    fn a_line_may_come_in_pieces_and_end_without_a_newline() {
        let got = split(&[b"on", b"e\ntwo\r\n\nthr", b"ee"]);
        let texts: Vec<_> = got.iter().map(|(b, _)| String::from_utf8_lossy(b).into_owned()).collect();
        assert_eq!(texts, ["one", "two", "", "three"]);
        assert!(got.iter().all(|(_, continues)| !continues));
    }

    #[test]
    fn a_line_of_exactly_16_kib_is_whole_and_a_longer_one_is_cut_and_flagged() {
        let exact = [vec![b'x'; MAX_LINE], vec![b'\n']].concat();
        assert_eq!(split(&[&exact]), [(vec![b'x'; MAX_LINE], false)]);
        let long = vec![b'y'; 2 * MAX_LINE + 5];
        for chunks in [vec![&long[..]], long.chunks(1000).collect()] {
            let got: Vec<_> = split(&chunks).into_iter().map(|(b, c)| (b.len(), c)).collect();
            assert_eq!(got, [(MAX_LINE, true), (MAX_LINE, true), (5, false)]);
        }
    }

    #[test]
    fn a_cut_tears_no_character() {
        let mut long = vec![b'a'; MAX_LINE - 1];
        long.extend("\u{20ac}tail\n".as_bytes());
        let got = split(&[&long]);
        assert_eq!(got[0].0.len(), MAX_LINE - 1);
        assert_eq!(got[1].0, "\u{20ac}tail".as_bytes());
    }

    #[test]
    fn an_idle_splitter_holds_no_memory() {
        let mut splitter = Splitter::default();
        splitter.feed(b"half", |_| {});
        splitter.feed(b" and whole\n", |_| {});
        assert_eq!(splitter.held(), 0);
    }

    #[test]
    fn a_line_that_never_ends_is_given_out_in_pieces_and_not_hoarded() {
        let (mut splitter, mut given) = (Splitter::default(), 0);
        for _ in 0..100 {
            splitter.feed(&[b'x'; 10_000], |r| given += r.bytes.len());
            assert!(splitter.held() <= 4 * MAX_LINE);
        }
        splitter.finish(|r| given += r.bytes.len());
        assert_eq!(given, 1_000_000);
    }

    fn check(line: &[u8], priority: u8, text: &str) {
        let got = interpret(&Raw { bytes: line, continues: false, continued: false }, Priority::INFO);
        assert_eq!((got.0.number(), got.1.as_str()), (priority, text), "{}", String::from_utf8_lossy(line));
    }

    #[test]
    fn the_priority_is_read_from_what_components_really_write() {
        check(b"<3>disk is bad", 3, "disk is bad");
        check(b"<9>no prefix", 6, "<9>no prefix");
        check(b"I1130 12:00:00.1 1 x.go:1] fine", 6, "I1130 12:00:00.1 1 x.go:1] fine");
        check(b"W1130 12:00 a", 4, "W1130 12:00 a");
        check(b"E1130 12:00 a", 3, "E1130 12:00 a");
        check(b"F1130 12:00 a", 2, "F1130 12:00 a");
        check(b"E113 short", 6, "E113 short");
        check(b"time=\"x\" level=warning msg=hi", 4, "time=\"x\" level=warning msg=hi");
        check(b"level=\"ERROR\" x", 3, "level=\"ERROR\" x");
        check(b"toplevel=error x", 6, "toplevel=error x");
        check(br#"{"level":"error","msg":"x"}"#, 3, r#"{"level":"error","msg":"x"}"#);
        check(br#"{"a":1, "@level": "debug"}"#, 7, r#"{"a":1, "@level": "debug"}"#);
        check(b"2026-01-01T00:00:00Z [WARN]  core: x", 4, "2026-01-01T00:00:00Z [WARN]  core: x");
        check(b"a sentence on [error] later", 6, "a sentence on [error] later");
        check(b"level=", 6, "level=");
        check(b"", 6, "");
    }

    #[test]
    fn bad_utf8_and_nul_are_replaced_and_nothing_is_lost_around_them() {
        check(b"a\xffb\0c", 6, "a\u{fffd}b\u{fffd}c");
    }
}
