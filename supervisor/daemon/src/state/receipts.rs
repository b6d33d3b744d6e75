//! `groups/<cluster>/receipts/<generation>-<n>.json`: the proofs of the last stops.

use super::file::{Fsync, Loaded, Record, WriteError, load_record, must_be_own_folder, save_record};
use socialweb_core::Receipt;
use std::fs::{self, DirBuilder};
use std::io::{self, ErrorKind};
use std::os::unix::fs::DirBuilderExt;
use std::path::PathBuf;

/// How many receipts a group keeps.
pub const KEEP: usize = 20;

impl Record for Receipt {
    const SCHEMA: u32 = socialweb_core::receipt::SCHEMA;
    const WHAT: &'static str = "the receipt";
}

/// Why receipts cannot be kept or shown.
#[derive(Debug, thiserror::Error)]
pub enum ReceiptError {
    /// The folder.
    #[error("cannot use the receipts folder {}; see the cause, or check its owner and the space there", path.display())]
    Folder {
        /// The folder.
        path: PathBuf,
        /// The cause.
        #[source]
        source: io::Error,
    },
    /// A receipt cannot be written.
    #[error("cannot keep the receipt")]
    Write(#[from] WriteError),
    /// A receipt cannot be read.
    #[error("cannot show the receipt")]
    Load(#[from] super::LoadError),
}

/// One group's receipts. `n` counts on over all generations, so their order survives even a lost record.
#[derive(Debug, Clone)]
pub struct Receipts {
    folder: PathBuf,
}

impl Receipts {
    /// Those in `folder`, see [`super::Layout::receipts`]; made at the first save.
    pub fn new(folder: impl Into<PathBuf>) -> Self {
        Receipts { folder: folder.into() }
    }

    /// Keeps a receipt and lets go of the oldest beyond [`KEEP`]. Not flushed: after a power loss nothing ran anyway.
    ///
    /// # Errors
    /// [`ReceiptError`]; the older receipts are intact.
    pub fn save(&self, receipt: &Receipt) -> Result<PathBuf, ReceiptError> {
        match DirBuilder::new().mode(0o700).create(&self.folder) {
            Err(e) if e.kind() != ErrorKind::AlreadyExists => return Err(self.folder_error(e)),
            _ => {}
        }
        let Numbered { mut kept, next: n } = self.numbered()?;
        let path = self.folder.join(format!("{}-{n}.json", receipt.generation));
        save_record(&path, receipt, Fsync::No)?;
        let surplus = (kept.len() + 1).saturating_sub(KEEP);
        for (_, old) in kept.drain(..surplus) {
            fs::remove_file(&old).map_err(|e| self.folder_error(e))?;
        }
        Ok(path)
    }

    /// The youngest.
    ///
    /// # Errors
    /// [`ReceiptError`].
    pub fn latest(&self) -> Result<Option<Receipt>, ReceiptError> {
        Ok(self.read(1)?.pop())
    }

    /// All that can be read, oldest first. A bad one is moved aside and logged.
    ///
    /// # Errors
    /// [`ReceiptError`].
    pub fn list(&self) -> Result<Vec<Receipt>, ReceiptError> {
        let mut receipts = self.read(KEEP)?;
        receipts.reverse();
        Ok(receipts)
    }

    /// Up to `limit` good ones, youngest first.
    fn read(&self, limit: usize) -> Result<Vec<Receipt>, ReceiptError> {
        let mut good = Vec::new();
        for (_, path) in self.numbered()?.kept.into_iter().rev() {
            if good.len() == limit {
                break;
            }
            match load_record(&path)? {
                Loaded::Found(receipt) => good.push(receipt),
                Loaded::SetAside(aside) => tracing::warn!("{aside}"),
                Loaded::Absent => {}
            }
        }
        Ok(good)
    }

    /// The files by their number. A component may write here too: what is no regular file, or has a number that nobody
    /// counts to, is none of ours and stays where it is.
    fn numbered(&self) -> Result<Numbered, ReceiptError> {
        let mut found = Numbered { kept: Vec::new(), next: 1 };
        must_be_own_folder(&self.folder).map_err(|e| self.folder_error(e))?;
        let entries = match fs::read_dir(&self.folder) {
            Err(e) if e.kind() == ErrorKind::NotFound => return Ok(found),
            other => other.map_err(|e| self.folder_error(e))?,
        };
        for entry in entries {
            let entry = entry.map_err(|e| self.folder_error(e))?;
            let Some(n) = entry.file_name().to_str().and_then(number) else { continue };
            found.next = found.next.max(n + 1);
            if entry.file_type().is_ok_and(|kind| kind.is_file()) {
                found.kept.push((n, entry.path()));
            }
        }
        found.kept.sort();
        Ok(found)
    }

    fn folder_error(&self, source: io::Error) -> ReceiptError {
        ReceiptError::Folder { path: self.folder.clone(), source }
    }
}

/// What is in the folder.
struct Numbered {
    /// Receipts by their number, the oldest first.
    kept: Vec<(u64, PathBuf)>,
    /// A number above all that are there.
    next: u64,
}

/// A stop a microsecond for a century stays below this.
const MOST: u64 = 1 << 52;

/// `n` of `<generation>-<n>.json`.
fn number(name: &str) -> Option<u64> {
    let (generation, n) = name.strip_suffix(".json")?.split_once('-')?;
    generation.parse::<u64>().ok()?;
    n.parse().ok().filter(|n| *n < MOST)
}
