//! Rotated log files, where there is no journal, and reading them back.
//!
//! One line of a file: `<time, RFC 3339> <birth> <priority>[+] <text>`; `+` says that the next line continues it.

use super::line::{LogLine, Priority, Source};
use crate::state::{RotatedFile, must_be_own_folder};
use socialweb_core::Birth;
use std::fmt::Write as _;
use std::fs::File;
use std::io::{self, ErrorKind, Read, Seek, SeekFrom};
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

/// Puts lines into the file's form. Lines that were read together have the same words before their text: these are made once.
#[derive(Default)]
pub(super) struct Form {
    head: String,
    of: Option<(SystemTime, Birth, Priority, bool)>,
}

impl Form {
    /// Appends a line.
    pub(super) fn append(&mut self, line: &LogLine, out: &mut String) {
        let of = (line.at, line.birth, line.priority, line.continues);
        if self.of.replace(of) != Some(of) {
            let time = humantime::format_rfc3339_millis(line.at);
            let more = if line.continues { "+" } else { "" };
            self.head.clear();
            let _ = write!(self.head, "{time} {} {}{more} ", line.birth, line.priority.number());
        }
        out.push_str(&self.head);
        out.push_str(&line.text);
        out.push('\n');
    }
}

/// Understands a line of a file; one that a full disk or a person mangled is shown as it is.
fn parse(source: &Arc<Source>, line: &str) -> LogLine {
    fields(source, line).unwrap_or_else(|| LogLine {
        source: Arc::clone(source),
        birth: Birth(0),
        at: UNIX_EPOCH,
        priority: Priority::INFO,
        continues: false,
        text: line.to_owned(),
    })
}

fn fields(source: &Arc<Source>, line: &str) -> Option<LogLine> {
    let mut parts = line.splitn(4, ' ');
    let at = humantime::parse_rfc3339(parts.next()?).ok()?;
    let birth = Birth(parts.next()?.parse().ok()?);
    let priority = parts.next()?;
    let (number, continues) = priority.strip_suffix('+').map_or((priority, false), |p| (p, true));
    let priority = Priority::new(number.parse().ok()?);
    Some(LogLine { source: Arc::clone(source), birth, at, priority, continues, text: parts.next()?.to_owned() })
}

/// The last `n` lines of a log, oldest first, from as many of its files as it takes.
pub(super) fn tail(source: &Arc<Source>, log: &RotatedFile, n: usize) -> io::Result<Vec<LogLine>> {
    let mut lines = Vec::new();
    if let Some(folder) = log.path.parent() {
        must_be_own_folder(folder)?;
    }
    for path in log.files() {
        if lines.len() >= n {
            break;
        }
        let mut older = match crate::state::open_regular(&path) {
            Err(e) if e.kind() == ErrorKind::NotFound => continue,
            other => last_lines(&mut other?, n - lines.len(), log.max_bytes.saturating_add(BEYOND))?,
        };
        older.append(&mut lines);
        lines = older;
    }
    Ok(lines.iter().map(|line| parse(source, line)).collect())
}

/// First guess of how far back to read, in bytes; doubled until it is enough.
const WINDOW: u64 = 64 * 1024;

/// Bytes that a file of ours may have beyond its limit: one append. What lies before is not looked at, so that a file
/// which a component made, sparse and larger than all memory, is not read whole.
const BEYOND: u64 = 4 << 20;

fn last_lines(file: &mut File, n: usize, most: u64) -> io::Result<Vec<String>> {
    let len = file.metadata()?.len();
    let mut window = WINDOW;
    loop {
        let from = len.saturating_sub(window);
        file.seek(SeekFrom::Start(from))?;
        let mut bytes = Vec::new();
        file.by_ref().take(len - from).read_to_end(&mut bytes)?;
        let text = String::from_utf8_lossy(&bytes);
        let mut lines: Vec<&str> = text.lines().collect();
        // The first line of a window that does not begin the file is a torn one.
        let whole = if from == 0 { lines.len() } else { lines.len().saturating_sub(1) };
        if whole >= n || from == 0 || window >= most {
            return Ok(lines.split_off(lines.len() - n.min(whole)).into_iter().map(str::to_owned).collect());
        }
        window *= 2;
    }
}
