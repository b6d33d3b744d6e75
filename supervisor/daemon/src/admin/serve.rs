//! Accepting and bounding: one task accepts, one task per connection, one request per connection.
//!
//! One request per connection keeps every bound simple: a connection that does not stream has a fixed time from accept to
//! its last byte, whatever its peer does or does not send or read. The cost, a connect per request, is nothing here.

use super::command::{AdminHandle, Counters};
use super::peer::{Peer, PeerCheck};
use super::routes;
use super::socket::Bound;
use super::sparing::Sparing;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use socialweb_wire::{ApiError, ErrorCode};
use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::task::JoinSet;
use tokio::time::Instant;

/// What one peer may cost.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Connections at once; who comes then is turned away with 503.
    pub connections: usize,
    /// Of these, streams; the rest stays free for short requests, so that followers cannot lock the operator out.
    pub streams: usize,
    /// From accept to the last byte of the request's head.
    pub head: Duration,
    /// From accept to the last byte of the answer, unless it is a stream.
    pub whole: Duration,
    /// Size of a request's body. No route reads one; ctl sends none.
    pub body: usize,
}

impl Default for Limits {
    /// For people and their scripts: some terminals that follow, a scraper, a few commands at once. `whole` is above the
    /// time that the loop may take for an answer.
    fn default() -> Self {
        Limits {
            connections: 64,
            streams: 48,
            head: Duration::from_secs(10),
            whole: Duration::from_secs(60),
            body: 64 * 1024,
        }
    }
}

/// Size of a request's head: hyper's smallest buffer, far above what a client of ours sends.
const HEAD_BYTES: usize = 8 * 1024;

/// Refused peers that are being told why; more are hung up on.
const DOORSTEP: usize = 16;

/// Somebody may remove the socket's file: it is missed this soon.
const LOOK_EVERY: Duration = Duration::from_secs(15);

/// How long a refused peer may take to hear why.
const REFUSAL: Duration = Duration::from_secs(1);

/// A bound admin server, ready to serve.
pub struct AdminServer {
    socket: Bound,
    check: PeerCheck,
    limits: Limits,
    handle: AdminHandle,
}

/// Set by a handler whose answer goes on.
#[derive(Debug, Clone, Default)]
pub(super) struct Streams(Arc<AtomicBool>);

