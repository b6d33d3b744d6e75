//! Why a program did not start, and what to do about it.

use crate::cgroup::Cgroup;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// No process came to be.
#[derive(Debug, thiserror::Error)]
pub enum SpawnError {
    /// argv is empty.
    #[error("the command has no program: argv is empty; its first entry is the program's path")]
    NoProgram,
    /// argv\[0\] has no '/'.
    #[error("the program {program} is not a path: PATH is not searched, give an absolute path")]
    NotAPath {
        /// argv\[0\].
        program: PathBuf,
    },
    /// A string cannot be handed to the kernel.
    #[error("{what} contains a NUL byte; no program can receive that: remove it")]
    Nul {
        /// Which one.
        what: &'static str,
    },
    /// An environment variable's name is not one.
    #[error("{key:?} cannot be the name of an environment variable: it is empty or contains '='")]
    EnvKey {
        /// The name.
        key: String,
    },
    /// A descriptor number is not usable.
    #[error("descriptor {target} in the child is refused: numbers begin at 3 and each is given once")]
    FdTarget {
        /// The number.
        target: i32,
    },
    /// The parent could not prepare.
    #[error("cannot prepare the start of {program}; when descriptors ran out, raise RLIMIT_NOFILE")]
    Prepare {
        /// The program.
        program: PathBuf,
        /// The kernel's answer.
        #[source]
        source: io::Error,
    },
    /// The cgroup could not be opened.
    #[error("cannot open the cgroup {path}: make it first")]
    Cgroup {
        /// Its folder.
        path: PathBuf,
        /// The kernel's answer.
        #[source]
        source: io::Error,
    },
    /// The kernel refused to make a process in this cgroup.
    #[error("cannot start {program} in the cgroup {path}: {why}")]
    IntoCgroup {
        /// The program.
        program: PathBuf,
        /// The cgroup's folder.
        path: PathBuf,
        /// What that answer means here.
        why: &'static str,
        /// The kernel's answer.
        #[source]
        source: io::Error,
    },
    /// The kernel refused to make a process.
    #[error("cannot make a process for {program}: {why}")]
    Clone {
        /// The program.
        program: PathBuf,
        /// What that answer means here.
        why: &'static str,
        /// The kernel's answer.
        #[source]
        source: io::Error,
    },
}

impl SpawnError {
    pub(super) fn from_clone(program: &Path, cgroup: Option<&Cgroup>, source: io::Error) -> SpawnError {
        let program = program.to_path_buf();
        let general = match source.raw_os_error() {
            Some(libc::EAGAIN) => {
                "a limit on processes is reached: raise TasksMax of the unit, RLIMIT_NPROC, or pids.max of the cgroup"
            }
            Some(libc::ENOMEM) => "the kernel has no memory for it",
            Some(libc::ENOSYS) => {
                "clone3 is missing or filtered: Linux 5.7 or newer is needed, and a sandbox must allow clone3"
            }
            _ => "the kernel refused",
        };
        let Some(cgroup) = cgroup else { return SpawnError::Clone { program, why: general, source } };
        let why = match source.raw_os_error() {
            Some(libc::EBUSY) => {
                "it hands controllers down to cgroups below it, so it cannot have members: use one below"
            }
            Some(libc::EOPNOTSUPP) => {
                "it is not a valid domain: a cgroup above it became threaded; remove it and make it again"
            }
            Some(libc::EACCES | libc::EPERM) => {
                "its cgroup.procs, or that of the nearest ancestor it shares with our own cgroup, is not writable for this account: \
                 run inside the delegated subtree (Delegate=yes)"
            }
            Some(libc::ENODEV | libc::ENOENT) => "it is being removed",
            Some(libc::E2BIG | libc::EINVAL) => "this kernel's clone3 knows no cgroups: Linux 5.7 or newer is needed",
            _ => general,
        };
        SpawnError::IntoCgroup { program, path: cgroup.path().into(), why, source }
    }
}

