//! For any bytes that somebody sends to the notify socket: what is taken from them is clean, and the kernel says whose it is.

use socialweb_property::holds;
use socialweb_property::proptest::collection::vec;
use socialweb_property::proptest::prelude::*;
use socialweb_sys::socket::{MAX_DATAGRAM, NotifySocket};
use std::os::unix::net::UnixDatagram;

fn line() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        3 => Just(b"READY=1".to_vec()),
        2 => Just(b"WATCHDOG=1".to_vec()),
        2 => vec(any::<u8>(), 0..20),
        2 => "[A-Z0-9_]{0,6}=.{0,10}".prop_map(String::into_bytes),
        1 => (any::<u8>(), 3000usize..6000).prop_map(|(byte, n)| vec![byte; n]),
        1 => Just(b"\0".to_vec()),
    ]
}

#[test]
fn any_datagram_is_taken_for_no_more_than_its_clean_lines() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("notify.sock");
    let socket = NotifySocket::bind(&path).unwrap();
    let sender = UnixDatagram::unbound().unwrap();
    holds(vec(line(), 0..6), |lines| {
        let bytes = lines.join(&b'\n');
        sender.send_to(&bytes, &path).unwrap();
        let got = socket.recv().unwrap();
        prop_assert_eq!(got.sender.map(|s| s.pid), Some(std::process::id()));
        prop_assert_eq!(got.truncated, bytes.len() > MAX_DATAGRAM);
        for (key, value) in &got.fields {
            prop_assert!(
                !key.is_empty() && key.bytes().all(|b| b.is_ascii_uppercase() || b.is_ascii_digit() || b == b'_')
            );
            prop_assert!(!value.chars().any(|c| c.is_control() && c != '\t'), "{value:?}");
            let whole = format!("{key}={value}");
            prop_assert!(bytes.split(|b| *b == b'\n').any(|line| line == whole.as_bytes()), "{whole:?} was not sent");
        }
        let spoilt = got.truncated || bytes.contains(&0);
        prop_assert!(!spoilt || got.fields.is_empty());
        let said = lines.iter().filter(|line| line.as_slice() == b"READY=1").count();
        let heard = got.fields.iter().filter(|(key, value)| key == "READY" && value == "1").count();
        prop_assert!(spoilt || heard >= said, "said {said} times and heard {heard} times");
        Ok(())
    });
}
