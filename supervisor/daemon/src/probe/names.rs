//! Host names in probes. tokio looks names up on threads of a pool that panics where no thread can be made; the
//! probe would end without a word. Here such a host only waits for its own look-up.

use crate::aside::Aside;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, ToSocketAddrs};
use std::sync::LazyLock;
use tokio::sync::oneshot;

static ASIDE: LazyLock<Aside> = LazyLock::new(Aside::default);

/// Addresses of `host`. Numbers and localhost (RFC 6761) need no look-up.
///
/// # Errors
/// As getaddrinfo(3).
pub(super) async fn resolve(host: &str, port: u16) -> io::Result<Vec<SocketAddr>> {
    let plain = host.strip_prefix('[').and_then(|h| h.strip_suffix(']')).unwrap_or(host);
    if let Ok(ip) = plain.parse::<IpAddr>() {
        return Ok(vec![SocketAddr::new(ip, port)]);
    }
    if plain.eq_ignore_ascii_case("localhost") {
        let both = [IpAddr::V4(Ipv4Addr::LOCALHOST), IpAddr::V6(Ipv6Addr::LOCALHOST)];
        return Ok(both.into_iter().map(|ip| SocketAddr::new(ip, port)).collect());
    }
    let (tell, told) = oneshot::channel();
    let name = plain.to_string();
    // Done here and now where no thread can be made: slow, and right.
    let _ = ASIDE.run(move || {
        // A probe that gave up leaves its question in the queue; while the name server is silent they would only pile up.
        if tell.is_closed() {
            return;
        }
        let found = (name.as_str(), port).to_socket_addrs().map(Iterator::collect);
        let _ = tell.send(found);
    });
    told.await.unwrap_or_else(|_| Err(io::Error::other("the look-up was given up")))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[tokio::test]
    async fn numbers_and_localhost_are_known_and_a_name_that_nobody_has_is_an_error() {
        let text = |found: Vec<SocketAddr>| found.iter().map(ToString::to_string).collect::<Vec<_>>();
        assert_eq!(text(resolve("127.0.0.1", 80).await.unwrap()), ["127.0.0.1:80"]);
        assert_eq!(text(resolve("[::1]", 80).await.unwrap()), ["[::1]:80"]);
        assert_eq!(text(resolve("LocalHost", 1).await.unwrap()), ["127.0.0.1:1", "[::1]:1"]);
        assert!(resolve("a name with spaces", 1).await.is_err());
    }
}
