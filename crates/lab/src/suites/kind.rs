use super::ENGINES;
use super::bindings::Python;
use super::certificates::Certificates;
use super::key::Key;
use super::peer::Peer;
use crate::{Case, DriverKind, Protocol};
use std::ffi::OsString;
use std::net::{IpAddr, SocketAddr};
use tautline::AeadChoice;
use tautline::layers::tls_records::Suite;
use tautline::layers::tls_records::aead::{self, Provider};
use tautline_measure::named;
use tautline_replicas::models::Model;

named! {
    /// Place where a server does expensive handshakes.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub(super) enum Execution {
        /// In the loop.
        Inline = "inline",
        /// On threads beside the loop.
        Offload = "gated",
    }
}

/// Threads of a server, their TLS engine, and their answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Topology {
    pub(super) model: Model,
    pub(super) engine: &'static str,
    pub(super) threads: usize,
    /// Whether it answers with as many bytes as a message asks for, instead of with the message.
    pub(super) is_source: bool,
    /// Size from which on other threads help to seal a message.
    pub(super) shared_from: Option<usize>,
}

impl Topology {
    /// One loop, or `threads` of another model, that echo messages.
    pub(super) const fn new(model: Model, engine: &'static str, threads: usize) -> Self {
        Self { model, engine, threads, is_source: false, shared_from: None }
    }
}

/// Messages of a feed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Traffic {
    /// Made-up market data in bursts.
    Market,
    /// Numbered messages of `size` bytes, `rate` per second.
    Steady { size: u32, rate: u32 },
}

named! {
    /// Work of a server of another project beside echoes, by its option.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub(super) enum Extra {
        /// It serves over HTTP/1.1 and HTTP/2.
        Http2 = "--http2",
        /// It accepts compression.
        Deflate = "--deflate",
        /// It sends every message to everyone.
        Broadcast = "--broadcast",
    }
}

