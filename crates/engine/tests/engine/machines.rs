//! One table of states and events, run against both machines for a connection: the loop's, and the one without I/O.
//!
//! Each row says what the peer is told, whether the connection ends, and what the application hears: messages, pongs, and the end.

use crate::bench::UPGRADE;
use crate::fake::{Event as Io, Fake};
use http::{HeaderMap, Response};
use std::cell::Cell;
use std::io;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tautline_engine::connection::{Connection, Context, Event};
use tautline_engine::{
    Closed, Config, Conn, ConnId, ConnectError, DialId, Handler, Opening, Reply, Request, Shard, Target, Ticket,
    Upgrade,
};
use tautline_tls::plain;
use tautline_ws::{CloseCode, Message};

/// Time that passes between two looks at the deadlines. A loop that stands still for a second judges nobody.
const STEP: Duration = Duration::from_millis(250);

fn config() -> Config {
    let seconds = Duration::from_secs;
    let mut config = Config::default();
    config.limits.max_body = 8;
    config.limits.max_message = 100;
    config.limits.head.max_bytes = 512;
    config.deadlines.handshake = seconds(2);
    config.deadlines.answer = seconds(4);
    config.deadlines.http = Duration::from_millis(4500);
    config.deadlines.ping = Some(seconds(2));
    config.deadlines.idle = Some(seconds(4));
    config.deadlines.silence = Some(seconds(7));
    config.deadlines.close = seconds(2);
    config.deadlines.send = seconds(5);
    config
}

fn page() -> Response<Vec<u8>> {
    Response::new(b"page".to_vec())
}

/// A connection under test.
trait Machine {
    /// The peer sends bytes.
    fn bytes(&mut self, bytes: &[u8]);
    /// The peer ends its direction.
    fn finish(&mut self);
    fn pass(&mut self, time: Duration);
    /// The application sends a text.
    fn send(&mut self, text: &str);
    /// The application closes the connection.
    fn close(&mut self);
    /// The application answers a request that waits, by a page or an upgrade.
    fn answer(&mut self, upgrade: bool);
    /// The peer reads nothing from now on.
    fn block(&mut self);
    /// The connection breaks.
    fn fail(&mut self);
    /// The bytes that the peer has read since the last call.
    fn told(&mut self) -> Vec<u8>;
    /// Whether our direction has ended, or the whole connection.
    fn has_ended(&self) -> bool;
    /// The events that the application has heard since the last call.
    fn heard(&mut self) -> Vec<String>;
}

/// Pages at `/page`, requests that wait at `/later`, WebSockets elsewhere.
#[derive(Default)]
struct App {
    tickets: Vec<Ticket<()>>,
    conn: Option<ConnId>,
    heard: Vec<String>,
}

impl Handler for App {
    type State = ();

    fn on_request(&mut self, request: &Request<'_>) -> Reply {
        match request.http.uri().path() {
            "/later" => request.later(|ticket| self.tickets.push(ticket)),
            "/page" => Reply::Respond(page()),
            _ => Reply::upgrade(),
        }
    }

    fn on_open(&mut self, conn: &mut Conn<'_, ()>, _: &Opening<'_>) {
        self.conn = Some(conn.id());
    }

    fn on_message(&mut self, _: &mut Conn<'_, ()>, message: Message<'_>) {
        self.heard.push(String::from_utf8_lossy(message.data()).into_owned());
    }

    fn on_pong(&mut self, _: &mut Conn<'_, ()>, payload: &[u8]) {
        self.heard.extend(pong(payload));
    }

    fn on_close(&mut self, _: &mut Conn<'_, ()>, closed: &Closed) {
        self.heard.push(text_of(closed));
    }

    fn on_connect_failed(&mut self, _: DialId, error: &ConnectError, _: Option<Duration>) {
        self.heard.push(error.to_string());
    }
}

/// A pong as the application hears it. Pongs without payload are left out: they only pass the time.
fn pong(payload: &[u8]) -> Option<String> {
    (!payload.is_empty()).then(|| format!("pong {}", String::from_utf8_lossy(payload)))
}

fn text_of(closed: &Closed) -> String {
    format!("{} {}", closed.code.get(), closed.cause)
}

