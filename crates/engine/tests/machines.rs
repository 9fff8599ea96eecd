//! One table of states and events, run against both machines for a connection: the loop's, and the one without I/O.
//!
//! Each row says what the peer is told, whether the connection ends, and what the application hears of its end.
#![expect(clippy::unwrap_used, clippy::panic, reason = "all of this runs inside tests")]

mod bench;
mod fake;

use bench::UPGRADE;
use fake::{Event as Io, Fake};
use http::{HeaderMap, Response};
use std::cell::Cell;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tautline_engine::connection::{Connection, Context, Event};
use tautline_engine::{
    Closed, Config, Conn, ConnId, ConnectError, DialId, Handler, Opening, Reply, Request, Shard, Target, Ticket,
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
    /// The peer reads nothing from now on.
    fn block(&mut self);
    /// The bytes that the peer has read since the last call.
    fn told(&mut self) -> Vec<u8>;
    /// Whether our direction has ended, or the whole connection.
    fn has_ended(&self) -> bool;
    /// The reason of the end, as the application hears it.
    fn heard(&mut self) -> Option<String>;
}

/// Pages at `/page`, requests that wait at `/later`, WebSockets elsewhere.
#[derive(Default)]
struct App {
    tickets: Vec<Ticket<()>>,
    conn: Option<ConnId>,
    heard: Option<String>,
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

    fn on_message(&mut self, _: &mut Conn<'_, ()>, _: Message<'_>) {}

    fn on_close(&mut self, _: &mut Conn<'_, ()>, closed: &Closed) {
        self.heard = Some(text_of(closed));
    }

    fn on_connect_failed(&mut self, _: DialId, error: &ConnectError, _: Option<Duration>) {
        self.heard = Some(error.to_string());
    }
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

