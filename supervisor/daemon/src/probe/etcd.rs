//! An etcd range query over a unix socket with TLS: what kine must answer before anything is built on it.
//!
//! The two messages are written out by hand: this one call does not pay for generated code.

use super::bounded::Bounded;
use super::{connect_unix, tls};
use crate::chain::chain;
use hyper_util::rt::TokioIo;
use socialweb_core::spec::TlsFiles;
use std::path::Path;
use std::sync::Arc;
use tokio::net::UnixStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tonic::client::Grpc;
use tonic::transport::{Channel, Endpoint};
use tonic_prost::ProstCodec;

/// etcdserverpb.RangeRequest, the fields that we set.
#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct RangeRequest {
    #[prost(bytes = "vec", tag = "1")]
    pub key: Vec<u8>,
    #[prost(bytes = "vec", tag = "2")]
    pub range_end: Vec<u8>,
    #[prost(int64, tag = "3")]
    pub limit: i64,
}

/// etcdserverpb.RangeResponse; what is inside the entries does not matter here.
#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct RangeResponse {
    #[prost(message, optional, tag = "1")]
    pub header: Option<ResponseHeader>,
    #[prost(bool, tag = "3")]
    pub more: bool,
    #[prost(int64, tag = "4")]
    pub count: i64,
}

/// etcdserverpb.ResponseHeader: its presence tells a real answer from an empty message.
#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct ResponseHeader {
    #[prost(int64, tag = "3")]
    pub revision: i64,
}

/// Most that is read for one answer, in bytes: tonic's longest message, and what goes around it.
const LONGEST: usize = 5 << 20;

pub(super) const METHOD: &str = "/etcdserverpb.KV/Range";

/// Asks for the first key under /registry/, where Kubernetes keeps everything; an empty store answers as well.
pub(super) async fn check(socket: &Path, files: &TlsFiles) -> Result<(), String> {
    let what = || format!("the etcd range query on {}", socket.display());
    let answer = range(socket, files).await.map_err(|why| format!("{}: {why}", what()))?;
    match answer.header {
        Some(_) => Ok(()),
        None => Err(format!("{}: the answer has no header, so it is no etcd", what())),
    }
}

async fn range(socket: &Path, files: &TlsFiles) -> Result<RangeResponse, String> {
    let mut config = tls::client(Some(files)).map_err(|e| chain(&e))?;
    config.alpn_protocols = vec![b"h2".to_vec()];
    let stream = handshake(socket, config).await?;
    let channel = channel(stream).await?;
    let mut client = Grpc::new(channel);
    client.ready().await.map_err(|e| chain(&e))?;
    let request = RangeRequest { key: b"/registry/".to_vec(), range_end: b"/registry0".to_vec(), limit: 1 };
    let path = http::uri::PathAndQuery::from_static(METHOD);
    let codec: ProstCodec<RangeRequest, RangeResponse> = ProstCodec::default();
    let answer = client.unary(tonic::Request::new(request), path, codec).await;
    answer.map(tonic::Response::into_inner).map_err(|status| format!("{}: {}", status.code(), status.message()))
}

async fn handshake(socket: &Path, config: rustls::ClientConfig) -> Result<TlsStream<Bounded<UnixStream>>, String> {
    let stream = Bounded::new(connect_unix(socket).await?, LONGEST);
    let name = tls::server_name("localhost")?;
    let shaken = TlsConnector::from(Arc::new(config)).connect(name, stream).await;
    shaken.map_err(|e| format!("TLS: {}", chain(&e)))
}

/// A channel over a stream that is connected already: the connector gives it away once and fails after that, so that a
/// broken connection ends the attempt instead of being dialled again behind its back.
async fn channel(stream: TlsStream<Bounded<UnixStream>>) -> Result<Channel, String> {
    let mut stream = Some(TokioIo::new(stream));
    let connector = tower::service_fn(move |_: http::Uri| {
        let taken = stream.take().ok_or_else(|| std::io::Error::other("the connection broke"));
        async move { taken }
    });
    // TLS is ours, below the channel; the scheme here only fills a header.
    let endpoint = Endpoint::from_static("http://localhost");
    endpoint.connect_with_connector(connector).await.map_err(|e| chain(&e))
}
