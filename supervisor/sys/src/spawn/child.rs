//! What the child does between clone and exec: system calls on memory that the parent prepared, and nothing else.
#![allow(unsafe_code)]

use super::{Command, Output, SpawnError, Stage, Strings};
use std::cell::Cell;
use std::ffi::{CStr, c_char};
use std::os::fd::{AsRawFd, BorrowedFd, RawFd};
use std::ptr;

/// Stage and errno, four bytes each.
pub(super) const REPORT_LEN: usize = 8;
/// Signals of Linux on the processors we build for, SIGRTMAX included.
const LAST_SIGNAL: i32 = 64;

/// Everything the child needs, ready for the kernel.
pub(super) struct Plan<'a> {
    argv: Vec<*const c_char>,
    env: Vec<*const c_char>,
    cwd: &'a CStr,
    moves: Vec<Move>,
    /// The pipe for the report, and the number it gets: above all targets.
    report: RawFd,
    report_at: RawFd,
    /// Ranges of numbers to close: all between and above the targets, but `report_at`.
    gaps: Vec<(u32, u32)>,
    null_output: bool,
    umask: u32,
    nofile: Option<u64>,
    core: Option<u64>,
    oom_score_adj: Option<Vec<u8>>,
}

/// A descriptor on its way to its number in the child.
struct Move {
    source: RawFd,
    target: RawFd,
    /// Written by the child, in its own copy of this memory: where it parked the source.
    parked: Cell<RawFd>,
}

impl<'a> Plan<'a> {
    pub(super) fn new(command: &Command, strings: &'a Strings, report: BorrowedFd<'_>) -> Result<Plan<'a>, SpawnError> {
        let pointers = |list: &[std::ffi::CString]| list.iter().map(|s| s.as_ptr()).chain([ptr::null()]).collect();
        let mut moves = match &command.output {
            Output::Null => vec![],
            Output::Merged(fd) => vec![(fd.as_raw_fd(), 1), (fd.as_raw_fd(), 2)],
            Output::Split { stdout, stderr } => vec![(stdout.as_raw_fd(), 1), (stderr.as_raw_fd(), 2)],
        };
        moves.extend(command.extra_fds.iter().map(|(fd, target)| (fd.as_raw_fd(), *target)));
        let moves = moves.into_iter().map(|(source, target)| Move { source, target, parked: Cell::new(-1) }).collect();
        let targets = targets(&command.extra_fds)?;
        let report_at = targets.iter().max().copied().unwrap_or(2).max(2) + 1;
        Ok(Plan {
            argv: pointers(&strings.argv),
            env: pointers(&strings.env),
            cwd: &strings.cwd,
            moves,
            report: report.as_raw_fd(),
            report_at,
            gaps: gaps(&targets, report_at),
            null_output: matches!(command.output, Output::Null),
            umask: command.umask,
            nofile: command.nofile,
            core: command.core_limit,
            oom_score_adj: command.oom_score_adj.map(|n| n.to_string().into_bytes()),
        })
    }

    /// Becomes the program, or writes to the pipe why not and ends. Runs in the child only.
    pub(super) fn run(&self) -> ! {
        let mut report = self.report;
        let (stage, errno) = match self.steps(&mut report) {
            Ok(never) => match never {},
            Err(failure) => failure,
        };
        let mut bytes = [0u8; REPORT_LEN];
        let (head, tail) = bytes.split_at_mut(4);
        head.copy_from_slice(&(stage as i32).to_ne_bytes());
        tail.copy_from_slice(&errno.to_ne_bytes());
        // SAFETY: writes 8 bytes of our stack; an empty pipe takes them whole. _exit runs no destructor and no handler.
        unsafe {
            libc::write(report, bytes.as_ptr().cast(), bytes.len());
            libc::_exit(127)
        }
    }

    fn steps(&self, report: &mut RawFd) -> Result<std::convert::Infallible, (Stage, i32)> {
        // Of all unsafe blocks of this function and of those it calls: each is one system call on integers, on memory of
        // `self` that the parent filled before the clone, or on locals; all are async-signal-safe. Nothing here
        // allocates, locks or unwinds.
        // SAFETY: as above.
        check(Stage::Session, unsafe { libc::setsid() } as i64)?;
        reset_dispositions()?;
        self.place_descriptors(report)?;
        // SAFETY: as above; umask cannot fail.
        unsafe { libc::umask(self.umask) };
        set_limit(Stage::NoFile, libc::RLIMIT_NOFILE, self.nofile)?;
        set_limit(Stage::Core, libc::RLIMIT_CORE, self.core)?;
        if let Some(score) = &self.oom_score_adj {
            write_file(Stage::OomScore, c"/proc/self/oom_score_adj", score)?;
        }
        // SAFETY: as above.
        check(Stage::NoNewPrivs, unsafe { libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) } as i64)?;
        // SAFETY: as above; `cwd` is NUL-terminated.
        check(Stage::Chdir, unsafe { libc::chdir(self.cwd.as_ptr()) } as i64)?;
        let none = 0u64;
        // SAFETY: as above; the kernel reads 8 bytes at `none`.
        let rc = unsafe {
            libc::syscall(
                libc::SYS_rt_sigprocmask,
                libc::SIG_SETMASK,
                &raw const none,
                ptr::null_mut::<u64>(),
                size_of::<u64>(),
            )
        };
        check(Stage::SignalMask, rc)?;
        // SAFETY: as above; both lists end with a null pointer, and argv has at least one entry.
        unsafe { libc::execve(*self.argv.as_ptr(), self.argv.as_ptr(), self.env.as_ptr()) };
        Err((Stage::Exec, errno()))
    }

    /// First all sources are parked above all targets, so that none is overwritten before it is used; then each goes to its
    /// number (where it is no longer close-on-exec), and all else is closed.
    fn place_descriptors(&self, report: &mut RawFd) -> Result<(), (Stage, i32)> {
        let above = self.report_at + 1;
        let park = |fd: RawFd| {
            // SAFETY: see steps.
            let parked = unsafe { libc::fcntl(fd, libc::F_DUPFD_CLOEXEC, above) };
            check(Stage::Descriptors, parked as i64).map(|()| parked)
        };
        *report = park(*report)?;
        for step in &self.moves {
            step.parked.set(park(step.source)?);
        }
        self.open_null()?;
        for step in &self.moves {
            // SAFETY: see steps.
            check(Stage::Descriptors, unsafe { libc::dup2(step.parked.get(), step.target) } as i64)?;
        }
        // SAFETY: see steps.
        check(Stage::Descriptors, unsafe { libc::dup3(*report, self.report_at, libc::O_CLOEXEC) } as i64)?;
        *report = self.report_at;
        for (first, last) in &self.gaps {
            // SAFETY: see steps.
            check(Stage::CloseRest, unsafe { libc::syscall(libc::SYS_close_range, *first, *last, 0) })?;
        }
        Ok(())
    }

    /// /dev/null as 0, and where asked for as 1 and 2. Whatever number open gives is overwritten or closed later.
    fn open_null(&self) -> Result<(), (Stage, i32)> {
        // SAFETY: see steps.
        let null = unsafe { libc::open(c"/dev/null".as_ptr(), libc::O_RDWR) };
        check(Stage::DevNull, null as i64)?;
        for target in 0..if self.null_output { 3 } else { 1 } {
            // SAFETY: see steps.
            check(Stage::DevNull, unsafe { libc::dup2(null, target) } as i64)?;
        }
        Ok(())
    }
}

