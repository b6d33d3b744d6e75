use socialweb_sys::port::{holder_of, is_free};
use std::net::{TcpListener, TcpStream};

fn own() -> String {
    format!("pid {} (", std::process::id())
}

#[test]
fn the_holder_of_a_taken_port_is_named() {
    for address in ["127.0.0.1:0", "0.0.0.0:0", "[::]:0"] {
        let Ok(listener) = TcpListener::bind(address) else {
            crate::common::skip("the_holder_of_a_taken_port_is_named", &format!("address: {address} cannot be bound"));
            continue;
        };
        let port = listener.local_addr().unwrap().port();
        assert_eq!(is_free(port).unwrap_err().kind(), std::io::ErrorKind::AddrInUse, "{address}");
        let holder = holder_of(port).unwrap();
        assert!(holder.starts_with(&own()) && holder.ends_with(')'), "{address}: {holder}");
        drop(listener);
        is_free(port).unwrap();
        assert_eq!(holder_of(port), None);
    }
}

#[test]
fn old_connections_do_not_take_a_port_and_living_ones_are_named() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let client = TcpStream::connect(("127.0.0.1", port)).unwrap();
    let (server, _) = listener.accept().unwrap();
    let from = client.local_addr().unwrap().port();
    let holder = holder_of(from).unwrap();
    assert!(holder.starts_with(&own()) && holder.contains("connection from that port"), "{holder}");
    // The side that closes first is left in TIME_WAIT: the server's, on the port itself.
    drop(server);
    drop(listener);
    drop(client);
    is_free(port).unwrap();
}
