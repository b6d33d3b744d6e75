//! One daemon per state folder.

use super::dir::StateError;
use super::file::{WAITLESS, must_be_regular};
use super::unix_now;
use nix::errno::Errno;
use nix::fcntl::{Flock, FlockArg};
use serde::{Deserialize, Serialize};
use socialweb_sys::process::{self, Proc};
use std::fs::{File, OpenOptions};
use std::io::{Read, Seek, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::time::{Duration, Instant, UNIX_EPOCH};

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

/// How long what a dead daemon left half made may take to go, once it is killed.
const HEIRS_GO: Duration = Duration::from_secs(10);
/// The kernel tells nobody when a lock is free.
const LOOK_AGAIN: Duration = Duration::from_millis(10);

impl Lock {
    pub(super) fn take(path: &Path) -> Result<Lock, StateError> {
        let failed = |source| StateError::LockFile { path: path.to_owned(), source };
        let mut options = OpenOptions::new();
        // std opens with O_CLOEXEC: a program that inherited the lock would outlive us with it.
        options.read(true).write(true).create(true).truncate(false).mode(0o600);
        let mut file = options.custom_flags(nix::libc::O_NOFOLLOW | WAITLESS).open(path).map_err(failed)?;
        // A FIFO can be locked too, and whoever then reads the holder's name from it waits for ever.
        must_be_regular(&file).map_err(failed)?;
        let deadline = Instant::now() + HEIRS_GO;
        loop {
            match Flock::lock(file, FlockArg::LockExclusiveNonblock) {
                Ok(mut lock) => {
                    // Only for people: on a full disk the lock holds all the same.
                    let _ = write_holder(&mut lock);
                    return Ok(Lock { _file: lock });
                }
                Err((refused, Errno::EWOULDBLOCK)) => file = refused,
                Err((_, errno)) => return Err(failed(errno.into())),
            }
            let holder = read_holder(&mut file);
            match holder {
                Some(holder) if holder.has_ended() && Instant::now() < deadline => holder.end_heirs(&file),
                _ => return Err(StateError::Locked { path: path.to_owned(), holder: name(holder) }),
            }
            std::thread::sleep(LOOK_AGAIN);
        }
    }
}

impl Holder {
    /// One that could not read its own start is never taken for dead.
    fn has_ended(&self) -> bool {
        self.start_ticks != 0 && !process::alive(self.pid, self.start_ticks)
    }

    /// Ends the processes that a dead daemon had just made, and that have not become their program yet: they have its lock,
    /// and where their cgroup is frozen they would keep it for ever. They have done nothing, so there is nothing to be
    /// orderly about. They have the daemon's sockets too, so they are waited for.
    fn end_heirs(&self, file: &File) {
        let heirs = process::heirs_of_lock(file, self.pid).unwrap_or_default();
        for heir in &heirs {
            let _ = heir.pidfd.send(nix::libc::SIGKILL);
        }
        let lives = |heir: &Proc| process::alive(heir.pid, heir.stat.start_time);
        let deadline = Instant::now() + HEIRS_GO;
        while heirs.iter().any(lives) && Instant::now() < deadline {
            std::thread::sleep(LOOK_AGAIN);
        }
    }
}

fn write_holder(file: &mut File) -> std::io::Result<()> {
    let start_ticks = process::start_time(std::process::id()).unwrap_or(0);
    let holder = Holder { pid: std::process::id(), start_ticks, since: unix_now() };
    file.rewind()?;
    file.set_len(0)?;
    file.write_all(serde_json::to_string(&holder)?.as_bytes())
}

/// Bytes that a holder's name may have.
const NAME: u64 = 4096;

/// None: it has not written yet, or what it wrote is cut.
fn read_holder(file: &mut File) -> Option<Holder> {
    let mut text = String::new();
    file.rewind().ok()?;
    file.take(NAME).read_to_string(&mut text).ok()?;
    serde_json::from_str(&text).ok()
}

fn name(holder: Option<Holder>) -> String {
    match holder {
        Some(holder) if holder.has_ended() => {
            format!("what process {} left, which has ended (`fuser` with that path finds it)", holder.pid)
        }
        Some(Holder { pid, since, .. }) => {
            let since = humantime::format_rfc3339_seconds(UNIX_EPOCH + Duration::from_secs(since));
            format!("process {pid}, running since {since}")
        }
        None => "a process that has not written its name yet".into(),
    }
}
