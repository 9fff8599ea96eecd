//! The part of a loop's time that goes to connections which open: accepting, handshakes, and requests.
//!
//! A handshake takes as long as ten or more messages, and after the end of another server thousands of clients come at once.
//! If a turn served all of them, every message that arrives meanwhile would wait for all. So a turn serves connections that open
//! for [a while](crate::accept::openings::LEAST), or for as long as it has worked for others, up to [a bound](crate::accept::openings::MOST).
//! Further input of theirs waits for the next turns, in the order of arrival. A step that has begun is finished, so a message
//! waits for at most one step more. If steps follow each other in every turn, they come after the turn's other events, and a
//! turn that accepts has none.
//!
//! All this is for others, whose messages wait meanwhile. If none of them has had anything to do for
//! [a second](crate::accept::openings::QUIET), a turn goes on for [longer](crate::accept::openings::ALONE): short turns cost more.
//!
//! Input that waits takes memory, and a read may have brought much of it. Above a bound the turn does further steps whatever their
//! time, the oldest first.
//!
//! Connections that are open have the rest of the time. Connections that wait to open have as much as those in short turns, and
//! the bound in long ones. No clock is read for a message.

use crate::accept::openings::Openings;
use crate::handler::Handler;
use crate::link::phase::Phase;
use crate::link::state::{Awaits, Link};
use crate::turn::clock::Clock;
use crate::turn::core::Core;
use crate::turn::links::Links;
use crate::turn::reactor::Reactor;
use tautline_conn::front::{Begins, Via};
use tautline_io::{Address, Driver, Received, Token};
use tautline_tls::{Engine, Session};

impl<S, T> Link<S, T> {
    /// Whether it is a client's connection before its first answer.
    pub(crate) fn is_opening(&self) -> bool {
        match &self.phase {
            Phase::Tls | Phase::ProxyHeader => self.info.dial.is_none(),
            Phase::Request(head) => head.http_end.is_none(),
            _ => false,
        }
    }

    /// Whether more is expected of it than its end.
    pub(crate) fn goes_on(&self) -> bool {
        self.phase.takes_messages() || self.phase.is_handshaking() || self.phase.is_raw()
    }
}

impl<E: Engine, H: Handler> Reactor<E, H> {
    /// Keeps input for a later turn. The driver pauses, so there is no more of it.
    #[cold]
    pub(crate) fn keep_input(
        &mut self,
        driver: &mut dyn Driver,
        link: Box<Link<E::Session, H::State>>,
        data: Received<'_>,
    ) {
        let bytes = data.bytes();
        self.visit_link(driver, link, |core, _, link| {
            core.shared.heard(link, bytes.len());
            if link.carry.is_empty() {
                link.carry = core.shared.pool.take_for(bytes.len());
            }
            link.carry.put(bytes);
            link.held = true;
            if std::mem::replace(&mut link.awaits, Awaits::Opening) == Awaits::Opening {
                core.openings.keep(bytes.len());
            } else {
                core.openings.keep(link.carry.len());
                core.openings.push(link.token);
                core.admission.stop_waiting(link);
            }
        });
        self.step_oldest(driver, |openings, _| openings.hold_too_much());
    }

    /// Goes on with the connections whose input has waited longest, for as long as `goes_on` says.
    pub(crate) fn step_oldest(&mut self, driver: &mut dyn Driver, goes_on: impl Fn(&Openings, &Clock) -> bool) {
        while goes_on(&self.core.openings, &self.core.shared.clock) {
            // Some have ended.
            let Some(mut link) = self.core.openings.pop().and_then(|token| self.core.links.take(token)) else {
                continue;
            };
            self.core.openings.has_stepped = true;
            self.core.openings.forget_input(&link);
            link.awaits = Awaits::Nothing;
            if link.phase.is_handshaking() {
                self.core.admission.wait_again(&link, self.core.shared.now);
            }
            let begun = self.core.shared.clock.elapsed();
            // The visit resumes the input that was held.
            self.visit_link(driver, link, |_, _, _| {});
            self.core.openings.end_step(begun, &self.core.shared.clock);
        }
    }

