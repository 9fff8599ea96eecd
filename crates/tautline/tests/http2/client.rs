//! A client of HTTP/2 over one connection, which blocks.

use std::collections::HashMap;
use std::io::{Read as _, Write as _};
use std::net::{Shutdown, TcpStream};
use std::time::Duration;
use tautline::http::{HeaderMap, Request};
use tautline::http2::{Code, Connection, Event, Limits, Role};
use tautline::layers::buf::Buf;
use tautline::layers::tls::{Content, Engine as _, Handshake, Session as _};
use tautline::{Address, ClientConfig, EngineKind, Fused, Roots};
use tautline_testkit::certificate::Authority;

type Session = <<Fused as EngineKind>::Engine as tautline::layers::tls::Engine>::Session;

/// The answer to a request.
#[derive(Default)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Vec<u8>,
    pub(crate) has_ended: bool,
    /// Bytes of the body that were read as frames of a WebSocket.
    taken: usize,
}

/// The last stream and the code of GOAWAY.
type GoAway = (u32, Code);

pub(crate) struct Client {
    stream: TcpStream,
    session: Session,
    wire: Buf,
    scratch: Buf,
    conn: Connection,
    out: Buf,
    answers: HashMap<u32, Answer>,
    pending: HashMap<u32, Vec<u8>>,
    go_away: Option<GoAway>,
}

impl Client {
    pub(crate) fn new(address: &Address, authority: &Authority) -> Self {
        Self::with_roots(address, Roots::Pem(authority.certificate().into()))
    }

    pub(crate) fn with_roots(address: &Address, roots: Roots) -> Self {
        Self::within(address, roots, Limits::default())
    }

    /// A client with windows of its own.
    pub(crate) fn within(address: &Address, roots: Roots, limits: Limits) -> Self {
        let (stream, session, wire) = connect(address, roots, b"h2");
        let (scratch, out) = (Buf::new(), Buf::new());
        let conn = Connection::new(Role::Client, limits);
        let (answers, pending) = (HashMap::new(), HashMap::new());
        let mut client = Self { stream, session, wire, scratch, conn, out, answers, pending, go_away: None };
        client.conn.start(&mut client.out);
        // The server's settings come first.
        while !client.conn.offers_websockets() {
            client.step();
        }
        client
    }

    /// Sends what waits.
    fn flush(&mut self) {
        for (stream, rest) in &mut self.pending {
            let sent = self.conn.data(*stream, rest, false, &mut self.out);
            rest.drain(..sent);
        }
        self.pending.retain(|_, rest| !rest.is_empty());
        if !self.out.is_empty() {
            let mut sealed = Buf::new();
            self.session.seal(&[self.out.filled()], &mut sealed).unwrap();
            self.out.clear();
            self.stream.write_all(sealed.filled()).unwrap();
        }
    }

    /// Sends what waits, and reads once.
    fn step(&mut self) {
        self.flush();
        fill(&mut self.stream, &mut self.wire);
        loop {
            let mut tickets = Buf::new();
            let opened = self.session.open(self.wire.filled_mut(), &mut self.scratch, &mut tickets).unwrap();
            match opened.content {
                Content::Data(plain) => {
                    let bytes = plain.bytes(self.wire.filled_mut(), &mut self.scratch).to_vec();
                    self.wire.take(opened.used);
                    self.take(bytes);
                }
                Content::Control => self.wire.take(opened.used),
                Content::Partial => break,
                Content::Closed if self.go_away.is_some() => break,
                Content::Closed => panic!("the server has ended the connection"),
            }
            if self.wire.is_empty() {
                break;
            }
        }
    }

