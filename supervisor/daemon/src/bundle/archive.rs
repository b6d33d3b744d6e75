//! The file: a tar that only its owner may read, made whole or not at all.

use super::Entry;
use serde::Serialize;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::UNIX_EPOCH;

/// Why there is no bundle.
#[derive(Debug, thiserror::Error)]
pub enum BundleError {
    /// A file of that name exists.
    #[error("{} exists and is not overwritten; name another file", path.display())]
    Exists {
        /// The file.
        path: PathBuf,
    },
    /// It could not be written; nothing is left of it.
    #[error("cannot write {}; name a file in a folder that is yours and has room", path.display())]
    Write {
        /// The file.
        path: PathBuf,
        /// The cause.
        #[source]
        source: io::Error,
    },
}

/// What was written.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Written {
    /// The file.
    pub file: PathBuf,
    /// Its size.
    pub bytes: u64,
    /// The files in it.
    pub entries: Vec<String>,
}

/// Writes the entries into a new file of mode 0600.
///
/// # Errors
/// [`BundleError`].
pub fn write(path: &Path, entries: &[Entry]) -> Result<Written, BundleError> {
    let file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path).map_err(|source| {
        let path = path.to_owned();
        if source.kind() == io::ErrorKind::AlreadyExists {
            BundleError::Exists { path }
        } else {
            BundleError::Write { path, source }
        }
    })?;
    let written = fill(file, entries).map_err(|source| {
        let _ = fs::remove_file(path);
        BundleError::Write { path: path.to_owned(), source }
    })?;
    let entries = entries.iter().map(|entry| entry.name.clone()).collect();
    Ok(Written { file: path.to_owned(), bytes: written, entries })
}

fn fill(file: File, entries: &[Entry]) -> io::Result<u64> {
    let mut archive = tar::Builder::new(file);
    let now = UNIX_EPOCH.elapsed().unwrap_or_default().as_secs();
    for entry in entries {
        let mut header = tar::Header::new_gnu();
        header.set_size(entry.text.len() as u64);
        header.set_mode(0o600);
        header.set_mtime(now);
        archive.append_data(&mut header, Path::new("socialweb-bundle").join(&entry.name), entry.text.as_bytes())?;
    }
    let mut file = archive.into_inner()?;
    file.flush()?;
    file.sync_all()?;
    Ok(file.metadata()?.len())
}
