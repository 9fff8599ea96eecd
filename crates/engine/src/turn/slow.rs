//! Turns that took too long: a handler blocked, or had too much to do. All connections of the loop waited meanwhile.
//!
//! No clock is read for this: a turn begins with a look at it, and the wait ends with another. The connections that had input
//! in the slow turn are those that were last heard when its wait ended.

use crate::ids::ConnId;
use crate::turn::links::Links;
use crate::turn::shared::Shared;
use crate::turn::timer::Tick;
use std::time::Duration;
use tautline_conn::tick::millis;

/// Least milliseconds between two log lines about slow turns.
const NEWS: Tick = 10_000;

/// The causes. The time is that of the clock, so a busy machine is one of them.
const WHY: &str = "a handler blocked the loop, or other threads had its CPU";

/// The bound on a turn, and the time of the next log line.
pub(crate) struct SlowTurns {
    /// Milliseconds from which a turn counts as slow.
    least: Tick,
    news: Tick,
}

impl SlowTurns {
    pub(crate) const fn new() -> Self {
        Self { least: Tick::MAX, news: 0 }
    }

    /// Counts turns from this duration on.
    pub(crate) fn begin(&mut self, least: Option<Duration>) {
        self.least = least.map_or(Tick::MAX, millis);
    }

    /// Reports the last turn, whose wait ended at `woke`, if it took too long until now.
    #[inline]
    pub(crate) fn watch<S, T>(&mut self, woke: Tick, shared: &Shared, links: &Links<S, T>) {
        if shared.now.saturating_sub(woke) >= self.least {
            self.report(woke, shared, links);
        }
    }

    #[cold]
    fn report<S, T>(&mut self, woke: Tick, shared: &Shared, links: &Links<S, T>) {
        shared.counters.turns_slow.add(1);
        let now = shared.now;
        if now < self.news {
            return;
        }
        self.news = now + NEWS;
        let mut heard = links.from(0).filter(|link| link.clock.heard == woke);
        let took = now - woke;
        let Some(first) = heard.next() else {
            log::warn!("a turn took {took} ms, without input of an open connection: {WHY}");
            return;
        };
        let (id, peer) = (ConnId { shard: shared.shard, token: first.token }, &first.info.peer);
        let others = heard.count();
        log::warn!("a turn took {took} ms: {WHY}; input came from connection {id} ({peer}) and {others} others");
    }
}

#[cfg(test)]
mod tests {
    use crate::fake::{Event, Fake};
    use crate::{Config, Conn, Handler, Shard};
    use std::cell::Cell;
    use std::rc::Rc;
    use std::sync::Arc;
    use std::time::Duration;
    use tautline_tls::plain;
    use tautline_ws::Message;

    const UPGRADE: &[u8] = b"GET / HTTP/1.1\r\nHost: localhost\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\
                             Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n\r\n";
    /// A text frame with a mask of zeros.
    const HELLO: &[u8] = &[0x81, 0x82, 0, 0, 0, 0, b'h', b'i'];

    /// A handler each of whose messages takes `cost` milliseconds.
    struct Slow {
        now: Rc<Cell<u64>>,
        cost: u64,
    }

    impl Handler for Slow {
        type State = ();
        fn on_message(&mut self, _: &mut Conn<'_, ()>, _: Message<'_>) {
            self.now.set(self.now.get() + self.cost);
        }
    }

    #[test]
    fn a_turn_that_a_handler_blocks_counts() {
        let (kernel, now) = (Fake::default(), Rc::new(Cell::new(5_000)));
        let config = Config { slow_turn: Some(Duration::from_millis(200)), ..Config::default() };
        let slow = Slow { now: now.clone(), cost: 199 };
        let mut shard = Shard::new(0, Arc::new(config), plain::Engine, kernel.clone(), slow).unwrap();
        // The wait lies between two reads of the clock: at the begin of a turn, and when the driver wakes.
        let (clock, wait, reads) = (now, Rc::new(Cell::new(0)), Cell::new(0));
        let waited = wait.clone();
        let read = move || {
            reads.set(reads.get() + 1);
            if reads.get() % 2 == 1 && reads.get() > 1 {
                clock.set(clock.get() + waited.get());
            }
            Duration::from_millis(clock.get())
        };
        shard.danger_simulate(read, [0; 32]);
        shard.watch_turns();
        kernel.0.borrow_mut().room = usize::MAX;
        kernel.push(Event::Accept);
        kernel.push(Event::Bytes(0, UPGRADE.to_vec()));
        let slow_turns = |shard: &mut Shard<_, Slow>, events: usize| {
            (0..events).for_each(|_| kernel.push(Event::Bytes(0, HELLO.to_vec())));
            shard.turn(None).unwrap();
            // The next turn looks at the last one.
            shard.turn(None).unwrap();
            shard.counters().turns_slow
        };
        assert_eq!(slow_turns(&mut shard, 1), 0, "just short enough");
        assert_eq!(slow_turns(&mut shard, 2), 1);
        shard.handler().cost = 200;
        assert_eq!(slow_turns(&mut shard, 1), 2);
        // A long wait is no long turn.
        wait.set(10_000);
        assert_eq!(slow_turns(&mut shard, 0), 2);
        assert_eq!(shard.counters().open, 1);
    }
}