    fn take(&mut self, mut bytes: Vec<u8>) {
        let mut rest = &mut bytes[..];
        while !rest.is_empty() {
            let read = self.conn.read(rest, Duration::ZERO, &mut self.out).unwrap();
            let used = read.used;
            match read.event {
                Some(Event::Response { stream, head, end }) => {
                    let answer = self.answers.entry(stream).or_default();
                    answer.status = head.response.status().as_u16();
                    answer.headers = head.response.headers().clone();
                    answer.has_ended = end;
                }
                Some(Event::Data { stream, data, end }) => {
                    let answer = self.answers.entry(stream).or_default();
                    answer.body.extend_from_slice(data);
                    answer.has_ended |= end;
                    let len = data.len();
                    self.conn.took(stream, len, &mut self.out);
                }
                Some(Event::Reset { stream, code, .. }) => {
                    let answer = self.answers.entry(stream).or_default();
                    answer.has_ended = true;
                    answer.body.extend_from_slice(format!("{code}").as_bytes());
                }
                Some(Event::GoAway { last, code }) => self.go_away = Some((last, code)),
                _ => {}
            }
            rest = &mut rest[used..];
        }
    }

    /// Sends a frame that is a fault, and waits for GOAWAY.
    pub(crate) fn go_away_for(&mut self, frame: &[u8]) -> GoAway {
        self.out.put(frame);
        self.go_away()
    }

    pub(crate) fn go_away(&mut self) -> GoAway {
        loop {
            if let Some(go_away) = self.go_away {
                return go_away;
            }
            self.step();
        }
    }

    /// Ends its direction of TCP, without a word in TLS.
    pub(crate) fn hang_up(&self) {
        self.stream.shutdown(Shutdown::Write).unwrap();
    }

    /// Whether the server takes no more streams.
    pub(crate) const fn is_going_away(&self) -> bool {
        self.go_away.is_some()
    }

    fn ask(&mut self, method: &str, path: &str, protocol: Option<&str>, end: bool) -> u32 {
        let request = Request::builder()
            .method(method)
            .uri(format!("https://localhost{path}"))
            .header("sec-websocket-version", "13")
            .body(())
            .unwrap();
        let stream = self.conn.request(&request, protocol, end, &mut self.out).unwrap();
        self.flush();
        stream
    }

    pub(crate) fn get(&mut self, path: &str) -> u32 {
        self.ask("GET", path, None, true)
    }

    pub(crate) fn head(&mut self, path: &str) -> u32 {
        self.ask("HEAD", path, None, true)
    }

    /// Sends a body of at most one window.
    pub(crate) fn post(&mut self, path: &str, body: &[u8]) -> u32 {
        let stream = self.ask("POST", path, None, false);
        assert_eq!(self.conn.data(stream, body, true, &mut self.out), body.len());
        self.flush();
        stream
    }

    /// Begins a request whose body does not come.
    pub(crate) fn begin_post(&mut self, path: &str) -> u32 {
        self.ask("POST", path, None, false)
    }

    pub(crate) fn connect(&mut self, path: &str, protocol: &str) -> u32 {
        self.ask("CONNECT", path, Some(protocol), false)
    }

    pub(crate) fn websocket(&mut self, path: &str) -> u32 {
        self.connect(path, "websocket")
    }

    /// Waits until all streams together have so many bytes of their bodies. Returns those of each.
    pub(crate) fn bodies(&mut self, streams: &[u32], most: usize) -> Vec<usize> {
        loop {
            let of = |stream: &u32| self.answers.get(stream).map_or(0, |answer| answer.body.len());
            let bodies: Vec<usize> = streams.iter().map(of).collect();
            if bodies.iter().sum::<usize>() >= most {
                return bodies;
            }
            self.step();
        }
    }

    /// Waits for a stream's end.
    pub(crate) fn answer(&mut self, stream: u32) -> Answer {
        while !self.answers.get(&stream).is_some_and(|answer| answer.has_ended) {
            self.step();
        }
        self.answers.remove(&stream).unwrap()
    }

    /// Waits for the head of an answer. Returns its status.
    pub(crate) fn opened(&mut self, stream: u32) -> u16 {
        while self.answers.get(&stream).is_none_or(|answer| answer.status == 0) {
            self.step();
        }
        self.answers[&stream].status
    }

    /// Waits for the head of an answer, for the stream's end, or for GOAWAY. Whether it has a status.
    pub(crate) fn is_answered(&mut self, stream: u32) -> bool {
        let is_known = |answer: &Answer| answer.status != 0 || answer.has_ended;
        while !self.answers.get(&stream).is_some_and(is_known) && !self.is_going_away() {
            self.step();
        }
        self.answers.get(&stream).is_some_and(|answer| answer.status != 0)
    }

