//! The part of a loop's time that goes to connections which open: accepting, handshakes, and requests.
//!
//! A handshake takes as long as ten or more messages, and after the end of another server thousands of clients come at once.
//! If a turn served all of them, every message that arrives meanwhile would wait for all. So a turn serves connections that open
//! for [a while](crate::openings::LEAST), or for as long as it has worked for others. Further input of theirs waits for the next
//! turns, in the order of arrival. A step that has begun is finished, so a message waits for at most one step more.
//!
//! Connections that are open have the rest of the time, and those that open have at least half of it while they wait. No clock
//! is read for a message.

use crate::admission::Kind;
use crate::core::Core;
use crate::handler::Handler;
use crate::link::Link;
use crate::phase::Phase;
use tautline_io::{Driver, Received};
use tautline_tls::Engine;

impl<S, T> Link<S, T> {
    /// Whether it is a client's connection before its first answer.
    pub(crate) fn is_opening(&self) -> bool {
        match &self.phase {
            Phase::Tls => self.info.dial.is_none(),
            Phase::Request(head) => head.http_end.is_none(),
            _ => false,
        }
    }
}

impl<E: Engine, H: Handler> Core<E, H> {
    /// Whether another connection is to be accepted in this turn. If many wait for their step, further ones wait in the kernel's
    /// backlog.
    pub(crate) fn may_accept(&self) -> bool {
        let limits = &self.shared.config.limits;
        self.openings.len() < Kind::Handshake.limit(limits) && self.openings.has_time(|| self.clock.elapsed())
    }

    /// Does some work for connections that open, and counts its time.
    pub(crate) fn spend_opening(&mut self, work: impl FnOnce(&mut Self)) {
        let begun = self.clock.elapsed();
        work(self);
        let took = self.clock.elapsed().saturating_sub(begun);
        self.openings.spend(took);
        self.pace.measure(took);
    }

    /// Processes input of a connection that opens, or has it wait.
    pub(crate) fn input_opening(
        &mut self,
        driver: &mut dyn Driver,
        link: Box<Link<E::Session, H::State>>,
        data: Received<'_>,
    ) {
        let is_next = !self.openings.are_waiting() && self.openings.has_time(|| self.clock.elapsed());
        if link.queued || !is_next {
            return self.visit_link(driver, link, |core, _, link| core.keep_input(link, data));
        }
        self.openings.has_stepped = true;
        self.spend_opening(|core| {
            core.visit_link(driver, link, |core, driver, link| core.take_input(driver, link, data));
        });
    }

    /// Keeps input for a later turn. The driver pauses, so there is no more of it.
    fn keep_input(&mut self, link: &mut Link<E::Session, H::State>, data: Received<'_>) {
        let bytes = data.bytes();
        self.heard(link, bytes.len());
        if link.carry.is_empty() {
            link.carry = self.shared.pool.take_for(bytes.len());
        }
        link.carry.put(bytes);
        link.held = true;
        if !std::mem::replace(&mut link.queued, true) {
            self.openings.push(link.token);
            self.stop_waiting(link);
        }
    }

    /// Goes on with connections whose input waits, in this turn's time. One has a step in each turn.
    pub(crate) fn go_on_opening(&mut self, driver: &mut dyn Driver) {
        while self.openings.are_waiting()
            && (!self.openings.has_stepped || self.openings.has_time(|| self.clock.elapsed()))
        {
            let Some(token) = self.openings.pop() else { break };
            let Some(mut link) = self.take(token) else { continue };
            self.openings.has_stepped = true;
            link.queued = false;
            if link.phase.is_handshaking() {
                self.wait_again(&link);
            }
            // The visit resumes the input that was held.
            self.spend_opening(|core| core.visit_link(driver, link, |_, _, _| {}));
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::fake::{Event, Fake};
    use crate::openings::LEAST;
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
    fn those_that_open_have_half_of_the_time_of_a_busy_loop() {
        let mut bench = Bench::new();
        bench.shard.handler().message = 10 * LEAST;
        bench.kernel.push(Event::Bytes(0, HELLO.to_vec()));
        for index in 1..12 {
            bench.request(index);
        }
        bench.turn();
        // Ten parts of the time are others', and each request takes two.
        assert_eq!(bench.shard.handler().asked.len() - 1, 5);
        bench.turn();
        assert_eq!(bench.shard.handler().asked.len() - 1, 6, "no others, so one step");
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

    #[test]
    fn no_more_connections_are_accepted_than_can_be_served() {
        let mut bench = Bench::new();
        assert!(bench.shard.core.may_accept());
        for index in 1..u32::try_from(MOST).unwrap() + 2 {
            bench.request(index);
        }
        bench.turn();
        assert!(!bench.shard.core.may_accept(), "{MOST} wait");
        bench.turn();
        assert_eq!(bench.shard.core.openings.len(), MOST - 1);
        bench.shard.core.openings.begin(Duration::MAX);
        assert!(bench.shard.core.may_accept());
    }
}
