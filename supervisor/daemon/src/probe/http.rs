//! GET by http or https: one connection, one request, and of the answer no more than its head and the first of its body.

use super::bounded::Bounded;
use super::tls::{self, Stamp};
use super::{names, tls::server_name};
use crate::chain::chain;
use axum::body::Body;
use futures::StreamExt;
use futures::future::{Either, select};
use http::{Request, Response, Uri, header};
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use socialweb_core::spec::TlsFiles;
use std::pin::pin;
use std::sync::Arc;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

/// What a client trusts and shows, read at its first use and again when the certificate files change.
#[derive(Debug, Default)]
pub(super) struct Client {
    built: Option<(Stamp, Arc<rustls::ClientConfig>)>,
}

/// How much of a refusing answer's body is shown, in bytes.
const SHOWN: usize = 160;
/// Longest head, in bytes: above what servers themselves allow.
const HEAD: usize = 32 << 10;
/// Most that is read for one answer, in bytes: a TLS handshake, a head, and what one read takes of the body.
const LONGEST: usize = 128 << 10;

impl Client {
    pub(super) async fn check(&mut self, url: &str, expect: &[u16], files: Option<&TlsFiles>) -> Result<(), String> {
        self.ask(url, expect, files).await.map_err(|why| format!("GET {url}{why}"))
    }

    async fn ask(&mut self, url: &str, expect: &[u16], files: Option<&TlsFiles>) -> Result<(), String> {
        let failed = |why: String| format!(": {why}");
        let uri: Uri = url.parse().map_err(|e| failed(chain(&e)))?;
        let host = uri.host().unwrap_or_default();
        let secure = uri.scheme_str() == Some("https");
        let port = uri.port_u16().unwrap_or(if secure { 443 } else { 80 });
        // Each attempt dials anew: a kept connection would go on answering when the listener is dead.
        let tcp = connect(host, port).await.map_err(failed)?;
        let tcp = Bounded::new(tcp, LONGEST);
        if !secure {
            return exchange(tcp, &uri, expect).await;
        }
        let config = self.config(files).map_err(failed)?;
        let name = server_name(host).map_err(failed)?;
        let shaken = TlsConnector::from(config).connect(name, tcp).await;
        exchange(shaken.map_err(|e| failed(format!("TLS: {}", chain(&e))))?, &uri, expect).await
    }

    fn config(&mut self, files: Option<&TlsFiles>) -> Result<Arc<rustls::ClientConfig>, String> {
        let stamp = Stamp::of(files);
        if let Some((built, config)) = &self.built
            && *built == stamp
        {
            return Ok(config.clone());
        }
        let config = Arc::new(tls::client(files).map_err(|e| chain(&e))?);
        self.built = Some((stamp, config.clone()));
        Ok(config)
    }
}

async fn connect(host: &str, port: u16) -> Result<TcpStream, String> {
    let failed = |e: std::io::Error| format!("cannot connect: {e}");
    let found = names::resolve(host, port).await.map_err(failed)?;
    TcpStream::connect(&found[..]).await.map_err(failed)
}

/// One request on `stream`, which nobody drives when this future is dropped.
async fn exchange<S>(stream: S, uri: &Uri, expect: &[u16]) -> Result<(), String>
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let failed = |e: &dyn std::error::Error| format!(": {}", chain(e));
    let handshake = http1::Builder::new().max_buf_size(HEAD).handshake(TokioIo::new(stream)).await;
    let (mut sender, connection) = handshake.map_err(|e| failed(&e))?;
    let request = request(uri).map_err(|e| failed(&e))?;
    let asked = pin!(async move {
        let answer = sender.send_request(request).await.map_err(|e| failed(&e))?;
        judge(answer.map(Body::new), expect).await
    });
    match select(asked, pin!(connection)).await {
        Either::Left((judged, _)) => judged,
        // It ended, and what it had read is on its way.
        Either::Right((_, asked)) => asked.await,
    }
}

fn request(uri: &Uri) -> http::Result<Request<Body>> {
    let path = uri.path_and_query().map_or("/", |path| path.as_str());
    let host = uri.authority().map_or("", |authority| authority.as_str());
    Request::get(path).header(header::HOST, host).header(header::ACCEPT, "*/*").body(Body::empty())
}

async fn judge(answer: Response<Body>, expect: &[u16]) -> Result<(), String> {
    let status = answer.status().as_u16();
    if expect.contains(&status) {
        return Ok(());
    }
    let wanted: Vec<String> = expect.iter().map(u16::to_string).collect();
    let detail = complaint(answer.into_body()).await;
    Err(format!(" answered {status} instead of {}{detail}", wanted.join(" or ")))
}

/// What the body says, shortened; of Kubernetes' check lists only what fails.
async fn complaint(body: Body) -> String {
    let first = body.into_data_stream().next().await.and_then(Result::ok).unwrap_or_default();
    let text = String::from_utf8_lossy(&first[..first.len().min(4096)]).into_owned();
    let failing: Vec<&str> = text.lines().filter(|l| l.starts_with("[-]")).collect();
    let said = if failing.is_empty() { text.lines().next().unwrap_or("").to_owned() } else { failing.join(" ") };
    let said: String = said.chars().filter(|c| !c.is_control()).take(SHOWN).collect();
    if said.is_empty() { said } else { format!(": {said}") }
}
