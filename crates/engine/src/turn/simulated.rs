//! A shard in a simulation: its time and random numbers come from there, and it tells everything that it holds.

use crate::handler::Handler;
use crate::shard::Shard;
use crate::turn::clock::Clock;
use crate::turn::reactor::Reactor;
use std::time::Duration;
use tautline_conn::keys::Keys;
use tautline_tls::Engine;

/// Numbers of things that a shard holds for its connections. All but `pooled` are 0 once every connection has ended and
/// every deadline has passed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Holdings {
    /// Slots that are in use, of connections and of attempts to connect.
    pub slots: usize,
    /// Outgoing connections, also those that wait for their next attempt.
    pub dials: usize,
    /// Entries of the timer wheel.
    pub timers: usize,
    /// Topics with a subscriber.
    pub topics: usize,
    /// Published messages that are not delivered.
    pub publications: usize,
    /// Connections that wait for a flush.
    pub unflushed: usize,
    /// Connections that count as waiting for their peer, in the limits.
    pub waiting: usize,
    /// Bytes of unused buffers.
    pub pooled: usize,
}

impl<E: Engine, H: Handler> Shard<E, H> {
    /// Gives the shard the time and the random numbers of a simulation, before its first connection.
    ///
    /// `now` tells the time since the begin of the simulation, and does not go back. Mask keys and nonces then depend on
    /// `seed` alone. A peer that knows the seed can predict them, and masks then protect nothing (RFC 6455, section 10.3).
    pub fn danger_simulate(&mut self, now: impl Fn() -> Duration + 'static, seed: [u8; 32]) {
        self.reactor.core.shared.clock = Clock::Simulated(Box::new(now));
        self.reactor.core.shared.keys = Keys::new(seed);
    }

    /// Counts everything that the shard holds, for tests that look for leaks. It walks through all slots and timers.
    #[must_use]
    pub fn holdings(&self) -> Holdings {
        let Reactor { core, .. } = &self.reactor;
        Holdings {
            slots: core.links.from(0).count() + core.dialer.connecting(),
            dials: core.dialer.dials.len(),
            timers: core.wheel.len(),
            topics: core.shared.topics.len(),
            publications: core.shared.publications.waiting() + core.shared.publications.run.len(),
            unflushed: core.shared.dirty.len(),
            waiting: core.admission.waits(),
            pooled: core.shared.pool.held(),
        }
    }
}