    /// Begins to serve a connection from `peer`, or one that another connection carries.
    pub(crate) fn accept_from(&mut self, driver: &mut dyn Driver, token: Token, peer: Address) {
        let by = driver.carrier(token);
        let carried = match by.map(|by| carried(&self.core.links, &self.core.engine, by)) {
            Some(None) => return driver.close(token, true),
            carried => carried.flatten(),
        };
        let peer = carried.as_ref().map_or(peer, |carried| carried.peer.clone());
        if self.core.admission.refuses(&mut self.core.shared, driver, token, &peer) {
            return;
        }
        let begins = match &carried {
            Some(_) => Begins::Plainly,
            None => self.core.shared.config.front.begins(&peer),
        };
        if begins == Begins::Refused {
            return self.core.shared.refuse_peer(driver, token, &peer);
        }
        let Core { admission, shared, .. } = &mut self.core;
        let may_enter = match by {
            Some(by) => admission.enter_stream(shared, token, by, &peer),
            None => begins == Begins::WithHeader || admission.enter(shared, token, &peer),
        };
        if !may_enter {
            return driver.close(token, true);
        }
        let (accepted, via) = match carried {
            Some(Carried { session, via, .. }) => (Ok(session), via),
            None => (self.core.engine.accept(), None),
        };
        match accepted {
            Ok(session) => {
                let with_header = begins == Begins::WithHeader;
                let phase = if with_header {
                    Phase::ProxyHeader
                } else {
                    Phase::first(session.is_plain(), self.core.shared.config.limits.head)
                };
                match self.core.open_link(token, phase, session, peer, None) {
                    Some(mut link) => {
                        if let Some(via) = via {
                            self.core.shared.set_via(&mut link, via);
                        }
                        self.core.shared.counters.carried.add(u64::from(by.is_some()));
                        self.core.links.put(link);
                    }
                    None => {
                        self.core.admission.leave_place(token);
                        driver.close(token, true);
                    }
                }
                self.core.admission.bound_accepting(driver, &self.core.shared);
            }
            Err(error) => {
                self.core.shared.log_peer(log::Level::Error, &peer, format_args!("not accepted: {error}"));
                self.core.admission.leave_place(token);
                driver.close(token, true);
            }
        }
    }
}

/// A connection that another one carries has the TLS and the client of that.
struct Carried<S> {
    session: S,
    peer: Address,
    via: Option<Via>,
}

/// A connection that `by` carries. `None` if that has ended, or if the engine has no session for it.
fn carried<E: Engine, T>(links: &Links<E::Session, T>, engine: &E, by: Token) -> Option<Carried<E::Session>> {
    let link = links.get(by)?;
    let session = engine.carried(link.session.tls_info())?;
    let via = link.cold.as_ref().and_then(|cold| cold.via()).cloned();
    Some(Carried { session, peer: link.info.peer.clone(), via })
}

#[cfg(test)]
mod tests {
    use crate::accept::openings::{ALONE, LEAST, MOST as MOST_TIME, MOST_KEPT, QUIET};
    use crate::fake::{Event, Fake};
    use crate::{Config, Conn, Handler, Outgoing, Reply, Request, Shard};
    use std::cell::Cell;
    use std::rc::Rc;
    use std::sync::Arc;
    use std::time::Duration;
    use tautline_tls::plain;
    use tautline_ws::Message;

    /// Most handshakes at a time.
    const MOST: usize = 100;

    /// A text frame with a mask of zeros, and its echo.
    const HELLO: &[u8] = &[0x81, 0x82, 0, 0, 0, 0, b'h', b'i'];
    const ECHO: &[u8] = &[0x81, 2, b'h', b'i'];

    /// Echoes. Each request and each message takes its time.
    struct Costly {
        now: Rc<Cell<Duration>>,
        request: Duration,
        message: Duration,
        /// The paths of the requests.
        asked: Vec<String>,
    }

