//! Connections that wait for their peer, by source: which of them goes first when there are too many.

use crate::sized::{map_memory, shrink_map};
use crate::turn::timer::Tick;
use std::cmp::Reverse;
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::net::IpAddr;
use tautline_io::{Address, Token};

/// A network whose hosts share one part of a limit: an IPv4 /24, an IPv6 /56, or all Unix peers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Network(u64);

/// A host: an IPv4 address, an IPv6 /64 (a host may take any address in its /64), or all Unix peers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
struct Host(u64);

/// The network of a peer.
pub(crate) fn network(peer: &Address) -> Network {
    source(peer).0
}

fn source(peer: &Address) -> (Network, Host) {
    let Address::Tcp(peer) = peer else { return (Network(0), Host(0)) };
    match peer.ip().to_canonical() {
        IpAddr::V4(address) => {
            let bits = u64::from(address.to_bits());
            // A global IPv6 address does not begin with 32 zeros, so hosts of the two families differ.
            (Network(bits >> 8 | 1 << 62), Host(bits))
        }
        IpAddr::V6(address) => {
            let Ok(bits) = u64::try_from(address.to_bits() >> 64) else { return (Network(0), Host(0)) };
            (Network(bits >> 8 | 1 << 63), Host(bits))
        }
    }
}

/// Size of a source, and when it began to wait. The last in order is the largest, and of those the oldest.
type Rank = (usize, Reverse<u64>);

/// Connections that wait for their peer.
///
/// If one has to go, it is the oldest of the host with the most, in the network with the most. So a source pushes out only
/// itself while any source has fewer, and a peer that completes its step in time is never the oldest of a flood.
#[derive(Default)]
pub(crate) struct Waiting {
    networks: HashMap<Network, Members>,
    ranks: BTreeMap<Rank, Network>,
    len: usize,
    /// Memory below the table of networks, in bytes.
    bytes: usize,
    /// Number of connections that ever waited, which is the time here.
    seen: u64,
}

/// The waiting connections of a network.
struct Members {
    since: u64,
    len: usize,
    hosts: HashMap<Host, Queue>,
    ranks: BTreeMap<Rank, Host>,
}

/// The waiting connections of a host, the oldest first, and when each began to wait.
struct Queue {
    since: u64,
    tokens: VecDeque<(Token, Tick)>,
}

/// A connection that goes first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct First {
    pub(crate) token: Token,
    /// When it began to wait.
    pub(crate) at: Tick,
    /// Number of its host's connections that wait.
    pub(crate) of_host: usize,
    /// Number of its network's connections that wait.
    pub(crate) of_network: usize,
}

impl Members {
    /// The memory of its tables, in bytes, without that of its queues.
    fn memory(&self) -> usize {
        map_memory(&self.hosts) + tree(self.ranks.len())
    }
}

impl Queue {
    /// Its memory, in bytes.
    fn memory(&self) -> usize {
        self.tokens.capacity() * size_of::<(Token, Tick)>()
    }
}

/// About the memory of a tree of ranks, in bytes: a node has room for 11, and a larger tree is two thirds full.
fn tree(len: usize) -> usize {
    const ENTRY: usize = size_of::<(Rank, u64)>();
    if len == 0 { 0 } else { (11 * ENTRY + 16).max(len * ENTRY * 3 / 2) }
}

impl Waiting {
    /// Its memory, in bytes. A source of its own for each connection takes most: about 800 bytes for each.
    pub(crate) fn memory(&self) -> usize {
        map_memory(&self.networks) + tree(self.ranks.len()) + self.bytes
    }

    pub(crate) const fn len(&self) -> usize {
        self.len
    }

    pub(crate) fn insert(&mut self, peer: &Address, token: Token, now: Tick) {
        self.seen += 1;
        let (since, (network, host)) = (self.seen, source(peer));
        let new = || Members { since, len: 0, hosts: HashMap::new(), ranks: BTreeMap::new() };
        let members = self.networks.entry(network).or_insert_with(new);
        let of_members = members.memory();
        self.ranks.remove(&(members.len, Reverse(members.since)));
        let queue = members.hosts.entry(host).or_insert_with(|| Queue { since, tokens: VecDeque::new() });
        let of_queue = queue.memory();
        members.ranks.remove(&(queue.tokens.len(), Reverse(queue.since)));
        queue.tokens.push_back((token, now));
        let queue_after = queue.memory();
        members.ranks.insert((queue.tokens.len(), Reverse(queue.since)), host);
        members.len += 1;
        self.bytes = self.bytes - of_members - of_queue + members.memory() + queue_after;
        self.ranks.insert((members.len, Reverse(members.since)), network);
        self.len += 1;
    }

    /// Removes a connection. False if it does not wait.
    pub(crate) fn remove(&mut self, peer: &Address, token: Token) -> bool {
        let (network, host) = source(peer);
        let Some(members) = self.networks.get_mut(&network) else { return false };
        let before = members.memory();
        let Some(queue) = members.hosts.get_mut(&host) else { return false };
        let Some(at) = queue.tokens.iter().position(|&(waiting, _)| waiting == token) else { return false };
        self.ranks.remove(&(members.len, Reverse(members.since)));
        members.ranks.remove(&(queue.tokens.len(), Reverse(queue.since)));
        queue.tokens.remove(at);
        members.len -= 1;
        self.len -= 1;
        self.bytes -= before;
        if queue.tokens.is_empty() {
            self.bytes -= queue.memory();
            members.hosts.remove(&host);
        } else {
            members.ranks.insert((queue.tokens.len(), Reverse(queue.since)), host);
        }
        if members.len == 0 {
            self.networks.remove(&network);
            shrink_map(&mut self.networks);
        } else {
            self.bytes += members.memory();
            self.ranks.insert((members.len, Reverse(members.since)), network);
        }
        true
    }

