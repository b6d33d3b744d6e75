//! The one way to write a file, and versioned records on top of it.

use crate::failpoint;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use std::fmt;
use std::fs::{self, File, OpenOptions, Permissions};
use std::io::Read;
use std::io::{self, ErrorKind, Write};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

/// Whether a write must survive a power loss.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fsync {
    /// File and folder are flushed before the call returns: leases, counters, secrets.
    Yes,
    /// The file is whole or absent after a crash of the daemon, and may be old after a power loss.
    No,
}

/// Why [`write_atomic`] failed.
#[derive(Debug, thiserror::Error)]
pub enum WriteError {
    /// The file is as it was before.
    #[error("cannot {step} for {}, whose old content is intact; {}", path.display(), next_step(source))]
    Kept {
        /// What was being done.
        step: &'static str,
        /// The file that was to be written.
        path: PathBuf,
        /// The cause.
        #[source]
        source: io::Error,
    },
    /// The new content is in place, but the folder could not be flushed: a power loss may undo it.
    #[error("{} is written, but its folder cannot be flushed to disk; check the disk", path.display())]
    NotFlushed {
        /// The file.
        path: PathBuf,
        /// The cause.
        #[source]
        source: io::Error,
    },
}

impl WriteError {
    /// True when a reader sees the new content in spite of the error.
    pub fn is_visible(&self) -> bool {
        matches!(self, WriteError::NotFlushed { .. })
    }
}

fn next_step(error: &io::Error) -> &'static str {
    match error.kind() {
        ErrorKind::StorageFull | ErrorKind::QuotaExceeded => "free some space there and try again",
        ErrorKind::ReadOnlyFilesystem => "remount that file system read-write",
        ErrorKind::PermissionDenied => "give the folder to the account that runs the daemon",
        ErrorKind::NotFound => "make the folder first",
        _ => "see the cause",
    }
}

/// Writes `bytes` to `path` so that every reader, and every moment after a crash, sees the old content or the new one.
///
/// The temporary file lies in the same folder, has mode 0600 from its creation and gets `mode` (permission bits) before
/// it takes the name. A symlink at `path` is replaced, not followed.
///
/// # Errors
/// [`WriteError::Kept`] (a full disk, a missing folder, ...): nothing changed and nothing is left behind.
/// [`WriteError::NotFlushed`]: changed, not certainly durable.
pub fn write_atomic(path: &Path, bytes: &[u8], mode: u32, fsync: Fsync) -> Result<(), WriteError> {
    let kept = |step| move |source| WriteError::Kept { step, path: path.to_owned(), source };
    let folder = folder_of(path);
    let (temp, mut file) = create_temp(folder, path).map_err(kept("create a temporary file"))?;
    failpoint::reach("write-temp-made");
    if let Err((step, source)) =
        failpoint::disk(path).map_err(|e| (WRITING, e)).and_then(|()| fill(&mut file, bytes, mode, fsync))
    {
        let _ = fs::remove_file(&temp);
        return Err(kept(step)(source));
    }
    failpoint::reach("write-temp-full");
    if let Err(source) = fs::rename(&temp, path) {
        let _ = fs::remove_file(&temp);
        return Err(kept("rename the temporary file")(source));
    }
    failpoint::reach("write-renamed");
    if fsync == Fsync::Yes {
        sync_folder(folder).map_err(|source| WriteError::NotFlushed { path: path.to_owned(), source })?;
    }
    Ok(())
}

/// The step that a full disk stops.
const WRITING: &str = "write the temporary file";

fn fill(file: &mut File, bytes: &[u8], mode: u32, fsync: Fsync) -> Result<(), (&'static str, io::Error)> {
    file.write_all(bytes).map_err(|e| (WRITING, e))?;
    file.set_permissions(Permissions::from_mode(mode)).map_err(|e| ("set the mode", e))?;
    if fsync == Fsync::Yes {
        file.sync_all().map_err(|e| ("flush the temporary file", e))?;
    }
    Ok(())
}

pub(super) fn folder_of(path: &Path) -> &Path {
    match path.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder,
        _ => Path::new("."),
    }
}

/// Makes a file that was written without it survive a power loss.
///
/// # Errors
/// As open(2) and fsync(2).
pub fn flush(path: &Path) -> io::Result<()> {
    File::open(path)?.sync_all()?;
    sync_folder(folder_of(path))
}

/// Flushes the names in a folder.
pub(crate) fn sync_folder(folder: &Path) -> io::Result<()> {
    File::open(folder)?.sync_all()
}

/// What marks our temporary files; see [`sweep_temps`].
const TEMP: &str = ".tmp-";

