//! Bodies that go on: one JSON value per line, written as fast as the peer reads and no faster.
//!
//! A body is pulled by its connection: while the peer does not read, nothing is pulled, a status is not even asked for,
//! and a follower's bounded channel overflows on its own, which the next line then says. Nobody else notices.

use super::command::{AdminHandle, Command, Counters, Feed};
use axum::body::{Body, Bytes};
use axum::http::header;
use axum::response::{IntoResponse, Response};
use serde::Serialize;
use socialweb_core::GroupName;
use socialweb_wire::{HostStatus, Missed, NDJSON, StreamLine};
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use tokio::sync::broadcast::error::{RecvError, TryRecvError};
use tokio::sync::{OwnedSemaphorePermit, broadcast, watch};
use tokio::time::Instant;

/// Least time between two statuses of a watch: faster than a person reads, and a start of 500 groups does not make one
/// per change.
const WATCH_PACE: Duration = Duration::from_millis(200);

/// A watch shows ages and memory anew after this long without a change.
const WATCH_REFRESH: Duration = Duration::from_secs(10);

/// Lines are gathered up to this size, so that a flood costs few writes.
const CHUNK: usize = 16 * 1024;

/// A place among the streams, and its count.
struct Place {
    handle: AdminHandle,
    _permit: OwnedSemaphorePermit,
}

impl Place {
    fn new(handle: AdminHandle, permit: OwnedSemaphorePermit) -> Self {
        Counters::add(&handle.counters.streams, 1);
        Place { handle, _permit: permit }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.handle.counters.streams.fetch_sub(1, Ordering::Relaxed);
    }
}

/// A stream of statuses: `first`, then one after each change of `revision`.
pub(super) fn watch(
    handle: AdminHandle,
    group: Option<GroupName>,
    revision: watch::Receiver<u64>,
    first: HostStatus,
    permit: OwnedSemaphorePermit,
) -> Response {
    let watch = Watch { place: Place::new(handle, permit), group, revision, next: Next::First(Box::new(first)) };
    ndjson(futures::stream::unfold(watch, Watch::step))
}

struct Watch {
    place: Place,
    group: Option<GroupName>,
    revision: watch::Receiver<u64>,
    next: Next,
}

enum Next {
    First(Box<HostStatus>),
    After(Instant),
    End,
}

impl Watch {
    async fn step(mut self) -> Option<(Bytes, Self)> {
        let line = match std::mem::replace(&mut self.next, Next::End) {
            Next::End => return None,
            Next::First(status) => StreamLine::Item(*status),
            Next::After(last) => self.later(last).await?,
        };
        if !matches!(line, StreamLine::Error(_)) {
            self.next = Next::After(Instant::now());
        }
        let mut bytes = Vec::new();
        push_line(&mut bytes, &line);
        Some((bytes.into(), self))
    }

    /// The next status when it is due; none when the daemon ends.
    async fn later(&mut self, last: Instant) -> Option<StreamLine<HostStatus>> {
        if let Ok(closed) = tokio::time::timeout(WATCH_REFRESH, self.revision.changed()).await {
            closed.ok()?;
        }
        tokio::time::sleep_until(last + WATCH_PACE).await;
        // Marked as seen before asking: a change during the answer makes another line.
        self.revision.borrow_and_update();
        let group = self.group.clone();
        match self.place.handle.ask(|reply| Command::Status { group, reply }).await {
            Ok(status) => Some(StreamLine::Item(status)),
            Err(error) => Some(StreamLine::Error(error)),
        }
    }
}

/// A stream of a feed's lines that `keep` keeps.
pub(super) fn follow<T, F>(handle: AdminHandle, feed: Feed<T>, keep: F, permit: OwnedSemaphorePermit) -> Response
where
    T: Serialize + Send + Sync + 'static,
    F: Fn(&T) -> bool + Send + 'static,
{
    let follow = Follow { place: Place::new(handle, permit), past: feed.past.into(), live: feed.live, keep };
    ndjson(futures::stream::unfold(follow, Follow::step))
}

struct Follow<T, F> {
    place: Place,
    past: VecDeque<Arc<T>>,
    live: Option<broadcast::Receiver<Arc<T>>>,
    keep: F,
}

impl<T, F> Follow<T, F>
where
    T: Serialize + Send + Sync + 'static,
    F: Fn(&T) -> bool + Send + 'static,
{
    /// At least one line, and what else is there by then.
    async fn step(mut self) -> Option<(Bytes, Self)> {
        let mut chunk = Vec::new();
        while chunk.len() < CHUNK {
            if let Some(line) = self.past.pop_front() {
                self.push(&mut chunk, Ok(line));
                continue;
            }
            let Some(live) = &mut self.live else { break };
            let received = if chunk.is_empty() {
                live.recv().await
            } else {
                match live.try_recv() {
                    Ok(line) => Ok(line),
                    Err(TryRecvError::Empty) => break,
                    Err(TryRecvError::Closed) => Err(RecvError::Closed),
                    Err(TryRecvError::Lagged(n)) => Err(RecvError::Lagged(n)),
                }
            };
            self.push(&mut chunk, received);
        }
        if chunk.is_empty() { None } else { Some((chunk.into(), self)) }
    }

    fn push(&mut self, chunk: &mut Vec<u8>, received: Result<Arc<T>, RecvError>) {
        match received {
            Ok(line) if (self.keep)(&line) => push_line(chunk, &*line),
            Ok(_) => {}
            Err(RecvError::Lagged(missed)) => {
                Counters::add(&self.place.handle.counters.missed, missed);
                push_line(chunk, &Missed { missed });
            }
            Err(RecvError::Closed) => self.live = None,
        }
    }
}

fn push_line<T: Serialize>(chunk: &mut Vec<u8>, line: &T) {
    // Our types have no map keys or numbers that JSON cannot hold: writing into memory cannot fail.
    if serde_json::to_writer(&mut *chunk, line).is_ok() {
        chunk.push(b'\n');
    }
}

fn ndjson<S>(stream: S) -> Response
where
    S: futures::Stream<Item = Bytes> + Send + 'static,
{
    use futures::StreamExt;
    let body = Body::from_stream(stream.map(Ok::<_, std::convert::Infallible>));
    ([(header::CONTENT_TYPE, NDJSON)], body).into_response()
}