/// The loop's machine.
struct Looped {
    kernel: Fake,
    shard: Shard<plain::Engine, App>,
    now: Rc<Cell<Duration>>,
}

impl Looped {
    fn new() -> Self {
        let (kernel, now) = (Fake::default(), Rc::new(Cell::new(Duration::from_secs(5))));
        kernel.0.borrow_mut().room = usize::MAX;
        let mut shard = Shard::new(0, Arc::new(config()), plain::Engine, kernel.clone(), App::default()).unwrap();
        let clock = now.clone();
        shard.danger_simulate(move || clock.get(), [7; 32]);
        Self { kernel, shard, now }
    }

    fn server() -> Self {
        let mut looped = Self::new();
        looped.kernel.push(Io::Accept);
        looped.turn();
        looped
    }

    fn client(target: Target) -> Self {
        let mut looped = Self::new();
        looped.shard.connect(Arc::new(target));
        looped.turn();
        looped.kernel.push(Io::Connected(0));
        looped.turn();
        looped
    }

    fn turn(&mut self) {
        self.shard.turn(Some(Duration::ZERO)).unwrap();
    }

    fn act(&mut self, act: impl FnOnce(&mut Conn<'_, ()>)) {
        let conn = self.shard.handler().conn.unwrap();
        // Nothing is done for a connection that closes.
        let _ = self.shard.with_conn(conn, |_, conn| act(conn));
        self.shard.flush();
        self.turn();
    }
}

impl Machine for Looped {
    fn bytes(&mut self, bytes: &[u8]) {
        if !self.has_ended() {
            self.kernel.push(Io::Bytes(0, bytes.to_vec()));
            (0..3).for_each(|_| self.turn());
        }
    }

    fn finish(&mut self) {
        self.kernel.push(Io::Finished(0));
        (0..3).for_each(|_| self.turn());
    }

    fn pass(&mut self, time: Duration) {
        let end = self.now.get() + time;
        while self.now.get() < end {
            self.now.set(self.now.get() + STEP);
            (0..2).for_each(|_| self.turn());
        }
    }

    fn send(&mut self, text: &str) {
        self.act(|conn| _ = conn.text(text));
    }

    fn close(&mut self) {
        self.act(|conn| conn.close(CloseCode::NORMAL, "bye"));
    }

    fn answer(&mut self, upgrade: bool) {
        let ticket = self.shard.handler().tickets.pop().unwrap();
        let given = if upgrade { ticket.upgrade(Upgrade::new()) } else { ticket.respond(page()) };
        given.unwrap();
        (0..2).for_each(|_| self.turn());
    }

    fn block(&mut self) {
        self.kernel.0.borrow_mut().wires.get_mut(&0).unwrap().room = 0;
    }

    fn fail(&mut self) {
        self.kernel.push(Io::Failed(0));
        (0..3).for_each(|_| self.turn());
    }

    fn told(&mut self) -> Vec<u8> {
        self.kernel.received(0)
    }

    fn has_ended(&self) -> bool {
        self.kernel.with(0, |wire| wire.finished || wire.closed.is_some())
    }

    fn heard(&mut self) -> Vec<String> {
        std::mem::take(&mut self.shard.handler().heard)
    }
}

/// The machine without I/O, driven as a runtime does.
struct Pulled {
    connection: Connection<plain::Session>,
    context: Context,
    now: Instant,
    is_client: bool,
    is_blocked: bool,
    told: Vec<u8>,
    heard: Vec<String>,
}

impl Pulled {
    fn new(
        is_client: bool,
        begin: impl FnOnce(&mut Context, Arc<Config>, Instant) -> Connection<plain::Session>,
    ) -> Self {
        let (mut context, now) = (Context::new().unwrap(), Instant::now());
        let connection = begin(&mut context, Arc::new(config()), now);
        let (told, heard) = (Vec::new(), Vec::new());
        let mut pulled = Self { connection, context, now, is_client, is_blocked: false, told, heard };
        pulled.work();
        pulled
    }

    fn server() -> Self {
        Self::new(false, |_, config, now| Connection::server(plain::Session, config, now))
    }

