//! One daemon per state folder.

use super::dir::StateError;
use super::unix_now;
use nix::errno::Errno;
use nix::fcntl::{Flock, FlockArg};
use serde::{Deserialize, Serialize};
use std::fs::{File, OpenOptions};
use std::io::{Read, Seek, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::time::{Duration, UNIX_EPOCH};

/// Who holds the lock, as the holder wrote it into the lock file.
#[derive(Debug, Serialize, Deserialize)]
struct Holder {
    pid: u32,
    /// Kernel start time in clock ticks since boot: tells the holder from a later process with its pid.
    start_ticks: u64,
    /// Seconds since 1970, for people.
    since: u64,
}

/// The lock; held until it is dropped. The file itself is never removed: a second inode would mean a second lock.
#[derive(Debug)]
pub(super) struct Lock {
    _file: Flock<File>,
}

impl Lock {
    pub(super) fn take(path: &Path) -> Result<Lock, StateError> {
        let failed = |source| StateError::LockFile { path: path.to_owned(), source };
        let mut options = OpenOptions::new();
        // std opens with O_CLOEXEC: a child that inherited the lock would outlive us with it.
        options.read(true).write(true).create(true).truncate(false).mode(0o600);
        let file = options.custom_flags(libc_nofollow()).open(path).map_err(failed)?;
        match Flock::lock(file, FlockArg::LockExclusiveNonblock) {
            Ok(mut lock) => {
                // Only for people: on a full disk the lock holds all the same.
                let _ = write_holder(&mut lock);
                Ok(Lock { _file: lock })
            }
            Err((file, Errno::EWOULDBLOCK)) => {
                Err(StateError::Locked { path: path.to_owned(), holder: name_holder(file) })
            }
            Err((_, errno)) => Err(failed(errno.into())),
        }
    }
}

fn libc_nofollow() -> i32 {
    nix::fcntl::OFlag::O_NOFOLLOW.bits()
}

fn write_holder(file: &mut File) -> std::io::Result<()> {
    let holder = Holder { pid: std::process::id(), start_ticks: own_start_ticks(), since: unix_now() };
    file.rewind()?;
    file.set_len(0)?;
    file.write_all(serde_json::to_string(&holder)?.as_bytes())
}

/// Field 22 of /proc/self/stat, counted after the command name, which may itself hold spaces and parentheses.
fn own_start_ticks() -> u64 {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let after = stat.rsplit_once(')').map_or("", |(_, rest)| rest);
    after.split_whitespace().nth(19).and_then(|f| f.parse().ok()).unwrap_or(0)
}

fn name_holder(mut file: File) -> String {
    let mut text = String::new();
    // The holder may not have written yet; the refusal stands all the same.
    let read = file.read_to_string(&mut text);
    match read.ok().and_then(|_| serde_json::from_str::<Holder>(&text).ok()) {
        Some(Holder { pid, since, .. }) => {
            let since = humantime::format_rfc3339_seconds(UNIX_EPOCH + Duration::from_secs(since));
            format!("process {pid}, running since {since}")
        }
        None => "a process that has not written its name yet".into(),
    }
}
