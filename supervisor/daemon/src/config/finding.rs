//! What is wrong, where, and how it reads.

use socialweb_core::GroupName;
use std::fmt;
use std::path::{Path, PathBuf};

/// A place in a file; both count from 1, the column in characters.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Position {
    /// Line.
    pub line: u32,
    /// Column.
    pub column: u32,
}

/// How bad a [`Finding`] is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Severity {
    /// The file cannot be used as it is.
    Error,
    /// It can, and somebody should look.
    Warning,
}

/// One thing that is wrong. Displayed as `FILE:LINE:COLUMN: message`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finding {
    /// The file or folder.
    pub path: PathBuf,
    /// The place in it, where there is one.
    pub position: Option<Position>,
    /// How bad it is.
    pub severity: Severity,
    /// What is wrong and what to do.
    pub message: String,
}

impl Finding {
    /// An error at a place.
    pub fn error(path: &Path, position: Option<Position>, message: impl Into<String>) -> Self {
        Finding { path: path.to_owned(), position, severity: Severity::Error, message: printable(&message.into()) }
    }

    /// A warning about a whole file or folder.
    pub fn warning(path: &Path, message: impl Into<String>) -> Self {
        Finding {
            path: path.to_owned(),
            position: None,
            severity: Severity::Warning,
            message: printable(&message.into()),
        }
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:", printable(&self.path.to_string_lossy()))?;
        if let Some(at) = self.position {
            write!(f, "{}:{}:", at.line, at.column)?;
        }
        let mark = if self.severity == Severity::Warning { " warning:" } else { "" };
        write!(f, "{mark} {}", self.message)
    }
}

/// Text out of a file, or a file's name, with its control characters spelled out: a message is one line, and no terminal
/// obeys it.
fn printable(text: &str) -> String {
    let spelled = |c: char| c.is_control().then(|| c.escape_default().to_string());
    text.chars().map(|c| spelled(c).unwrap_or_else(|| c.to_string())).collect()
}

/// One file that cannot be used, with all that was found in it: at least one finding. Displayed one finding a line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConfigError {
    /// The group that the file declares, as far as its name tells; it keeps the spec that it had.
    pub group: Option<GroupName>,
    /// The findings, in the order of the file.
    pub findings: Vec<Finding>,
}

impl ConfigError {
    pub(super) fn new(group: Option<GroupName>, mut findings: Vec<Finding>) -> Self {
        findings.sort_by_key(|f| f.position);
        ConfigError { group, findings }
    }
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, finding) in self.findings.iter().enumerate() {
            if i > 0 {
                f.write_str("\n")?;
            }
            write!(f, "{finding}")?;
        }
        Ok(())
    }
}

impl std::error::Error for ConfigError {}

/// The one of `known` that `given` was probably meant to be.
pub(super) fn closest<'a>(given: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    // 0.75 is clap's habit turned a little stricter: "port" must not suggest "post" to who wrote "proxy".
    let scored = known.into_iter().map(|k| (strsim::jaro_winkler(given, k), k)).filter(|(score, _)| *score > 0.8);
    scored.max_by(|a, b| a.0.total_cmp(&b.0)).map(|(_, k)| k)
}