    impl Handler for Costly {
        type State = ();

        fn on_request(&mut self, request: &Request<'_>) -> Reply {
            self.now.set(self.now.get() + self.request);
            self.asked.push(request.http.uri().path().to_owned());
            Reply::upgrade()
        }

        fn on_message(&mut self, conn: &mut Conn<'_, ()>, message: Message<'_>) {
            self.now.set(self.now.get() + self.message);
            conn.send(Outgoing::from(&message));
        }
    }

    fn upgrade(path: &str) -> Vec<u8> {
        format!(
            "GET /{path} HTTP/1.1\r\nHost: localhost\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\
             Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n\r\n"
        )
        .into_bytes()
    }

    struct Bench {
        kernel: Fake,
        shard: Shard<plain::Engine, Costly>,
    }

    impl Bench {
        /// A shard with an open connection. Each request takes longer than a turn's least time.
        fn new() -> Self {
            let (kernel, now) = (Fake::default(), Rc::new(Cell::new(Duration::from_secs(5))));
            kernel.0.borrow_mut().room = usize::MAX;
            let costly =
                Costly { now: now.clone(), request: Duration::ZERO, message: Duration::ZERO, asked: Vec::new() };
            let mut config = Config::default();
            config.limits.max_handshakes = MOST;
            let mut shard = Shard::new(0, Arc::new(config), plain::Engine, kernel.clone(), costly).unwrap();
            shard.danger_simulate(move || now.get(), [0; 32]);
            let mut bench = Self { kernel, shard };
            bench.request(0);
            bench.turn();
            assert!(!bench.kernel.received(0).is_empty());
            bench.kernel.push(Event::Bytes(0, HELLO.to_vec()));
            bench.turn();
            assert_eq!(bench.kernel.received(0), ECHO);
            // A turn without a step, so that the next one may come before other events.
            bench.turn();
            bench.shard.handler().request = 2 * LEAST;
            bench
        }

        fn request(&self, index: u32) {
            self.kernel.push(Event::Accept);
            self.kernel.push(Event::Bytes(index, upgrade(&index.to_string())));
        }

        fn turn(&mut self) {
            self.shard.turn(None).unwrap();
        }

        fn may_accept(&self) -> bool {
            let core = &self.shard.reactor.core;
            core.openings.take_another(&core.shared.config.limits, &core.shared.clock)
        }

        /// The wait of the last turn.
        fn waited(&self) -> Option<Duration> {
            *self.kernel.0.borrow().waits.last().unwrap()
        }
    }

    #[test]
    fn a_message_waits_for_one_step_and_further_ones_follow_in_their_order() {
        let mut bench = Bench::new();
        for index in 1..6 {
            bench.request(index);
        }
        bench.kernel.push(Event::Bytes(0, HELLO.to_vec()));
        bench.turn();
        assert_eq!(bench.kernel.received(0), ECHO);
        assert_eq!(bench.shard.handler().asked, ["/0", "/1"]);
        assert!(bench.kernel.with(2, |wire| wire.paused), "more bytes of it would be kept");
        for done in 2..6 {
            // A new one does not overtake those that wait.
            bench.kernel.push(Event::Bytes(0, HELLO.to_vec()));
            if done == 2 {
                bench.request(6);
            }
            bench.turn();
            assert_eq!(bench.waited(), Some(Duration::ZERO), "further ones wait");
            assert_eq!(bench.kernel.received(0), ECHO);
            if done == 2 {
                assert_eq!(bench.shard.handler().asked.last().unwrap(), "/1", "this turn has accepted");
                bench.turn();
            }
            assert_eq!(bench.shard.handler().asked.last().unwrap(), &format!("/{done}"));
            assert!(!bench.kernel.with(done, |wire| wire.paused));
        }
        bench.turn();
        assert_eq!(bench.shard.handler().asked.last().unwrap(), "/6");
        bench.turn();
        assert_ne!(bench.waited(), Some(Duration::ZERO));
        assert_eq!(bench.shard.counters().open, 7);
        assert_eq!(bench.shard.counters().receive_pauses, 0, "nobody lags");
    }

