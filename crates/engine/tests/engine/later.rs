//! Requests that the application answers later.

use crate::fake::{Event, Fake};
use http::{Response, StatusCode};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tautline_engine::{
    Config, Conn, Handler, Opening, Outgoing, Reply, Request, Shard, ShardHandleError, Ticket, Upgrade,
};
use tautline_tls::plain;
use tautline_ws::deflate::DeflateConfig;
use tautline_ws::{CloseCode, Message};

const UPGRADE: &str = "GET /ada HTTP/1.1\r\nHost: localhost\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\
                       Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n\
                       Sec-WebSocket-Protocol: one, two\r\n\r\n";
const GET: &str = "GET /page HTTP/1.1\r\nHost: localhost\r\n\r\n";

/// Keeps all tickets. Echoes with the name that the ticket gave.
#[derive(Default)]
struct Members {
    tickets: Vec<Ticket<String>>,
    opened: Vec<String>,
}

impl Handler for Members {
    type State = String;

    fn on_request(&mut self, request: &Request<'_>) -> Reply<String> {
        request.later(|ticket| self.tickets.push(ticket))
    }

    fn on_open(&mut self, conn: &mut Conn<'_, String>, opening: &Opening<'_>) {
        let path = opening.request.map_or("", |request| request.uri().path());
        self.opened.push(format!("{path} {} {:?}", conn.state(), opening.subprotocol));
    }

    fn on_message(&mut self, conn: &mut Conn<'_, String>, message: Message<'_>) {
        let text = format!("{}: {}", conn.state(), message.text().unwrap());
        conn.send(Outgoing::text(&text));
    }
}

struct Bench {
    kernel: Fake,
    shard: Shard<plain::Engine, Members>,
}

impl Bench {
    fn new(config: Config) -> Self {
        let kernel = Fake::default();
        kernel.0.borrow_mut().room = usize::MAX;
        let shard = Shard::new(0, Arc::new(config), plain::Engine, kernel.clone(), Members::default()).unwrap();
        Self { kernel, shard }
    }

    fn turn(&mut self) {
        self.shard.turn(Some(Duration::ZERO)).unwrap();
        self.shard.turn(Some(Duration::ZERO)).unwrap();
    }

    /// Accepts a connection that sends `bytes`.
    fn asks(&mut self, bytes: impl AsRef<[u8]>) -> u32 {
        let index = u32::try_from(self.kernel.0.borrow().wires.len()).unwrap();
        self.kernel.push(Event::Accept);
        self.sends(index, bytes.as_ref());
        index
    }

    fn sends(&mut self, index: u32, bytes: &[u8]) {
        self.kernel.push(Event::Bytes(index, bytes.to_vec()));
        self.turn();
    }

    fn ticket(&mut self) -> Ticket<String> {
        self.shard.handler().tickets.pop().unwrap()
    }

    fn read(&mut self, index: u32) -> String {
        self.turn();
        String::from_utf8_lossy(&self.kernel.received(index)).into_owned()
    }
}

fn hello() -> Vec<u8> {
    [&[0x81, 0x85, 0, 0, 0, 0], &b"hello"[..]].concat()
}

#[test]
fn an_upgrade_from_another_thread_has_headers_subprotocol_and_state() {
    let mut bench = Bench::new(Config::default());
    let index = bench.asks(UPGRADE);
    assert_eq!(bench.read(index), "", "nothing is answered yet");
    let ticket = bench.ticket();
    assert!(ticket.is_wanted());
    std::thread::spawn(move || {
        let upgrade = Upgrade::new().with_state("Ada".to_owned()).with_subprotocol("two");
        ticket.upgrade(upgrade.with_header(http::header::SERVER, http::HeaderValue::from_static("members"))).unwrap();
    })
    .join()
    .unwrap();
    let answer = bench.read(index).to_lowercase();
    assert!(answer.starts_with("http/1.1 101 ") && answer.contains("server: members"), "{answer}");
    assert!(answer.contains("sec-websocket-protocol: two"), "{answer}");
    assert_eq!(bench.shard.handler().opened, ["/ada Ada Some(\"two\")"]);
    bench.sends(index, &hello());
    assert!(bench.read(index).ends_with("Ada: hello"));
    assert_eq!(bench.shard.counters().handshaking, 0);
}

#[test]
fn a_subprotocol_that_was_not_offered_is_an_error_of_the_application() {
    let mut bench = Bench::new(Config::default());
    let index = bench.asks(UPGRADE);
    bench.ticket().upgrade(Upgrade::new().with_subprotocol("three")).unwrap();
    assert!(bench.read(index).starts_with("HTTP/1.1 500 "));
    assert!(bench.shard.handler().opened.is_empty());
}

#[test]
fn an_upgrade_may_refuse_windows_that_the_configuration_allows() {
    let mut config = Config::default();
    config.upgrade.deflate = Some(DeflateConfig::with_context_takeover());
    let mut bench = Bench::new(config);
    let offer = UPGRADE.replace("\r\n\r\n", "\r\nSec-WebSocket-Extensions: permessage-deflate\r\n\r\n");
    for context_takeover in [true, false, true] {
        let index = bench.asks(&offer);
        let mut upgrade = Upgrade::new();
        upgrade.context_takeover = context_takeover;
        bench.ticket().upgrade(upgrade).unwrap();
        let answer = bench.read(index);
        assert!(answer.contains("permessage-deflate"), "{answer}");
        for side in ["server_no_context_takeover", "client_no_context_takeover"] {
            assert_eq!(answer.contains(side), !context_takeover, "{answer}");
        }
    }
}

