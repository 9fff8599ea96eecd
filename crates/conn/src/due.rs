//! The deadlines of a connection.

use crate::closed::Deadline;
use crate::config::Deadlines;
use crate::phase::Phase;
use crate::tick::{Tick, millis};

/// The times from which a connection's deadlines count.
#[derive(Clone, Copy, Debug)]
pub struct Times {
    /// When input last arrived.
    pub heard: Tick,
    /// The deadline of the phase: [`Tick::MAX`] if it may last. An open connection has none, and this is when its last message
    /// arrived, or when it opened.
    pub phase_end: Tick,
    /// Whether a ping was sent since the last input.
    pub ping_sent: bool,
    /// Whether input is read. Otherwise the peer cannot be heard, and only pings go on, since one to a vanished peer fails.
    pub reads: bool,
    /// Since when the peer takes no bytes, if some are in flight.
    pub stuck_since: Option<Tick>,
}

/// The action at a connection's next deadline.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Due {
    /// A ping is to be sent.
    Ping,
    /// The peer has missed this deadline.
    Miss(Deadline),
}

impl Times {
    /// The next deadline, and the action that is then due. It is [`Tick::MAX`] if none runs.
    #[inline]
    #[must_use]
    pub fn next<W, R>(&self, phase: &Phase<W, R>, deadlines: &Deadlines) -> (Tick, Due) {
        let (end, deadline) = match phase {
            Phase::Open | Phase::Overrun | Phase::CloseQueued | Phase::Raw(_) | Phase::Gone { .. } => {
                (Tick::MAX, Deadline::Idle)
            }
            Phase::CloseSent | Phase::Linger(_) => (self.phase_end, Deadline::Close),
            Phase::Waiting(_) => (self.phase_end, Deadline::Answer),
            // Either bytes are in flight, or the next turn sends more.
            Phase::Streaming(_) => (Tick::MAX, Deadline::Send),
            Phase::Proxy(_)
            | Phase::ProxyHeader
            | Phase::Tls
            | Phase::Offloaded(_)
            | Phase::Request(_)
            | Phase::Answer(_) => (self.phase_end, Deadline::Handshake),
        };
        // A peer that takes no bytes cannot answer our close frame either, so only the deadline to send runs.
        let waits_for_peer = deadline == Deadline::Close && self.stuck_since.is_some();
        let mut first = (if waits_for_peer { Tick::MAX } else { end }, Due::Miss(deadline));
        let mut consider = |at: Tick, due| {
            if at < first.0 {
                first = (at, due);
            }
        };
        if phase.takes_messages() {
            if let Some(idle) = deadlines.idle
                && self.reads
            {
                consider(self.heard + millis(idle), Due::Miss(Deadline::Idle));
            }
            if let Some(silence) = deadlines.silence
                && self.reads
            {
                consider(self.phase_end + millis(silence), Due::Miss(Deadline::Silence));
            }
            if let Some(ping) = deadlines.ping
                && !self.ping_sent
            {
                consider(self.heard + millis(ping), Due::Ping);
            }
        }
        if let Some(since) = self.stuck_since {
            consider(since + millis(deadlines.send), Due::Miss(Deadline::Send));
        }
        first
    }
}