/// CLONE_CLEAR_SIGHAND has removed the handlers; what was ignored is still ignored, and would be for ever.
fn reset_dispositions() -> Result<(), (Stage, i32)> {
    // Zeros are SIG_DFL, no flags, empty mask, on every processor; 64 bytes hold every processor's layout.
    let default = [0u64; 8];
    for signal in (1..=LAST_SIGNAL).filter(|s| *s != libc::SIGKILL && *s != libc::SIGSTOP) {
        // SAFETY: see Plan::steps. The raw call, because libc's refuses the two signals it keeps for itself.
        let rc = unsafe {
            libc::syscall(libc::SYS_rt_sigaction, signal, default.as_ptr(), ptr::null_mut::<u64>(), size_of::<u64>())
        };
        check(Stage::Dispositions, rc)?;
    }
    Ok(())
}

fn set_limit(stage: Stage, resource: libc::__rlimit_resource_t, value: Option<u64>) -> Result<(), (Stage, i32)> {
    let Some(value) = value else { return Ok(()) };
    let limit = libc::rlimit { rlim_cur: value, rlim_max: value };
    // SAFETY: see Plan::steps.
    check(stage, unsafe { libc::setrlimit(resource, &raw const limit) } as i64)
}

fn write_file(stage: Stage, path: &CStr, content: &[u8]) -> Result<(), (Stage, i32)> {
    // SAFETY: see Plan::steps.
    let fd = unsafe { libc::open(path.as_ptr(), libc::O_WRONLY | libc::O_CLOEXEC) };
    check(stage, fd as i64)?;
    // SAFETY: see Plan::steps; the descriptor goes away with exec.
    check(stage, unsafe { libc::write(fd, content.as_ptr().cast(), content.len()) } as i64)
}

fn check(stage: Stage, rc: i64) -> Result<(), (Stage, i32)> {
    if rc < 0 { Err((stage, errno())) } else { Ok(()) }
}

fn errno() -> i32 {
    // SAFETY: the address of this thread's errno is always valid.
    unsafe { *libc::__errno_location() }
}

/// The child's descriptor numbers, sorted: 0, 1, 2 and the extra ones.
fn targets(extra: &[(std::os::fd::OwnedFd, RawFd)]) -> Result<Vec<RawFd>, SpawnError> {
    let mut all = vec![0, 1, 2];
    for (_, target) in extra {
        if all.contains(target) || !(3..RawFd::MAX - 8).contains(target) {
            return Err(SpawnError::FdTarget { target: *target });
        }
        all.push(*target);
    }
    all.sort_unstable();
    Ok(all)
}

/// What lies between the sorted targets, and above the report pipe, which follows the last of them.
fn gaps(targets: &[RawFd], report_at: RawFd) -> Vec<(u32, u32)> {
    let between = targets.windows(2).filter(|w| w[1] - w[0] > 1).map(|w| (w[0] as u32 + 1, w[1] as u32 - 1));
    between.chain([(report_at as u32 + 1, u32::MAX)]).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_gaps_are_all_numbers_that_nobody_asked_for() {
        let check = |targets: &[RawFd], want: &[(u32, u32)]| {
            let report_at = targets.iter().max().unwrap() + 1;
            assert_eq!(gaps(targets, report_at), want, "{targets:?}");
        };
        check(&[0, 1, 2], &[(4, u32::MAX)]);
        check(&[0, 1, 2, 3], &[(5, u32::MAX)]);
        check(&[0, 1, 2, 5, 6, 9], &[(3, 4), (7, 8), (11, u32::MAX)]);
    }
}
