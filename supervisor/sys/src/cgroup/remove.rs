//! Taking cgroups away, from the bottom up.

use super::{Cgroup, CgroupError};
use crate::process;
use std::fs;
use std::io;
use std::path::PathBuf;

/// Why a cgroup is still there.
#[derive(Debug, thiserror::Error)]
pub enum RemoveError {
    /// Something is inside, or was until a moment ago: try again for a bounded time, then say so.
    #[error("the cgroup {path} is busy: {}", inside_text(.inside))]
    Busy {
        /// The folder that could not be removed.
        path: PathBuf,
        /// What is inside: "pid 12 (sleep)". Empty when the kernel has not finished taking dead members out.
        inside: Vec<String>,
    },
    /// It cannot be looked into.
    #[error("cannot look into a cgroup that is to be removed")]
    Read(#[source] CgroupError),
    /// rmdir was refused for another reason.
    #[error("cannot remove the cgroup {path}: see that the folder above it belongs to this account")]
    Rmdir {
        /// The folder.
        path: PathBuf,
        /// The kernel's answer.
        #[source]
        source: io::Error,
    },
}

impl RemoveError {
    /// True when another attempt a little later can succeed.
    pub fn is_busy(&self) -> bool {
        matches!(self, RemoveError::Busy { .. })
    }
}

impl Cgroup {
    /// Removes it and all below it; one attempt. Not existing is success. The kernel answers EBUSY while a member lives
    /// and for a moment after the last one died (crun PR 657, runc 4040): the caller repeats with a bound.
    pub fn remove(&self) -> Result<(), RemoveError> {
        for cgroup in self.walk().map_err(RemoveError::Read)?.into_iter().rev() {
            match fs::remove_dir(&cgroup.path) {
                Ok(()) => {}
                Err(e) if process::is_gone(&e) => {}
                // ENOTEMPTY: only outside of cgroupfs, where control files are ordinary files.
                Err(e) if matches!(e.raw_os_error(), Some(libc::EBUSY | libc::ENOTEMPTY)) => {
                    return Err(RemoveError::Busy { inside: cgroup.inside(), path: cgroup.path });
                }
                Err(source) => return Err(RemoveError::Rmdir { path: cgroup.path, source }),
            }
        }
        Ok(())
    }

    /// The living members here and below, as people read them.
    pub fn inside(&self) -> Vec<String> {
        let name = |pid: u32| format!("pid {pid} ({})", process::comm(pid).unwrap_or_else(|_| "gone".into()));
        self.pids().unwrap_or_default().into_iter().map(name).collect()
    }
}

fn inside_text(inside: &[String]) -> String {
    if inside.is_empty() {
        "no process is listed any more; the kernel is still taking it apart".into()
    } else {
        inside.join(", ")
    }
}
