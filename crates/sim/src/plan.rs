//! Everything about a run that is drawn before it begins.

use crate::trace::{SECOND, Time};
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;
use tautline_engine::{Config, SlowConsumer};
use tautline_io::Address;
use tautline_testkit::Random;
use tautline_ws::deflate::DeflateConfig;

/// From here on nothing new is done and no fault begins.
pub(crate) const CALM: Time = 33 * SECOND;

/// A bug of a driver that is planted, to show that it is found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Plant {
    /// The arrival of bytes is not reported, now and then.
    LostWakeUp,
    /// Two parts of a stream change places, now and then.
    ReorderedSend,
    /// A slot is released twice, so that two connections get the same token.
    DoubleRelease,
}

/// A host's part in connections.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Role {
    Server,
    Client,
    /// A server of clients, and a client of servers.
    Proxy,
}

/// The address of the servers.
pub(crate) fn server_address() -> Address {
    Address::Tcp(SocketAddr::from((Ipv4Addr::new(10, 0, 0, 1), 443)))
}

/// The address of the proxies.
pub(crate) fn proxy_address() -> Address {
    Address::Tcp(SocketAddr::from((Ipv4Addr::new(10, 0, 0, 2), 443)))
}

/// The way of a proxy's pairs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Passing {
    Bytes,
    Messages,
}

/// The TLS engine of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Tls {
    Plain,
    Fused,
    Rustls,
}

/// The network and the kernels of a run. A rarity is the number of calls of which one fails; 0 stands for none.
#[derive(Clone, Debug)]
pub(crate) struct Weather {
    pub(crate) latency: Time,
    pub(crate) jitter: Time,
    /// Most bytes that a sender's kernel takes before the peer has received them.
    pub(crate) capacity: usize,
    /// Least of these bytes: enough for a round trip at 200 KB/s, so that all waiting bytes arrive in the calm.
    pub(crate) least_capacity: usize,
    /// Most bytes of a segment.
    pub(crate) segment: usize,
    /// Most bytes of one receive.
    pub(crate) receive: usize,
    /// Free bytes before received ones.
    pub(crate) headroom: usize,
    /// Connections that wait to be accepted.
    pub(crate) backlog: usize,
    /// Rarity of sends without memory.
    pub(crate) shortage: usize,
    /// Rarity of accepts and connects without descriptors or memory.
    pub(crate) no_descriptors: usize,
    /// Rarity, among actions, of a fault of the network or a host.
    pub(crate) faults: usize,
    /// Whether connections may die without a word.
    pub(crate) silence: bool,
    /// Longest that a turn takes.
    pub(crate) turn: Time,
}

/// A run.
#[derive(Clone, Debug)]
pub(crate) struct Plan {
    pub(crate) tls: Tls,
    pub(crate) servers: usize,
    pub(crate) clients: usize,
    pub(crate) actions: u32,
    pub(crate) longest_message: usize,
    pub(crate) weather: Weather,
    pub(crate) server: Arc<Config>,
    pub(crate) client: Arc<Config>,
    pub(crate) deflate: Option<DeflateConfig>,
    /// Whether the servers may drop messages for slow readers.
    pub(crate) is_lossy: bool,
    /// Whether loops are drained in the end. Otherwise clients close their connections.
    pub(crate) drains: bool,
    /// One of this number of requests is answered later; 0 for none.
    pub(crate) later: usize,
    /// The proxies between clients and servers, and what they pass.
    pub(crate) proxies: Option<(usize, Passing)>,
}