pub(super) fn create_temp(folder: &Path, path: &Path) -> io::Result<(PathBuf, File)> {
    static COUNT: AtomicU64 = AtomicU64::new(0);
    let name = path.file_name().ok_or_else(|| io::Error::new(ErrorKind::InvalidInput, "the path names no file"))?;
    loop {
        let n = COUNT.fetch_add(1, Ordering::Relaxed);
        let temp = folder.join(format!(".{}{TEMP}{}-{n}", name.to_string_lossy(), std::process::id()));
        match OpenOptions::new().write(true).create_new(true).mode(0o600).open(&temp) {
            // A process with our id died in the middle of a write, long ago; its leftover is swept elsewhere.
            Err(e) if e.kind() == ErrorKind::AlreadyExists => continue,
            other => return other.map(|file| (temp, file)),
        }
    }
}

/// Removes what writers killed in mid-write left in `folder`. Only for folders that this daemon alone writes to.
pub(crate) fn sweep_temps(folder: &Path) -> io::Result<()> {
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        let name = entry.file_name();
        let name = name.to_string_lossy();
        if name.starts_with('.') && name.contains(TEMP) && entry.file_type()?.is_file() {
            fs::remove_file(entry.path())?;
        }
    }
    Ok(())
}

/// A JSON record with a schema version in its `schema` key.
pub trait Record: Serialize + DeserializeOwned {
    /// The version that this program writes and understands.
    const SCHEMA: u32;
    /// What it is, for messages: "the group record".
    const WHAT: &'static str;
    /// Why a whole record is not to be believed under this path: it is another's, copied or moved there.
    fn misplaced(&self, _path: &Path) -> Option<String> {
        None
    }
}

/// What was found under a record's name.
#[derive(Debug)]
pub enum Loaded<T> {
    /// A good record.
    Found(T),
    /// No such file.
    Absent,
    /// It could not be understood and now lies elsewhere; go on as if absent, and show the warning.
    SetAside(SetAside),
}

impl<T> Loaded<T> {
    /// The record, if there was a good one.
    pub fn found(self) -> Option<T> {
        match self {
            Loaded::Found(record) => Some(record),
            _ => None,
        }
    }
}

/// A record that was moved aside. Its Display is the warning.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SetAside {
    /// What it was, such as "the group record".
    pub what: &'static str,
    /// Where it was expected.
    pub path: PathBuf,
    /// Where it lies now.
    pub moved_to: PathBuf,
    /// What was wrong with it.
    pub why: String,
}

impl fmt::Display for SetAside {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { what, path, moved_to, why } = self;
        let (path, kept) = (path.display(), moved_to.display());
        write!(f, "{what} {path} cannot be used ({why}); it is kept as {kept} and the daemon goes on without it")
    }
}

/// Why a record could not be looked at. Nothing was changed.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    /// The file is there and cannot be read.
    #[error("cannot read {}; check the disk and the file's owner", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// The cause.
        #[source]
        source: io::Error,
    },
    /// The record is bad and could not be moved aside.
    #[error("{} cannot be used ({why}) and cannot be moved aside; move it away by hand", path.display())]
    MoveAside {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        why: String,
        /// The cause.
        #[source]
        source: io::Error,
    },
}

/// Reads a record. A corrupt one, one of an unknown version, or what is no file at all is moved to `NAME.corrupt-<unix time>-<n>`, never deleted.
///
/// # Errors
/// [`LoadError`] when the file cannot be read or moved; an error is not absence (law L7).
pub fn load_record<T: Record>(path: &Path) -> Result<Loaded<T>, LoadError> {
    let bytes = match read_regular(path) {
        Ok(bytes) => Ok(bytes),
        Err(e) if e.kind() == ErrorKind::NotFound => return Ok(Loaded::Absent),
        Err(e) if is_no_file(&e) => Err(format!("it is no regular file of ours: {e}")),
        Err(source) => return Err(LoadError::Read { path: path.to_owned(), source }),
    };
    match bytes.and_then(|bytes| parse_at(path, &bytes)) {
        Ok(record) => Ok(Loaded::Found(record)),
        Err(why) => match set_aside(path) {
            Ok(moved_to) => Ok(Loaded::SetAside(SetAside { what: T::WHAT, path: path.to_owned(), moved_to, why })),
            Err(source) => Err(LoadError::MoveAside { path: path.to_owned(), why, source }),
        },
    }
}

/// Understands the record of a path, or says in words why not.
pub(super) fn parse_at<T: Record>(path: &Path, bytes: &[u8]) -> Result<T, String> {
    let record: T = parse(bytes)?;
    record.misplaced(path).map_or(Ok(record), Err)
}