    fn client(target: Target) -> Self {
        Self::new(true, |context, config, now| {
            Connection::client(plain::Session, Arc::new(target), config, context, now).unwrap()
        })
    }

    /// Takes all events, and writes all output.
    fn work(&mut self) {
        loop {
            while let Some(event) = self.connection.next(&mut self.context) {
                self.on(event);
            }
            let bytes = self.connection.output(&mut self.context);
            if bytes.is_empty() {
                break;
            }
            if self.is_blocked {
                self.connection.blocked(self.now);
                break;
            }
            self.told.extend_from_slice(bytes);
            let len = bytes.len();
            self.connection.written(len, &mut self.context);
        }
        self.connection.rest(&mut self.context);
    }

    fn on(&mut self, event: Event) {
        match event {
            Event::Request => match self.connection.request().unwrap().uri().path() {
                "/later" => {}
                "/page" => self.connection.respond(&page(), &mut self.context, self.now).unwrap(),
                _ => self.connection.upgrade(HeaderMap::new(), &mut self.context, self.now).unwrap(),
            },
            Event::Message(_) => {
                self.heard.push(String::from_utf8_lossy(self.connection.payload().data()).into_owned());
            }
            Event::Pong => self.heard.extend(pong(self.connection.payload().data())),
            Event::Closed(closed) => self.heard.push(text_of(&closed)),
            // A loop's handler hears of no connection that was not open, unless it dialed it.
            Event::Failed(error) if self.is_client => self.heard.push(error.to_string()),
            _ => {}
        }
    }
}

impl Machine for Pulled {
    fn bytes(&mut self, bytes: &[u8]) {
        if !self.has_ended() {
            self.connection.window(&mut self.context)[..bytes.len()].copy_from_slice(bytes);
            self.connection.filled(bytes.len(), self.now);
            self.work();
        }
    }

    fn finish(&mut self) {
        self.connection.ended();
        self.work();
    }

    fn pass(&mut self, time: Duration) {
        let end = self.now + time;
        while self.now < end {
            self.now += STEP;
            if self.connection.next_deadline().is_some_and(|at| at <= self.now) {
                self.connection.on_time(self.now, &mut self.context);
                self.work();
            }
        }
    }

    fn send(&mut self, text: &str) {
        let _ = self.connection.send(tautline_engine::Outgoing::text(text), &mut self.context);
        self.work();
    }

    fn close(&mut self) {
        self.connection.close(CloseCode::NORMAL, "bye", &mut self.context, self.now);
        self.work();
    }

    fn answer(&mut self, upgrade: bool) {
        if upgrade {
            self.connection.upgrade(HeaderMap::new(), &mut self.context, self.now).unwrap();
        } else {
            self.connection.respond(&page(), &mut self.context, self.now).unwrap();
        }
        self.work();
    }

    fn block(&mut self) {
        self.is_blocked = true;
    }

    fn fail(&mut self) {
        self.connection.broken(io::ErrorKind::ConnectionReset.into(), &mut self.context);
        self.work();
    }

    fn told(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.told)
    }

    fn has_ended(&self) -> bool {
        self.connection.is_finished()
    }

    fn heard(&mut self) -> Vec<String> {
        std::mem::take(&mut self.heard)
    }
}

/// The state of a connection when a row's event happens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// A server that has read nothing.
    Accepted,
    HalfAHead,
    HalfABody,
    /// The application has a request.
    Waiting,
    /// The application has a request for a WebSocket.
    UpgradeWaits,
    /// A page was served.
    Between,
    Open,
    /// We have sent a close frame.
    Closing,
    /// Open, with a text that the peer does not read.
    Blocked,
    /// A client that awaits the proxy's answer.
    Tunneling,
    /// A client that awaits the response.
    Asking,
    ClientOpen,
}

impl State {
    fn is_client(self) -> bool {
        matches!(self, Self::Tunneling | Self::Asking | Self::ClientOpen)
    }

    fn target(self) -> Target {
        let mut target = Target::new("ws://127.0.0.1:1/").unwrap();
        target.proxy = matches!(self, Self::Tunneling).then(|| "http://127.0.0.1:2".parse().unwrap());
        target
    }

