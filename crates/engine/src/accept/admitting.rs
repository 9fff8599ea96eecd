//! Bounds on connections without a WebSocket, and on all connections.
//!
//! Accepting does not pause for connections that are silent: at a limit, the [first](crate::accept::waiting::Waiting::first) that waits
//! gives way to a new one. Where the server has `max_connections`, one of them gives way too, after a moment. So accepting pauses
//! for long only while all connections are WebSockets.

use crate::accept::admission::{Kind, RETRY, Stays};
use crate::accept::waiting::First;
use crate::handler::Handler;
use crate::link::phase::Phase;
use crate::link::state::Link;
use crate::turn::core::Core;
use crate::turn::reactor::Reactor;
use crate::turn::timer::Tick;
use std::fmt;
use tautline_conn::closed::Cause;
use tautline_io::Driver;
use tautline_tls::Engine;

/// The kind of news about places; see [`Admission::is_news`](crate::accept::admission::Admission::is_news).
const PLACES: usize = 6;

/// The kind of news about descriptors; see [`Admission::is_news`](crate::accept::admission::Admission::is_news).
const NEWS: usize = 5;

impl<E: Engine, H: Handler> Reactor<E, H> {
    /// Applies the limits, since one may be passed.
    pub(crate) fn apply_limits(&mut self, driver: &mut dyn Driver) {
        self.core.admission.due = false;
        self.core.admission.look_at = Tick::MAX;
        self.core.admission.bound_accepting(driver, &self.core.shared);
        if !self.core.shared.remote.has_own_descriptors() && self.core.admission.take_wanted_descriptors() {
            self.evict_for_descriptors(driver);
        }
        // Only a loop whose connections grew in number tells the others. If they told each other, they would go on for as long
        // as the loop with the surplus does not run.
        let grew = std::mem::take(&mut self.core.admission.grew);
        for kind in [Kind::Handshake, Kind::Http] {
            if self.evict(driver, kind).is_err() && grew {
                self.core.shared.check_others();
            }
        }
        self.make_place(driver);
        // The connections that gave way left their places. The next look may be a second away.
        if std::mem::take(&mut self.core.admission.due) {
            self.core.admission.bound_accepting(driver, &self.core.shared);
        }
        if self.core.admission.waits_for_others() {
            self.core.admission.look_at = self.core.admission.look_at.min(self.core.shared.now + RETRY);
        }
    }

    /// `Err` if the limit is passed, but by the connections of other loops.
    fn evict(&mut self, driver: &mut dyn Driver, kind: Kind) -> Result<(), ()> {
        loop {
            match self.core.admission.surplus(kind, &self.core.shared.config.limits, self.core.shared.now) {
                Ok(first) => {
                    let before = self.core.admission.waiting(kind).len();
                    let (name, limit) = (kind.name(), kind.limit(&self.core.shared.config.limits));
                    self.visit(driver, first.token, |core, _, link| {
                        core.give_way(link, kind, first, format_args!("{name} ({limit})"), 1 + kind as usize);
                    });
                    if self.core.admission.waiting(kind).len() == before {
                        return Ok(());
                    }
                }
                Err(Stays::WithinLimit) => return Ok(()),
                Err(Stays::OthersTurn) => return Err(()),
                Err(Stays::Until(at)) => {
                    self.core.admission.look_at = self.core.admission.look_at.min(at);
                    return Ok(());
                }
            }
        }
    }

    /// Has a connection without a WebSocket give its place to a new one, while accepting pauses.
    fn make_place(&mut self, driver: &mut dyn Driver) {
        match self.core.admission.place(self.core.shared.now) {
            Ok((kind, first)) => {
                let limit = self.core.shared.config.limits.max_connections;
                self.visit(driver, first.token, |core, _, link| {
                    core.give_way(link, kind, first, format_args!("limits.max_connections ({limit})"), PLACES);
                });
            }
            Err(Stays::Until(at)) => self.core.admission.look_at = self.core.admission.look_at.min(at),
            Err(Stays::WithinLimit | Stays::OthersTurn) => {}
        }
    }

    /// Has a connection without a WebSocket give its descriptor back, here or on another shard. Returns whether one has.
    ///
    /// None has the time that it has at `max_handshakes`: nobody else could be accepted meanwhile.
    pub(crate) fn make_room_for_descriptors(&mut self, driver: &mut dyn Driver) -> bool {
        let has_room = self.evict_for_descriptors(driver);
        // A loop with a table of its own would gain nothing from others.
        if !has_room && !self.core.shared.remote.has_own_descriptors() {
            self.core.admission.want_descriptors();
            self.core.shared.check_others();
        }
        has_room
    }

