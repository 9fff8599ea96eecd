//! Bounds on connections without a WebSocket, and on all connections.
//!
//! Accepting does not pause for connections that are silent: at a limit, the [first](crate::accept::waiting::Waiting::first) that waits
//! gives way to a new one. Where the server has `max_connections`, one of them gives way too, after a moment. So accepting pauses
//! for long only while all connections are WebSockets.

use crate::accept::admission::{Admission, Kind, RETRY, Stays};
use crate::accept::waiting::First;
use crate::handler::Handler;
use crate::link::phase::Phase;
use crate::link::state::Link;
use crate::turn::core::Core;
use crate::turn::reactor::Reactor;
use crate::turn::shared::Shared;
use crate::turn::timer::Tick;
use std::fmt;
use tautline_conn::closed::Cause;
use tautline_io::Driver;
use tautline_tls::Engine;

/// A connection that gives way to newer ones.
pub(crate) struct Evicted {
    kind: Kind,
    first: First,
    limit: Bound,
}

/// The limit at which a connection gives way.
enum Bound {
    Kind(Kind, usize),
    Places(usize),
    Descriptors,
}

impl Bound {
    /// The kind of news about it; see [`Admission::is_news`].
    const fn news(&self) -> usize {
        match self {
            Self::Kind(kind, _) => 1 + *kind as usize,
            Self::Places(_) => 6,
            Self::Descriptors => 5,
        }
    }
}

impl fmt::Display for Bound {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Kind(kind, limit) => write!(f, "{} ({limit})", kind.name()),
            Self::Places(limit) => write!(f, "limits.max_connections ({limit})"),
            Self::Descriptors => f.write_str("the end of descriptors (ulimit -n)"),
        }
    }
}

impl Admission {
    /// A connection that is past the limit of its kind.
    fn past_limit(&mut self, kind: Kind, shared: &Shared, grew: bool) -> Option<Evicted> {
        let limits = &shared.config.limits;
        match self.surplus(kind, limits, shared.now) {
            Ok(first) => return Some(Evicted { kind, first, limit: Bound::Kind(kind, kind.limit(limits)) }),
            // Only a loop whose connections grew in number tells the others. If they told each other, they would go on for as long
            // as the loop with the surplus does not run.
            Err(Stays::OthersTurn) if grew => shared.check_others(),
            Err(Stays::Until(at)) => self.look_at = self.look_at.min(at),
            Err(Stays::WithinLimit | Stays::OthersTurn) => {}
        }
        None
    }

    /// A connection without a WebSocket that gives its place to a new one, while accepting pauses.
    fn for_place(&mut self, shared: &Shared) -> Option<Evicted> {
        match self.place(shared.now) {
            Ok((kind, first)) => {
                Some(Evicted { kind, first, limit: Bound::Places(shared.config.limits.max_connections) })
            }
            Err(Stays::Until(at)) => {
                self.look_at = self.look_at.min(at);
                None
            }
            Err(Stays::WithinLimit | Stays::OthersTurn) => None,
        }
    }

    /// Connections without a WebSocket of which one gives its descriptor back. One that was answered already waits for less.
    ///
    /// None has the time that it has at `max_handshakes`: nobody else could be accepted meanwhile.
    pub(crate) fn for_descriptor(&mut self) -> impl Iterator<Item = Evicted> + use<> {
        let evicted = |kind, first| Evicted { kind, first, limit: Bound::Descriptors };
        let both =
            [Kind::Http, Kind::Handshake].map(|kind| self.waiting(kind).first().map(|first| evicted(kind, first)));
        both.into_iter().flatten()
    }

    /// Notes that a connection gives way.
    fn give_way<S, T>(&mut self, link: &Link<S, T>, evicted: &Evicted, shared: &mut Shared) {
        let Evicted { kind, limit, first: First { of_host, of_network, .. } } = evicted;
        let counters = &shared.counters;
        match kind {
            Kind::Handshake => {
                counters.handshakes_failed.add(1);
                counters.handshakes_evicted.add(1);
            }
            Kind::Http => counters.http_evicted.add(1),
        }
        if self.is_news(limit.news(), shared.now) {
            log::warn!("{limit} is reached: the oldest connections of the largest sources give way to new ones");
        }
        let line =
            format_args!("gave way to others at {limit}; {of_host} of its host wait, {of_network} of its network");
        shared.log_peer(log::Level::Info, &link.info.peer, line);
    }
}

impl<E: Engine, H: Handler> Reactor<E, H> {
    /// Applies the limits, since one may be passed.
    pub(crate) fn apply_limits(&mut self, driver: &mut dyn Driver) {
        self.core.admission.due = false;
        self.core.admission.look_at = Tick::MAX;
        self.core.admission.bound_accepting(driver, &self.core.shared);
        if !self.core.shared.remote.has_own_descriptors() && self.core.admission.take_wanted_descriptors() {
            self.core.admission.for_descriptor().any(|evicted| self.evict(driver, &evicted));
        }
        let grew = std::mem::take(&mut self.core.admission.grew);
        for kind in [Kind::Handshake, Kind::Http] {
            while let Some(evicted) = self.core.admission.past_limit(kind, &self.core.shared, grew)
                && self.evict(driver, &evicted)
            {}
        }
        if let Some(evicted) = self.core.admission.for_place(&self.core.shared) {
            self.evict(driver, &evicted);
        }
        let Core { admission, shared, .. } = &mut self.core;
        // The connections that gave way left their places. The next look may be a second away.
        if std::mem::take(&mut admission.due) {
            admission.bound_accepting(driver, shared);
        }
        if admission.waits_for_others() {
            admission.look_at = admission.look_at.min(shared.now + RETRY);
        }
    }

    /// Ends a connection in favour of newer ones. Returns whether it waits no more.
    pub(crate) fn evict(&mut self, driver: &mut dyn Driver, evicted: &Evicted) -> bool {
        let Evicted { kind, first, .. } = *evicted;
        let before = self.core.admission.waiting(kind).len();
        self.visit(driver, first.token, |core, _, link| {
            core.admission.give_way(link, evicted, &mut core.shared);
            core.end(link, Phase::Gone { reset: kind == Kind::Handshake }, Cause::Overloaded);
        });
        self.core.admission.waiting(kind).len() < before
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
    use tautline_io::Sink;
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
        assert!(!Sink::make_room(&mut shard.reactor, &mut *shard.driver));
        kernel.push(Event::Accept);
        for _ in 0..5 {
            shard.reactor.core.admission.check();
            shard.turn(None).unwrap();
        }
        assert_eq!((shard.counters().connections, shard.counters().handshakes_evicted), (1, 0));
        // Where none was accepted since, one gives way.
        assert!(Sink::make_room(&mut shard.reactor, &mut *shard.driver));
        assert_eq!(shard.counters().handshakes_evicted, 1);
    }

    #[test]
    fn connections_that_are_adopted_before_the_wait_are_counted_without_one() {
        let (kernel, mut shard) = shard();
        let socket = std::os::unix::net::UnixStream::pair().unwrap().0;
        shard.handle().adopt(socket.into(), None).unwrap();
        // A turn before left it.
        shard.reactor.commands_left = true;
        shard.turn(None).unwrap();
        let counters = shard.counters();
        assert_eq!((counters.connections, counters.memory_sources > 0), (1, true));
        assert_eq!(kernel.0.borrow().waits, [Some(Duration::ZERO)]);
        shard.turn(None).unwrap();
        assert_ne!(kernel.0.borrow().waits[1], Some(Duration::ZERO));
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