impl Streams {
    pub(super) fn mark(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    fn is_marked(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

/// The places of streams, shared by all connections.
#[derive(Debug, Clone)]
pub(super) struct StreamPlaces(Arc<Semaphore>);

impl StreamPlaces {
    /// A place, given back when dropped.
    pub(super) fn take(&self) -> Result<OwnedSemaphorePermit, ApiError> {
        self.0.clone().try_acquire_owned().map_err(|_| {
            ApiError::new(ErrorCode::Busy, "too many logs, events and watches are being followed")
                .with_hint("end some of them (each `-f` or --watch is one) and try again")
        })
    }
}

impl AdminServer {
    /// A server on `socket` that answers who passes `check`, with the answers that come through `handle`.
    pub fn new(socket: Bound, check: PeerCheck, limits: Limits, handle: AdminHandle) -> Self {
        AdminServer { socket, check, limits, handle }
    }

    /// Serves until `shutdown` is there, then gives answers on their way half a second. The socket is removed at the end.
    pub async fn run(self, shutdown: impl Future<Output = ()>) {
        let AdminServer { mut socket, check, limits, handle } = self;
        let places = StreamPlaces(Arc::new(Semaphore::new(limits.streams)));
        let router = routes::router(handle.clone(), places, limits.body);
        let mut door = Door {
            check,
            handle,
            places: Arc::new(Semaphore::new(limits.connections)),
            doorstep: Arc::new(Semaphore::new(DOORSTEP)),
            limits,
            refused: Sparing::default(),
        };
        let mut unaccepted = Sparing::default();
        let mut connections = JoinSet::new();
        tokio::pin!(shutdown);
        let mut look = tokio::time::interval(LOOK_EVERY);
        let mut failing = false;
        loop {
            tokio::select! {
                () = &mut shutdown => break,
                Some(_) = connections.join_next() => {}
                _ = look.tick() => failing = socket.keep(failing),
                accepted = socket.listener.accept() => match accepted {
                    Ok((stream, _)) => door.enter(stream, &router, &mut connections),
                    Err(error) => {
                        // Out of descriptors, most likely: the loop must not spin until one is free again.
                        if let Some(unsaid) = unaccepted.due(Instant::now()) {
                            tracing::warn!(%error, unsaid, "the admin socket cannot accept");
                        }
                        tokio::time::sleep(Duration::from_millis(100)).await;
                    }
                },
            }
        }
        drop(socket);
        let _ = tokio::time::timeout(Duration::from_millis(500), async {
            while connections.join_next().await.is_some() {}
        })
        .await;
    }
}

/// Decides who comes in.
struct Door {
    check: PeerCheck,
    handle: AdminHandle,
    places: Arc<Semaphore>,
    doorstep: Arc<Semaphore>,
    limits: Limits,
    refused: Sparing,
}

impl Door {
    fn enter(&mut self, stream: UnixStream, router: &axum::Router, connections: &mut JoinSet<()>) {
        let counters = &self.handle.counters;
        Counters::add(&counters.accepted, 1);
        let allowed =
            Peer::of(&stream).map_err(|error| format!("the caller cannot be seen: {error}")).and_then(|peer| {
                (self.check)(&peer).inspect_err(|why| {
                    if let Some(unsaid) = self.refused.due(Instant::now()) {
                        tracing::warn!(peer.pid, peer.uid, why, unsaid, "admin request refused");
                    }
                })
            });
        if let Err(why) = allowed {
            Counters::add(&counters.refused, 1);
            return self.turn_away(stream, ApiError::new(ErrorCode::Refused, why), connections);
        }
        match self.places.clone().try_acquire_owned() {
            Ok(place) => drop(connections.spawn(converse(stream, router.clone(), self.limits, place))),
            Err(_) => {
                Counters::add(&counters.turned_away, 1);
                let error = ApiError::new(ErrorCode::Busy, "too many admin connections are open")
                    .with_hint("end some of them and try again");
                self.turn_away(stream, error, connections);
            }
        }
    }

    /// Says why on the doorstep, or where that is full just hangs up.
    fn turn_away(&self, stream: UnixStream, error: ApiError, connections: &mut JoinSet<()>) {
        let Ok(place) = self.doorstep.clone().try_acquire_owned() else { return };
        connections.spawn(async move {
            let _ = tokio::time::timeout(REFUSAL, refuse(stream, error)).await;
            drop(place);
        });
    }
}

/// Answers without looking at a byte of the request. It waits until something came, because HTTP clients drop a response
/// that is there before their request; and it drains what comes, because a client whose writes fail does not read on:
/// both times the reason would be lost.
async fn refuse(mut stream: UnixStream, error: ApiError) {
    let _ = tokio::time::timeout(REFUSAL / 2, stream.read(&mut [0; 64])).await;
    let _ = stream.write_all(&refusal(&error)).await;
    let _ = stream.shutdown().await;
    let _ = tokio::io::copy(&mut stream, &mut tokio::io::sink()).await;
}

/// A whole response, written by hand because no request was read.
fn refusal(error: &ApiError) -> Vec<u8> {
    let body = serde_json::to_string(error).unwrap_or_default();
    let reason = if error.code == ErrorCode::Refused { "Forbidden" } else { "Service Unavailable" };
    format!(
        "HTTP/1.1 {} {reason}\r\ncontent-type: application/json\r\ncontent-length: {}\r\nconnection: close\r\n\r\n{body}",
        error.code.status(),
        body.len()
    )
    .into_bytes()
}

/// One connection, one request.
async fn converse(stream: UnixStream, router: axum::Router, limits: Limits, _place: OwnedSemaphorePermit) {
    let streams = Streams::default();
    let service = TowerToHyperService::new(router.layer(axum::Extension(streams.clone())));
    let connection = hyper::server::conn::http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(limits.head)
        .max_buf_size(HEAD_BYTES)
        .keep_alive(false)
        .serve_connection(TokioIo::new(stream), service);
    tokio::pin!(connection);
    let ended = tokio::select! {
        ended = &mut connection => ended,
        () = tokio::time::sleep(limits.whole) => {
            if !streams.is_marked() {
                return;
            }
            connection.await
        }
    };
    if let Err(error) = ended {
        // A peer that hung up or sent nonsense; nothing that the operator could do.
        tracing::debug!(%error, "admin connection ended");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_is_a_whole_response() {
        let text = String::from_utf8(refusal(&ApiError::new(ErrorCode::Refused, "no"))).unwrap();
        let (head, body) = text.split_once("\r\n\r\n").unwrap();
        assert!(head.starts_with("HTTP/1.1 403 Forbidden\r\n") && head.contains(&format!("length: {}", body.len())));
        assert_eq!(serde_json::from_str::<ApiError>(body).unwrap().error, "no");
    }
}
