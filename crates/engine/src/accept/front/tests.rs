use crate::fake::{Event, Fake};
use crate::{
    AccessLog, Config, Conn, Front, Gate, Handler, Opening, Outgoing, Place, Prefixes, ProxyHeader, Reply, Request,
    Shard,
};
use log::Level::Info;
use std::cell::Cell;
use std::rc::Rc;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tautline_buf::Buf;
use tautline_io::Address;
use tautline_testkit::log_lines;
use tautline_tls::plain;
use tautline_ws::Message;

/// The peer of every socket of the fake driver.
const DIRECT: &str = "127.0.0.1:1";

/// Notes clients: of requests, and of open connections.
#[derive(Default)]
struct Notes {
    seen: Vec<String>,
}

impl Handler for Notes {
    type State = ();

    fn on_request(&mut self, request: &Request<'_>) -> Reply {
        self.seen.push(format!("{} by {}", request.peer, request.direct_peer()));
        if request.is_upgrade { Reply::upgrade() } else { Reply::Respond(http::Response::new(b"ok".to_vec())) }
    }

    fn on_open(&mut self, conn: &mut Conn<'_, ()>, _: &Opening<'_>) {
        let id = conn.via().and_then(|via| via.header.as_ref()?.unique_id.clone());
        self.seen.push(format!("open {} by {} {id:?}", conn.peer(), conn.direct_peer()));
    }

    fn on_message(&mut self, conn: &mut Conn<'_, ()>, message: Message<'_>) {
        conn.send(Outgoing::from(&message));
    }
}

struct Bench {
    kernel: Fake,
    shard: Shard<plain::Engine, Notes>,
    now: Rc<Cell<Duration>>,
    /// The peers of the entries of the access log.
    entries: Arc<Mutex<Vec<String>>>,
}

impl Bench {
    fn new(front: Front, change: impl FnOnce(&mut Config)) -> Self {
        let (kernel, now) = (Fake::default(), Rc::new(Cell::new(Duration::from_secs(5))));
        kernel.0.borrow_mut().room = usize::MAX;
        kernel.0.borrow_mut().peer = Some(DIRECT.parse().unwrap());
        let entries = Arc::<Mutex<Vec<String>>>::default();
        let taken = entries.clone();
        let mut config = Config { front, ..Config::default() };
        config.access_log = Some(AccessLog::new(move |access| taken.lock().unwrap().push(access.peer.to_string())));
        change(&mut config);
        let mut shard = Shard::new(0, Arc::new(config), plain::Engine, kernel.clone(), Notes::default()).unwrap();
        let clock = now.clone();
        shard.danger_simulate(move || clock.get(), [0; 32]);
        Self { kernel, shard, now, entries }
    }

    fn push(&mut self, event: Event) {
        self.kernel.push(event);
        // A turn may accept and leave the step to the next one.
        (0..2).for_each(|_| self.shard.turn(None).unwrap());
    }

    fn bytes(&mut self, index: u32, bytes: &[u8]) {
        self.push(Event::Bytes(index, bytes.to_vec()));
    }

    fn seen(&mut self) -> Vec<String> {
        std::mem::take(&mut self.shard.handler().seen)
    }

    /// Whether a connection was reset.
    fn is_reset(&self, index: u32) -> bool {
        self.kernel.with(index, |wire| wire.closed) == Some(true)
    }

    /// Nothing of any connection is left.
    fn is_empty(&self) -> bool {
        let counters = self.shard.counters();
        counters.connections + counters.handshaking + counters.http + counters.memory_connections == 0
            && self.shard.holdings().waiting == 0
    }
}

fn listed(prefixes: &[&str]) -> Prefixes {
    Prefixes::list(prefixes).unwrap()
}

fn front(change: impl FnOnce(&mut Front)) -> Front {
    let mut front = Front::default();
    change(&mut front);
    front
}

fn proxied() -> Front {
    front(|front| front.proxy_protocol_from = listed(&["127.0.0.0/8"]))
}

fn forwarded() -> Front {
    front(|front| front.forwarded_from = listed(&["127.0.0.0/8", "10.0.0.0/8"]))
}

/// Whether a line has this text.
fn has(lines: &[String], text: &str) -> bool {
    lines.iter().any(|line| line.contains(text))
}

fn v1(client: &str) -> Vec<u8> {
    format!("PROXY TCP4 {client} 198.51.100.1 4711 443\r\n").into_bytes()
}

fn v2(client: &str) -> Vec<u8> {
    let address = |text: &str| -> Address { text.parse().unwrap() };
    let mut header = ProxyHeader::new(address(client), address("198.51.100.1:443"));
    header.unique_id = Some(b"id".as_slice().into());
    let mut out = Buf::new();
    header.write_v2(true, &mut out).unwrap();
    out.filled().to_vec()
}