    fn reach(self, machine: &mut dyn Machine) {
        match self {
            Self::Accepted | Self::Tunneling | Self::Asking => {}
            Self::HalfAHead => machine.bytes(b"GET /page HTTP/1.1\r\nHo"),
            Self::HalfABody => machine.bytes(b"POST /page HTTP/1.1\r\nHost: a\r\nContent-Length: 8\r\n\r\nabc"),
            Self::Waiting => machine.bytes(b"GET /later HTTP/1.1\r\nHost: a\r\n\r\n"),
            Self::UpgradeWaits => machine.bytes(&[b"GET /later", &UPGRADE[b"GET /".len()..]].concat()),
            Self::Between => machine.bytes(PAGE),
            Self::Open => machine.bytes(UPGRADE),
            Self::Closing => {
                machine.bytes(UPGRADE);
                machine.close();
            }
            Self::Blocked => {
                machine.bytes(UPGRADE);
                machine.block();
                machine.send("unread");
            }
            Self::ClientOpen => {
                let asked = machine.told();
                machine.bytes(&response(&asked));
            }
        }
        machine.told();
        assert!(!machine.has_ended(), "{self:?}");
    }
}

const PAGE: &[u8] = b"GET /page HTTP/1.1\r\nHost: a\r\n\r\n";

/// The response of a server to a client's upgrade.
fn response(asked: &[u8]) -> Vec<u8> {
    let mut server = Pulled::server();
    server.bytes(asked);
    server.told()
}

