//! Work that waits for a disk or reads all of /proc, on other threads: the loop never waits for it (law L10).
//!
//! A few threads, made when they are needed and kept: tokio's own pool panics where no thread can be made, and a daemon
//! whose account is out of processes must go on. Then the work is done where it is asked for.

use crate::failpoint;
use std::collections::VecDeque;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;

/// Threads at most. One removes a deleted group's gigabytes while another writes the leases; more would only wait for the
/// same disk.
const THREADS: usize = 4;
/// The work here has no deep stacks.
const STACK: usize = 512 * 1024;

type Job = Box<dyn FnOnce() + Send>;

/// Hands work to other threads. They end when this is dropped, after the work that they are at.
#[derive(Debug, Default)]
pub(crate) struct Aside {
    shared: Arc<Shared>,
}

/// Threads of their own for what waits for a disk and for what looks for processes: a disk that answers no more takes all
/// that wait for it, and no group's end may wait with them.
#[derive(Debug, Default)]
pub(crate) struct Asides {
    /// Flushes, removals, core dumps.
    pub disk: Aside,
    /// Hunts, and who holds a port.
    pub processes: Aside,
}

#[derive(Default)]
struct Shared {
    queue: Mutex<Queue>,
    more: Condvar,
}

#[derive(Default)]
struct Queue {
    jobs: VecDeque<Job>,
    threads: usize,
    idle: usize,
    closed: bool,
}

impl std::fmt::Debug for Shared {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Shared").finish_non_exhaustive()
    }
}

impl Shared {
    /// A job that panicked has not touched the queue.
    fn lock(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Aside {
    /// Does `work` on another thread, in the order of asking as far as there are threads.
    ///
    /// # Errors
    /// No thread could be made and there is none: the work was done here, before this returned.
    pub fn run(&self, work: impl FnOnce() + Send + 'static) -> io::Result<()> {
        let mut queue = self.shared.lock();
        if queue.idle <= queue.jobs.len() && queue.threads < THREADS {
            match start(&self.shared) {
                Ok(()) => queue.threads += 1,
                // Those that are there take it when they come to it.
                Err(_) if queue.threads > 0 => {}
                Err(error) => {
                    drop(queue);
                    work();
                    return Err(error);
                }
            }
        }
        queue.jobs.push_back(Box::new(work));
        self.shared.more.notify_one();
        Ok(())
    }

    /// The same for work that has an answer: `tell` gets it, or `lost` where the work panicked, so that nobody waits for an
    /// answer that never comes.
    ///
    /// # Errors
    /// As [`Aside::run`]; `tell` was called all the same.
    pub fn ask<A: Send + 'static>(
        &self,
        lost: A,
        work: impl FnOnce() -> A + Send + 'static,
        tell: impl FnOnce(A) + Send + 'static,
    ) -> io::Result<()> {
        self.run(move || tell(catch_unwind(AssertUnwindSafe(work)).unwrap_or(lost)))
    }
}

impl Drop for Aside {
    fn drop(&mut self) {
        self.shared.lock().closed = true;
        self.shared.more.notify_all();
    }
}

fn start(shared: &Arc<Shared>) -> io::Result<()> {
    if failpoint::no_thread() {
        return Err(io::Error::from(io::ErrorKind::WouldBlock));
    }
    let shared = Arc::clone(shared);
    thread::Builder::new().name("aside".into()).stack_size(STACK).spawn(move || serve(&shared)).map(drop)
}

fn serve(shared: &Shared) {
    while let Some(job) = next(shared) {
        // What a job has to tell it tells itself; one that panics tells nothing, and the others go on.
        let _ = catch_unwind(AssertUnwindSafe(job));
    }
}

fn next(shared: &Shared) -> Option<Job> {
    let mut queue = shared.lock();
    queue.idle += 1;
    loop {
        if let Some(job) = queue.jobs.pop_front() {
            queue.idle -= 1;
            return Some(job);
        }
        if queue.closed {
            return None;
        }
        queue = shared.more.wait(queue).unwrap_or_else(PoisonError::into_inner);
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use std::sync::mpsc::channel;
    use std::time::Duration;

    const LONG: Duration = Duration::from_secs(60);

    #[test]
    fn work_is_done_elsewhere_and_one_that_hangs_or_panics_does_not_keep_the_rest() {
        let aside = Aside::default();
        let (tx, rx) = channel();
        let (hold, held) = channel::<()>();
        aside.run(move || held.recv().unwrap_or_default()).unwrap();
        aside.run(|| panic!("a job that fails")).unwrap();
        for n in 0..20 {
            let tx = tx.clone();
            aside.run(move || tx.send((n, thread::current().id())).unwrap()).unwrap();
        }
        let mut done: Vec<_> = (0..20).map(|_| rx.recv_timeout(LONG).unwrap()).collect();
        assert!(done.iter().all(|(_, thread)| *thread != thread::current().id()));
        done.sort_by_key(|(n, _)| *n);
        assert!(done.iter().map(|(n, _)| *n).eq(0..20));
        assert!(aside.shared.lock().threads <= THREADS);
        hold.send(()).unwrap();
    }

    #[test]
    fn work_that_panics_has_an_answer_too() {
        let aside = Aside::default();
        let (tx, rx) = channel();
        for (lost, work) in [("lost", (|| panic!("a job that fails")) as fn() -> &'static str), ("lost", || "done")] {
            let tx = tx.clone();
            aside.ask(lost, work, move |answer| tx.send(answer).unwrap()).unwrap();
        }
        let mut answers: Vec<_> = (0..2).map(|_| rx.recv_timeout(LONG).unwrap()).collect();
        answers.sort_unstable();
        assert_eq!(answers, ["done", "lost"]);
    }

    #[test]
    fn its_threads_end_with_it() {
        let aside = Aside::default();
        let (tx, rx) = channel();
        aside.run(move || tx.send(()).unwrap()).unwrap();
        rx.recv_timeout(LONG).unwrap();
        let shared = Arc::downgrade(&aside.shared);
        drop(aside);
        let deadline = std::time::Instant::now() + LONG;
        while shared.strong_count() > 0 {
            assert!(std::time::Instant::now() < deadline, "a thread is left");
            thread::sleep(Duration::from_millis(5));
        }
    }
}
