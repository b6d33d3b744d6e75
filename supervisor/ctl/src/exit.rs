//! How a command ends: one code per kind of ending, the same for all sub-commands of the program.

use crate::client::ClientError;
use std::error::Error;
use std::io;
use std::process::ExitCode;
use std::time::Duration;

/// The program's exit codes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Exit {
    /// 0: done.
    Done,
    /// 1: a check or a request failed.
    Failed,
    /// 2: wrong usage.
    Usage,
    /// 3: the daemon is not reachable.
    NotReachable,
    /// 4: timed out waiting.
    TimedOut,
}

impl Exit {
    /// The number.
    pub fn code(self) -> u8 {
        match self {
            Exit::Done => 0,
            Exit::Failed => 1,
            Exit::Usage => 2,
            Exit::NotReachable => 3,
            Exit::TimedOut => 4,
        }
    }
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> ExitCode {
        ExitCode::from(exit.code())
    }
}

/// Why a command did not do what was asked.
#[derive(Debug, thiserror::Error)]
pub enum CtlError {
    /// The daemon could not be asked, or refused.
    #[error(transparent)]
    Client(#[from] ClientError),
    /// The daemon tried and failed.
    #[error("{what} did not happen: {why}")]
    NotDone {
        /// What was asked for.
        what: String,
        /// What the status says.
        why: String,
    },
    /// There is none to show.
    #[error("there is no receipt of {group}: it was never stopped")]
    NoReceipt {
        /// The group.
        group: String,
    },
    /// It may still happen.
    #[error("waited {} for {what}, and it {now}; the daemon goes on with it, `ctl status --watch` shows how", humantime::format_duration(*.after))]
    TimedOut {
        /// What was asked for.
        what: String,
        /// What the last status says.
        now: String,
        /// How long was waited.
        after: Duration,
    },
    /// Not understood.
    #[error("{0}")]
    Usage(String),
    /// The question was answered with no.
    #[error("nothing was deleted")]
    NotConfirmed,
    /// The answer could not be printed.
    #[error("cannot print the answer")]
    Output(#[from] io::Error),
    /// The answer could not be written as YAML.
    #[error("cannot write the answer as YAML")]
    Yaml(#[from] serde_norway::Error),
}

impl CtlError {
    /// The exit code that belongs to it.
    pub fn exit(&self) -> Exit {
        match self {
            // Whoever read our output has seen enough: `ctl logs -f | head`.
            CtlError::Output(error) if error.kind() == io::ErrorKind::BrokenPipe => Exit::Done,
            CtlError::Client(error) if error.is_unreachable() => Exit::NotReachable,
            CtlError::TimedOut { .. } => Exit::TimedOut,
            CtlError::Usage(_) => Exit::Usage,
            _ => Exit::Failed,
        }
    }
}

/// Tells an error with its causes on stderr.
pub fn tell(error: &CtlError) -> Exit {
    let exit = error.exit();
    if exit != Exit::Done {
        let mut text = format!("error: {error}");
        let mut cause = error.source();
        while let Some(inner) = cause {
            text.push_str(&format!("\n  because: {inner}"));
            cause = inner.source();
        }
        // Nobody is left to be told when stderr is gone.
        let _ = io::Write::write_all(&mut io::stderr(), crate::render::clean_lines(&format!("{text}\n")).as_bytes());
    }
    exit
}