    /// Resets a stream.
    pub(crate) fn reset(&mut self, stream: u32) {
        self.conn.reset(stream, Code::CANCEL, &mut self.out);
        self.flush();
    }

    fn frame(&mut self, stream: u32, first: u8, payload: &[u8]) {
        let mut frame = vec![first];
        match payload.len() {
            len if len < 126 => frame.push(0x80 | u8::try_from(len).unwrap()),
            len => {
                frame.push(0xff);
                frame.extend_from_slice(&(len as u64).to_be_bytes());
            }
        }
        // A mask of zeros.
        frame.extend_from_slice(&[0; 4]);
        frame.extend_from_slice(payload);
        self.pending.entry(stream).or_default().extend(frame);
        self.flush();
    }

    pub(crate) fn text(&mut self, stream: u32, text: &str) {
        self.frame(stream, 0x81, text.as_bytes());
    }

    pub(crate) fn close(&mut self, stream: u32) {
        self.frame(stream, 0x88, &1000_u16.to_be_bytes());
    }

    /// The next frame of a WebSocket.
    fn next(&mut self, stream: u32) -> Option<(u8, Vec<u8>)> {
        loop {
            if let Some(answer) = self.answers.get_mut(&stream) {
                let bytes = &answer.body[answer.taken..];
                if let Some((head, len)) = length(bytes)
                    && bytes.len() >= head + len
                {
                    let frame = (bytes[0], bytes[head..head + len].to_vec());
                    answer.taken += head + len;
                    return Some(frame);
                }
                if answer.has_ended {
                    return None;
                }
            }
            self.step();
        }
    }

    pub(crate) fn message(&mut self, stream: u32) -> Vec<u8> {
        let (first, payload) = self.next(stream).expect("a message");
        assert_eq!(first, 0x81);
        payload
    }

    /// The code of the close frame that comes next, behind messages.
    pub(crate) fn close_code(&mut self, stream: u32) -> Option<u16> {
        self.closed(stream).map(|(code, _)| code)
    }

    /// Code and reason of that frame.
    pub(crate) fn closed(&mut self, stream: u32) -> Option<(u16, Vec<u8>)> {
        loop {
            let (first, payload) = self.next(stream)?;
            if first == 0x88 {
                return payload.split_first_chunk().map(|(code, reason)| (u16::from_be_bytes(*code), reason.to_vec()));
            }
        }
    }
}

/// A connection whose bytes are written by hand.
pub(crate) struct Plain {
    stream: TcpStream,
    session: Session,
    wire: Buf,
}

impl Plain {
    /// A connection of which only the TLS handshake is done, with a protocol.
    pub(crate) fn silent(address: &Address, authority: &Authority, alpn: &[u8]) -> Self {
        let (stream, session, wire) = connect(address, Roots::Pem(authority.certificate().into()), alpn);
        Self { stream, session, wire }
    }

    /// A WebSocket over HTTP/1.1.
    pub(crate) fn new(address: &Address, authority: &Authority) -> Self {
        let mut plain = Self::silent(address, authority, b"http/1.1");
        let head = "GET /chat HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
                    Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n";
        assert!(plain.exchange(head.as_bytes(), b"\r\n\r\n").starts_with(b"HTTP/1.1 101 "));
        plain
    }

    /// Ends its direction of TCP, without a word in TLS.
    pub(crate) fn hang_up(&self) {
        self.stream.shutdown(Shutdown::Write).unwrap();
    }

    /// Sends a text, and waits until it comes back.
    pub(crate) fn echo(&mut self) {
        self.exchange(b"\x81\x85\0\0\0\0hello", b"hello");
    }

    pub(crate) fn send(&mut self, bytes: &[u8]) {
        let mut sealed = Buf::new();
        self.session.seal(&[bytes], &mut sealed).unwrap();
        self.stream.write_all(sealed.filled()).unwrap();
    }

    /// Sends bytes, and waits for bytes among which are others.
    fn exchange(&mut self, bytes: &[u8], awaited: &[u8]) -> Vec<u8> {
        self.send(bytes);
        self.read_until(|got| got.windows(awaited.len()).any(|window| window == awaited))
    }