/// The event of a row.
#[derive(Clone, Copy, Debug)]
enum Act {
    Finish,
    /// Nothing comes for this number of seconds.
    Quiet(u64),
    Bytes(&'static [u8]),
    /// Pongs come for this number of seconds, and no message.
    Pongs(u64),
    /// A page is asked for each second, this number of times.
    Pages(u64),
    /// The connection breaks.
    Fail,
    /// The application sends a text.
    Send,
    /// The application closes the connection.
    Close,
    /// The application answers a request by a page or an upgrade, after this number of seconds.
    Answer(u64, bool),
}

impl Act {
    fn happen(self, machine: &mut dyn Machine) {
        let second = Duration::from_secs(1);
        match self {
            Self::Finish => machine.finish(),
            Self::Quiet(seconds) => machine.pass(Duration::from_secs(seconds)),
            Self::Bytes(bytes) => machine.bytes(bytes),
            Self::Pongs(seconds) => (0..seconds).for_each(|_| {
                machine.pass(second);
                machine.bytes(&[0x8a, 0x80, 0, 0, 0, 0]);
            }),
            Self::Pages(number) => (0..number).for_each(|_| {
                machine.pass(second);
                machine.bytes(PAGE);
            }),
            Self::Fail => machine.fail(),
            Self::Send => machine.send("text"),
            Self::Close => machine.close(),
            Self::Answer(seconds, upgrade) => {
                machine.pass(Duration::from_secs(seconds));
                machine.answer(upgrade);
            }
        }
    }
}

/// Status lines, frames and texts, in short.
fn describe(mut bytes: &[u8]) -> String {
    let mut words = Vec::new();
    while !bytes.is_empty() {
        if let Some(rest) = bytes.strip_prefix(b"HTTP/1.1 ") {
            words.push(String::from_utf8_lossy(&rest[..3]).into_owned());
            let end = rest.windows(4).position(|four| four == b"\r\n\r\n").unwrap() + 4;
            let head = String::from_utf8_lossy(&rest[..end]).to_ascii_lowercase();
            let body = head
                .split("content-length: ")
                .nth(1)
                .map_or(0, |text| text.split('\r').next().unwrap().parse().unwrap());
            bytes = &rest[end + body..];
        } else if bytes.starts_with(b"GET ") || bytes.starts_with(b"CONNECT ") {
            return "a request".into();
        } else {
            let [first, len, rest @ ..] = bytes else { panic!("{bytes:?}") };
            let (len, is_masked) = (usize::from(len & 0x7f), len & 0x80 != 0);
            let (key, rest) = if is_masked { rest.split_at(4) } else { (&[0; 4][..], rest) };
            let payload: Vec<u8> = rest[..len].iter().zip(key.iter().cycle()).map(|(byte, key)| byte ^ key).collect();
            words.push(match (first & 0xf, &payload[..]) {
                (8, [high, low, reason @ ..]) => {
                    format!("close {} {}", u16::from_be_bytes([*high, *low]), String::from_utf8_lossy(reason))
                }
                (8, _) => "close".into(),
                (9, payload) => format!("ping {}", String::from_utf8_lossy(payload)),
                (10, payload) => format!("pong {}", String::from_utf8_lossy(payload)),
                (_, payload) => String::from_utf8_lossy(payload).into_owned(),
            });
            bytes = &rest[len..];
        }
    }
    words.iter().map(|word| word.trim()).collect::<Vec<_>>().join(", ")
}

/// State, event, what the peer is told, whether the connection has ended, and what the application hears.
type Row = (State, Act, &'static str, bool, &'static str);

use Act::{Answer, Bytes, Close, Fail, Finish, Pages, Pongs, Quiet, Send};
use State::{
    Accepted, Asking, Between, Blocked, ClientOpen, Closing, HalfABody, HalfAHead, Open, Tunneling, UpgradeWaits,
    Waiting,
};

/// Bytes of a client, and of a server.
const UNMASKED: &[u8] = &[0x81, 0];
const TOO_LONG: &[u8] = &[0x82, 0xfe, 0, 200, 0, 0, 0, 0];
const CLOSE: &[u8] = &[0x88, 0x82, 0, 0, 0, 0, 3, 0xe8];
/// `hi`, a ping, `hello` in two fragments with a pong between them, and a close frame with `bye`; then `no`.
const MANY: &[u8] = b"\x81\x82\0\0\0\0hi\x89\x81\0\0\0\0!\x01\x83\0\0\0\0hel\x8a\x81\0\0\0\0?\x80\x82\0\0\0\0lo\
    \x88\x85\0\0\0\0\x03\xe8bye\x81\x82\0\0\0\0no";
/// An upgrade, and `hi` behind it.
const EARLY: &[u8] = b"GET / HTTP/1.1\r\nHost: a\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\
    Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n\r\n\x81\x82\0\0\0\0hi";
const OLD: &[u8] = b"GET / HTTP/1.1\r\nHost: a\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\
    Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 8\r\n\r\n";
const CHUNKED: &[u8] = b"POST /page HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nab\r\n0\r\n\r\n";
const TWO_PAGES: &[u8] = b"GET /page HTTP/1.1\r\nHost: a\r\n\r\nGET /page HTTP/1.1\r\nHost: a\r\n\r\n";
const LAST_PAGE: &[u8] = b"GET /page HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n";
const TUNNEL: &[u8] = b"HTTP/1.1 200 OK\r\n\r\n";
const NO_TUNNEL: &[u8] = b"HTTP/1.1 407 Proxy Authentication Required\r\nContent-Length: 0\r\n\r\n";
const PING: &[u8] = &[0x89, 0x80, 0, 0, 0, 0];
const RESERVED_BIT: &[u8] = &[0xc1, 0x80, 0, 0, 0, 0];
const NO_UTF8: &[u8] = &[0x81, 0x81, 0, 0, 0, 0, 0xff];
const TEXT: &[u8] = &[0x81, 0x82, 0, 0, 0, 0, b'h', b'i'];
const NO_HTTP: &[u8] = b"\r\n\r\nGET\r\n\r\n";
const TOO_LONG_BODY: &[u8] = b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 9\r\n\r\n";
const TOO_LONG_HEAD: &[u8] = &[b'a'; 600];
const EXPECTS: &[u8] = b"POST /page HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\nExpect: 100-continue\r\n\r\n";
const MASKED: &[u8] = &[0x81, 0x80, 0, 0, 0, 0];
const CLOSE_OF_SERVER: &[u8] = &[0x88, 2, 3, 0xe8];
const PING_OF_SERVER: &[u8] = &[0x89, 0];
const TOO_LONG_OF_SERVER: &[u8] = &[0x82, 126, 0, 200];
const TEXT_OF_SERVER: &[u8] = &[0x81, 2, b'h', b'i'];
const FORBIDDEN: &[u8] = b"HTTP/1.1 403 Forbidden\r\nContent-Length: 0\r\n\r\n";
const OTHER_PROTOCOL: &[u8] = b"SSH-2.0-OpenSSH\r\n\r\n";
const HALF_A_REFUSAL: &[u8] = b"HTTP/1.1 403 Forbidden\r\nContent-Length: 9\r\n\r\nno";

const ROWS: &[Row] = &[
    (Accepted, Finish, "", true, ""),
    (Accepted, Quiet(1), "", false, ""),
    (Accepted, Quiet(3), "", true, ""),
    (HalfAHead, Finish, "", true, ""),
    (HalfAHead, Quiet(1), "", false, ""),
    (HalfAHead, Quiet(3), "408", true, ""),
    (HalfABody, Finish, "", true, ""),
    (HalfABody, Quiet(1), "", false, ""),
    (HalfABody, Quiet(3), "408", true, ""),
    (Waiting, Finish, "", true, ""),
    (Waiting, Quiet(1), "", false, ""),
    (Waiting, Quiet(3), "", false, ""),
    (Waiting, Quiet(6), "408", true, ""),
    (Between, Finish, "", true, ""),
    (Between, Quiet(1), "", false, ""),
    (Between, Quiet(3), "", true, ""),
    (Open, Finish, "", true, "1006 the peer hung up without a close frame"),
    (Open, Quiet(1), "", false, ""),
    (Open, Quiet(3), "ping", false, ""),
    (Open, Quiet(6), "ping, close 1001 idle for too long", true, "1006 the peer missed the idle deadline"),
    (Closing, Finish, "", true, "1006 the peer hung up without a close frame"),
    (Closing, Quiet(1), "", false, ""),
    (Closing, Quiet(3), "", true, "1006 the peer missed the close deadline"),
    (Blocked, Finish, "", false, "1006 the peer hung up without a close frame"),
    (Blocked, Quiet(1), "", false, ""),
    (Blocked, Quiet(3), "", false, ""),
    (Blocked, Quiet(6), "", true, "1006 the peer missed the idle deadline"),
    (Asking, Finish, "", true, "the peer hung up without a close frame"),
    (Asking, Quiet(1), "", false, ""),
    (Asking, Quiet(3), "", true, "the peer missed the handshake deadline"),
    (ClientOpen, Finish, "", true, "1006 the peer hung up without a close frame"),
    (ClientOpen, Quiet(1), "", false, ""),
    (ClientOpen, Quiet(3), "ping", false, ""),
    (ClientOpen, Quiet(6), "ping, close 1001 idle for too long", true, "1006 the peer missed the idle deadline"),
    (Accepted, Bytes(NO_HTTP), "400", true, ""),
    (Accepted, Bytes(TOO_LONG_BODY), "413", true, ""),
    (Accepted, Bytes(TOO_LONG_HEAD), "414", true, ""),
    (Accepted, Bytes(EXPECTS), "100", false, ""),
    (HalfAHead, Bytes(NO_HTTP), "400", true, ""),
    (HalfAHead, Bytes(TOO_LONG_BODY), "400", true, ""),
    (HalfAHead, Bytes(TOO_LONG_HEAD), "431", true, ""),
    (HalfAHead, Bytes(EXPECTS), "400", true, ""),
    (HalfABody, Bytes(NO_HTTP), "200, 400", true, ""),
    (HalfABody, Bytes(TOO_LONG_BODY), "200, 400", true, ""),
    (HalfABody, Bytes(TOO_LONG_HEAD), "200, 414", true, ""),
    (HalfABody, Bytes(EXPECTS), "200, 400", true, ""),
    (Waiting, Bytes(NO_HTTP), "", false, ""),
    (Waiting, Bytes(TOO_LONG_BODY), "", false, ""),
    (Waiting, Bytes(TOO_LONG_HEAD), "", false, ""),
    (Waiting, Bytes(EXPECTS), "", false, ""),
    (Between, Bytes(NO_HTTP), "400", true, ""),
    (Between, Bytes(TOO_LONG_BODY), "413", true, ""),
    (Between, Bytes(TOO_LONG_HEAD), "414", true, ""),
    (Between, Bytes(EXPECTS), "100", false, ""),
    (Accepted, Pages(8), "200, 200, 200, 200, 200", true, ""),
    (Open, Pongs(6), "", false, ""),
    (Open, Pongs(8), "close 1001 no message for too long", true, "1006 the peer missed the silence deadline"),
    (Blocked, Pongs(8), "", true, "1006 the peer missed the send deadline"),
    (
        Open,
        Bytes(UNMASKED),
        "close 1002 client sent a frame without a mask",
        true,
        "1006 client sent a frame without a mask",
    ),
    (
        Open,
        Bytes(TOO_LONG),
        "close 1009 peer sent a message above the limit of 100 bytes",
        true,
        "1006 peer sent a message above the limit of 100 bytes",
    ),
    (Open, Bytes(CLOSE), "close 1000", true, "1000 closed by the peer"),
    (Open, Bytes(PING), "pong", false, ""),
    (
        Open,
        Bytes(RESERVED_BIT),
        "close 1002 peer set a reserved bit that no extension was negotiated for",
        true,
        "1006 peer set a reserved bit that no extension was negotiated for",
    ),
    (
        Open,
        Bytes(NO_UTF8),
        "close 1007 peer sent text that is not UTF-8",
        true,
        "1006 peer sent text that is not UTF-8",
    ),
    (Open, Bytes(TEXT), "", false, "hi"),
    (Closing, Bytes(UNMASKED), "", true, "1006 client sent a frame without a mask"),
    (Closing, Bytes(TOO_LONG), "", true, "1006 peer sent a message above the limit of 100 bytes"),
    (Closing, Bytes(CLOSE), "", true, "1000 closed by us"),
    (Closing, Bytes(PING), "", false, ""),
    (Closing, Bytes(RESERVED_BIT), "", true, "1006 peer set a reserved bit that no extension was negotiated for"),
    (Closing, Bytes(NO_UTF8), "", true, "1006 peer sent text that is not UTF-8"),
    (Closing, Bytes(TEXT), "", false, ""),
    (Blocked, Bytes(UNMASKED), "", false, "1006 client sent a frame without a mask"),
    (Blocked, Bytes(TOO_LONG), "", false, "1006 peer sent a message above the limit of 100 bytes"),
    (Blocked, Bytes(CLOSE), "", false, "1000 closed by the peer"),
    (Blocked, Bytes(PING), "", false, ""),
    (Blocked, Bytes(RESERVED_BIT), "", false, "1006 peer set a reserved bit that no extension was negotiated for"),
    (Blocked, Bytes(NO_UTF8), "", false, "1006 peer sent text that is not UTF-8"),
    (Blocked, Bytes(TEXT), "", false, "hi"),
    (ClientOpen, Bytes(MASKED), "close 1002 server sent a masked frame", true, "1006 server sent a masked frame"),
    (ClientOpen, Bytes(CLOSE_OF_SERVER), "close 1000", false, "1000 closed by the peer"),
    (ClientOpen, Bytes(PING_OF_SERVER), "pong", false, ""),
    (
        ClientOpen,
        Bytes(TOO_LONG_OF_SERVER),
        "close 1009 peer sent a message above the limit of 100 bytes",
        true,
        "1006 peer sent a message above the limit of 100 bytes",
    ),
    (ClientOpen, Bytes(TEXT_OF_SERVER), "", false, "hi"),
    (Asking, Bytes(FORBIDDEN), "", true, "server refused the upgrade: 403 Forbidden"),
    (Asking, Bytes(OTHER_PROTOCOL), "", true, "peer sent a malformed HTTP: first line"),
    (Asking, Bytes(HALF_A_REFUSAL), "", false, ""),
    (Accepted, Fail, "", true, ""),
    (Accepted, Bytes(EARLY), "101", false, "hi"),
    (Accepted, Bytes(OLD), "426", true, ""),
    (Accepted, Bytes(CHUNKED), "200", false, ""),
    (Accepted, Bytes(TWO_PAGES), "200, 200", false, ""),
    (Accepted, Bytes(LAST_PAGE), "200", true, ""),
    (HalfAHead, Fail, "", true, ""),
    (HalfABody, Fail, "", true, ""),
    (Waiting, Fail, "", true, ""),
    (Waiting, Answer(0, false), "200", false, ""),
    (Waiting, Answer(3, false), "200", false, ""),
    (Waiting, Answer(3, true), "426", true, ""),
    (UpgradeWaits, Finish, "", true, ""),
    (UpgradeWaits, Fail, "", true, ""),
    (UpgradeWaits, Quiet(6), "408", true, ""),
    (UpgradeWaits, Answer(3, true), "101", false, ""),
    (UpgradeWaits, Answer(3, false), "200", false, ""),
    (Between, Fail, "", true, ""),
    (Between, Bytes(EARLY), "101", false, "hi"),
    (Open, Fail, "", true, "1006 connection lost"),
    (Open, Send, "text", false, ""),
    (Open, Close, "close 1000 bye", false, ""),
    (Open, Bytes(MANY), "pong !, close 1000", true, "hi, pong ?, hello, 1000 closed by the peer"),
    (Closing, Fail, "", true, "1006 connection lost"),
    (Closing, Close, "", false, ""),
    (Closing, Bytes(MANY), "", true, "1000 closed by us"),
    (Blocked, Fail, "", true, "1006 connection lost"),
    (Blocked, Send, "", false, ""),
    (Blocked, Close, "", false, ""),
    (Blocked, Bytes(MANY), "", false, "hi, pong ?, hello, 1000 closed by the peer"),
    (Tunneling, Finish, "", true, "the peer hung up without a close frame"),
    (Tunneling, Fail, "", true, "connection lost"),
    (Tunneling, Quiet(1), "", false, ""),
    (Tunneling, Quiet(3), "", true, "the peer missed the handshake deadline"),
    (Tunneling, Bytes(TUNNEL), "a request", false, ""),
    (Tunneling, Bytes(NO_TUNNEL), "", true, "the proxy wants a user name and password (407)"),
    (Asking, Fail, "", true, "connection lost"),
    (ClientOpen, Fail, "", true, "1006 connection lost"),
    (ClientOpen, Send, "text", false, ""),
    (ClientOpen, Close, "close 1000 bye", false, ""),
];

/// Rows in which a connection without I/O ends at once, although a loop's waits for its peer.
///
/// A client waits for the server to end the TCP connection (RFC 6455, section 7.1.1). Its caller does that here: it has the socket,
/// and may let it go before.
const DIFFERENCES: &[(State, &[u8])] = &[(ClientOpen, CLOSE_OF_SERVER)];

/// Runs a row. `split` is whether bytes arrive one by one.
fn run(mut machine: Box<dyn Machine>, (state, act, ..): Row, split: bool) -> (String, bool, String) {
    state.reach(&mut *machine);
    match act {
        Bytes(bytes) if split => bytes.iter().for_each(|byte| machine.bytes(&[*byte])),
        act => act.happen(&mut *machine),
    }
    (describe(&machine.told()), machine.has_ended(), machine.heard().join(", "))
}

/// Runs all rows against both machines.
fn run_all(split: bool) {
    let mut wrong = Vec::new();
    for &row in ROWS {
        let (state, act, told, ended, heard) = row;
        let (looped, pulled): (Box<dyn Machine>, Box<dyn Machine>) = if state.is_client() {
            (Box::new(Looped::client(state.target())), Box::new(Pulled::client(state.target())))
        } else {
            (Box::new(Looped::server()), Box::new(Pulled::server()))
        };
        let expected = (told.to_owned(), ended, heard.to_owned());
        for (name, machine) in [("loop", looped), ("without I/O", pulled)] {
            let seen = run(machine, row, split);
            let differs = name == "without I/O" && matches!(act, Bytes(bytes) if DIFFERENCES.contains(&(state, bytes)));
            if (seen == expected) == differs {
                wrong.push(format!("{name}: {state:?}, {act:?}: {seen:?} instead of {expected:?}"));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn both_machines_do_the_same() {
    run_all(false);
}

#[test]
fn bytes_that_arrive_one_by_one_make_no_difference() {
    run_all(true);
}