    /// The connection that goes first.
    pub(crate) fn first(&self) -> Option<First> {
        let (_, network) = self.ranks.last_key_value()?;
        let members = self.networks.get(network)?;
        let (_, host) = members.ranks.last_key_value()?;
        let queue = members.hosts.get(host)?;
        let (token, at) = *queue.tokens.front()?;
        Some(First { token, at, of_host: queue.tokens.len(), of_network: members.len })
    }
}

#[cfg(test)]
mod tests {
    use super::{First, Waiting};
    use tautline_io::{Address, Token};

    fn token(index: u32) -> Token {
        Token { index, generation: 0 }
    }

    fn first(token: Token, of_host: usize, of_network: usize) -> First {
        First { token, at: 7, of_host, of_network }
    }

    fn at(ip: &str) -> Address {
        Address::Tcp(format!("{ip}:1").parse().unwrap())
    }

    #[test]
    fn the_oldest_of_the_largest_source_goes_first() {
        let mut waiting = Waiting::default();
        for (index, ip) in ["10.0.0.1", "10.0.1.1", "10.0.1.1", "10.0.1.2", "10.0.2.1", "10.0.2.2"].iter().enumerate() {
            waiting.insert(&at(ip), token(u32::try_from(index).unwrap()), 7);
        }
        // Network 10.0.1.0 has three. Its host .1 has two of them.
        assert_eq!(waiting.first(), Some(first(token(1), 2, 3)));
        assert!(waiting.remove(&at("10.0.1.1"), token(1)));
        assert!(!waiting.remove(&at("10.0.1.1"), token(1)));
        // Both networks have two now, each host one: the network that waits for longer, and in it the oldest.
        assert_eq!(waiting.first(), Some(first(token(2), 1, 2)));
        assert!(waiting.remove(&at("10.0.1.2"), token(3)));
        assert_eq!(waiting.first(), Some(first(token(4), 1, 2)));
        assert!(waiting.remove(&at("10.0.2.1"), token(4)));
        // All are alone: the oldest.
        assert_eq!(waiting.first(), Some(first(token(0), 1, 1)));
        assert_eq!(waiting.len(), 3);
    }

    #[test]
    fn an_ipv6_site_is_one_source_however_many_addresses_it_has() {
        let mut waiting = Waiting::default();
        waiting.insert(&at("[2001:db8:1:100::1]"), token(0), 7);
        for index in 1..4 {
            waiting.insert(&at(&format!("[2001:db8:2:10{index}::{index}]")), token(index), 7);
        }
        assert_eq!(waiting.first(), Some(first(token(1), 1, 3)));
        // Within a /64 all addresses are one host; a mapped address is that of IPv4.
        waiting.insert(&at("[2001:db8:2:103::ffff]"), token(4), 7);
        assert_eq!(waiting.first(), Some(first(token(3), 2, 4)));
        let mut waiting = Waiting::default();
        waiting.insert(&at("[::ffff:10.0.0.1]"), token(0), 7);
        assert!(waiting.remove(&at("10.0.0.1"), token(0)));
        assert_eq!((waiting.first(), waiting.len()), (None, 0));
    }

    #[test]
    fn agrees_with_a_naive_oracle() {
        let mut waiting = Waiting::default();
        let mut oracle: Vec<(u8, u8, Token)> = Vec::new();
        let mut seed = 7_u64;
        let mut random = |below: u64| {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (seed >> 33) % below
        };
        let peer = |network: u8, host: u8| at(&format!("192.0.{network}.{host}"));
        for index in 0..20_000 {
            let (network, host) = (u8::try_from(random(5)).unwrap(), u8::try_from(random(4)).unwrap());
            if random(2) == 0 {
                waiting.insert(&peer(network, host), token(index), 7);
                oracle.push((network, host, token(index)));
            } else if !oracle.is_empty() {
                let at = usize::try_from(random(oracle.len() as u64)).unwrap();
                let (network, host, token) = oracle.remove(at);
                assert!(waiting.remove(&peer(network, host), token));
            }
            assert_eq!(waiting.len(), oracle.len());
            let Some(First { token: first, of_host, of_network, .. }) = waiting.first() else { continue };
            let in_network = |n: u8| oracle.iter().filter(|(network, ..)| *network == n).count();
            let with_host =
                |n: u8, h: u8| oracle.iter().filter(|(network, host, _)| (*network, *host) == (n, h)).count();
            assert_eq!(of_network, (0..5).map(in_network).max().unwrap());
            let &(network, host, _) = oracle.iter().find(|(.., token)| *token == first).unwrap();
            assert_eq!((in_network(network), with_host(network, host)), (of_network, of_host));
            assert_eq!(of_host, (0..4).map(|host| with_host(network, host)).max().unwrap());
            let oldest = oracle.iter().find(|(n, h, _)| (*n, *h) == (network, host)).unwrap();
            assert_eq!(first, oldest.2);
        }
    }
}
