//! Raw connections: bytes that the application takes and makes.

use crate::fake::{Event, Fake};
use std::cell::Cell;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;
use tautline_engine::{
    Cause, Closed, Config, Conn, ConnId, ConnectError, Delivery, DialId, Handler, Others, Outgoing, Raw, RawEvent,
    Reply, Request, Shard, Target, Terms,
};
use tautline_tls::plain;
use tautline_ws::{CloseCode, Message};

/// Bytes that may wait for one side of a pair.
const MOST: usize = 1000;

/// Joins each client that asks for `/pair` with a connection of its own to a backend. It answers some other paths.
#[derive(Default)]
struct Front {
    /// The client that waits for the next outgoing connection.
    client: Option<ConnId>,
    /// The client that asked for `/later`.
    id: Option<ConnId>,
    /// Events, in order.
    seen: Vec<String>,
    /// Bytes that waited for a side after each write to it, if they pause nobody.
    waiting: Option<Vec<usize>>,
}

#[derive(Default)]
struct State {
    partner: Option<ConnId>,
    /// Bytes of a body that are expected.
    body: usize,
    /// Whether the next request waits until the client has everything.
    waits: bool,
    /// Whether it becomes a WebSocket, once the backend has said `ok;`.
    opens: bool,
    /// Whether it has had its response, so that no bytes are its own before the next request.
    is_done: bool,
}

impl Handler for Front {
    type State = State;

