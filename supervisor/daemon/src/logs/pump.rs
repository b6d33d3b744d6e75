//! The one task that reads all pipes.

use super::line::LogLine;
use super::pipe::Pipe;
use super::store::{Logs, PipeId, Shared, State};
use nix::sys::epoll::{EpollEvent, EpollTimeout};
use std::ops::ControlFlow;
use std::os::fd::{AsRawFd, RawFd};
use std::sync::Arc;

/// Most bytes read from one pipe in one turn. Together with [`PIPES_PER_TURN`] it bounds a turn to 64 KiB: under a
/// millisecond for usual lines, some 15 ms should all of it be empty lines.
pub const READ: usize = 16 * 1024;

/// Most pipes read in one turn. Only as many are asked for: the kernel moves those it reports to the end of its ready
/// list, so that none waits longer than one round.
pub const PIPES_PER_TURN: usize = 4;

/// Busy turns after which the thread that keeps lines is woken; when no pipe is ready it is woken at once. A flood's lines
/// then come to it some hundred KiB at a time, not a file opened and a change of threads for each read of 16 KiB.
const TURNS_PER_WAKE: u8 = 8;

/// Most reads that [`Logs::finish`] makes of a pipe that somebody still floods: four times what a pipe holds by default.
const LAST_READS: usize = 16;

/// The task that reads. See the room's own words on why there is one.
pub struct Pump {
    logs: Logs,
    buffer: Vec<u8>,
    /// Busy turns since the last wake.
    unwoken: u8,
}

impl std::fmt::Debug for Pump {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Pump").finish_non_exhaustive()
    }
}

/// What a turn found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Turn {
    /// At least one pipe was ready; there may be more.
    Busy,
    /// No pipe was ready.
    Idle,
}

/// The poll descriptor, as tokio wants it.
struct Ready(Arc<Shared>);

impl AsRawFd for Ready {
    fn as_raw_fd(&self) -> RawFd {
        self.0.epoll.0.as_raw_fd()
    }
}

impl Pump {
    pub(super) fn new(logs: Logs) -> Pump {
        Pump { logs, buffer: Vec::new(), unwoken: 0 }
    }

    /// Reads for ever; to be dropped, or its task aborted, at the daemon's end. Needs a tokio runtime with IO.
    ///
    /// # Errors
    /// The poll descriptor cannot be registered or waited for; then nothing is read any more, so the daemon must end.
    pub async fn run(mut self) -> std::io::Result<()> {
        let ready = crate::fd::watch(Ready(Arc::clone(&self.logs.shared)))?;
        loop {
            let mut guard = ready.readable().await?;
            match self.turn() {
                Turn::Idle => guard.clear_ready(),
                Turn::Busy => {
                    drop(guard);
                    tokio::task::yield_now().await;
                }
            }
        }
    }

    /// One bounded round over the ready pipes; never waits.
    pub fn turn(&mut self) -> Turn {
        let mut events = [EpollEvent::empty(); PIPES_PER_TURN];
        // The only error that a correct call meets is EINTR: nothing was ready yet.
        let n = self.logs.shared.epoll.wait(&mut events, EpollTimeout::ZERO).unwrap_or(0);
        self.buffer.resize(READ, 0);
        for event in &events[..n] {
            read_once(&self.logs.shared, event.data(), &mut self.buffer);
        }
        self.wake(n == 0);
        if n == 0 { Turn::Idle } else { Turn::Busy }
    }

    fn wake(&mut self, idle: bool) {
        self.unwoken += u8::from(!idle);
        if (idle && self.unwoken > 0) || self.unwoken == TURNS_PER_WAKE {
            self.unwoken = 0;
            self.logs.shared.keep.wake();
        }
    }
}

#[derive(PartialEq, Eq)]
enum Read {
    Some,
    Nothing,
    Ended,
}

fn read_once(shared: &Shared, id: u64, buffer: &mut [u8]) -> Read {
    let mut state = shared.lock();
    let Some(pipe) = state.pipes.get_mut(&id) else { return Read::Ended };
    let lines = match pipe.read(buffer) {
        Ok(Some(n)) if n > 0 => {
            let (source, lines) = (Arc::clone(&pipe.source), pipe.lines(Some(&buffer[..n])));
            shared.deliver(&mut state, &source, &lines, n);
            lines
        }
        Ok(Some(_)) | Err(_) => {
            drop(state);
            close(shared, id);
            return Read::Ended;
        }
        Ok(None) => return Read::Nothing,
    };
    let watch = state.pipes.get_mut(&id).and_then(|p| p.watch.take());
    drop(state);
    // Outside the lock: a watcher may use the room's handle.
    if let Some(mut watch) = watch
        && show(&mut watch, &lines).is_continue()
        && let Some(pipe) = shared.lock().pipes.get_mut(&id)
    {
        pipe.watch = Some(watch);
    }
    Read::Some
}

fn show(watch: &mut super::Watch, lines: &[Arc<LogLine>]) -> ControlFlow<()> {
    lines.iter().try_for_each(|line| watch(line))
}

/// Takes a pipe out, finishing its unfinished line.
fn close(shared: &Shared, id: u64) {
    let mut state = shared.lock();
    let State { pipes, .. } = &mut *state;
    let Some(mut pipe) = pipes.remove(&id) else { return };
    // Explicitly: a child between clone and exec still holds a copy, and closing alone would leave the entry behind.
    let _ = shared.epoll.delete(&pipe.fd);
    let lines = pipe.lines(None);
    shared.deliver(&mut state, &pipe.source, &lines, 0);
    drop(state);
    let Pipe { watch, .. } = &mut *pipe;
    if let Some(watch) = watch {
        let _ = show(watch, &lines);
    }
}

pub(super) fn drain(logs: &Logs, id: PipeId) {
    let mut buffer = vec![0; READ];
    for _ in 0..LAST_READS {
        if read_once(&logs.shared, id.0, &mut buffer) != Read::Some {
            break;
        }
    }
    close(&logs.shared, id.0);
    logs.shared.keep.wake();
}
