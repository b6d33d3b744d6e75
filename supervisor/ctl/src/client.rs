//! One request to the daemon, or one stream of lines from it.

use crate::peer::Peer;
use reqwest::{Method, Response, Url};
use serde::Serialize;
use serde::de::DeserializeOwned;
use socialweb_wire::{ApiError, PREFIX, StreamLine, place};
use std::future::Future;
use std::io;
use std::marker::PhantomData;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Longest wait for an answer that is no stream. The daemon itself answers or refuses within half a minute.
const ANSWER: Duration = Duration::from_secs(90);

/// While an answer is awaited, the daemon's process is looked at this often.
const LOOK: Duration = Duration::from_millis(500);
/// Seen stopped this many times in a row, it is taken for stopped. A debugger or a checkpoint stops it for a moment.
const STOPPED: u32 = 5;
/// After this long without an answer the person is told what is being waited for.
const TELL: Duration = Duration::from_secs(5);

/// Longest line of a stream: a status of 1,000 groups has under 2 MiB.
const MAX_LINE: usize = 64 << 20;

/// Why the daemon could not be asked, or what it refused.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// No place to look.
    #[error(
        "there is no admin socket to try: none of -socket, SOCIALWEB_ADMIN_SOCKET, XDG_RUNTIME_DIR and HOME is given"
    )]
    NoPlace,
    /// Nobody answers on the socket.
    #[error(
        "no daemon answers on {socket}{others}; start it (`systemctl --user start socialweb-computer-gateway`, or \
         `socialweb-computer run -config FILE`), or name its socket with -socket"
    )]
    NotReachable {
        /// The socket that was tried.
        socket: String,
        /// The other places, as text.
        others: String,
        /// The kernel's answer.
        #[source]
        source: io::Error,
    },
    /// The daemon takes connections and does not answer.
    #[error(
        "the daemon on {socket} does not answer ({peer}); let a stopped one go on with `kill -CONT`, a frozen one \
         with `systemctl --user thaw UNIT`, look at the log of one that runs, or restart it (`systemctl --user restart socialweb-computer-gateway`); `ctl doctor` and `ctl bundle` \
         work without it"
    )]
    Silent {
        /// The socket.
        socket: PathBuf,
        /// Its process and how that one is.
        peer: String,
    },
    /// The daemon hung up.
    #[error("the daemon on {socket} hung up before it had answered; look at its log")]
    Lost {
        /// The socket.
        socket: PathBuf,
        /// The cause.
        #[source]
        source: reqwest::Error,
    },
    /// The daemon ended while it was being watched.
    #[error("the daemon ended, or was restarted, while it was being watched")]
    Ended,
    /// The answer makes no sense.
    #[error("the answer of {socket} is not understood; are daemon and ctl of the same version? {why}")]
    Nonsense {
        /// The socket.
        socket: PathBuf,
        /// What is wrong with it.
        why: String,
    },
    /// The HTTP client could not be made.
    #[error("cannot make an HTTP client")]
    Setup(#[source] reqwest::Error),
    /// The daemon refused.
    #[error(transparent)]
    Api(#[from] ApiError),
}

impl ClientError {
    /// True when there is no daemon to talk to, or none any more.
    pub fn is_unreachable(&self) -> bool {
        matches!(
            self,
            ClientError::NoPlace
                | ClientError::NotReachable { .. }
                | ClientError::Silent { .. }
                | ClientError::Lost { .. }
                | ClientError::Ended
        )
    }
}

/// A client of one daemon.
#[derive(Debug, Clone)]
pub struct Client {
    http: reqwest::Client,
    socket: PathBuf,
    peer: Option<Peer>,
}

/// The parts of a route after [`PREFIX`], and its query. Parts are escaped: a name with a slash stays one part.
#[derive(Debug, Clone, Copy)]
pub struct Route<'a, Q: Serialize = ()> {
    /// Such as `["groups", "demo", "start"]`.
    pub parts: &'a [&'a str],
    /// A flat struct, or nothing.
    pub query: Option<&'a Q>,
}

impl<'a> Route<'a> {
    /// A route without a query.
    pub fn to(parts: &'a [&'a str]) -> Self {
        Route { parts, query: None }
    }
}

impl Client {
    /// Finds the daemon: the first candidate on which somebody answers.
    ///
    /// # Errors
    /// [`ClientError::NotReachable`] with the first candidate's answer.
    pub async fn find(named: Option<&Path>, state_dir: Option<&Path>) -> Result<Client, ClientError> {
        Self::among(place::socket_candidates(named, state_dir, &|name| std::env::var_os(name))).await
    }