    fn on_raw_request(&mut self, raw: &mut Raw<'_, State>, request: &Request<'_>) -> bool {
        let path = request.http.uri().path();
        self.seen.push(format!("request {path}"));
        raw.state().is_done = false;
        match path {
            "/pair" => {
                raw.pause(true);
                self.client = Some(raw.id());
                raw.shard().handle().connect(Target::raw("http://127.0.0.1:1").unwrap()).unwrap();
            }
            "/socket" => {
                raw.pause(true);
                raw.state().opens = true;
                self.client = Some(raw.id());
                raw.shard().handle().connect(Target::raw("http://127.0.0.1:1").unwrap()).unwrap();
            }
            "/body" => raw.state().body = 5,
            "/now" => {
                raw.write(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n");
                raw.resume_http();
            }
            "/drained" => {
                raw.write(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n");
                raw.notify_drain();
                raw.state().waits = true;
            }
            "/later" => {
                self.id = Some(raw.id());
                raw.set_timer(Duration::from_millis(100), 7);
            }
            "/panic" => panic!("a bug"),
            _ => return false,
        }
        true
    }

    fn on_request(&mut self, _: &Request<'_>) -> Reply<State> {
        Reply::status(http::StatusCode::NOT_FOUND)
    }

    fn on_bytes(&mut self, raw: &mut Raw<'_, State>, bytes: &mut [u8]) -> usize {
        if raw.state().is_done {
            raw.end();
            return bytes.len();
        }
        if raw.state().opens {
            let (client, ok) = (raw.state().partner.unwrap(), b"ok;");
            assert!(bytes.starts_with(ok));
            raw.others().write(client, b"joined;");
            if raw.others().open(client, &Terms::new(MOST)) {
                raw.open(Terms::new(MOST));
            } else {
                raw.reset();
            }
            return ok.len();
        }
        if let Some(partner) = raw.state().partner {
            if bytes == b"the end;" {
                raw.others().write(partner, bytes);
                raw.others().end(partner);
                return bytes.len();
            }
            if bytes == b"that is all;" {
                let mut others = raw.others();
                *others.state(partner).unwrap() = State { is_done: true, ..State::default() };
                others.write(partner, b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n");
                others.resume_http(partner);
                return bytes.len();
            }
            let waits = raw.others().write(partner, bytes);
            if let Some(waiting) = &mut self.waiting {
                waiting.extend(waits);
            } else if waits.is_some_and(|waits| waits > MOST) {
                raw.pause(true);
                raw.others().notify_drain(partner);
            }
            return bytes.len();
        }
        if raw.state().waits {
            return 0;
        }
        let used = bytes.len().min(raw.state().body);
        raw.state().body -= used;
        if raw.state().body == 0 {
            raw.write(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n");
            raw.resume_http();
        }
        used
    }

    fn on_raw(&mut self, raw: &mut Raw<'_, State>, event: RawEvent<'_>) {
        let side = if raw.dial().is_some() { "backend" } else { "client" };
        let partner = raw.state().partner;
        match event {
            RawEvent::Opened => {
                let client = self.client.take().unwrap();
                let own = raw.id();
                raw.state().partner = Some(client);
                if let Some(state) = raw.others().state(client) {
                    state.partner = Some(own);
                    if state.opens {
                        raw.state().opens = true;
                        return;
                    }
                }
                raw.others().write(client, b"joined;");
                raw.others().pause(client, false);
            }
            RawEvent::Finished { whole } => {
                self.seen.push(format!("{side} finished {whole}"));
                partner.into_iter().for_each(|partner| raw.others().finish(partner));
            }
            RawEvent::Notified => self.seen.push(format!("{side} notified")),
            RawEvent::Drained if raw.state().waits => {
                raw.state().waits = false;
                raw.resume_http();
            }
            RawEvent::Drained => partner.into_iter().for_each(|partner| raw.others().pause(partner, false)),
            RawEvent::Timer(id) => {
                self.seen.push(format!("timer {id}"));
                raw.end();
            }
            RawEvent::Drain => raw.end(),
            RawEvent::Closed(cause) => {
                self.seen.push(format!("{side} closed: {cause}"));
                if !matches!(cause, Cause::Finished) {
                    partner.into_iter().for_each(|partner| raw.others().reset(partner));
                }
            }
            _ => {}
        }
    }

    fn on_raw_failed(&mut self, others: &mut Others<'_, State>, _: DialId, error: &ConnectError) {
        self.seen.push(format!("failed: {error}"));
        if let Some(client) = self.client.take() {
            others.write(client, b"HTTP/1.1 502 Bad Gateway\r\ncontent-length: 0\r\n\r\n");
            others.resume_http(client);
        }
    }

    fn on_message(&mut self, conn: &mut Conn<'_, State>, message: Message<'_>) {
        let partner = conn.state().partner.unwrap();
        if let Delivery::Queued(waits) = conn.others().send(partner, Outgoing::from(&message))
            && waits > MOST
        {
            conn.others().notify_drain(partner);
            conn.pause(true);
        }
    }

    fn on_drain(&mut self, conn: &mut Conn<'_, State>) {
        let partner = conn.state().partner.unwrap();
        conn.others().pause(partner, false);
    }

    fn on_close(&mut self, conn: &mut Conn<'_, State>, closed: &Closed) {
        let side = if conn.dial().is_some() { "backend" } else { "client" };
        self.seen.push(format!("{side} socket closed: {} {}", closed.code, closed.cause));
        let partner = conn.state().partner.unwrap();
        conn.others().close(partner, CloseCode::new(4000 + closed.code.get() % 1000), "");
    }
}

struct Bench {
    kernel: Fake,
    shard: Shard<plain::Engine, Front>,
    now: Rc<Cell<Duration>>,
}

impl Bench {
    /// A front with a client, connection 0.
    fn new() -> Self {
        let mut config = Config::default();
        config.raw = true;
        Self::of(config)
    }

    fn of(config: Config) -> Self {
        let (kernel, now) = (Fake::default(), Rc::new(Cell::new(Duration::from_secs(5))));
        kernel.0.borrow_mut().room = usize::MAX;
        let mut shard = Shard::new(0, Arc::new(config), plain::Engine, kernel.clone(), Front::default()).unwrap();
        let clock = now.clone();
        shard.danger_simulate(move || clock.get(), [0; 32]);
        kernel.push(Event::Accept);
        let mut bench = Self { kernel, shard, now };
        bench.turns();
        bench
    }

    /// A client whose request is joined with connection 1.
    fn pair() -> Self {
        let mut bench = Self::new();
        bench.ask("/pair", "");
        bench.kernel.push(Event::Connected(1));
        bench.turns();
        assert_eq!(bench.text(0), "joined;");
        bench
    }

    fn turns(&mut self) {
        for _ in 0..4 {
            self.shard.turn(Some(Duration::ZERO)).unwrap();
        }
    }

    fn give(&mut self, index: u32, bytes: &[u8]) {
        self.kernel.push(Event::Bytes(index, bytes.to_vec()));
        self.turns();
    }

    fn event(&mut self, event: Event) {
        self.kernel.push(event);
        self.turns();
    }

    fn ask(&mut self, path: &str, behind: &str) {
        self.give(0, format!("GET {path} HTTP/1.1\r\nhost: a\r\n\r\n{behind}").as_bytes());
    }

    fn text(&self, index: u32) -> String {
        String::from_utf8(self.kernel.received(index)).unwrap()
    }

    fn seen(&mut self) -> Vec<String> {
        std::mem::take(&mut self.shard.handler().seen)
    }

    fn closed(&self, index: u32) -> Option<bool> {
        self.kernel.with(index, |wire| wire.closed)
    }

    fn counts(&self) -> (u64, u64, u64) {
        let counters = self.shard.counters();
        (counters.connections, counters.handshaking, counters.http)
    }
}

#[test]
fn bytes_go_from_one_connection_to_another() {
    let mut bench = Bench::new();
    bench.ask("/pair", "first,");
    assert_eq!(bench.counts(), (1, 0, 0));
    bench.kernel.push(Event::Connected(1));
    bench.turns();
    assert_eq!((bench.text(0), bench.text(1)), ("joined;".into(), "first,".into()));
    bench.give(0, b"to the backend");
    bench.give(1, b"to the client");
    assert_eq!((bench.text(0), bench.text(1)), ("to the client".into(), "to the backend".into()));
    let long = "x".repeat(50_000);
    bench.give(0, long.as_bytes());
    bench.give(0, b"y");
    assert!(bench.text(1) == long + "y");
    assert_eq!(bench.counts(), (2, 0, 0));
}

#[test]
fn many_bytes_leave_before_the_next_input_and_most_of_all_at_once() {
    let mut bench = Bench::pair();
    bench.shard.handler().waiting = Some(Vec::new());
    // One turn has them all. Few bytes leave at its end, together.
    for len in [100, 200, 10_000, 20_000, 100_000, 300] {
        bench.kernel.push(Event::Bytes(0, vec![b'x'; len]));
    }
    bench.turns();
    assert_eq!(bench.shard.handler().waiting.take(), Some(vec![100, 300, 10_300, 20_000, 0, 300]));
    assert_eq!(bench.text(1).len(), 130_600);
}

#[test]
fn a_slow_side_pauses_the_other_and_nothing_is_lost() {
    let mut bench = Bench::pair();
    bench.kernel.0.borrow_mut().wires.get_mut(&1).unwrap().room = 10;
    let mut sent = Vec::new();
    for byte in 0..100u8 {
        let piece = vec![byte; 300];
        sent.extend_from_slice(&piece);
        bench.kernel.push(Event::Bytes(0, piece));
    }
    bench.turns();
    assert!(bench.kernel.with(0, |wire| wire.paused));
    assert!(!bench.kernel.with(1, |wire| wire.paused), "the other direction goes on");
    let mut got = bench.kernel.received(1);
    assert_eq!(got.len(), 10);
    while got.len() < sent.len() {
        let before = got.len();
        bench.event(Event::Room(1, 777));
        got.extend(bench.kernel.received(1));
        assert!(got.len() > before, "stuck at {before}");
    }
    assert!(got == sent);
    bench.turns();
    assert!(!bench.kernel.with(0, |wire| wire.paused));
}

#[test]
fn each_direction_ends_alone() {
    let mut bench = Bench::pair();
    bench.give(0, b"last");
    bench.event(Event::Finished(0));
    assert!(bench.kernel.with(1, |wire| wire.finished));
    assert!(!bench.kernel.with(0, |wire| wire.finished));
    bench.give(1, b"still heard");
    assert_eq!((bench.text(0), bench.text(1)), ("still heard".into(), "last".into()));
    bench.event(Event::Finished(1));
    assert!(bench.kernel.with(0, |wire| wire.finished));
    assert_eq!((bench.closed(0), bench.closed(1)), (Some(false), Some(false)));
    let seen = bench.seen();
    assert_eq!(seen[1..3], ["client finished true", "backend finished true"]);
    assert_eq!(seen.len(), 5, "{seen:?}");
    assert_eq!(bench.counts(), (0, 0, 0));
}

#[test]
fn an_end_by_an_event_of_another_connection_leaves_at_once() {
    let mut bench = Bench::pair();
    bench.give(1, b"the end;");
    assert_eq!(bench.text(0), "the end;");
    assert!(bench.kernel.with(0, |wire| wire.finished));
    // It goes behind bytes for which the kernel has no room yet.
    let mut bench = Bench::pair();
    bench.kernel.0.borrow_mut().wires.get_mut(&0).unwrap().room = 3;
    bench.give(1, b"the end;");
    assert!(!bench.kernel.with(0, |wire| wire.finished));
    bench.event(Event::Room(0, 100));
    assert_eq!(bench.text(0), "the end;");
    assert!(bench.kernel.with(0, |wire| wire.finished));
}

#[test]
fn an_end_waits_for_the_bytes_before_it() {
    let mut bench = Bench::new();
    bench.ask("/pair", "before the end");
    bench.event(Event::Finished(0));
    bench.kernel.push(Event::Connected(1));
    bench.turns();
    assert_eq!(bench.text(1), "before the end");
    assert!(bench.kernel.with(1, |wire| wire.finished));
    assert_eq!(bench.seen(), ["request /pair", "client finished true"]);
}

#[test]
fn a_reset_is_passed_on() {
    let mut bench = Bench::pair();
    bench.event(Event::Failed(1));
    assert_eq!(bench.closed(0), Some(true));
    let seen = bench.seen();
    assert!(seen[1].starts_with("backend closed: ") && seen[2].starts_with("client closed: "), "{seen:?}");
    assert_eq!((seen.len(), bench.counts()), (3, (0, 0, 0)));
}

#[test]
fn a_connection_is_given_back_to_http_behind_the_body() {
    let mut bench = Bench::new();
    // Two requests in one read, the second behind the first one's body, and one that is not taken.
    bench.ask("/body", "12345GET /now HTTP/1.1\r\nhost: a\r\n\r\nGET /none HTTP/1.1\r\nhost: a\r\n\r\n");
    let text = bench.text(0);
    assert_eq!((text.matches("200 OK").count(), text.matches("HTTP/1.1 404").count()), (2, 1), "{text}");
    assert_eq!(bench.seen(), ["request /body", "request /now", "request /none"]);
    assert_eq!(bench.counts(), (1, 0, 1));
    bench.ask("/now", "");
    assert!(bench.text(0).contains("200 OK"));
    // The peer's end between two requests is no failure.
    bench.event(Event::Finished(0));
    assert_eq!((bench.closed(0), bench.counts()), (Some(false), (0, 0, 0)));
    assert_eq!(bench.shard.counters().handshakes_failed, 0);
}

#[test]
fn a_request_that_comes_in_the_turn_of_the_response_before_is_read_as_one() {
    let mut bench = Bench::pair();
    bench.kernel.push(Event::Bytes(1, b"that is all;".to_vec()));
    bench.ask("/now", "");
    assert_eq!(bench.seen(), ["request /pair", "request /now"]);
    assert_eq!(bench.text(0).matches("200 OK").count(), 2);
    assert_eq!((bench.closed(0), bench.counts()), (None, (2, 0, 1)));
}

#[test]
fn requests_that_wait_for_a_drain_follow_each_other() {
    let mut bench = Bench::new();
    // The kernel takes each response at once, so that no event follows it.
    bench.give(0, "GET /drained HTTP/1.1\r\nhost: a\r\n\r\n".repeat(50).as_bytes());
    bench.turns();
    assert_eq!(bench.text(0).matches("200 OK").count(), 50);
    assert_eq!(bench.counts(), (1, 0, 1));
}

#[test]
fn a_backend_that_cannot_be_reached_is_reported_to_the_client() {
    let mut bench = Bench::new();
    bench.ask("/pair", "");
    bench.event(Event::Failed(1));
    assert!(bench.text(0).contains("502 Bad Gateway"));
    let seen = bench.seen();
    assert!(seen[1].starts_with("failed: "), "{seen:?}");
    bench.ask("/now", "");
    assert!(bench.text(0).contains("200 OK"));
    assert!(bench.shard.is_idle() || bench.counts() == (1, 0, 1));
}

#[test]
fn timers_run_on_raw_connections() {
    let mut bench = Bench::new();
    bench.ask("/later", "");
    assert_eq!(bench.seen(), ["request /later"]);
    bench.now.set(bench.now.get() + Duration::from_millis(300));
    bench.turns();
    let seen = bench.seen();
    assert_eq!(seen[0], "timer 7");
    assert!(seen[1].starts_with("client closed: "), "{seen:?}");
    assert!(bench.kernel.with(0, |wire| wire.finished));
}

#[test]
fn a_raw_connection_is_notified_until_its_end() {
    let mut bench = Bench::new();
    bench.ask("/later", "");
    let id = bench.shard.handler().id.unwrap();
    let handle = bench.shard.handle();
    handle.notify(id).unwrap();
    bench.turns();
    assert_eq!(bench.seen(), ["request /later", "client notified"]);
    bench.event(Event::Failed(0));
    let _ = bench.seen();
    handle.notify(id).unwrap();
    bench.turns();
    assert_eq!(bench.seen(), [""; 0]);
}

#[test]
fn a_connection_that_holds_too_much_is_reset_when_memory_is_short() {
    let mut config = Config::default();
    config.raw = true;
    config.limits.memory = 100_000;
    let mut bench = Bench::of(config);
    // They wait for the backend.
    bench.ask("/pair", &"x".repeat(200_000));
    bench.turns();
    assert_eq!(bench.closed(0), Some(true));
    assert_eq!(bench.text(0), "");
    assert_eq!(bench.shard.counters().memory_closed, 1);
}

#[test]
fn a_panic_ends_its_connection_alone() {
    let mut bench = Bench::pair();
    bench.event(Event::Accept);
    bench.give(2, b"GET /panic HTTP/1.1\r\nhost: a\r\n\r\n");
    assert_eq!(bench.closed(2), Some(true));
    bench.give(0, b"goes on");
    assert_eq!((bench.text(1), bench.counts()), ("goes on".into(), (2, 0, 0)));
}

#[test]
fn a_drain_ends_pairs() {
    let mut bench = Bench::pair();
    bench.shard.drain(CloseCode::GOING_AWAY, "", Duration::from_secs(1));
    bench.turns();
    bench.event(Event::Finished(0));
    bench.event(Event::Finished(1));
    assert!(bench.shard.is_drained());
}

/// A text frame with a mask of zeros, as clients send it.
const MASKED: &[u8] = b"\x81\x82\0\0\0\0hi";
/// A text frame as servers send it.
const PLAIN: &[u8] = b"\x81\x02yo";

/// The payload of the frames that a server has got, each of which is short and masked.
fn unmasked(bytes: &[u8]) -> Vec<u8> {
    let mut rest = bytes;
    let mut payloads = Vec::new();
    while let [first, len, a, b, c, d, behind @ ..] = rest {
        let (payload, behind) = behind.split_at(usize::from(len & 0x7f));
        payloads.push(*first);
        payloads.extend(payload.iter().zip([a, b, c, d].iter().cycle()).map(|(byte, mask)| byte ^ **mask));
        rest = behind;
    }
    payloads
}

impl Bench {
    /// A client and connection 1, both WebSockets. Frames that come with the heads are a message of each.
    fn sockets() -> Self {
        let mut bench = Self::new();
        bench.ask("/socket", "");
        bench.give(0, MASKED);
        bench.event(Event::Connected(1));
        assert_eq!(bench.shard.counters().open, 0);
        bench.give(1, &[b"ok;", PLAIN].concat());
        assert_eq!(bench.kernel.received(0), [b"joined;", PLAIN].concat());
        assert_eq!(unmasked(&bench.kernel.received(1)), b"\x81hi");
        assert_eq!((bench.shard.counters().open, bench.shard.counters().opened), (2, 2));
        assert_eq!(bench.seen(), ["request /socket"]);
        bench
    }
}

#[test]
fn raw_connections_become_websockets_with_what_was_read_ahead() {
    let mut bench = Bench::sockets();
    bench.give(0, &MASKED[..3]);
    bench.give(0, &MASKED[3..]);
    assert_eq!(unmasked(&bench.kernel.received(1)), b"\x81hi");
    // Pings are answered here, also at a client's end.
    bench.give(1, b"\x89\x01p");
    assert_eq!((unmasked(&bench.kernel.received(1)), bench.kernel.received(0)), (b"\x8ap".to_vec(), Vec::new()));
    // Messages of a server are not masked, and those of a client are.
    bench.give(1, MASKED);
    let seen = bench.seen();
    assert!(seen[0].starts_with("backend socket closed: 1006 "), "{seen:?}");
    assert_eq!(bench.kernel.received(0), b"\x88\x02\x0f\xa6", "4006");
    bench.give(0, b"\x88\x82\0\0\0\0\x0f\xa6");
    bench.event(Event::Finished(0));
    bench.event(Event::Finished(1));
    assert_eq!((bench.counts(), bench.shard.counters().open), ((0, 0, 0), 0));
}

#[test]
fn websockets_of_raw_connections_close_and_have_deadlines_of_their_own() {
    let mut bench = Bench::sockets();
    bench.give(0, b"\x88\x82\0\0\0\0\x03\xe8");
    assert_eq!(bench.kernel.received(0), b"\x88\x02\x03\xe8");
    assert_eq!(unmasked(&bench.kernel.received(1)), b"\x88\x0f\xa0", "4000");
    // The backend answers nothing, and has the time of a close.
    bench.now.set(bench.now.get() + Duration::from_secs(6));
    bench.turns();
    bench.turns();
    assert!(bench.closed(1).is_some());
    bench.event(Event::Finished(0));
    assert_eq!((bench.counts(), bench.shard.counters().open), ((0, 0, 0), 0));
    let mut bench = Bench::sockets();
    bench.now.set(bench.now.get() + Duration::from_secs(31));
    bench.turns();
    assert_eq!(bench.kernel.received(0), b"\x89\0");
    assert_eq!(unmasked(&bench.kernel.received(1)), b"\x89");
}

#[test]
fn a_slow_websocket_pauses_the_one_whose_messages_it_gets() {
    let mut bench = Bench::sockets();
    bench.kernel.0.borrow_mut().wires.get_mut(&1).unwrap().room = 10;
    let (mut got, mut sent) = (Vec::new(), 0);
    while !bench.kernel.with(0, |wire| wire.paused) {
        sent += 1;
        assert!(sent < 1000);
        bench.give(0, MASKED);
    }
    while got.len() < sent * MASKED.len() {
        let before = got.len();
        bench.event(Event::Room(1, 100));
        got.extend(bench.kernel.received(1));
        assert!(got.len() > before, "stuck at {before} of {sent} messages");
    }
    assert!(unmasked(&got) == b"\x81hi".repeat(sent));
    assert!(!bench.kernel.with(0, |wire| wire.paused));
}

#[test]
fn a_client_that_has_ended_its_direction_becomes_no_websocket() {
    let mut bench = Bench::new();
    bench.ask("/socket", "");
    bench.event(Event::Finished(0));
    bench.event(Event::Connected(1));
    bench.give(1, &[b"ok;", PLAIN].concat());
    assert_eq!((bench.closed(1), bench.shard.counters().opened), (Some(true), 0));
}