#[test]
fn input_waits_until_the_answer_and_is_bounded() {
    let mut bench = Bench::new(Config::default());
    // An eager client sends a message with its request.
    let eager = [UPGRADE.as_bytes(), &hello()].concat();
    let index = bench.asks(eager);
    assert!(bench.kernel.with(index, |wire| wire.paused), "nothing more is read");
    bench.sends(index, &hello());
    assert_eq!(bench.read(index), "");
    bench.ticket().upgrade(Upgrade::new().with_state("Ada".to_owned())).unwrap();
    let answer = bench.read(index);
    assert_eq!(answer.matches("Ada: hello").count(), 2, "{answer}");
    assert!(!bench.kernel.with(index, |wire| wire.paused));
}

#[test]
fn plain_requests_are_answered_in_order_on_one_connection() {
    let mut bench = Bench::new(Config::default());
    let index = bench.asks([GET, GET].concat());
    for round in 0..2 {
        assert_eq!(bench.shard.handler().tickets.len(), 1, "the second request waits for the first answer");
        bench.ticket().respond(Response::new(format!("page {round}").into_bytes())).unwrap();
        let answer = bench.read(index);
        assert!(answer.starts_with("HTTP/1.1 200 ") && answer.ends_with(&format!("page {round}")), "{answer}");
    }
    assert_eq!((bench.shard.counters().http, bench.shard.counters().handshaking), (1, 0));
    bench.sends(index, UPGRADE.as_bytes());
    bench.ticket().upgrade(Upgrade::new()).unwrap();
    assert!(bench.read(index).starts_with("HTTP/1.1 101 "));
    assert_eq!((bench.shard.counters().http, bench.shard.counters().open), (0, 1));
}

#[test]
fn a_ticket_that_is_dropped_is_an_error_of_the_server() {
    let mut bench = Bench::new(Config::default());
    let index = bench.asks(UPGRADE);
    drop(bench.ticket());
    assert!(bench.read(index).starts_with("HTTP/1.1 500 "));
}

#[test]
fn too_many_waiting_requests_are_refused_with_503() {
    let mut config = Config::default();
    config.limits.max_unanswered = 2;
    let mut bench = Bench::new(config);
    let [first, second, third] = [UPGRADE; 3].map(|request| bench.asks(request));
    assert_eq!(bench.shard.handler().tickets.len(), 2);
    assert!(bench.read(third).starts_with("HTTP/1.1 503 "));
    // An answer makes room, and so does a client that leaves.
    bench.ticket().status(StatusCode::FORBIDDEN).unwrap();
    assert!(bench.read(second).starts_with("HTTP/1.1 403 "));
    bench.kernel.push(Event::Failed(first));
    bench.turn();
    let left = bench.ticket();
    assert!(!left.is_wanted());
    assert_eq!(left.upgrade(Upgrade::new()), Err(ShardHandleError::Ended));
    for _ in 0..2 {
        bench.asks(UPGRADE);
    }
    assert_eq!(bench.shard.handler().tickets.len(), 2);
}

#[test]
fn an_answer_that_is_too_late_is_408() {
    let mut config = Config::default();
    config.deadlines.answer = Duration::from_millis(100);
    let mut bench = Bench::new(config);
    let index = bench.asks(UPGRADE);
    let ticket = bench.ticket();
    let end = Instant::now() + Duration::from_secs(20);
    while ticket.is_wanted() {
        assert!(Instant::now() < end, "the deadline is missed");
        std::thread::sleep(Duration::from_millis(10));
        bench.turn();
    }
    assert!(bench.read(index).starts_with("HTTP/1.1 408 "));
    assert_eq!(ticket.status(StatusCode::OK), Err(ShardHandleError::Ended));
    assert_eq!(bench.shard.counters().handshaking, 0);
}

#[test]
fn the_deadline_of_requests_is_kept_before_that_of_the_handshake() {
    let mut config = Config::default();
    config.deadlines.http = Duration::from_millis(100);
    let mut bench = Bench::new(config);
    let index = bench.asks(GET);
    bench.ticket().status(StatusCode::OK).unwrap();
    assert!(bench.read(index).starts_with("HTTP/1.1 200 "));
    assert_eq!(bench.shard.counters().http, 1);
    let began = Instant::now();
    while bench.shard.counters().http > 0 {
        assert!(began.elapsed() < Duration::from_secs(5), "the handshake would have 10 s");
        std::thread::sleep(Duration::from_millis(10));
        bench.turn();
    }
}

#[test]
fn a_drain_refuses_waiting_requests() {
    let mut bench = Bench::new(Config::default());
    let index = bench.asks(UPGRADE);
    let ticket = bench.ticket();
    bench.shard.drain(CloseCode::GOING_AWAY, "", Duration::from_secs(10));
    assert!(bench.read(index).starts_with("HTTP/1.1 503 "));
    assert_eq!(ticket.upgrade(Upgrade::new()), Err(ShardHandleError::Ended));
}

#[test]
fn a_ticket_outlives_its_shard() {
    let mut bench = Bench::new(Config::default());
    bench.asks(UPGRADE);
    let ticket = bench.ticket();
    drop(bench);
    assert!(!ticket.is_wanted());
    assert_eq!(ticket.upgrade(Upgrade::new()), Err(ShardHandleError::Ended));
}