    /// Reads until all bytes so far are enough.
    pub(crate) fn read_until(&mut self, is_enough: impl Fn(&[u8]) -> bool) -> Vec<u8> {
        let (mut scratch, mut got) = (Buf::new(), Vec::new());
        while !is_enough(&got) {
            let opened = self.session.open(self.wire.filled_mut(), &mut scratch, &mut Buf::new()).unwrap();
            match opened.content {
                Content::Data(plain) => {
                    got.extend_from_slice(plain.bytes(self.wire.filled_mut(), &mut scratch));
                    self.wire.take(opened.used);
                }
                Content::Control => self.wire.take(opened.used),
                Content::Partial => fill(&mut self.stream, &mut self.wire),
                Content::Closed => panic!("the server has ended the connection"),
            }
        }
        got
    }
}

/// A client that writes frames by hand, and reads none but the answer to its ping.
pub(crate) struct Raw {
    plain: Plain,
    frames: Vec<u8>,
}

impl Raw {
    pub(crate) fn new(address: &Address, authority: &Authority) -> Self {
        let (stream, session, wire) = connect(address, Roots::Pem(authority.certificate().into()), b"h2");
        let mut raw = Self { plain: Plain { stream, session, wire }, frames: Vec::new() };
        raw.frames.extend_from_slice(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n");
        raw.frame(4, 0, 0, &[]);
        raw
    }

    /// This end's address, as the server sees it.
    pub(crate) fn address(&self) -> String {
        self.plain.stream.local_addr().unwrap().to_string()
    }

    /// Adds a frame to those that [`ping`](Self::ping) sends.
    pub(crate) fn frame(&mut self, kind: u8, flags: u8, stream: u32, payload: &[u8]) {
        let [_, len @ ..] = u32::try_from(payload.len()).unwrap().to_be_bytes();
        self.frames.extend([&len[..], &[kind, flags], &stream.to_be_bytes(), payload].concat());
    }

    /// Sends the frames and a ping, and waits for its answer.
    pub(crate) fn ping(&mut self) {
        self.frame(6, 0, 0, b"all sent");
        self.plain.exchange(&std::mem::take(&mut self.frames), b"\x06\x01\0\0\0\0all sent");
    }
}

/// Connects, and handshakes. The buffer has the bytes that came behind the handshake.
fn connect(address: &Address, roots: Roots, alpn: &[u8]) -> (TcpStream, Session, Buf) {
    let config = ClientConfig::default().with_roots(roots);
    let engine = Fused.client(&config.with_alpn(vec![alpn.to_vec()])).unwrap();
    let mut stream = match address {
        Address::Tcp(address) => TcpStream::connect(address).unwrap(),
        other => panic!("{other}"),
    };
    stream.set_nodelay(true).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    let (mut session, mut wire, mut sealed) = (engine.connect("localhost").unwrap(), Buf::new(), Buf::new());
    loop {
        let (used, state) = session.handshake(wire.filled_mut(), &mut sealed).unwrap();
        wire.take(used);
        stream.write_all(sealed.filled()).unwrap();
        sealed.clear();
        if state == Handshake::Complete {
            break;
        }
        fill(&mut stream, &mut wire);
    }
    assert_eq!(session.tls_info().alpn.as_deref(), Some(alpn));
    (stream, session, wire)
}

fn fill(stream: &mut TcpStream, wire: &mut Buf) {
    let len = stream.read(wire.reserve(64 << 10)).unwrap();
    assert!(len > 0, "the server has ended the connection");
    wire.commit(len);
}

/// Bytes of a frame's header and of its payload.
fn length(bytes: &[u8]) -> Option<(usize, usize)> {
    match bytes.get(1)? {
        126 => Some((4, u16::from_be_bytes(*bytes.get(2..)?.first_chunk()?) as usize)),
        127 => Some((10, usize::try_from(u64::from_be_bytes(*bytes.get(2..)?.first_chunk()?)).ok()?)),
        len => Some((2, *len as usize)),
    }
}
