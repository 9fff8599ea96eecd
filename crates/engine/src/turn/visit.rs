//! The bounds on a visit of a connection, so that a turn stays short whatever a peer asks for.
//!
//! A peer can send thousands of requests in one read, each answered with ten thousand times its bytes. So a visit of a
//! connection ends after [`BYTES`], or after [`TIME`]: of messages read, requests answered, output sent and queued, calls of
//! `on_drain`, and pieces of a response. The message or request that passes the bound is finished. The connection then rests:
//! its input and output wait, and it goes on behind all others that rest. They have [`RESTING`] of each turn together, or the
//! visit of one.
//!
//! So a turn lasts as long as the visits of connections that had an event, none of which rests, and then for [`RESTING`] and one
//! visit. A connection that did much rests too, even if nothing of its input is left. A crowd of them thus costs the others no
//! more than one does.
//!
//! No clock is read for a message. It is read after some, then after twice as many, and at last once in [`LOOK`] bytes.

use crate::turn::clock::Clock;
use std::time::Duration;

/// Bytes after which a visit ends.
pub(crate) const BYTES: usize = 1 << 20;
/// Time after which a visit ends.
pub(crate) const TIME: Duration = Duration::from_millis(1);
/// Time of each turn for connections that rest.
pub(crate) const RESTING: Duration = Duration::from_micros(500);
/// Bytes before the first look at the clock.
const FIRST_LOOK: usize = 2 << 10;
/// Most bytes between two looks at the clock.
const LOOK: usize = 16 << 10;
/// Bytes that a message counts for, beside its own: about as many take as long to process.
pub(crate) const MESSAGE: usize = 256;
/// Bytes that a request over HTTP counts for, beside those of its answer.
pub(crate) const REQUEST: usize = 8 << 10;

/// The visit that goes on.
#[derive(Debug)]
pub(crate) struct Visit {
    spent: usize,
    /// The bytes from which on the clock is read, or zero once the visit is over.
    look_at: usize,
    /// When the clock was first read, or zero.
    begun: Duration,
}

impl Default for Visit {
    fn default() -> Self {
        Self { spent: 0, look_at: FIRST_LOOK, begun: Duration::ZERO }
    }
}

impl Visit {
    /// Another visit begins.
    #[inline]
    pub(crate) const fn begin(&mut self) {
        (self.spent, self.look_at, self.begun) = (0, FIRST_LOOK, Duration::ZERO);
    }

    /// Adds bytes of memory or of one send. No visit has so many that their sum could overflow.
    #[inline]
    pub(crate) const fn spend(&mut self, bytes: usize) {
        self.spent += bytes;
    }

    /// Whether so much was done that nothing more is to be.
    #[inline]
    pub(crate) const fn did_much(&self) -> bool {
        self.spent >= BYTES
    }

    /// Bytes until the visit ends.
    pub(crate) const fn left(&self) -> usize {
        BYTES.saturating_sub(self.spent)
    }

    /// Whether the visit is over. To be asked after each message.
    #[inline]
    pub(crate) fn is_over(&mut self, clock: &Clock) -> bool {
        self.spent >= self.look_at && self.look(clock)
    }

    #[cold]
    fn look(&mut self, clock: &Clock) -> bool {
        if !self.did_much() {
            let now = clock.elapsed();
            if self.begun.is_zero() {
                self.begun = now;
            }
            if now.saturating_sub(self.begun) < TIME {
                self.look_at = self.spent.saturating_add(self.spent.min(LOOK));
                return false;
            }
            self.spent = BYTES;
        }
        self.look_at = 0;
        true
    }
}
