use super::peer::Peer;
use super::{Effort, Lab, Outcome};
use super::{
    bindings, deflate, echo, edge, feed, fleet, handshake, http2, idle, latency, limits, million, offload, overview,
    peers, records, scaling, stages, storm, tokio, windows, wire,
};
use crate::Error;
use crate::cpu::Pinned;
use std::sync::atomic::Ordering;
use std::time::Instant;
use tautline_measure::named;

named! {
    /// A suite to run.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub enum Suite {
        /// Limit, ws and wss side by side, and handshakes, within two minutes.
        Overview = "overview",
        /// Messages of many sizes over few and many connections.
        Echo = "echo",
        /// Cost of ws above bare TCP, and of wss above ws.
        Limits = "limits",
        /// Memory of connections that do nothing.
        Idle = "idle",
        /// Servers of other projects beside ours.
        Peers = "peers",
        /// Latencies at shares of what each server can do, beside servers of other projects.
        Latency = "latency",
        /// Compression, beside servers of other projects.
        Deflate = "deflate",
        /// Servers on tokio: ours beside those of other projects.
        Tokio = "tokio",
        /// The record path in memory, beside the AEAD alone.
        Records = "records",
        /// Connections per second, and the effect of a storm of them on others.
        Handshake = "handshake",
        /// Times of a message's stages, from the network card to the handler.
        Stages = "stages",
        /// TLS in the loop, TLS on other threads, and a choice between them by message size.
        Offload = "offload",
        /// Loops that share nothing beside threads that share a loop.
        Scaling = "scaling",
        /// Paths of records between buffers: memory and window BIOs, and records in place.
        Windows = "windows",
        /// The interfaces of other languages beside what their users have.
        Bindings = "bindings",
        /// A million connections of one server.
        Million = "million",
        /// Thousands of clients lose their server at once.
        Storm = "storm",
        /// The proxy, beside those of other projects.
        Edge = "edge",
        /// WebSockets on streams of HTTP/2, beside HTTP/1.1 and servers of other projects.
        Http2 = "http2",
        /// The hub on processes that share topics by a broker, beside Centrifugo.
        Fleet = "fleet",
        /// Market data of a simulated venue, to the decision, beside what others use.
        Feed = "feed",
        /// AF_XDP beside the kernel's TCP, between two network namespaces.
        Wire = "wire",
    }
}

impl Suite {
    /// Measures for minutes, or less than one with [`Effort::Quick`](super::Effort::Quick).
    ///
    /// A server that ends or falls silent meanwhile ends the run within seconds.
    ///
    /// # Errors
    /// A server could not be started, or a measurement failed.
    pub fn run(self, lab: &mut Lab<'_>) -> Result<Outcome, Error> {
        if lab.drivers.is_empty() {
            return Err(Error::Usage("there is no driver to measure".to_owned()));
        }
        // A smoke run builds nothing.
        let is_short = lab.effort == Effort::Smoke && lab.peers.is_none();
        let has_peers = match self {
            Self::Peers | Self::Tokio => true,
            Self::Latency | Self::Deflate | Self::Feed | Self::Http2 => !is_short,
            _ => false,
        };
        // Before pinning, so that the compiler has all CPUs.
        let is_given = lab.peers.is_some();
        let mut missing: Vec<String> = match has_peers.then(|| lab.find_peers()) {
            None => Vec::new(),
            // One of several, which this suite can do without.
            Some(Err(why)) if self == Self::Http2 && !is_given => vec![format!("axum is missing: {why}")],
            Some(found) => found?.into_iter().collect(),
        };
        if self == Self::Peers && lab.effort != Effort::Smoke {
            let built = lab.build_peers(Peer::SIDE_BY_SIDE).into_iter();
            missing.extend(built.map(|(peer, why)| format!("{} is missing: {}", peer.name(), why.why())));
        }
        let _pinned = Pinned::to(lab.placement.load)?;
        let run = match self {
            Self::Overview => overview::run,
            Self::Echo => echo::run,
            Self::Limits => limits::run,
            Self::Idle => idle::run,
            Self::Peers => peers::run,
            Self::Latency => latency::run,
            Self::Deflate => deflate::run,
            Self::Tokio => tokio::run,
            Self::Records => records::run,
            Self::Handshake => handshake::run,
            Self::Stages => stages::run,
            Self::Offload => offload::run,
            Self::Scaling => scaling::run,
            Self::Windows => windows::run,
            Self::Bindings => bindings::run,
            Self::Million => million::run,
            Self::Storm => storm::run,
            Self::Edge => edge::run,
            Self::Http2 => http2::run,
            Self::Fleet => fleet::run,
            Self::Feed => feed::run,
            Self::Wire => wire::run,
        };
        let mut outcome = Outcome::of(self.name());
        outcome.warnings.extend(missing);
        if lab.placement.is_shared() {
            outcome.warnings.push("server and load share the only CPU: rates say little, CPU times hold".to_owned());
        }
        let start = Instant::now();
        run(lab, &mut outcome)?;
        outcome.seconds = start.elapsed().as_secs_f64();
        outcome.effort = Some(lab.effort);
        outcome.is_interrupted = lab.stop.load(Ordering::Relaxed);
        if outcome.is_interrupted {
            outcome.warnings.push("it was interrupted: rounds and rows are missing".to_owned());
        }
        Ok(outcome)
    }
}

impl std::str::FromStr for Suite {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        Self::ALL.into_iter().find(|suite| suite.name() == name).ok_or_else(|| format!("there is no suite {name:?}"))
    }
}