fn parse<T: Record>(bytes: &[u8]) -> Result<T, String> {
    let value: Value = serde_json::from_slice(bytes).map_err(|e| format!("not JSON: {e}"))?;
    match value.get("schema").and_then(Value::as_u64) {
        Some(n) if n == u64::from(T::SCHEMA) => {}
        Some(n) => return Err(format!("it has schema {n}; this program knows {}", T::SCHEMA)),
        None => return Err("it has no schema number".into()),
    }
    serde_json::from_value(value).map_err(|e| e.to_string())
}

fn set_aside(path: &Path) -> io::Result<PathBuf> {
    let (stem, now) = (path.as_os_str().to_owned(), super::unix_now());
    let free = (1u32..).map(|n| {
        let mut name = stem.clone();
        name.push(format!(".corrupt-{now}-{n}"));
        PathBuf::from(name)
    });
    // The folder is ours alone (one daemon per state folder), so looking before renaming is no race.
    let mut taken = free.skip_while(|p| p.symlink_metadata().is_ok());
    let target = taken.next().ok_or_else(|| io::Error::other("no free name"))?;
    fs::rename(path, &target)?;
    Ok(target)
}

/// Writes a record with its schema number, mode 0600.
///
/// # Errors
/// As [`write_atomic`].
pub fn save_record<T: Record>(path: &Path, record: &T, fsync: Fsync) -> Result<(), WriteError> {
    let bytes = to_bytes(record).map_err(|e| WriteError::Kept {
        step: "encode the record",
        path: path.to_owned(),
        source: io::Error::other(e),
    })?;
    write_atomic(path, &bytes, 0o600, fsync)
}

fn to_bytes<T: Record>(record: &T) -> serde_json::Result<Vec<u8>> {
    let mut value = serde_json::to_value(record)?;
    if let Some(object) = value.as_object_mut() {
        object.insert("schema".into(), T::SCHEMA.into());
    }
    let mut bytes = serde_json::to_vec_pretty(&value)?;
    bytes.push(b'\n');
    Ok(bytes)
}

/// Opens a file for reading, and only a regular one, without ever waiting: a component runs as our own account and may put
/// a FIFO where the daemon reads, which would hold up every group.
///
/// # Errors
/// As open(2); InvalidInput for anything but a regular file.
pub fn open_regular(path: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    let file = options.read(true).custom_flags(WAITLESS).open(path)?;
    must_be_regular(&file)?;
    Ok(file)
}

/// The largest file that is read whole, in bytes. The leases of 10,000 groups, or a receipt with 50,000 strays, have less
/// than half of it; a sparse file of a component's may have more than all memory.
pub const LARGEST: u64 = 16 << 20;

/// The whole content of a regular file of at most [`LARGEST`] bytes; see [`open_regular`].
///
/// # Errors
/// As [`open_regular`] and read(2); FileTooLarge.
pub fn read_regular(path: &Path) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    open_regular(path)?.take(LARGEST + 1).read_to_end(&mut bytes)?;
    match bytes.len() as u64 > LARGEST {
        true => Err(io::Error::new(ErrorKind::FileTooLarge, format!("it is larger than {} MiB", LARGEST >> 20))),
        false => Ok(bytes),
    }
}

/// That a folder of ours is one and no link: a component runs as our own account and may put a link in its place, through
/// which we would write to, and remove from, what is not ours. One that is not there yet is fine.
///
/// # Errors
/// NotADirectory with the way out; as lstat(2).
pub(crate) fn must_be_own_folder(path: &Path) -> io::Result<()> {
    match fs::symlink_metadata(path) {
        Ok(meta) if meta.is_dir() => Ok(()),
        Ok(_) => Err(io::Error::new(
            ErrorKind::NotADirectory,
            format!("{} is a link or no folder; move it away", path.display()),
        )),
        Err(e) if e.kind() == ErrorKind::NotFound => Ok(()),
        Err(e) => Err(e),
    }
}

/// True when the name is there and what has it can never be read as a record: a FIFO, a folder, a socket, links in a
/// circle, a file without end.
fn is_no_file(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::InvalidInput | ErrorKind::FileTooLarge)
        || matches!(error.raw_os_error(), Some(nix::libc::ELOOP | nix::libc::ENXIO | nix::libc::EISDIR))
}

/// Flags with which no open waits for another process and no terminal becomes ours.
pub(super) const WAITLESS: i32 = nix::libc::O_NONBLOCK | nix::libc::O_NOCTTY;

pub(super) fn must_be_regular(file: &File) -> io::Result<()> {
    match file.metadata()?.is_file() {
        true => Ok(()),
        false => Err(io::Error::new(ErrorKind::InvalidInput, "it is not a regular file; remove it")),
    }
}
