//! Is a loopback port free, and who holds it if not.

use crate::process;
use std::collections::HashSet;
use std::fs;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, TcpListener};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// States of net/tcp_states.h.
const TIME_WAIT: u8 = 6;
const LISTEN: u8 = 10;

/// Really binds and listens on 127.0.0.1:`port`, and lets go. SO_REUSEADDR is set (std does), so connections in TIME_WAIT
/// do not count. Error kind AddrInUse: see [`holder_of`].
pub fn is_free(port: u16) -> io::Result<()> {
    TcpListener::bind((Ipv4Addr::LOCALHOST, port)).map(drop)
}

/// Who keeps 127.0.0.1:`port` from being bound: "pid 12 (name)" for a listener there or on all addresses, else whoever has a
/// connection from that port. `None`: nobody.
pub fn holder_of(port: u16) -> Option<String> {
    let tables = ["/proc/net/tcp", "/proc/net/tcp6"];
    let found = holders(tables.iter().flat_map(|t| parse(&fs::read_to_string(t).unwrap_or_default())), port);
    let how = if found.first()?.state == LISTEN { "" } else { ", which has a connection from that port" };
    let wanted: HashSet<Vec<u8>> = found.iter().map(|s| format!("socket:[{}]", s.inode).into_bytes()).collect();
    Some(match process_with(&wanted) {
        Some(pid) => format!("pid {pid} ({}){how}", process::comm(pid).unwrap_or_else(|_| "gone".into())),
        None => format!("an unknown process (another user's, uid {}){how}", found.first()?.uid),
    })
}

/// The sockets that are in the way: the listeners, or if there is none the connections from that port.
fn holders(sockets: impl Iterator<Item = Socket>, port: u16) -> Vec<Socket> {
    let in_the_way = sockets.filter(|s| s.port == port && s.state != TIME_WAIT && blocks_loopback(s.address));
    let (listeners, others): (Vec<_>, Vec<_>) = in_the_way.partition(|s| s.state == LISTEN);
    if listeners.is_empty() { others } else { listeners }
}

/// One line of /proc/net/tcp or tcp6.
#[derive(Debug, PartialEq, Eq)]
struct Socket {
    address: IpAddr,
    port: u16,
    state: u8,
    uid: u32,
    inode: u64,
}

fn blocks_loopback(address: IpAddr) -> bool {
    let v4 = |a: Ipv4Addr| a.is_unspecified() || a == Ipv4Addr::LOCALHOST;
    match address {
        IpAddr::V4(a) => v4(a),
        // [::] serves IPv4 too unless told not to.
        IpAddr::V6(a) => a.is_unspecified() || a.to_ipv4_mapped().is_some_and(v4),
    }
}

/// Any process that has one of these sockets open, as far as we may look.
fn process_with(links: &HashSet<Vec<u8>>) -> Option<u32> {
    let has = |pid: &u32| {
        let fds = fs::read_dir(Path::new("/proc").join(pid.to_string()).join("fd"));
        let fds = fds.into_iter().flat_map(|d| d.map_while(Result::ok));
        fds.filter_map(|e| fs::read_link(e.path()).ok()).any(|l| links.contains(l.as_os_str().as_bytes()))
    };
    process::scan().ok()?.find(has)
}

/// "sl local remote st tx:rx tr:when retrnsmt uid timeout inode ...", after one line of titles.
fn parse(table: &str) -> Vec<Socket> {
    let one = |line: &str| {
        let fields: Vec<&str> = line.split_ascii_whitespace().collect();
        let (address, port) = fields.get(1)?.split_once(':')?;
        Some(Socket {
            address: parse_address(address)?,
            port: u16::from_str_radix(port, 16).ok()?,
            state: u8::from_str_radix(fields.get(3)?, 16).ok()?,
            uid: fields.get(7)?.parse().ok()?,
            inode: fields.get(9)?.parse().ok()?,
        })
    };
    table.lines().skip(1).filter_map(one).collect()
}

/// Words of 32 bits, each printed in the processor's own byte order.
fn parse_address(hex: &str) -> Option<IpAddr> {
    let word = |i: usize| Some(u32::from_str_radix(hex.get(i * 8..i * 8 + 8)?, 16).ok()?.to_ne_bytes());
    match hex.len() {
        8 => Some(Ipv4Addr::from(word(0)?).into()),
        32 => {
            let bytes: Vec<u8> = [word(0)?, word(1)?, word(2)?, word(3)?].concat();
            Some(Ipv6Addr::from(<[u8; 16]>::try_from(bytes).ok()?).into())
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hex(address: &str) -> String {
        let bytes = match address.parse().unwrap() {
            IpAddr::V4(a) => a.octets().to_vec(),
            IpAddr::V6(a) => a.octets().to_vec(),
        };
        bytes.chunks(4).map(|w| format!("{:08X}", u32::from_ne_bytes(w.try_into().unwrap()))).collect()
    }

    #[test]
    fn lines_of_the_kernel_are_read_and_broken_ones_left_out() {
        let line = format!("   0: {}:EE48 00000000:0000 0A 0:0 00:0 0 1000 0 4711 1 x\n", hex("127.0.0.1"));
        let want = Socket { address: Ipv4Addr::LOCALHOST.into(), port: 61000, state: LISTEN, uid: 1000, inode: 4711 };
        assert_eq!(parse(&format!("titles\n{line}short\n 1: zz:zz 0 0A\n")), [want]);
        assert_eq!(parse(""), []);
    }

    #[test]
    fn addresses_that_keep_us_from_binding_are_told_from_others() {
        let check = |address: &str, want: bool| {
            let got = parse_address(&hex(address)).unwrap();
            assert_eq!(got, address.parse::<IpAddr>().unwrap());
            assert_eq!(blocks_loopback(got), want, "{address}");
        };
        check("127.0.0.1", true);
        check("0.0.0.0", true);
        check("::", true);
        check("::ffff:127.0.0.1", true);
        check("::ffff:0.0.0.0", true);
        check("::1", false);
        check("127.0.0.2", false);
        check("10.0.0.1", false);
    }

    #[test]
    fn a_listener_comes_before_a_connection_and_one_that_has_ended_does_not_count() {
        let socket = |state, inode| Socket { address: Ipv4Addr::LOCALHOST.into(), port: 61000, state, uid: 0, inode };
        let check = |all: &[(u8, u64)], want: &[u64]| {
            let found = holders(all.iter().map(|(state, inode)| socket(*state, *inode)), 61000);
            assert_eq!(found.iter().map(|s| s.inode).collect::<Vec<_>>(), want, "{all:?}");
        };
        check(&[(1, 7), (LISTEN, 8), (TIME_WAIT, 0)], &[8]);
        check(&[(1, 7), (TIME_WAIT, 0)], &[7]);
        check(&[(TIME_WAIT, 0)], &[]);
        assert!(holders([socket(LISTEN, 8)].into_iter(), 61001).is_empty());
    }
}
