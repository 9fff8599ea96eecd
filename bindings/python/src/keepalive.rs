//! Pings of a loop's own, as those of the package `websockets`: they tell the latency, and end a connection without answers.

use crate::crossing::{Peer, Pinged};
use std::hash::{BuildHasher, RandomState};
use std::time::{Duration, Instant};
use tautline::{CloseCode, Conn};

/// The close frame of a connection whose ping is not answered.
pub(crate) const TIMED_OUT: (u16, &str) = (1011, "keepalive ping timeout");

/// The number of the only timer of a connection.
const TIMER: u64 = 0;

/// When to send pings.
pub(crate) struct Keepalive {
    /// Time between an answer and the next ping.
    pub(crate) every: Duration,
    /// Time for an answer; none if its absence does not matter.
    pub(crate) patience: Option<Duration>,
}

impl Keepalive {
    /// The connection has opened.
    pub(crate) fn begin(&self, conn: &mut Conn<'_, Peer>) {
        conn.set_timer(self.every, TIMER);
    }

    /// The timer is due: the next ping, or the end of patience.
    pub(crate) fn due(&self, conn: &mut Conn<'_, Peer>) {
        let Peer { shared, pinged, timed_out, .. } = conn.state();
        if self.patience.is_some() && pinged.is_some() {
            // An answer may lie behind messages that Python does not take.
            if shared.as_ref().is_some_and(|shared| shared.is_paused()) {
                return conn.set_timer(self.every, TIMER);
            }
            *timed_out = true;
            let (code, reason) = TIMED_OUT;
            return conn.close(CloseCode::new(code), reason);
        }
        let at = Instant::now();
        // Random, so that the peer cannot answer before it has the ping.
        let [a, b, c, d, ..] = RandomState::new().hash_one(at).to_ne_bytes();
        let payload = [a, b, c, d];
        *pinged = Some(Pinged { payload, at });
        // The payload is short enough.
        let _ = conn.ping(&payload);
        conn.set_timer(self.patience.unwrap_or(self.every), TIMER);
    }

    /// A pong has arrived. The latency, if it answers the ping of the loop's own.
    pub(crate) fn answered(&self, conn: &mut Conn<'_, Peer>, payload: &[u8]) -> Option<Duration> {
        let pinged = &mut conn.state().pinged;
        let latency = pinged.take_if(|pinged| pinged.payload == payload)?.at.elapsed();
        conn.set_timer(self.every.saturating_sub(latency), TIMER);
        Some(latency)
    }
}