fn upgrade(headers: &str) -> Vec<u8> {
    format!(
        "GET / HTTP/1.1\r\nHost: localhost\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n{headers}\
         Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n\r\n"
    )
    .into_bytes()
}

fn get(headers: &str) -> Vec<u8> {
    format!("GET / HTTP/1.1\r\nHost: localhost\r\n{headers}\r\n").into_bytes()
}

#[test]
fn the_client_of_a_header_is_the_peer_of_its_connection() {
    for (header, id) in [(v1("192.0.2.7"), "None"), (v2("192.0.2.7:4711"), "Some([105, 100])")] {
        for pieces in [1, 2, 1_000] {
            let mut bench = Bench::new(proxied(), |_| {});
            bench.push(Event::Accept);
            for piece in [&header[..], &upgrade("")].concat().chunks(pieces) {
                bench.bytes(0, piece);
            }
            let client = "192.0.2.7:4711 by 127.0.0.1:1";
            assert_eq!(bench.seen(), [client.to_owned(), format!("open {client} {id}")]);
            bench.push(Event::Finished(0));
            assert_eq!(*bench.entries.lock().unwrap(), ["192.0.2.7:4711"]);
            assert!(bench.is_empty(), "{:?}", bench.shard.counters());
        }
    }
}

#[test]
fn a_header_without_a_client_leaves_the_direct_peer() {
    for header in [b"PROXY UNKNOWN\r\n".to_vec(), b"\r\n\r\n\0\r\nQUIT\n\x20\0\0\x02xy".to_vec()] {
        let mut bench = Bench::new(proxied(), |_| {});
        bench.push(Event::Accept);
        bench.bytes(0, &[&header[..], &get("")].concat());
        assert_eq!(bench.seen(), [format!("{DIRECT} by {DIRECT}")]);
    }
}

#[test]
fn a_wrong_header_is_refused_with_a_reason_and_the_direct_peer() {
    let mut checksum = v2("192.0.2.7:4711");
    *checksum.last_mut().unwrap() ^= 1;
    let long = [b"\r\n\r\n\0\r\nQUIT\n\x21\x11\xff\xff".as_slice(), &[0; 64 << 10]].concat();
    let twice = [v1("192.0.2.7"), v1("192.0.2.7"), get("")].concat();
    for (bytes, line) in [
        (get(""), "127.0.0.1:1: refused: it sent no header of the PROXY protocol, but something like a request"),
        (b"\x16\x03\x01\x02\0\x01".to_vec(), "127.0.0.1:1: refused: it sent no header of the PROXY protocol, but TLS"),
        (b"PROXY TCP4 1.2.3.4\r\n".to_vec(), "127.0.0.1:1: refused: it sent a malformed header"),
        (vec![b'P'; 64 << 10], "127.0.0.1:1: refused: it sent no header of the PROXY protocol"),
        (long, "127.0.0.1:1: refused: it sent a header of the PROXY protocol of more than 4096 bytes"),
        (checksum, "127.0.0.1:1: refused: it sent a header of the PROXY protocol whose checksum"),
    ] {
        let mut bench = Bench::new(proxied(), |_| {});
        bench.push(Event::Accept);
        let lines = log_lines(Info, || bench.bytes(0, &bytes));
        assert!(bench.is_reset(0), "{line}");
        assert!(has(&lines, line), "{line}: {lines:?}");
        assert_eq!((bench.seen().len(), bench.shard.counters().handshakes_failed), (0, 1));
        assert!(bench.is_empty(), "{line}");
    }
    // The second of two headers is no request.
    let mut bench = Bench::new(proxied(), |_| {});
    bench.push(Event::Accept);
    let lines = log_lines(Info, || bench.bytes(0, &twice));
    assert!(bench.kernel.received(0).starts_with(b"HTTP/1.1 400"));
    let line = "192.0.2.7:4711: the first bytes look like a header of the PROXY protocol, version 1; the second one";
    assert!(has(&lines, line), "{lines:?}");
}

#[test]
fn a_header_that_nobody_expects_is_named_in_the_log() {
    for (header, version) in [(v1("192.0.2.7"), 1), (v2("192.0.2.7:4711"), 2)] {
        let mut bench = Bench::new(Front::default(), |_| {});
        bench.push(Event::Accept);
        let lines = log_lines(Info, || bench.bytes(0, &[&header[..], &get("")].concat()));
        let line = format!("127.0.0.1:1: the first bytes look like a header of the PROXY protocol, version {version}");
        assert!(has(&lines, &line) && has(&lines, "--proxy-protocol-from"), "{lines:?}");
        assert!(bench.kernel.received(0).starts_with(b"HTTP/1.1 400"));
        assert!(bench.seen().is_empty());
    }
}

