//! The deadlines of a connection.

use crate::closed::Deadline;
use crate::config::Deadlines;
use crate::phase::Phase;
use crate::tick::{Tick, millis};
use std::time::{Duration, Instant};

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

    /// A ping is sent now that was due at `at`. The peer has time to answer, also if the caller was late. One that is not read
    /// cannot answer.
    pub const fn pinged(&mut self, at: Tick, now: Tick) {
        self.ping_sent = self.reads;
        self.heard = if self.reads { self.heard + now - at } else { now };
    }
}

/// The times of a connection in milliseconds since it began, whose caller says what time it is.
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    origin: Instant,
    /// Its times.
    pub times: Times,
    /// Whether input was held back, so that the peer could not be heard.
    pub held_back: bool,
}

impl Clock {
    /// The times of a connection that begins at `now`.
    #[must_use]
    pub fn new(now: Instant, deadlines: &Deadlines) -> Self {
        let phase_end = millis(deadlines.handshake);
        let times = Times { heard: 0, phase_end, ping_sent: false, reads: true, stuck_since: None };
        Self { origin: now, times, held_back: false }
    }

    /// The tick of a time.
    #[must_use]
    pub fn tick(&self, now: Instant) -> Tick {
        millis(now.saturating_duration_since(self.origin))
    }

    /// The time of a tick; `None` for one that never comes.
    #[must_use]
    pub fn at(&self, tick: Tick) -> Option<Instant> {
        // The longest durations are cut to a quarter of all ticks.
        (tick < Tick::MAX / 4).then(|| self.origin.checked_add(Duration::from_millis(tick))).flatten()
    }

    /// The connection opened at `now`, or reads again: the peer has not been silent so far.
    pub const fn restart(&mut self, now: Tick) {
        (self.times.heard, self.times.ping_sent, self.held_back) = (now, false, false);
    }
}