impl Plan {
    pub(crate) fn new(seed: u64) -> Self {
        // The seed's neighbours must differ in every number.
        let mut random = Random::new(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ 0x7461_7574);
        let tls = match seed % 32 {
            0 | 16 => Tls::Fused,
            8 => Tls::Rustls,
            _ => Tls::Plain,
        };
        let weather = weather(&mut random);
        let longest_message = 1 << (8 + random.below(8));
        let server = server_config(&mut random, &weather, longest_message);
        let mut client = Config::default();
        client.deadlines = server.deadlines.clone();
        client.limits.max_message = 1 << 20;
        client.limits.pool = 64 << 10;
        client.slow_consumer = SlowConsumer::Disconnect(8 << 20);
        let is_lossy = !matches!(server.slow_consumer, SlowConsumer::Disconnect(_));
        Self {
            tls,
            servers: 1 + random.below(3),
            clients: 1 + random.below(3),
            actions: 20 + u32::try_from(random.below(100)).unwrap_or(0),
            longest_message,
            weather,
            deflate: server.upgrade.deflate,
            server: Arc::new(server),
            client: Arc::new(client),
            is_lossy,
            drains: random.below(2) == 0,
            later: [0, 0, 4, 1][random.below(4)],
            proxies: None,
        }
    }

    /// Puts proxies in between, in the same run. No connection dies without a word: deadlines of a proxy's requests go
    /// by the clock of the machine, which does not pass here.
    pub(crate) fn proxied(seed: u64) -> Self {
        let passing = if seed.is_multiple_of(2) { Passing::Bytes } else { Passing::Messages };
        let count = if seed % 8 < 4 { 1 } else { 2 };
        let mut plan = Self::new(seed);
        plan.weather.silence = false;
        Self { proxies: Some((count, passing)), ..plan }
    }
}

fn weather(random: &mut Random) -> Weather {
    let mut rarity = |most: usize| if random.below(3) == 0 { 2 + random.below(most) } else { 0 };
    let (shortage, no_descriptors, faults) = (rarity(50), rarity(10), rarity(20));
    let (latency, jitter) = (20 << random.below(12), 10 << random.below(12));
    let round_trip = usize::try_from(2 * (latency + jitter)).unwrap_or(usize::MAX);
    Weather {
        latency,
        jitter,
        least_capacity: (round_trip / 5).max(if shortage > 0 { 4096 } else { 64 }),
        capacity: 1 << (10 + random.below(9)),
        segment: 1 << (5 + random.below(12)),
        receive: 1 << (6 + random.below(11)),
        headroom: [0, 64, 4096][random.below(3)],
        backlog: 1 << random.below(8),
        shortage,
        no_descriptors,
        faults,
        silence: random.below(2) == 0,
        turn: 10 << random.below(5),
    }
}

fn server_config(random: &mut Random, weather: &Weather, longest_message: usize) -> Config {
    let mut config = Config::default();
    config.limits.max_message = longest_message;
    config.limits.max_connections = [4, 16, 1000][random.below(3)];
    config.limits.max_handshakes = [1, 4, 500][random.below(3)];
    config.limits.max_subscriptions = 1 + random.below(4);
    config.limits.pause_receive_above = 1 << (10 + random.below(9));
    config.limits.pool = 1 << (14 + random.below(8));
    config.limits.max_unanswered = [1, 3, 1000][random.below(3)];
    if random.below(4) == 0 {
        config.limits.memory = 1 << (18 + random.below(5));
    }
    let mut seconds =
        |least: usize, more: usize| Duration::from_millis((least * 1000 + random.below(more * 1000)) as u64);
    config.deadlines.handshake = seconds(2, 8);
    config.deadlines.connect = seconds(1, 5);
    config.deadlines.close = seconds(1, 4);
    config.deadlines.send = seconds(2, 6);
    config.deadlines.ping = Some(seconds(1, 2));
    config.deadlines.idle = Some(seconds(4, 4));
    if !weather.silence && random.below(2) == 0 {
        config.deadlines.ping = None;
        config.deadlines.idle = None;
    }
    let limit = 1 << (13 + random.below(8));
    config.slow_consumer = match random.below(8) {
        0 => SlowConsumer::DropNewest(limit),
        1 => SlowConsumer::DropOldest(limit),
        2 => SlowConsumer::KeepLatest(limit),
        _ => SlowConsumer::Disconnect(limit),
    };
    if random.below(8) == 0 {
        config.upgrade.deflate = Some(DeflateConfig::default());
    }
    config
}
