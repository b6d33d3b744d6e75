//! Where lines are kept: the journal, or else the component's rotated file. Used by the keeping thread alone, which may wait.

use super::file;
use super::journal::{Journal, SendError};
use super::keep::{Done, Item};
use super::line::{LogLine, Priority, Source};
use crate::state::{RotatedFile, must_be_own_folder};
use socialweb_core::Birth;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::SystemTime;

/// The two places.
#[derive(Debug)]
pub(super) struct Sinks {
    pub journal: Option<Journal>,
    pub files: Files,
    /// For the text of a turn: held while a flood fills it, given up with the first turn that does not.
    pub text: String,
}

/// Text of a turn, in bytes, from which on its memory is used again.
const FULL: usize = 16 << 10;

/// Limits of the files.
#[derive(Debug, Clone, Copy)]
pub(super) struct Files {
    pub max_bytes: u64,
    pub keep: u32,
}

/// Lines of one component to keep.
#[derive(Debug)]
pub(super) struct Batch {
    /// Where its file is.
    pub folder: PathBuf,
    /// Dropped before these, and not told yet.
    pub owed: u64,
    pub items: Vec<Item>,
}

impl Files {
    /// The file of a component.
    pub(super) fn of(&self, source: &Source, folder: &Path) -> RotatedFile {
        RotatedFile {
            path: folder.join(format!("{}.log", source.component)),
            max_bytes: self.max_bytes,
            keep: self.keep,
        }
    }
}

impl Batch {
    /// All dropped lines that are to be told with these.
    pub(super) fn holes(&self) -> u64 {
        let hole = |item: &Item| if let Item::Hole(n) = item { *n } else { 0 };
        self.owed + self.items.iter().map(hole).sum::<u64>()
    }
}

/// Text for the file, and where each item ends in it.
#[derive(Default)]
struct Chunk<'a> {
    text: String,
    form: file::Form,
    ends: Vec<(usize, &'a Item)>,
}

impl<'a> Chunk<'a> {
    fn add(&mut self, line: &LogLine, item: &'a Item) {
        self.form.append(line, &mut self.text);
        self.ends.push((self.text.len(), item));
    }
}

impl Sinks {
    /// Keeps what can be kept.
    pub(super) fn write(&mut self, source: &Arc<Source>, batch: &Batch) -> Done {
        let mut done = Done::default();
        let mut chunk = Chunk { text: std::mem::take(&mut self.text), ..Chunk::default() };
        let mut birth = Birth(0);
        // What is owed comes first.
        let owed = (batch.owed > 0).then_some(Item::Hole(batch.owed));
        for item in owed.iter().chain(&batch.items) {
            let told;
            let line = match item {
                Item::Line(line) => &**line,
                Item::Hole(n) => {
                    told = note(source, birth, *n);
                    &told
                }
            };
            birth = line.birth;
            match self.journal.as_ref().map(|journal| journal.send(line)) {
                Some(Ok(())) => done.note(item),
                None | Some(Err(SendError::Gone(_))) => chunk.add(line, item),
                Some(Err(e)) => done.trouble = Some(e.to_string()),
            }
        }
        if chunk.text.is_empty() {
            return done;
        }
        let (kept, trouble) = self.append(source, &batch.folder, &chunk.text);
        done.trouble = trouble.or(done.trouble);
        chunk.ends.iter().filter(|(end, _)| *end <= kept).for_each(|(_, item)| done.note(item));
        if chunk.text.len() >= FULL {
            chunk.text.clear();
            self.text = chunk.text;
        }
        done
    }

    /// How many bytes are in the file now, and why not all.
    fn append(&self, source: &Source, folder: &Path, text: &str) -> (usize, Option<String>) {
        if let Err(error) = must_be_own_folder(folder) {
            return (0, Some(error.to_string()));
        }
        match self.files.of(source, folder).append(text.as_bytes()) {
            Ok(_) => (text.len(), None),
            Err(e) => (e.kept, Some(format!("{e}: {}", e.source))),
        }
    }
}

impl Done {
    fn note(&mut self, item: &Item) {
        match item {
            Item::Line(_) => self.written += 1,
            Item::Hole(n) => self.told += n,
        }
    }
}

/// The line that stands for dropped ones.
fn note(source: &Arc<Source>, birth: Birth, n: u64) -> LogLine {
    LogLine {
        source: Arc::clone(source),
        birth,
        at: SystemTime::now(),
        priority: Priority::new(4),
        continues: false,
        text: format!("({n} lines were dropped here: there was no room for them)"),
    }
}