    /// The same among these candidates.
    ///
    /// # Errors
    /// See [`Client::find`].
    pub async fn among(candidates: Vec<PathBuf>) -> Result<Client, ClientError> {
        let mut refused = None;
        for socket in &candidates {
            match tokio::net::UnixStream::connect(socket).await {
                Ok(stream) => return Self::at(socket.clone(), Peer::of(&stream)),
                Err(error) => drop(refused.get_or_insert(error)),
            }
        }
        let (Some(source), Some(socket)) = (refused, candidates.first()) else { return Err(ClientError::NoPlace) };
        let others: Vec<_> = candidates[1..].iter().map(|path| format!(" or {}", path.display())).collect();
        Err(ClientError::NotReachable { socket: socket.display().to_string(), others: others.concat(), source })
    }

    fn at(socket: PathBuf, peer: Option<Peer>) -> Result<Client, ClientError> {
        // No TLS on a unix socket, so no authorities either: by default they are read from the host, which may have none.
        let builder = reqwest::Client::builder().unix_socket(socket.clone()).no_proxy().tls_certs_only([]);
        let http = builder.build().map_err(ClientError::Setup)?;
        Ok(Client { http, socket, peer })
    }

    /// The daemon's socket.
    pub fn socket(&self) -> &Path {
        &self.socket
    }

    /// The daemon's process, where it is of this pid namespace.
    pub fn peer(&self) -> Option<Peer> {
        self.peer
    }

    /// True when a daemon answers on the socket now.
    pub async fn is_there(&self) -> bool {
        tokio::net::UnixStream::connect(&self.socket).await.is_ok()
    }

    /// Asks for something.
    ///
    /// # Errors
    /// The daemon's refusal, or why it could not be asked.
    pub async fn get<T: DeserializeOwned, Q: Serialize>(&self, route: Route<'_, Q>) -> Result<T, ClientError> {
        self.parse(&self.whole(Method::GET, self.url(PREFIX, route)?).await?)
    }

    /// Asks to do something.
    ///
    /// # Errors
    /// The daemon's refusal, or why it could not be asked.
    pub async fn post<T: DeserializeOwned, Q: Serialize>(&self, route: Route<'_, Q>) -> Result<T, ClientError> {
        self.parse(&self.whole(Method::POST, self.url(PREFIX, route)?).await?)
    }

    /// Asks for a plain text outside the API's prefix.
    ///
    /// # Errors
    /// The daemon's refusal, or why it could not be asked.
    pub async fn text(&self, path: &str) -> Result<String, ClientError> {
        let text = self.whole(Method::GET, self.url("", Route::to(&[path]))?).await?;
        Ok(String::from_utf8_lossy(&text).into_owned())
    }

    /// Asks for a stream.
    ///
    /// # Errors
    /// The daemon's refusal, or why it could not be asked.
    pub async fn stream<T: DeserializeOwned, Q: Serialize>(
        &self,
        route: Route<'_, Q>,
    ) -> Result<Lines<T>, ClientError> {
        let answer = self.patient(self.ask(Method::GET, self.url(PREFIX, route)?, None)).await?;
        Ok(Lines { client: self.clone(), answer, rest: Vec::new(), scanned: 0, item: PhantomData })
    }

    /// An answer that is no stream, to its end.
    async fn whole(&self, method: Method, url: Url) -> Result<Vec<u8>, ClientError> {
        self.patient(async {
            let answer = self.ask(method, url, Some(ANSWER)).await?;
            Ok(answer.bytes().await.map_err(|source| self.lost(source))?.to_vec())
        })
        .await
    }

    /// Waits for an answer as long as the daemon's process can give one.
    async fn patient<T>(&self, answer: impl Future<Output = Result<T, ClientError>>) -> Result<T, ClientError> {
        let mut answer = std::pin::pin!(answer);
        let (mut stopped, mut looks) = (0, 0);
        loop {
            tokio::select! {
                answer = &mut answer => return answer,
                () = tokio::time::sleep(LOOK) => looks += 1,
            }
            self.look_at_peer(&mut stopped)?;
            if LOOK * looks == TELL {
                let peer = self.peer.map(|peer| format!(" ({peer})")).unwrap_or_default();
                crate::commands::note(&format!("the daemon{peer} has not answered for {} s", TELL.as_secs()));
            }
        }
    }