    fn evict_for_descriptors(&mut self, driver: &mut dyn Driver) -> bool {
        // A connection that has been answered already waits for less.
        [Kind::Http, Kind::Handshake].into_iter().any(|kind| {
            let Some(first) = self.core.admission.waiting(kind).first() else { return false };
            let before = self.core.admission.waiting(kind).len();
            self.visit(driver, first.token, |core, _, link| {
                core.give_way(link, kind, first, format_args!("the end of descriptors (ulimit -n)"), NEWS);
            });
            self.core.admission.waiting(kind).len() < before
        })
    }
}

impl<E: Engine, H: Handler> Core<E, H> {
    /// Ends a connection in favour of newer ones, at a limit with this name.
    fn give_way(
        &mut self,
        link: &mut Link<E::Session, H::State>,
        kind: Kind,
        first: First,
        limit: fmt::Arguments<'_>,
        news: usize,
    ) {
        let First { of_host, of_network, .. } = first;
        let counters = &self.shared.counters;
        match kind {
            Kind::Handshake => {
                counters.handshakes_failed.add(1);
                counters.handshakes_evicted.add(1);
            }
            Kind::Http => counters.http_evicted.add(1),
        }
        if self.admission.is_news(news, self.shared.now) {
            log::warn!("{limit} is reached: the oldest connections of the largest sources give way to new ones");
        }
        let line =
            format_args!("gave way to others at {limit}; {of_host} of its host wait, {of_network} of its network");
        self.shared.log_peer(log::Level::Info, &link.info.peer, line);
        self.end(link, Phase::Gone { reset: kind == Kind::Handshake }, Cause::Overloaded);
    }
}

#[cfg(test)]
mod tests {
    use crate::accept::admission::GRACE_AT_FULL;
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

    struct Silent;

    impl Handler for Silent {
        type State = ();

        fn on_message(&mut self, _: &mut Conn<'_, ()>, _: Message<'_>) {}
    }

    fn shard() -> (Fake, Shard<plain::Engine, Silent>) {
        let kernel = Fake::default();
        let shard = Shard::new(0, Arc::new(Config::default()), plain::Engine, kernel.clone(), Silent).unwrap();
        (kernel, shard)
    }

    #[test]
    fn nobody_gives_way_for_descriptors_that_are_free_again() {
        let (kernel, mut shard) = shard();
        // No connection gives way, so another loop is to make room.
        assert!(!shard.reactor.make_room_for_descriptors(&mut *shard.driver));
        kernel.push(Event::Accept);
        for _ in 0..5 {
            shard.reactor.core.admission.check();
            shard.turn(None).unwrap();
        }
        assert_eq!((shard.counters().connections, shard.counters().handshakes_evicted), (1, 0));
        // Where none was accepted since, one gives way.
        assert!(shard.reactor.make_room_for_descriptors(&mut *shard.driver));
        assert_eq!(shard.counters().handshakes_evicted, 1);
    }

    /// The free places are fewer than the handshakes that may wait, so their own limit is never met.
    #[test]
    fn silent_connections_give_their_places_to_new_ones_though_most_places_are_taken() {
        let (kernel, now) = (Fake::default(), Rc::new(Cell::new(Duration::from_secs(5))));
        kernel.0.borrow_mut().room = usize::MAX;
        let mut config = Config::default();
        config.limits.max_connections = 10;
        config.limits.max_handshakes = 5;
        let mut shard = Shard::new(0, Arc::new(config), plain::Engine, kernel.clone(), Silent).unwrap();
        let clock = now.clone();
        shard.danger_simulate(move || clock.get(), [0; 32]);
        for index in 0..8 {
            kernel.push(Event::Accept);
            kernel.push(Event::Bytes(index, UPGRADE.to_vec()));
            (0..3).for_each(|_| shard.turn(None).unwrap());
        }
        kernel.push(Event::Accept);
        kernel.push(Event::Accept);
        (0..3).for_each(|_| shard.turn(None).unwrap());
        let counters = shard.counters();
        assert_eq!((counters.connections, counters.open, counters.handshakes_evicted), (10, 8, 0));
        assert!(shard.reactor.core.admission.paused, "all places are taken");
        // The loop wakes by itself once one of them has had its time.
        let wait = kernel.0.borrow().waits.last().copied().flatten().unwrap();
        assert!(wait <= Duration::from_millis(GRACE_AT_FULL), "{wait:?}");
        for evicted in 1..5 {
            now.set(now.get() + Duration::from_millis(GRACE_AT_FULL));
            (0..3).for_each(|_| shard.turn(None).unwrap());
            assert_eq!(shard.counters().handshakes_evicted, evicted);
            assert!(!shard.reactor.core.admission.paused);
            kernel.push(Event::Accept);
            (0..3).for_each(|_| shard.turn(None).unwrap());
        }
        assert_eq!(shard.counters().open, 8, "no WebSocket gives way");
    }
}
