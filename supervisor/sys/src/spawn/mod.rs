//! Starting a program: in its cgroup from its first instruction, inheriting only what it was given.
//!
//! Expected flow: [`Command::spawn`] returns as soon as the process exists; the end of [`Spawned::exec`] becomes readable
//! when exec succeeded or failed, and [`ExecPipe::read_result`] says which. A program on a dead network mount can hang in
//! exec for ever: then only that pipe stays silent, nobody waits for it.
//! Guarantees, all read back from /proc in the tests: own session; empty signal mask; all dispositions default; stdin
//! /dev/null; no descriptor but the given ones; exactly the given environment; umask, limits, OOM score and no_new_privs
//! set before exec; a member of the cgroup at once, without a moment outside.
//! Caveats: the pipe also ends when the process is killed before exec; then its wait status says so. fork is used and not
//! vfork, because vfork would stop the caller for as long as exec hangs; the cost is in the example `spawn_cost`.

mod child;
mod error;
mod raw;

pub use error::{ExecError, SpawnError, Stage};

use crate::cgroup::Cgroup;
use crate::process::{self, PidFd};
use std::ffi::CString;
use std::fs::File;
use std::io::{self, Read};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::path::PathBuf;

/// Everything a child gets; nothing else is inherited. Plain data: fill in what differs from [`Command::new`].
#[derive(Debug)]
pub struct Command {
    /// argv\[0\] is the program's path and must contain a '/': PATH is never searched.
    pub argv: Vec<String>,
    /// The whole environment, in this order.
    pub env: Vec<(String, String)>,
    /// Working directory.
    pub cwd: PathBuf,
    /// Where standard output and error go.
    pub output: Output,
    /// Further descriptors and their numbers in the child (3 or more, each once).
    pub extra_fds: Vec<(OwnedFd, RawFd)>,
    /// RLIMIT_NOFILE, soft and hard; `None`: as ours.
    pub nofile: Option<u64>,
    /// RLIMIT_CORE in bytes, soft and hard; `None`: as ours.
    pub core_limit: Option<u64>,
    /// oom_score_adj, -1000 to 1000; `None`: as ours. Lowering it below ours needs CAP_SYS_RESOURCE.
    pub oom_score_adj: Option<i32>,
    /// File mode creation mask.
    pub umask: u32,
}

/// Standard output and error of a child. The descriptors are closed in the parent by the spawn, so that the child's end is the
/// pipe's end.
#[derive(Debug)]
pub enum Output {
    /// Both to /dev/null.
    Null,
    /// Both to one descriptor, in the order they were written.
    Merged(OwnedFd),
    /// One each.
    Split {
        /// Standard output.
        stdout: OwnedFd,
        /// Standard error.
        stderr: OwnedFd,
    },
}

/// A process that exists.
#[derive(Debug)]
pub struct Spawned {
    /// Its number. Ours until it is waited for.
    pub pid: u32,
    /// The process itself: for signals, and readable when it has ended.
    pub pidfd: PidFd,
    /// Start, in clock ticks since boot.
    pub start_time: u64,
    /// Tells how exec went.
    pub exec: ExecPipe,
}

/// Readable once exec succeeded or failed. Non-blocking, close-on-exec.
#[derive(Debug)]
pub struct ExecPipe {
    file: File,
    program: PathBuf,
    cwd: PathBuf,
}

impl Command {
    /// `argv` in `cwd` with an empty environment, no output, no further descriptors, no core dumps, umask 077.
    pub fn new(argv: Vec<String>, cwd: impl Into<PathBuf>) -> Command {
        Command {
            argv,
            env: Vec::new(),
            cwd: cwd.into(),
            output: Output::Null,
            extra_fds: Vec::new(),
            nofile: None,
            core_limit: Some(0),
            oom_score_adj: None,
            umask: 0o077,
        }
    }

    /// Makes the process, in `cgroup` or else in our own. All that can be prepared is prepared here; the child only calls
    /// the kernel. On an error no process exists.
    pub fn spawn(self, cgroup: Option<&Cgroup>) -> Result<Spawned, SpawnError> {
        let program = PathBuf::from(self.argv.first().ok_or(SpawnError::NoProgram)?);
        if !program.as_os_str().as_encoded_bytes().contains(&b'/') {
            return Err(SpawnError::NotAPath { program });
        }
        let prepare = |source| SpawnError::Prepare { program: program.clone(), source };
        let cgroup_fd = match cgroup {
            None => None,
            Some(c) => Some(c.open().map_err(|source| SpawnError::Cgroup { path: c.path().into(), source })?),
        };
        let (read, write) = nix::unistd::pipe2(nix::fcntl::OFlag::O_CLOEXEC | nix::fcntl::OFlag::O_NONBLOCK)
            .map_err(|e| prepare(e.into()))?;
        let strings = Strings::of(&self)?;
        let plan = child::Plan::new(&self, &strings, write.as_fd())?;
        let (pid, pidfd) = raw::fork_into(cgroup_fd.as_ref().map(AsFd::as_fd), &plan)
            .map_err(|source| SpawnError::from_clone(&program, cgroup, source))?;
        drop(plan);
        // Until it is waited for the number is the child's, so this reads the child's own start time.
        let start_time = process::start_time(pid).unwrap_or(0);
        let exec = ExecPipe { file: File::from(read), program, cwd: self.cwd };
        Ok(Spawned { pid, pidfd: PidFd::from_owned(pidfd), start_time, exec })
    }
}

impl ExecPipe {
    /// How exec went. Error kind WouldBlock: not decided yet; wait until the pipe is readable.
    pub fn read_result(&self) -> io::Result<Result<(), ExecError>> {
        let mut bytes = [0u8; child::REPORT_LEN];
        let n = (&self.file).read(&mut bytes)?;
        Ok(exec_result(&self.program, &self.cwd, &bytes[..n]))
    }
}

/// Decodes what an [`ExecPipe`] held at its end: nothing means that exec succeeded.
pub fn exec_result(program: &std::path::Path, cwd: &std::path::Path, bytes: &[u8]) -> Result<(), ExecError> {
    if bytes.is_empty() { Ok(()) } else { Err(ExecError::decode(program, cwd, bytes)) }
}

impl AsFd for ExecPipe {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

impl AsRawFd for ExecPipe {
    fn as_raw_fd(&self) -> RawFd {
        self.file.as_raw_fd()
    }
}

/// The C strings that the child's pointers lead to.
struct Strings {
    argv: Vec<CString>,
    env: Vec<CString>,
    cwd: CString,
}

impl Strings {
    fn of(command: &Command) -> Result<Strings, SpawnError> {
        let c = |what: &'static str, bytes: Vec<u8>| CString::new(bytes).map_err(|_| SpawnError::Nul { what });
        let argv = command.argv.iter().map(|a| c("an argument", a.clone().into_bytes())).collect::<Result<_, _>>()?;
        let entry = |(key, value): &(String, String)| {
            if key.is_empty() || key.contains('=') {
                return Err(SpawnError::EnvKey { key: key.clone() });
            }
            c("an environment variable", format!("{key}={value}").into_bytes())
        };
        let env = command.env.iter().map(entry).collect::<Result<_, _>>()?;
        let cwd = c("the working directory", command.cwd.as_os_str().as_encoded_bytes().to_vec())?;
        Ok(Strings { argv, env, cwd })
    }
}

/// Starts and waits for a child in `cgroup` that ends at once: the proof that the kernel lets us.
pub(crate) fn probe_into(cgroup: &Cgroup) -> io::Result<()> {
    let folder = cgroup.open()?;
    raw::fork_and_exit(folder.as_fd())
}