    #[test]
    fn those_that_open_have_half_of_the_time_of_a_busy_loop_up_to_a_bound() {
        let mut bench = Bench::new();
        bench.shard.handler().message = 10 * LEAST;
        bench.kernel.push(Event::Bytes(0, HELLO.to_vec()));
        for index in 1..12 {
            bench.request(index);
        }
        bench.turn();
        // Five requests would take half of the turn, and two take as long as the bound.
        assert_eq!(MOST_TIME, 4 * LEAST);
        assert_eq!(bench.shard.handler().asked.len() - 1, 2);
        bench.turn();
        assert_eq!(bench.shard.handler().asked.len() - 1, 3, "no others, so one step");
    }

    #[test]
    fn while_nobody_else_has_anything_to_do_a_turn_does_more_steps() {
        let mut bench = Bench::new();
        let now = bench.shard.handler().now.clone();
        now.set(now.get() + 2 * QUIET);
        bench.turn();
        for index in 1..8 {
            bench.request(index);
        }
        bench.turn();
        assert_eq!(ALONE, 10 * LEAST);
        assert_eq!(bench.shard.handler().asked, ["/0", "/1", "/2", "/3", "/4", "/5"], "and none before others");
        // A message makes turns short again.
        bench.kernel.push(Event::Bytes(0, HELLO.to_vec()));
        bench.turn();
        assert_eq!(bench.kernel.received(0), ECHO);
        assert_eq!(bench.shard.handler().asked.last().unwrap(), "/6");
        bench.turn();
        assert_eq!(bench.shard.handler().asked.last().unwrap(), "/7");
    }

    #[test]
    fn a_connection_that_ends_while_it_waits_is_skipped() {
        let mut bench = Bench::new();
        for index in 1..5 {
            bench.request(index);
        }
        bench.turn();
        assert_eq!(bench.shard.handler().asked, ["/0", "/1"]);
        bench.kernel.push(Event::Failed(3));
        bench.turn();
        bench.turn();
        assert_eq!(bench.shard.handler().asked, ["/0", "/1", "/2", "/4"]);
        assert_eq!((bench.shard.counters().open, bench.shard.counters().handshaking), (4, 0));
        assert_eq!(bench.shard.holdings().waiting, 0);
    }

    /// Most bytes of one read.
    const READ: usize = 256 << 10;

    #[test]
    fn input_that_waits_is_bounded_in_bytes_and_the_oldest_goes_first() {
        let mut bench = Bench::new();
        let many = u32::try_from(2 * MOST_KEPT / READ).unwrap();
        for index in 1..=many {
            // Behind the request are frames that no client may send yet.
            let read = [&upgrade(&index.to_string())[..], &[0; READ]].concat();
            bench.kernel.push(Event::Accept);
            bench.kernel.push(Event::Bytes(index, read));
        }
        bench.turn();
        let asked: Vec<String> = (0..=many / 2 + 1).map(|index| format!("/{index}")).collect();
        assert_eq!(bench.shard.handler().asked, asked, "the first, and each for which there was no memory");
        let kept = bench.shard.reactor.core.openings.kept();
        assert!(kept <= MOST_KEPT && kept > MOST_KEPT - 2 * READ, "{kept}");
        assert!(bench.shard.counters().memory_partial < 2 * MOST_KEPT as u64 + 2 * READ as u64);
        // Some end meanwhile.
        for index in many - 5..=many {
            bench.kernel.push(Event::Failed(index));
        }
        (0..many).for_each(|_| bench.turn());
        assert_eq!((bench.shard.reactor.core.openings.kept(), bench.shard.reactor.core.openings.len()), (0, 0));
        let counters = bench.shard.counters();
        assert_eq!((counters.handshaking, counters.memory_partial), (0, 0));
    }