#[test]
fn peers_that_are_not_listed_are_refused_or_served_plainly() {
    let mut others = front(|front| front.proxy_protocol_from = listed(&["10.0.0.0/8"]));
    let mut bench = Bench::new(others.clone(), |_| {});
    let lines = log_lines(Info, || bench.push(Event::Accept));
    assert!(bench.is_reset(0) && bench.is_empty());
    assert_eq!(bench.shard.counters().proxy_headers_refused, 1);
    assert!(has(&lines, "127.0.0.1:1: refused: it is not among the proxies"), "{lines:?}");
    others.others_without_header = true;
    let mut bench = Bench::new(others, |_| {});
    bench.push(Event::Accept);
    bench.bytes(0, &get(""));
    assert_eq!(bench.seen(), [format!("{DIRECT} by {DIRECT}")]);
    // A header of theirs is never believed.
    bench.push(Event::Accept);
    bench.bytes(1, &[v1("192.0.2.7"), get("")].concat());
    assert!(bench.seen().is_empty());
}

#[test]
fn a_header_has_the_deadline_of_the_handshake() {
    let mut bench = Bench::new(proxied(), |_| {});
    bench.push(Event::Accept);
    let header = v1("192.0.2.7");
    // A byte in each second is no progress.
    let lines = log_lines(Info, || {
        for byte in &header[..20] {
            bench.bytes(0, &[*byte]);
            bench.now.set(bench.now.get() + Duration::from_secs(1));
            (0..2).for_each(|_| bench.shard.turn(None).unwrap());
        }
    });
    assert!(bench.kernel.with(0, |wire| wire.closed).is_some());
    let line = "127.0.0.1:1: no whole header of the PROXY protocol came: the peer missed the handshake deadline";
    assert!(has(&lines, line), "{lines:?}");
    assert_eq!((bench.shard.counters().missed_handshake, bench.shard.counters().handshakes_failed), (1, 1));
    assert_eq!(bench.shard.counters().proxy_headers_refused, 1);
    assert!(bench.is_empty());
}

/// A source that fills the handshakes pushes out its own, though all come through one proxy.
#[test]
fn limits_per_source_count_the_client() {
    let few = |config: &mut Config| config.limits.max_handshakes = 8;
    let mut bench = Bench::new(proxied(), few);
    // An honest client is slow with its request, and another floods.
    bench.push(Event::Accept);
    bench.bytes(0, &v1("192.0.2.7"));
    for index in 1..20 {
        bench.push(Event::Accept);
        bench.bytes(index, &v2("203.0.113.9:1"));
        bench.now.set(bench.now.get() + Duration::from_millis(200));
        (0..2).for_each(|_| bench.shard.turn(None).unwrap());
    }
    assert!(bench.shard.counters().handshakes_evicted >= 8);
    assert!(!bench.is_reset(0) && bench.is_reset(1) && bench.is_reset(2) && !bench.is_reset(19));
    bench.bytes(0, &upgrade(""));
    assert_eq!(bench.seen().len(), 2);
    // Those without a header count for the proxy, which has the most then.
    for index in 20..40 {
        bench.push(Event::Accept);
        bench.now.set(bench.now.get() + Duration::from_millis(200));
        (0..2).for_each(|_| bench.shard.turn(None).unwrap());
        assert!(!bench.is_reset(index), "the newest stays");
    }
    assert!(bench.is_reset(20) && bench.is_reset(21));
}

#[test]
fn requests_name_their_clients_one_by_one() {
    let mut bench = Bench::new(forwarded(), |_| {});
    bench.push(Event::Accept);
    bench.bytes(0, &get("X-Forwarded-For: 198.51.100.1, 192.0.2.7, 10.0.0.3\r\n"));
    bench.bytes(0, &get("X-Forwarded-For: 192.0.2.8:99\r\n"));
    bench.bytes(0, &get(""));
    // Two at once.
    let two = [get("X-Forwarded-For: 192.0.2.9\r\n"), upgrade("X-Forwarded-For: 192.0.2.7\r\n")].concat();
    bench.bytes(0, &two);
    let expected = ["192.0.2.7:0", "192.0.2.8:99", DIRECT, "192.0.2.9:0", "192.0.2.7:0"];
    let mut seen: Vec<String> = expected.iter().map(|client| format!("{client} by {DIRECT}")).collect();
    seen.push(format!("open 192.0.2.7:0 by {DIRECT} None"));
    assert_eq!(bench.seen(), seen);
    bench.push(Event::Failed(0));
    assert_eq!(*bench.entries.lock().unwrap(), expected, "each entry has its own client");
    assert!(bench.is_empty(), "{:?}", bench.shard.counters());
}