    fn client() -> Self {
        let mut looped = Self::new();
        looped.shard.connect(Arc::new(Target::new("ws://127.0.0.1:1/").unwrap()));
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
        self.shard.with_conn(conn, |_, conn| act(conn)).unwrap();
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

    fn block(&mut self) {
        self.kernel.0.borrow_mut().wires.get_mut(&0).unwrap().room = 0;
    }

    fn told(&mut self) -> Vec<u8> {
        self.kernel.received(0)
    }

    fn has_ended(&self) -> bool {
        self.kernel.with(0, |wire| wire.finished || wire.closed.is_some())
    }

    fn heard(&mut self) -> Option<String> {
        self.shard.handler().heard.take()
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
    heard: Option<String>,
}

impl Pulled {
    fn new(
        is_client: bool,
        begin: impl FnOnce(&mut Context, Arc<Config>, Instant) -> Connection<plain::Session>,
    ) -> Self {
        let (mut context, now) = (Context::new().unwrap(), Instant::now());
        let connection = begin(&mut context, Arc::new(config()), now);
        let mut pulled = Self { connection, context, now, is_client, is_blocked: false, told: Vec::new(), heard: None };
        pulled.work();
        pulled
    }

    fn server() -> Self {
        Self::new(false, |_, config, now| Connection::server(plain::Session, config, now))
    }

    fn client() -> Self {
        Self::new(true, |context, config, now| {
            let target = Arc::new(Target::new("ws://127.0.0.1:1/").unwrap());
            Connection::client(plain::Session, target, config, context, now).unwrap()
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
            Event::Closed(closed) => self.heard = Some(text_of(&closed)),
            // A loop's handler hears of no connection that was not open, unless it dialed it.
            Event::Failed(error) if self.is_client => self.heard = Some(error.to_string()),
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

    fn block(&mut self) {
        self.is_blocked = true;
    }

    fn told(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.told)
    }

    fn has_ended(&self) -> bool {
        self.connection.is_finished()
    }

    fn heard(&mut self) -> Option<String> {
        self.heard.take()
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
    /// A page was served.
    Between,
    Open,
    /// We have sent a close frame.
    Closing,
    /// Open, with a text that the peer does not read.
    Blocked,
    /// A client that awaits the response.
    Asking,
    ClientOpen,
}

impl State {
    fn is_client(self) -> bool {
        matches!(self, Self::Asking | Self::ClientOpen)
    }

    fn reach(self, machine: &mut dyn Machine) {
        match self {
            Self::Accepted | Self::Asking => {}
            Self::HalfAHead => machine.bytes(b"GET /page HTTP/1.1\r\nHo"),
            Self::HalfABody => machine.bytes(b"POST /page HTTP/1.1\r\nHost: a\r\nContent-Length: 8\r\n\r\nabc"),
            Self::Waiting => machine.bytes(b"GET /later HTTP/1.1\r\nHost: a\r\n\r\n"),
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
        } else if bytes.starts_with(b"GET ") {
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
                (9, _) => "ping".into(),
                (10, _) => "pong".into(),
                (_, payload) => String::from_utf8_lossy(payload).into_owned(),
            });
            bytes = &rest[len..];
        }
    }
    words.iter().map(|word| word.trim()).collect::<Vec<_>>().join(", ")
}

/// State, event, what the peer is told, whether the connection has ended, and what the application hears.
type Row = (State, Act, &'static str, bool, &'static str);

use Act::{Bytes, Finish, Pages, Pongs, Quiet};
use State::{Accepted, Asking, Between, Blocked, ClientOpen, Closing, HalfABody, HalfAHead, Open, Waiting};

/// Bytes of a client, and of a server.
const UNMASKED: &[u8] = &[0x81, 0];
const TOO_LONG: &[u8] = &[0x82, 0xfe, 0, 200, 0, 0, 0, 0];
const CLOSE: &[u8] = &[0x88, 0x82, 0, 0, 0, 0, 3, 0xe8];
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
    (Open, Bytes(TEXT), "", false, ""),
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
    (Blocked, Bytes(TEXT), "", false, ""),
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
    (ClientOpen, Bytes(TEXT_OF_SERVER), "", false, ""),
    (Asking, Bytes(FORBIDDEN), "", true, "server refused the upgrade: 403 Forbidden"),
    (Asking, Bytes(OTHER_PROTOCOL), "", true, "peer sent a malformed HTTP: first line"),
    (Asking, Bytes(HALF_A_REFUSAL), "", false, ""),
];

/// Rows in which a connection without I/O ends at once, although a loop's waits for its peer.
///
/// A client waits for the server to end the TCP connection (RFC 6455, section 7.1.1). Its caller does that here: it has the socket,
/// and may let it go before.
const DIFFERENCES: &[(State, &[u8])] = &[(ClientOpen, CLOSE_OF_SERVER)];

fn run(mut machine: Box<dyn Machine>, (state, act, ..): Row) -> (String, bool, String) {
    state.reach(&mut *machine);
    act.happen(&mut *machine);
    (describe(&machine.told()), machine.has_ended(), machine.heard().unwrap_or_default())
}

#[test]
fn both_machines_do_the_same() {
    let mut wrong = Vec::new();
    for &row in ROWS {
        let (state, act, told, ended, heard) = row;
        let (looped, pulled): (Box<dyn Machine>, Box<dyn Machine>) = if state.is_client() {
            (Box::new(Looped::client()), Box::new(Pulled::client()))
        } else {
            (Box::new(Looped::server()), Box::new(Pulled::server()))
        };
        let expected = (told.to_owned(), ended, heard.to_owned());
        for (name, machine) in [("loop", looped), ("without I/O", pulled)] {
            let seen = run(machine, row);
            let differs = name == "without I/O" && matches!(act, Bytes(bytes) if DIFFERENCES.contains(&(state, bytes)));
            if (seen == expected) == differs {
                wrong.push(format!("{name}: {state:?}, {act:?}: {seen:?} instead of {expected:?}"));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
