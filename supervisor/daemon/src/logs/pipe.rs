//! One run's pipe: what is read from it becomes lines.

use super::line::{LogLine, Priority, Raw, Source, Splitter, interpret};
use super::store::Watch;
use nix::fcntl::{FcntlArg, OFlag, fcntl};
use socialweb_core::Birth;
use std::io::{self, ErrorKind};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::SystemTime;

/// One run's pipe.
pub(super) struct Pipe {
    pub(super) fd: OwnedFd,
    pub(super) source: Arc<Source>,
    birth: Birth,
    splitter: Splitter,
    priority: Priority,
    pub(super) watch: Option<Watch>,
}

/// Both ends; ours does not block. Past 1,024 pipes of one account the kernel gives new ones two pages instead of sixteen (pipe-user-pages-soft); that
/// costs throughput, not lines.
pub(super) fn pair() -> nix::Result<(OwnedFd, OwnedFd)> {
    let (read, write) = nix::unistd::pipe2(OFlag::O_CLOEXEC)?;
    fcntl(&read, FcntlArg::F_SETFL(OFlag::O_NONBLOCK))?;
    Ok((read, write))
}

impl Pipe {
    pub(super) fn new(fd: OwnedFd, source: Arc<Source>, birth: Birth, watch: Option<Watch>) -> Pipe {
        Pipe { fd, source, birth, splitter: Splitter::default(), priority: Priority::INFO, watch }
    }

    /// Lines out of newly read bytes; `None` = the stream ended.
    pub(super) fn lines(&mut self, bytes: Option<&[u8]>) -> Vec<Arc<LogLine>> {
        let mut lines = Vec::new();
        let Pipe { source, birth, splitter, priority, .. } = self;
        let at = SystemTime::now();
        let out = |raw: Raw<'_>| {
            let (level, text) = interpret(&raw, *priority);
            *priority = level;
            let (source, birth, continues) = (Arc::clone(source), *birth, raw.continues);
            lines.push(Arc::new(LogLine { source, birth, at, priority: level, continues, text }));
        };
        match bytes {
            Some(bytes) => splitter.feed(bytes, out),
            None => splitter.finish(out),
        }
        lines
    }

    /// Reads once; `Ok(None)` = nothing there now.
    pub(super) fn read(&self, buffer: &mut [u8]) -> io::Result<Option<usize>> {
        match nix::unistd::read(&self.fd, buffer).map_err(io::Error::from) {
            Ok(n) => Ok(Some(n)),
            Err(e) if matches!(e.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => Ok(None),
            Err(e) => Err(e),
        }
    }
}
