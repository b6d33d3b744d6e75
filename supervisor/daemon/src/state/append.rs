//! A bounded file that is only appended to.

use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

/// A file of whole lines with up to `keep` older ones beside it (`NAME.1` is the youngest of them).
///
/// It holds no descriptor: each append opens, writes once and closes. So a file that somebody deleted or moved away is
/// made anew by the next append, and thousands of them cost nothing while nobody writes.
#[derive(Debug, Clone)]
pub struct RotatedFile {
    /// The file. Its folder is made (mode 0700) when only that is missing.
    pub path: PathBuf,
    /// It is rotated before it would grow beyond this, in bytes. A larger single append still goes in whole.
    pub max_bytes: u64,
    /// Number of older files.
    pub keep: u32,
}

/// What an append did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Appended {
    /// Added to the file.
    ToFile,
    /// The file was full and moved to `NAME.1`; the lines begin a new one.
    ToNewFile,
}

/// An append that did not take all of its lines.
#[derive(Debug, thiserror::Error)]
#[error("cannot append to {}; free space there, or make its folder writable", path.display())]
pub struct AppendError {
    /// The file.
    pub path: PathBuf,
    /// Bytes of whole lines, from the front, that are in the file all the same.
    pub kept: usize,
    /// The cause.
    #[source]
    pub source: io::Error,
}

impl RotatedFile {
    /// Appends `lines` (each ended by a newline; the bytes are not looked at otherwise) by one write.
    ///
    /// # Errors
    /// [`AppendError`]: a line is in the file whole or not at all; `kept` tells how many bytes of lines are.
    pub fn append(&self, lines: &[u8]) -> Result<Appended, AppendError> {
        let failed = |kept, source| AppendError { path: self.path.clone(), kept, source };
        let (mut file, mut len) = self.open().map_err(|e| failed(0, e))?;
        let mut appended = Appended::ToFile;
        if len > 0 && len + lines.len() as u64 > self.max_bytes {
            self.rotate().map_err(|e| failed(0, e))?;
            (file, len) = self.open().map_err(|e| failed(0, e))?;
            appended = Appended::ToNewFile;
        }
        crate::failpoint::disk(&self.path).map_err(|e| failed(0, e))?;
        match write_whole(&mut file, lines) {
            Ok(()) => Ok(appended),
            Err((written, source)) => {
                let kept = lines[..written].iter().rposition(|b| *b == b'\n').map_or(0, |at| at + 1);
                // Best effort: where it fails, the reader meets one cut line.
                let _ = file.set_len(len + kept as u64);
                Err(failed(kept, source))
            }
        }
    }

    fn open(&self) -> io::Result<(File, u64)> {
        let mut options = OpenOptions::new();
        options.append(true).create(true).mode(0o600);
        options.custom_flags(nix::fcntl::OFlag::O_NOFOLLOW.bits() | super::file::WAITLESS);
        let file = match options.open(&self.path) {
            // Only one level: a group's folder that was deleted must not come back through its log.
            Err(e) if e.kind() == ErrorKind::NotFound => {
                make_folder(self.path.parent())?;
                options.open(&self.path)?
            }
            other => other?,
        };
        super::file::must_be_regular(&file)?;
        let len = file.metadata()?.len();
        Ok((file, len))
    }

    fn rotate(&self) -> io::Result<()> {
        if self.keep == 0 {
            return fs::remove_file(&self.path);
        }
        for n in (1..self.keep).rev() {
            absent_is_fine(fs::rename(self.older(n), self.older(n + 1)))?;
        }
        fs::rename(&self.path, self.older(1))
    }

    /// The path of the `n`-th older file.
    pub fn older(&self, n: u32) -> PathBuf {
        let mut name = self.path.clone().into_os_string();
        name.push(format!(".{n}"));
        name.into()
    }

    /// All of its files that may exist, youngest first.
    pub fn files(&self) -> impl Iterator<Item = PathBuf> + '_ {
        std::iter::once(self.path.clone()).chain((1..=self.keep).map(|n| self.older(n)))
    }
}

fn make_folder(folder: Option<&Path>) -> io::Result<()> {
    use std::os::unix::fs::DirBuilderExt;
    let folder = folder.ok_or_else(|| io::Error::from(ErrorKind::NotFound))?;
    match fs::DirBuilder::new().mode(0o700).create(folder) {
        Err(e) if e.kind() == ErrorKind::AlreadyExists => Ok(()),
        other => other,
    }
}

fn absent_is_fine(result: io::Result<()>) -> io::Result<()> {
    match result {
        Err(e) if e.kind() == ErrorKind::NotFound => Ok(()),
        other => other,
    }
}

fn write_whole(file: &mut File, bytes: &[u8]) -> Result<(), (usize, io::Error)> {
    let mut written = 0;
    while written < bytes.len() {
        match file.write(&bytes[written..]) {
            Ok(0) => return Err((written, ErrorKind::WriteZero.into())),
            Ok(n) => written += n,
            Err(e) if e.kind() == ErrorKind::Interrupted => {}
            Err(e) => return Err((written, e)),
        }
    }
    Ok(())
}