    #[test]
    fn requests_byte_by_byte_from_many_starve_nobody_and_leave_nothing_behind() {
        const SLOW: u32 = 80;
        let mut bench = Bench::new();
        (1..=SLOW).for_each(|_| bench.kernel.push(Event::Accept));
        let (mut honest, mut most) = (SLOW, 0);
        // The last byte never comes.
        let request = upgrade("slow");
        for byte in &request[..request.len() - 1] {
            // The first request takes all of the turn's time, so everything behind it waits.
            bench.request(honest + 1);
            (1..=SLOW).for_each(|index| bench.kernel.push(Event::Bytes(index, vec![*byte])));
            bench.request(honest + 2);
            for newcomer in [honest + 1, honest + 2] {
                // A turn may have accepted, and then leaves the step to the next one.
                let is_answered = (0..2).any(|_| {
                    bench.kernel.push(Event::Bytes(0, HELLO.to_vec()));
                    bench.turn();
                    assert_eq!(bench.kernel.received(0), ECHO, "an open connection has its echo in each turn");
                    most = most.max(bench.shard.reactor.core.openings.len());
                    assert!(bench.shard.reactor.core.openings.kept() <= SLOW as usize + 2 * request.len());
                    bench.kernel.with(newcomer, |wire| !wire.received.is_empty())
                });
                assert!(is_answered, "an honest client waits behind one byte of each at most");
            }
            honest += 2;
        }
        assert_eq!(most, SLOW as usize + 2, "all of them waited at the same time, and both newcomers");
        // All of them are reset while their input waits. The turn without a step lets the next request come first.
        bench.turn();
        bench.request(honest + 1);
        (1..=SLOW).for_each(|index| bench.kernel.push(Event::Bytes(index, b"\r".to_vec())));
        (1..=SLOW).for_each(|index| bench.kernel.push(Event::Failed(index)));
        bench.turn();
        assert_eq!(
            (bench.shard.reactor.core.openings.kept(), bench.shard.reactor.core.openings.len()),
            (0, SLOW as usize)
        );
        bench.turn();
        assert_eq!((bench.shard.reactor.core.openings.kept(), bench.shard.reactor.core.openings.len()), (0, 0));
        let counters = bench.shard.counters();
        assert_eq!((counters.open, counters.memory_partial), (2 + u64::from(honest - SLOW), 0));
        assert_eq!((counters.handshaking, bench.shard.holdings().waiting), (0, 0));
    }

    #[test]
    fn a_connection_that_misses_its_deadline_while_it_waits_leaves_nothing_behind() {
        let mut bench = Bench::new();
        for index in 1..30 {
            bench.request(index);
        }
        bench.turn();
        assert!(bench.shard.reactor.core.openings.kept() > 0);
        // The loop sleeps past all deadlines of handshakes, so that a few go on and the others are late.
        for _ in 0..40 {
            let now = &bench.shard.handler().now;
            now.set(now.get() + Duration::from_secs(4));
            bench.turn();
        }
        assert_eq!((bench.shard.reactor.core.openings.kept(), bench.shard.reactor.core.openings.len()), (0, 0));
        let counters = bench.shard.counters();
        assert_eq!((counters.handshaking, counters.memory_partial), (0, 0));
        assert!(counters.missed_handshake > 0, "{counters:?}");
        assert_eq!(bench.shard.holdings().waiting, 0);
    }

    #[test]
    fn no_more_connections_are_accepted_than_can_be_served() {
        let mut bench = Bench::new();
        assert!(bench.may_accept());
        for index in 1..u32::try_from(MOST).unwrap() + 2 {
            bench.request(index);
        }
        bench.turn();
        assert!(!bench.may_accept(), "{MOST} wait");
        bench.turn();
        assert_eq!(bench.shard.reactor.core.openings.len(), MOST - 1);
        bench.shard.reactor.core.openings.begin(Duration::MAX);
        assert!(bench.may_accept());
    }
}