    /// To be called now and then by who waits; `stopped` counts how often in a row the daemon's process was seen stopped.
    ///
    /// # Errors
    /// [`ClientError::Silent`] once it is taken for stopped.
    pub fn look_at_peer(&self, stopped: &mut u32) -> Result<(), ClientError> {
        *stopped = if self.peer.is_some_and(Peer::is_stopped) { *stopped + 1 } else { 0 };
        if *stopped >= STOPPED { Err(self.silent()) } else { Ok(()) }
    }

    async fn ask(&self, method: Method, url: Url, limit: Option<Duration>) -> Result<Response, ClientError> {
        let mut request = self.http.request(method, url);
        if let Some(limit) = limit {
            request = request.timeout(limit);
        }
        let answer = request.send().await.map_err(|source| self.lost(source))?;
        let status = answer.status();
        if status.is_success() {
            return Ok(answer);
        }
        let body = answer.bytes().await.map_err(|source| self.lost(source))?;
        match serde_json::from_slice::<ApiError>(&body) {
            Ok(error) => Err(error.into()),
            Err(_) => Err(self.nonsense(format!("it answered with HTTP status {status}"))),
        }
    }

    fn url<Q: Serialize>(&self, prefix: &str, route: Route<'_, Q>) -> Result<Url, ClientError> {
        // The host is never looked up: the socket is the way.
        let mut url = Url::parse("http://admin").map_err(|error| self.nonsense(error.to_string()))?;
        if let Ok(mut path) = url.path_segments_mut() {
            path.clear().extend(prefix.split('/').filter(|part| !part.is_empty())).extend(route.parts);
        }
        let query = serde_json::to_value(route.query).map_err(|error| self.nonsense(error.to_string()))?;
        for (key, value) in query.as_object().into_iter().flatten() {
            match value {
                serde_json::Value::Null => {}
                serde_json::Value::String(text) => drop(url.query_pairs_mut().append_pair(key, text)),
                other => drop(url.query_pairs_mut().append_pair(key, &other.to_string())),
            }
        }
        Ok(url)
    }

    fn parse<T: DeserializeOwned>(&self, body: &[u8]) -> Result<T, ClientError> {
        serde_json::from_slice(body).map_err(|error| self.nonsense(error.to_string()))
    }

    fn silent(&self) -> ClientError {
        let peer = self.peer.map_or_else(|| "its process is not known".into(), |peer| peer.to_string());
        ClientError::Silent { socket: self.socket.clone(), peer }
    }

    fn lost(&self, source: reqwest::Error) -> ClientError {
        if source.is_timeout() {
            return self.silent();
        }
        ClientError::Lost { socket: self.socket.clone(), source: source.without_url() }
    }

    fn nonsense(&self, why: String) -> ClientError {
        ClientError::Nonsense { socket: self.socket.clone(), why }
    }
}

/// Lines of a stream.
pub struct Lines<T> {
    client: Client,
    answer: Response,
    rest: Vec<u8>,
    scanned: usize,
    item: PhantomData<T>,
}

impl<T: DeserializeOwned> Lines<T> {
    /// The next line; none when the daemon ended the stream. May be dropped and called again without losing a line.
    ///
    /// # Errors
    /// The daemon's refusal to go on, or why the line is not understood.
    pub async fn next(&mut self) -> Result<Option<Line<T>>, ClientError> {
        loop {
            if let Some(end) = self.rest[self.scanned..].iter().position(|byte| *byte == b'\n') {
                let line: Vec<u8> = self.rest.drain(..=self.scanned + end).collect();
                self.scanned = 0;
                return match self.client.parse(&line)? {
                    StreamLine::Item(item) => Ok(Some(Line::Item(item))),
                    StreamLine::Missed(missed) => Ok(Some(Line::Missed(missed.missed))),
                    StreamLine::Error(error) => Err(error.into()),
                };
            }
            self.scanned = self.rest.len();
            if self.rest.len() > MAX_LINE {
                return Err(self.client.nonsense("it sent a line without end".into()));
            }
            match self.answer.chunk().await {
                Ok(Some(chunk)) => self.rest.extend_from_slice(&chunk),
                // A daemon that is killed cuts the stream instead of ending it.
                Ok(None) | Err(_) => return Ok(None),
            }
        }
    }
}

/// One line of a stream.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Line<T> {
    /// What was asked for.
    Item(T),
    /// This many lines were left out.
    Missed(u64),
}