/// A step of the child on its way to exec.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stage {
    /// setsid.
    Session,
    /// Signal dispositions.
    Dispositions,
    /// Moving the descriptors to their numbers.
    Descriptors,
    /// Opening /dev/null.
    DevNull,
    /// Closing all other descriptors.
    CloseRest,
    /// RLIMIT_NOFILE.
    NoFile,
    /// RLIMIT_CORE.
    Core,
    /// oom_score_adj.
    OomScore,
    /// no_new_privs.
    NoNewPrivs,
    /// chdir.
    Chdir,
    /// Signal mask.
    SignalMask,
    /// execve.
    Exec,
}

impl Stage {
    const ALL: [Stage; 12] = [
        Stage::Session,
        Stage::Dispositions,
        Stage::Descriptors,
        Stage::DevNull,
        Stage::CloseRest,
        Stage::NoFile,
        Stage::Core,
        Stage::OomScore,
        Stage::NoNewPrivs,
        Stage::Chdir,
        Stage::SignalMask,
        Stage::Exec,
    ];

    fn name(self) -> &'static str {
        match self {
            Stage::Session => "making its session",
            Stage::Dispositions => "resetting signal dispositions",
            Stage::Descriptors => "placing its descriptors",
            Stage::DevNull => "opening /dev/null",
            Stage::CloseRest => "closing other descriptors",
            Stage::NoFile => "setting the limit of open files",
            Stage::Core => "setting the core limit",
            Stage::OomScore => "setting oom_score_adj",
            Stage::NoNewPrivs => "setting no_new_privs",
            Stage::Chdir => "entering its working directory",
            Stage::SignalMask => "emptying the signal mask",
            Stage::Exec => "exec",
        }
    }
}

/// The process existed, and ended before its program ran.
#[derive(Debug, thiserror::Error)]
#[error("cannot start {program}: {} failed: {why}", .stage.name())]
pub struct ExecError {
    /// The program.
    pub program: PathBuf,
    /// The step that failed.
    pub stage: Stage,
    /// What it means and what to do.
    pub why: String,
    /// The kernel's answer.
    #[source]
    pub source: io::Error,
}

impl ExecError {
    pub(super) fn decode(program: &Path, cwd: &Path, bytes: &[u8]) -> ExecError {
        let number = |at: usize| bytes.get(at..at + 4).and_then(|b| b.try_into().ok()).map(i32::from_ne_bytes);
        let stage = number(0).and_then(|n| Stage::ALL.get(usize::try_from(n).ok()?).copied()).unwrap_or(Stage::Exec);
        let errno = number(4).unwrap_or(libc::EPROTO);
        let program = program.to_path_buf();
        let why = explain(&program, cwd, stage, errno);
        ExecError { program, stage, why, source: io::Error::from_raw_os_error(errno) }
    }
}

fn explain(program: &Path, cwd: &Path, stage: Stage, errno: i32) -> String {
    let at = cwd.display();
    match (stage, errno) {
        (Stage::Exec, libc::ENOENT) if fs::symlink_metadata(program).is_err() => {
            "there is no such file: install it, or correct the path in the configuration".into()
        }
        (Stage::Exec, libc::ENOENT) if !program.exists() => "it is a link to a file that does not exist: repair the link".into(),
        (Stage::Exec, libc::ENOENT) => missing_interpreter(program),
        (Stage::Exec, libc::EACCES) if program.is_dir() => "it is a folder; name the program inside".into(),
        (Stage::Exec, libc::EACCES) => {
            "not executable: chmod +x it; if it is already, its file system is mounted noexec or a folder above is not searchable".into()
        }
        (Stage::Exec, libc::ENOEXEC) => {
            "the kernel does not know this format: built for another processor, or a script without a #! line".into()
        }
        (Stage::Exec, libc::E2BIG) => {
            "arguments and environment are too long (one string: 128 KiB; all: a quarter of the stack limit): pass a file instead".into()
        }
        (Stage::Exec, libc::ETXTBSY) => "the file is being written: wait until the copy is finished, and install by rename".into(),
        (Stage::Chdir, libc::ENOENT) => format!("the folder {at} does not exist: make it, or correct the configuration"),
        (Stage::Chdir, libc::ENOTDIR) => format!("{at} is not a folder"),
        (Stage::Chdir, _) => format!("the folder {at} cannot be entered by this account"),
        (Stage::NoFile | Stage::Core, libc::EPERM) => {
            "it is above this account's hard limit: lower it in the configuration, or raise the unit's limit (LimitNOFILE=, LimitCORE=)".into()
        }
        (Stage::OomScore, libc::EACCES) => {
            "this account may not go below the score it has itself: raise the value in the configuration".into()
        }
        (Stage::OomScore, libc::EINVAL) => "it must lie between -1000 and 1000".into(),
        (Stage::CloseRest, libc::ENOSYS) => "close_range is missing: Linux 5.9 or newer is needed".into(),
        _ => "the kernel refused".into(),
    }
}