/// A server to measure, or another composition in its place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// Bare TCP echo on a driver: the limit.
    Tcp(DriverKind),
    /// WebSocket without TLS.
    Ws(DriverKind),
    /// WebSocket over TLS by an engine, with a key.
    Wss(&'static str, Key, DriverKind),
    /// As `Wss`, configured to measure handshakes.
    Handshake(&'static str, Key, DriverKind, Execution),
    /// WebSocket over TLS by an engine. Every message goes to everyone, compressed or not.
    Broadcast(&'static str, bool, DriverKind),
    /// WebSocket over TLS by the default engine, in loops with descriptors of their own if there are several. Binary messages
    /// are echoed, and text messages go to everyone.
    Crowd { loops: usize, driver: DriverKind },
    /// WebSocket over TLS by the default engine. A feed goes to everyone.
    Feed(Traffic, DriverKind),
    /// WebSocket over TLS by the default engine, with the probe of message stages or without.
    Probed(bool, DriverKind),
    /// WebSocket over TLS by the default engine, on a driver by its name for `--driver`.
    Wire(&'static str),
    /// WebSocket over TLS by the default engine, which accepts compression with context takeover and without.
    Deflate(DriverKind),
    /// Our proxy over wss by the default engine. Its servers follow with the arguments.
    Proxy(DriverKind),
    /// WebSocket over TLS by the default engine, over HTTP/1.1 and HTTP/2 as clients choose.
    Http2(DriverKind),
    /// Another project's server, with TLS or without.
    Peer(Peer, Protocol),
    /// Another project's server with TLS, which does more than to echo.
    PeerWith(Extra, Peer),
    /// A server on tokio over wss, another project's or ours, with this number of threads.
    Tokio(Peer, usize),
    /// A server in Python over wss, another project's or ours.
    Python(Python),
    /// The example in C over wss: a callback that sends each message back.
    C,
    /// A server of [`models`](tautline_replicas::models) that may use the CPUs of server and load.
    Model(Topology),
    /// No server: a provider's AEAD calls that a message costs at least, in this process.
    Aead(Provider),
}

impl Kind {
    /// Carrier of messages; the AEAD alone has none.
    pub(super) const fn protocol(self) -> Option<Protocol> {
        match self {
            Self::Tcp(_) => Some(Protocol::Tcp),
            Self::Ws(_) => Some(Protocol::Ws),
            Self::Peer(_, protocol) => Some(protocol),
            Self::Aead(_) => None,
            _ => Some(Protocol::Wss),
        }
    }

    /// TLS engine, of our servers and of peers.
    pub(super) fn engine(self) -> Option<&'static str> {
        match self {
            Self::Wss(engine, ..) | Self::Handshake(engine, ..) | Self::Broadcast(engine, ..) => Some(engine),
            Self::Model(topology) => Some(topology.engine),
            Self::Peer(peer, Protocol::Wss) | Self::PeerWith(_, peer) | Self::Tokio(peer, _) => Some(peer.tls()),
            Self::Python(server) if !server.is_ours() => Some("openssl"),
            Self::Tcp(_) | Self::Ws(_) | Self::Peer(..) | Self::Aead(_) => None,
            _ => Some(ENGINES[0]),
        }
    }

    /// Driver, if it is one of ours.
    pub(super) const fn driver(self) -> Option<DriverKind> {
        match self {
            Self::Tcp(driver)
            | Self::Ws(driver)
            | Self::Wss(_, _, driver)
            | Self::Handshake(_, _, driver, _)
            | Self::Broadcast(_, _, driver)
            | Self::Crowd { driver, .. }
            | Self::Feed(_, driver)
            | Self::Probed(_, driver)
            | Self::Deflate(driver)
            | Self::Http2(driver)
            | Self::Proxy(driver) => Some(driver),
            _ => None,
        }
    }

    /// The server, if it is one of [`Peer`].
    pub(super) const fn peer(self) -> Option<Peer> {
        match self {
            Self::Peer(peer, _) | Self::PeerWith(_, peer) | Self::Tokio(peer, _) => Some(peer),
            _ => None,
        }
    }

    /// Key of its certificate, if it has one.
    pub(super) const fn key(self) -> Key {
        match self {
            Self::Wss(_, key, _) | Self::Handshake(_, key, ..) => key,
            _ => Key::P256,
        }
    }

    /// Place of its expensive handshakes, if that is measured.
    pub(super) const fn execution(self) -> Option<Execution> {
        match self {
            Self::Handshake(_, _, _, execution) => Some(execution),
            _ => None,
        }
    }

    /// Whether it is our server with this engine.
    pub(super) fn is_wss_by(self, engine: &str) -> bool {
        matches!(self, Self::Wss(of, ..) if of == engine)
    }

    /// Name in tables, beside that of the driver: `wss fused`.
    pub(super) fn name(self) -> String {
        let protocol = self.protocol().map_or("aead", Protocol::name);
        match self {
            Self::Peer(peer, _) | Self::PeerWith(_, peer) => format!("{protocol} {}", peer.name()),
            Self::Tokio(peer, threads) => format!("{} {threads}", peer.name()),
            Self::Python(server) => format!("python {}", server.name()),
            Self::C => "c tautline".to_owned(),
            Self::Proxy(_) | Self::Http2(_) => "tautline".to_owned(),
            Self::Aead(provider) => format!("{protocol} {provider}"),
            Self::Wire(driver) => format!("{protocol} {driver}"),
            Self::Wss(engine, ..) => format!("{protocol} {engine}"),
            Self::Handshake(engine, key, _, execution) => {
                format!("{protocol} {engine} {} {}", key.name(), execution.name())
            }
            Self::Model(Topology { model, engine, threads, shared_from, .. }) => {
                let shared = if shared_from.is_some() { ", shared" } else { "" };
                format!("{model} {engine} {threads}{shared}")
            }
            _ => protocol.to_owned(),
        }
    }

    /// Name of the driver in tables; a dash if it is not ours.
    pub(super) fn driver_name(self) -> &'static str {
        self.driver().map_or("-", DriverKind::name)
    }

    /// Both names: `wss fused uring`.
    pub(super) fn full_name(self) -> String {
        self.driver().map_or_else(|| self.name(), |driver| format!("{} {driver}", self.name()))
    }

    /// Its facts in results.
    pub(super) fn case(self) -> Case {
        let case =
            Case::default().protocol(self.protocol()).tls(self.engine()).driver(self.driver().map(DriverKind::name));
        let is_ours = match self {
            Self::Python(server) => server.is_ours(),
            _ => self.peer().is_none_or(Peer::is_ours),
        };
        let in_place = is_ours && self.engine().is_some_and(|engine| engine.starts_with(ENGINES[0]));
        let case = case.aead(in_place.then(|| aead::names(Suite::Aes128Gcm)));
        match self {
            Self::Peer(peer, _) | Self::PeerWith(_, peer) => case.peer(peer.name()),
            Self::Tokio(peer, threads) => case.peer(peer.name()).threads(threads),
            Self::Python(server) => case.peer(server.name()).model("python"),
            Self::C => case.peer("tautline").model("c"),
            Self::Proxy(_) | Self::Http2(_) => case.peer("tautline"),
            Self::Handshake(_, key, _, execution) => case.key(key.name()).execution(execution.name()),
            Self::Model(Topology { model: Model::AlwaysOffload, threads, .. }) => {
                case.execution("always-offload").threads(threads)
            }
            Self::Model(Topology { model, threads, shared_from, .. }) => {
                let execution = if shared_from.is_some() { "gated" } else { "inline" };
                case.execution(execution).model(model.name()).threads(threads)
            }
            Self::Crowd { loops, .. } => case.threads(loops),
            Self::Aead(provider) => case.strategy("aead").aead(provider.name()),
            _ => case,
        }
    }

    /// Arguments of the program that serves at `address`.
    pub(super) fn arguments(self, certificates: &Certificates, address: IpAddr) -> Vec<OsString> {
        let listen = SocketAddr::new(address, 0).to_string();
        if self == Self::C {
            let (chain, private) = certificates.paths(self.key());
            return vec![listen.into(), chain.into(), private.into()];
        }
        let mut arguments: Vec<OsString> = Vec::new();
        let mut add = |words: &[&str]| arguments.extend(words.iter().map(OsString::from));
        match self {
            Self::Tcp(_) => add(&["tcp-echo"]),
            Self::Peer(peer, _) => add(&[peer.name()]),
            Self::PeerWith(extra, peer) => add(&[peer.name(), extra.name()]),
            Self::Tokio(peer, threads) => add(&[peer.name(), "--threads", &threads.to_string()]),
            Self::Python(server) => {
                let script = Python::script().unwrap_or_default();
                add(&[&script.to_string_lossy(), server.name()]);
            }
            Self::Model(_) => add(&["model"]),
            Self::Proxy(_) => add(&["proxy", "--shards", "1", "--drain", "1", "--handshake-threads", "0"]),
            Self::Crowd { loops, .. } => {
                add(&["serve", "--app", "crowd", "--preset", "many-connections", "--drain", "300"]);
                // More than all of them: a connection that has just ended still counts.
                add(&["--handshake-threads", "0", "--max-connections", "100000000", "--shards", &loops.to_string()]);
                add(if loops > 1 { &["--own-descriptors"] } else { &[] });
            }
            _ => add(&["serve", "--shards", "1", "--drain", "1"]),
        }
        // A proxy is replaced by a new process, which one that ends with its parent refuses.
        add(if let Self::Proxy(_) = self { &[] } else { &["--with-parent"] });
        add(&["--listen", &listen]);
        // Over epoll the limit is a loop written by hand, which costs less than any driver.
        if let Some(driver) = self.driver().filter(|_| self != Self::Tcp(DriverKind::Epoll)) {
            add(&["--driver", driver.name()]);
        }
        match self {
            Self::Ws(_) => add(&["--plain"]),
            // A library with slow signatures would make them beside the loop, and refuse many of thousands of clients.
            Self::Wss(engine, Key::P256, _) => add(&["--tls", engine, "--handshake-threads", "0"]),
            Self::Wss(engine, ..) => add(&["--tls", engine]),
            Self::Handshake(engine, _, _, Execution::Inline) => add(&["--tls", engine, "--handshake-threads", "0"]),
            // The threads run only while others are idle. On a busy machine, a refusal would end the measurement.
            Self::Handshake(engine, ..) => add(&["--tls", engine, "--handshake-max-wait", "20000"]),
            Self::Deflate(_) => add(&["--deflate-takeover", "--handshake-threads", "0"]),
            Self::Http2(_) => add(&["--http2", "--handshake-threads", "0"]),
            Self::Probed(true, _) => add(&["--stages"]),
            Self::Wire(driver) => add(&["--driver", driver]),
            Self::Broadcast(engine, deflate, _) => {
                add(&["--app", "broadcast", "--handshake-threads", "0", "--tls", engine]);
                add(if deflate { &["--deflate"] } else { &[] });
            }
            Self::Feed(Traffic::Market, _) => add(&["--app", "market"]),
            Self::Feed(Traffic::Steady { size, rate }, _) => {
                add(&["--app", "feed", "--feed-size", &size.to_string(), "--feed-rate", &rate.to_string()]);
            }
            Self::Model(Topology { model, engine, threads, is_source, shared_from }) => {
                add(&["--model", model.name(), "--tls", engine, "--threads", &threads.to_string()]);
                add(if is_source { &["--source"] } else { &[] });
                if let Some(size) = shared_from {
                    add(&["--offload-records", &size.to_string()]);
                }
            }
            _ => {}
        }
        if self.protocol() == Some(Protocol::Wss) {
            let choice = AeadChoice::current();
            if choice != AeadChoice::Auto && self.peer().is_none() && !matches!(self, Self::Python(_)) {
                arguments.extend(["--aead".into(), choice.name().into()]);
            }
            let (chain, private) = certificates.paths(self.key());
            arguments.extend(["--cert".into(), chain.into(), "--key".into(), private.into()]);
        }
        arguments
    }
}
