//! Connections that cannot move, by the reason.

use std::fmt;

/// The numbers of connections that cannot move, by the reason.
///
/// ```
/// # mod tautline { pub use tautline_engine::Staying; }
/// use tautline::Staying;
///
/// let mut all = Staying::default();
/// all.merge(&Staying::default());
/// assert_eq!((all.total(), all.to_string()), (0, "none".into()));
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Staying {
    /// In their opening handshake, or with a request of plain HTTP.
    pub handshaking: usize,
    /// Closing already.
    pub closing: usize,
    /// Outgoing, and not established.
    pub outgoing: usize,
    /// In the middle of a compressed message from the peer.
    pub compressed: usize,
    /// With a TLS session that cannot be saved: TLS 1.2, records of a library or the kernel, a secret for exporters.
    pub tls: usize,
    /// With a socket that the driver cannot give away.
    pub socket: usize,
    /// With a state that the handler does not save.
    pub state: usize,
    /// Raw, with a state that the handler does not save: with a request that a proxy passes on, or idle to a server of it.
    pub forwarding: usize,
    /// With HTTP/2: the connections, and their streams.
    pub http2: usize,
}

/// The names of the reasons, and the same in words for an operator.
const REASONS: [(&str, &str); 9] = [
    ("handshaking", "without a WebSocket"),
    ("closing", "closing"),
    ("outgoing", "outgoing and not established"),
    ("compressed", "in the middle of a compressed message"),
    ("tls", "with a TLS session that cannot be saved"),
    ("socket", "with a socket that cannot be given away"),
    ("state", "with a state that the handler does not save"),
    ("forwarding", "of requests that are passed on"),
    ("http2", "with HTTP/2"),
];

impl Staying {
    /// The numbers with the names of their reasons, which are those of the fields.
    pub fn by_reason(&self) -> impl Iterator<Item = (&'static str, usize)> {
        let counts = [
            self.handshaking,
            self.closing,
            self.outgoing,
            self.compressed,
            self.tls,
            self.socket,
            self.state,
            self.forwarding,
            self.http2,
        ];
        REASONS.into_iter().map(|(name, _)| name).zip(counts)
    }

    /// Adds to the number of the reason with this name. Nothing happens if it is unknown.
    pub fn add(&mut self, reason: &str, more: usize) {
        let count = match reason {
            "handshaking" => &mut self.handshaking,
            "closing" => &mut self.closing,
            "outgoing" => &mut self.outgoing,
            "compressed" => &mut self.compressed,
            "tls" => &mut self.tls,
            "socket" => &mut self.socket,
            "state" => &mut self.state,
            "forwarding" => &mut self.forwarding,
            "http2" => &mut self.http2,
            _ => return,
        };
        *count += more;
    }

    /// All of them.
    #[must_use]
    pub fn total(&self) -> usize {
        self.by_reason().map(|(_, count)| count).sum()
    }

    /// Adds the numbers of another shard.
    pub fn merge(&mut self, other: &Self) {
        other.by_reason().for_each(|(reason, more)| self.add(reason, more));
    }
}

/// Names the reasons that apply, or prints `none`.
impl fmt::Display for Staying {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let some = self.by_reason().zip(REASONS).filter(|((_, count), _)| *count > 0);
        let some: Vec<_> = some.map(|((_, count), (_, what))| format!("{count} {what}")).collect();
        f.write_str(if some.is_empty() { "none" } else { "" })?;
        f.write_str(&some.join(", "))
    }
}