/// The file is there, so what is missing is what it asks to be run by.
fn missing_interpreter(program: &Path) -> String {
    use std::io::Read;
    let mut head = [0u8; 128];
    let n = fs::File::open(program).and_then(|mut f| f.read(&mut head)).unwrap_or(0);
    let line = head[..n].split(|b| *b == b'\n').next().and_then(|l| l.strip_prefix(b"#!"));
    match line {
        Some(line) => format!(
            "the file exists, but the interpreter of its first line does not: {}; install it or correct that line",
            crate::process::printable(line).trim()
        ),
        None => {
            "the file exists, but its dynamic loader does not: it was built for another system (musl and glibc?)".into()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report(stage: Stage, errno: i32) -> Vec<u8> {
        [(stage as i32).to_ne_bytes(), errno.to_ne_bytes()].concat()
    }

    #[test]
    fn every_stage_survives_the_pipe() {
        for stage in Stage::ALL {
            let e = ExecError::decode(Path::new("/p"), Path::new("/d"), &report(stage, libc::EIO));
            assert_eq!((e.stage, e.source.raw_os_error()), (stage, Some(libc::EIO)));
            assert!(e.to_string().contains("/p"), "{e}");
        }
    }

    #[test]
    fn a_broken_report_is_still_a_failure() {
        for bytes in [&[1u8][..], &[9, 0, 0, 0], &[0xff; 8], &[0xff; 7]] {
            assert!(super::super::exec_result(Path::new("/p"), Path::new("/d"), bytes).is_err(), "{bytes:?}");
        }
        assert!(super::super::exec_result(Path::new("/p"), Path::new("/d"), &[]).is_ok());
    }

    #[test]
    fn messages_name_the_thing_and_the_fix() {
        let check = |stage, errno, want: &str| {
            let text = ExecError::decode(Path::new("/no/such/program"), Path::new("/no/folder"), &report(stage, errno))
                .to_string();
            assert!(text.contains("/no/such/program") && text.contains(want), "{text}");
        };
        check(Stage::Exec, libc::ENOENT, "install it");
        check(Stage::Exec, libc::EACCES, "chmod +x");
        check(Stage::Exec, libc::ENOEXEC, "another processor");
        check(Stage::Exec, libc::E2BIG, "too long");
        check(Stage::Chdir, libc::ENOENT, "/no/folder");
        check(Stage::NoFile, libc::EPERM, "LimitNOFILE=");
        check(Stage::OomScore, libc::EACCES, "raise the value");
    }

    #[test]
    fn refusals_of_a_cgroup_say_why() {
        let check = |errno, want: &str| {
            let cgroup = Cgroup::at("/cg/a");
            let e =
                SpawnError::from_clone(Path::new("/p"), Some(&cgroup), io::Error::from_raw_os_error(errno)).to_string();
            assert!(e.contains("/cg/a") && e.contains(want), "{e}");
        };
        check(libc::EBUSY, "use one below");
        check(libc::EOPNOTSUPP, "threaded");
        check(libc::EACCES, "Delegate=yes");
        check(libc::ENODEV, "being removed");
        check(libc::EAGAIN, "TasksMax");
        check(libc::ENOSYS, "5.7");
    }
}
