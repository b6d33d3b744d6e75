//! Where ports come from, and what a group wants them for.

use std::collections::BTreeSet;
use std::fmt;
use std::ops::RangeInclusive;

/// What a group wants a port for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PortRole {
    /// One port.
    Single(String),
    /// Two neighbours, the second one above the first: `https` and `https-inner`, as k3s wants them.
    Pair(String, String),
}

impl PortRole {
    /// How many ports it takes.
    pub(super) fn ports(&self) -> usize {
        match self {
            PortRole::Single(_) => 1,
            PortRole::Pair(..) => 2,
        }
    }
}

/// Ports, held as the ranges that they make up: the kernel's ephemeral range has 28,000 of them.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PortSet(Vec<RangeInclusive<u16>>);

impl PortSet {
    /// Whether the port is one of them.
    pub fn contains(&self, port: u16) -> bool {
        self.0.iter().any(|range| range.contains(&port))
    }
}

impl FromIterator<u16> for PortSet {
    fn from_iter<I: IntoIterator<Item = u16>>(ports: I) -> Self {
        let mut ranges: Vec<RangeInclusive<u16>> = Vec::new();
        for port in ports.into_iter().collect::<BTreeSet<u16>>() {
            match ranges.last_mut() {
                Some(last) if last.end().checked_add(1) == Some(port) => *last = *last.start()..=port,
                _ => ranges.push(port..=port),
            }
        }
        PortSet(ranges)
    }
}

/// Where ports come from.
pub struct LeaseOptions {
    /// Searched in this order, each from its low end.
    pub ranges: Vec<RangeInclusive<u16>>,
    /// Ports that the kernel gives to outgoing connections: never leased anew.
    pub ephemeral: PortSet,
    /// Whether somebody has the port right now; asked only about a port that is about to be leased anew.
    pub is_bound: Box<dyn Fn(u16) -> bool + Send + Sync>,
}

impl LeaseOptions {
    /// tables.md: 61000-65535, then 20000-32767; the kernel's own ephemeral range; a bind on loopback.
    pub fn of_host() -> Self {
        LeaseOptions {
            ranges: vec![61000..=65535, 20000..=32767],
            ephemeral: kernel_ephemeral(),
            is_bound: Box::new(port_is_bound),
        }
    }
}

impl fmt::Debug for LeaseOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LeaseOptions").field("ranges", &self.ranges).finish_non_exhaustive()
    }
}

/// True when a listener on 127.0.0.1 (or on all addresses) has the port.
pub fn port_is_bound(port: u16) -> bool {
    socialweb_sys::port::is_free(port).is_err()
}

/// net.ipv4.ip_local_port_range without ip_local_reserved_ports. Empty when /proc does not tell.
fn kernel_ephemeral() -> PortSet {
    let read = |name: &str| std::fs::read_to_string(format!("/proc/sys/net/ipv4/{name}")).unwrap_or_default();
    let (range, reserved) = (read("ip_local_port_range"), read("ip_local_reserved_ports"));
    let ends: Vec<u16> = range.split_whitespace().filter_map(|n| n.parse().ok()).collect();
    let mut ports: BTreeSet<u16> = match ends[..] {
        [low, high] => (low..=high).collect(),
        _ => return PortSet::default(),
    };
    for part in reserved.trim().split(',') {
        let (low, high) = part.split_once('-').unwrap_or((part, part));
        if let (Ok(low), Ok(high)) = (low.parse::<u16>(), high.parse::<u16>()) {
            ports.retain(|p| !(low..=high).contains(p));
        }
    }
    ports.into_iter().collect()
}
