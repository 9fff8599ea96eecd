//! Checks that a peer answers rightly, before anything of it is timed.

use super::super::peer::Peer;
use super::super::recipe::NotBuilt;
use super::super::{Kind, Lab, Process, Servers};
use super::more::broadcaster;
use crate::load::{Broadcast, Echo, Lengths};
use crate::{Content, Error, Protocol, Span};
use std::fmt;
use tautline::{CipherSuite, ProtocolVersion};

/// The version and the cipher suite that all servers speak.
const TLS: (ProtocolVersion, CipherSuite) = (ProtocolVersion::Tls13, CipherSuite::Aes128GcmSha256);

/// Texts and bytes of these lengths are sent first: the ends of the three forms of a frame's length, and several records.
const LENGTHS: [usize; 8] = [0, 1, 125, 126, 65_535, 65_536, 100_000, 1_000_000];

/// Payload bytes, messages in flight on each of four connections, and milliseconds of loads whose replies are compared. The
/// first one is also what compilers of runtimes need.
const LOADS: [(usize, usize, u64); 2] = [(64, 16, 1000), (65_536, 2, 400)];

/// Result for one peer.
#[derive(Debug)]
pub struct PeerCheck {
    /// Name of the peer.
    pub name: &'static str,
    /// Whether it lacks a tool on this machine, and so was not checked.
    pub is_missing: bool,
    /// Reason why it is missing, or error of its check.
    pub reason: Option<String>,
}

impl fmt::Display for PeerCheck {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (&self.reason, self.is_missing) {
            (None, _) => write!(f, "{}: answers rightly", self.name),
            (Some(why), true) => write!(f, "{}: missing: {why}", self.name),
            (Some(why), false) => write!(f, "{}: FAILED: {why}", self.name),
        }
    }
}

/// Builds these servers of other projects, or all if none is named, and checks their echoes and broadcasts.
///
/// # Errors
/// A name is unknown, or there is no checkout to build from. A peer that fails is no error.
pub fn check_peers(lab: &mut Lab<'_>, names: &[String]) -> Result<Vec<PeerCheck>, Error> {
    let known = |name: &String| {
        let peer = Peer::SIDE_BY_SIDE.iter().copied().find(|peer| peer.name() == name);
        let all: Vec<&str> = Peer::SIDE_BY_SIDE.iter().map(|peer| peer.name()).collect();
        peer.ok_or_else(|| Error::Usage(format!("there is no peer {name:?}; there are {}", all.join(", "))))
    };
    let mut wanted: Vec<Peer> = names.iter().map(known).collect::<Result<_, _>>()?;
    if wanted.is_empty() {
        wanted.extend(Peer::SIDE_BY_SIDE);
    }
    if wanted.iter().any(|peer| peer.recipe().is_none()) {
        lab.find_peers()?;
    }
    let mut missing = lab.build_peers(&wanted);
    let mut checks = Vec::new();
    for peer in wanted {
        (lab.progress)(1.0, peer.name());
        let is_it = |(other, _): &(Peer, NotBuilt)| *other == peer;
        let (is_missing, reason) = match missing.iter().position(is_it).map(|place| missing.swap_remove(place).1) {
            Some(why) => (matches!(why, NotBuilt::Missing(_)), Some(why.why())),
            None if lab.available(&[peer]).is_empty() => (true, Some("its program is missing".to_owned())),
            None => (false, check(lab, peer).err().map(|error| error.to_string())),
        };
        checks.push(PeerCheck { name: peer.name(), is_missing, reason });
    }
    Ok(checks)
}

/// Starts both servers of a peer, and checks them.
fn check(lab: &Lab<'_>, peer: Peer) -> Result<(), Error> {
    let kind = Kind::Peer(peer, Protocol::Wss);
    echo(Servers::start(lab, [kind])?.of(kind)?)?;
    if let Some(kind) = broadcaster(kind) {
        broadcast(Servers::start(lab, [kind])?.of(kind)?)?;
    }
    Ok(())
}

/// Checks the TLS of a server, and that it sends back what it gets, byte for byte.
pub(super) fn echo(process: &Process) -> Result<(), Error> {
    let server = process.server()?;
    let mut exact = server.clone();
    exact.target.deflate = None;
    let spoken = Lengths { server: &exact, lengths: &LENGTHS }.run()?;
    let (version, suite) = TLS;
    if (spoken.version, spoken.suite) != (Some(version), Some(suite)) {
        return Err(Error::Failed(format!("it speaks {spoken}, not {version} with {suite}")));
    }
    for (size, pipeline, ms) in LOADS {
        let (server, span) = (server.clone(), Span::millis(0, ms));
        let load = Echo { server, connections: 4, size, content: Content::Bytes, pipeline, rate: None, span };
        load.run(&mut |_| {})?;
    }
    Ok(())
}

/// Checks that a server sends each message to everyone.
fn broadcast(process: &Process) -> Result<(), Error> {
    let (server, span) = (process.server()?, Span::millis(0, 200));
    Broadcast { server, subscribers: 10, size: 64, pipeline: 2, span }.run(&mut |_| {})?;
    Ok(())
}