#[test]
fn requests_of_others_name_nobody() {
    let listed = front(|front| front.forwarded_from = listed(&["10.0.0.0/8"]));
    for front in [listed, Front::default()] {
        let mut bench = Bench::new(front, |_| {});
        bench.push(Event::Accept);
        bench.bytes(0, &get("X-Forwarded-For: 192.0.2.7\r\nForwarded: for=192.0.2.7\r\n"));
        assert_eq!(bench.seen(), [format!("{DIRECT} by {DIRECT}")]);
    }
}

#[test]
fn a_client_in_a_header_is_believed_if_it_is_a_proxy() {
    let mut both = forwarded();
    both.proxy_protocol_from = listed(&["127.0.0.0/8"]);
    let mut bench = Bench::new(both, |_| {});
    for (index, peer, client) in [(0, "10.0.0.1", "192.0.2.7:0"), (1, "203.0.113.1", "203.0.113.1:4711")] {
        bench.push(Event::Accept);
        bench.bytes(index, &[v1(peer), get("X-Forwarded-For: 192.0.2.7\r\n")].concat());
        assert_eq!(bench.seen(), [format!("{client} by {DIRECT}")]);
    }
}

/// Bodies that a client does not finish count for it, though they come through a proxy that others use, too.
#[test]
fn slow_bodies_push_out_those_of_their_own_client() {
    let mut bench = Bench::new(forwarded(), |config| config.limits.max_handshakes = 8);
    let post = |client: &str| get(&format!("X-Forwarded-For: {client}\r\nContent-Length: 5\r\n"));
    bench.push(Event::Accept);
    bench.bytes(0, &post("192.0.2.7"));
    for index in 1..20 {
        bench.push(Event::Accept);
        bench.bytes(index, &post("203.0.113.9"));
        bench.now.set(bench.now.get() + Duration::from_millis(200));
        (0..2).for_each(|_| bench.shard.turn(None).unwrap());
    }
    assert!(!bench.is_reset(0) && bench.is_reset(1) && !bench.is_reset(19));
    bench.bytes(0, b"hello");
    assert_eq!(bench.seen(), [format!("192.0.2.7:0 by {DIRECT}")]);
}

/// Lets each client have one connection at a time.
#[derive(Debug, Default)]
struct One {
    inside: Arc<Mutex<Vec<String>>>,
}

struct Inside(Arc<Mutex<Vec<String>>>, String);

impl Drop for Inside {
    fn drop(&mut self) {
        self.0.lock().unwrap().retain(|client| *client != self.1);
    }
}

impl Gate for One {
    fn enter(&self, client: &Address) -> Option<Place> {
        let is_inside = self.inside.lock().unwrap().contains(&client.to_string());
        (!is_inside).then(|| self.enter_again(client))
    }

    fn enter_again(&self, client: &Address) -> Place {
        self.inside.lock().unwrap().push(client.to_string());
        Place::new(Inside(self.inside.clone(), client.to_string()))
    }
}

/// A bench whose gate lets each client have one connection, and those that are inside.
fn gated(front: Front) -> (Bench, Arc<Mutex<Vec<String>>>) {
    let one = One::default();
    let inside = one.inside.clone();
    (Bench::new(front, |config| config.gate = Some(Arc::new(one))), inside)
}

#[test]
fn a_gate_refuses_connections_until_others_of_the_client_end() {
    let (mut bench, inside) = gated(Front::default());
    bench.push(Event::Accept);
    let lines = log_lines(Info, || bench.push(Event::Accept));
    assert!(!bench.is_reset(0) && bench.is_reset(1));
    assert!(has(&lines, "127.0.0.1:1: refused: its source has too many connections"), "{lines:?}");
    assert_eq!((bench.shard.counters().connections, bench.shard.counters().connections_refused), (1, 1));
    bench.push(Event::Finished(0));
    (0..3).for_each(|_| bench.shard.turn(None).unwrap());
    assert!(inside.lock().unwrap().is_empty());
    bench.push(Event::Accept);
    assert!(!bench.is_reset(2));
}

#[test]
fn a_gate_is_asked_for_the_client_of_a_header_and_not_for_its_proxy() {
    let (mut bench, inside) = gated(proxied());
    for _ in 0..3 {
        bench.push(Event::Accept);
    }
    bench.bytes(0, &[v1("192.0.2.7"), get("")].concat());
    bench.bytes(1, &[v1("192.0.2.8"), get("")].concat());
    bench.bytes(2, &[v1("192.0.2.7"), get("")].concat());
    assert_eq!([0, 1, 2].map(|number| bench.is_reset(number)), [false, false, true]);
    assert_eq!(inside.lock().unwrap().len(), 2);
    // Requests that a proxy passes on share its connections, so there is no limit to them.
    let (mut bench, inside) = gated(front(|front| front.forwarded_from = listed(&["127.0.0.1"])));
    bench.push(Event::Accept);
    bench.push(Event::Accept);
    assert!(!bench.is_reset(1) && inside.lock().unwrap().is_empty());
}
