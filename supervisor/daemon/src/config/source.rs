//! The text of one config file and the places in it. Positions are worked out again from the text each time: they are
//! asked for only when something is wrong or changed, and 1,000 clusters must not keep 1,000 indexes in memory.

use super::finding::{Finding, Position};
use std::fs::OpenOptions;
use std::io::Read;
use std::ops::Range;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use toml::de::{DeTable, DeValue};

/// Largest config file, in bytes. A cluster file has a few hundred; a larger one is a mistake (a log, an image).
pub const MAX_FILE: u64 = 1024 * 1024;

/// A config file as it was read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Source {
    path: PathBuf,
    text: Box<str>,
}

/// One step on the way to a value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step<'a> {
    /// Into a table.
    Key(&'a str),
    /// Into an array.
    Index(usize),
}

impl<'a> From<&'a str> for Step<'a> {
    fn from(key: &'a str) -> Self {
        Step::Key(key)
    }
}

impl From<usize> for Step<'_> {
    fn from(index: usize) -> Self {
        Step::Index(index)
    }
}

/// Where a key and its value stand, in bytes.
struct Spot {
    key: Range<usize>,
    value: Range<usize>,
    table: bool,
}

impl Source {
    /// Keeps `text` as the content of `path`; a byte order mark is dropped.
    pub fn new(path: impl Into<PathBuf>, text: &str) -> Self {
        Source { path: path.into(), text: text.strip_prefix('\u{feff}').unwrap_or(text).into() }
    }

    /// Reads a regular file of at most [`MAX_FILE`] bytes of UTF-8. Never waits for a pipe or device.
    pub fn read(path: &Path) -> Result<Self, Finding> {
        let fail = |message: String| Finding::error(path, None, message);
        let open = OpenOptions::new().read(true).custom_flags(nix::libc::O_NONBLOCK | nix::libc::O_NOCTTY).open(path);
        let file = open.map_err(|e| fail(format!("cannot be opened: {e}; check the path and its permissions")))?;
        let kind = file.metadata().map_err(|e| fail(format!("cannot be examined: {e}")))?;
        if !kind.is_file() {
            return Err(fail("is not a regular file; put a TOML file there".into()));
        }
        let mut bytes = Vec::new();
        file.take(MAX_FILE + 1).read_to_end(&mut bytes).map_err(|e| fail(format!("cannot be read: {e}")))?;
        if bytes.len() as u64 > MAX_FILE {
            return Err(fail(format!("is larger than {MAX_FILE} bytes, so it is hardly a config file; replace it")));
        }
        match std::str::from_utf8(&bytes) {
            Ok(text) => Ok(Self::new(path, text)),
            Err(e) => {
                let good = std::str::from_utf8(&bytes[..e.valid_up_to()]).unwrap_or_default();
                let at = Self::new(path, good).position(good.len());
                Err(Finding::error(path, Some(at), "is not UTF-8 text from here on; save it as UTF-8"))
            }
        }
    }

    /// The file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Its text.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// The place of a byte offset.
    pub fn position(&self, offset: usize) -> Position {
        let mut end = offset.min(self.text.len());
        while !self.text.is_char_boundary(end) {
            end -= 1;
        }
        let before = &self.text[..end];
        let start = before.rfind('\n').map_or(0, |n| n + 1);
        let count = |n: usize| u32::try_from(n).unwrap_or(u32::MAX);
        Position { line: count(before.matches('\n').count() + 1), column: count(before[start..].chars().count() + 1) }
    }

    /// The place of the key that `steps` lead to, if the file has it.
    pub fn locate(&self, steps: &[Step<'_>]) -> Option<Position> {
        let (root, _) = DeTable::parse_recoverable(&self.text);
        let spot = walk(root.get_ref(), steps, &mut None)?;
        Some(self.position(spot.key.start))
    }

    /// An error at the value that `steps` lead to, or at the nearest table around it that the file has.
    pub fn error(&self, steps: &[Step<'_>], message: impl Into<String>) -> Finding {
        let (root, _) = DeTable::parse_recoverable(&self.text);
        let mut nearest = None;
        let spot = walk(root.get_ref(), steps, &mut nearest).or(nearest);
        let offset = spot.map_or(0, |s| if s.table { s.key.start } else { s.value.start });
        Finding::error(&self.path, Some(self.position(offset)), message)
    }

    /// The index of the `[[component]]` table with that name.
    pub fn component(&self, name: &str) -> Option<usize> {
        let (root, _) = DeTable::parse_recoverable(&self.text);
        let tables = root.get_ref().get("component")?.get_ref().as_array()?;
        tables.iter().position(|t| t.get_ref().get("name").and_then(|n| n.get_ref().as_str()) == Some(name))
    }
}

/// Follows `steps`; `nearest` is the last spot on the way.
fn walk(table: &DeTable<'_>, steps: &[Step<'_>], nearest: &mut Option<Spot>) -> Option<Spot> {
    let (Step::Key(first), mut rest) = (*steps.first()?, &steps[1..]) else { return None };
    let (key, mut value) = table.iter().find(|(k, _)| k.get_ref().as_ref() == first)?;
    let mut at = key.span();
    while let [Step::Index(i), more @ ..] = rest {
        let DeValue::Array(items) = value.get_ref() else { break };
        let Some(item) = items.get(*i) else { break };
        (at, value, rest) = (item.span(), item, more);
    }
    let spot = Spot { key: at, value: value.span(), table: value.get_ref().is_table() };
    match (rest, value.get_ref()) {
        ([], _) => Some(spot),
        (_, DeValue::Table(inner)) => {
            *nearest = Some(spot);
            walk(inner, rest, nearest)
        }
        _ => {
            *nearest = Some(spot);
            None
        }
    }
}
