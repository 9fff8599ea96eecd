//! A client of HTTP/2 over one connection, which blocks.

use std::collections::HashMap;
use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::time::Duration;
use tautline::http::{HeaderMap, Request};
use tautline::http2::{Connection, Event, Limits, Role};
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

pub(crate) struct Client {
    stream: TcpStream,
    session: Session,
    wire: Buf,
    scratch: Buf,
    conn: Connection,
    out: Buf,
    answers: HashMap<u32, Answer>,
    pending: HashMap<u32, Vec<u8>>,
}

impl Client {
    pub(crate) fn new(address: &Address, authority: &Authority) -> Self {
        let config = ClientConfig::default().with_roots(Roots::Pem(authority.certificate().into()));
        let engine = Fused.client(&config.with_alpn(vec![b"h2".to_vec()])).unwrap();
        let stream = match address {
            Address::Tcp(address) => TcpStream::connect(address).unwrap(),
            other => panic!("{other}"),
        };
        stream.set_nodelay(true).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        let (wire, scratch, out) = (Buf::new(), Buf::new(), Buf::new());
        let conn = Connection::new(Role::Client, Limits::default());
        let session = engine.connect("localhost").unwrap();
        let (answers, pending) = (HashMap::new(), HashMap::new());
        let mut client = Self { stream, session, wire, scratch, conn, out, answers, pending };
        let mut sealed = Buf::new();
        loop {
            let (used, state) = client.session.handshake(client.wire.filled_mut(), &mut sealed).unwrap();
            client.wire.take(used);
            client.stream.write_all(sealed.filled()).unwrap();
            sealed.clear();
            if state == Handshake::Complete {
                break;
            }
            client.fill();
        }
        assert_eq!(client.session.tls_info().alpn.as_deref(), Some(&b"h2"[..]));
        client.conn.start(&mut client.out);
        // The server's settings come first.
        while !client.conn.offers_websockets() {
            client.step();
        }
        client
    }

    fn fill(&mut self) {
        let room = self.wire.reserve(64 << 10);
        let len = self.stream.read(room).unwrap();
        assert!(len > 0, "the server has ended the connection");
        self.wire.commit(len);
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
        self.fill();
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
                _ => {}
            }
            rest = &mut rest[used..];
        }
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

    pub(crate) fn connect(&mut self, path: &str, protocol: &str) -> u32 {
        self.ask("CONNECT", path, Some(protocol), false)
    }

    pub(crate) fn websocket(&mut self, path: &str) -> u32 {
        self.connect(path, "websocket")
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
        loop {
            let (first, payload) = self.next(stream)?;
            if first == 0x88 {
                return payload.first_chunk().copied().map(u16::from_be_bytes);
            }
        }
    }
}

/// Bytes of a frame's header and of its payload.
fn length(bytes: &[u8]) -> Option<(usize, usize)> {
    match bytes.get(1)? {
        126 => Some((4, u16::from_be_bytes(*bytes.get(2..)?.first_chunk()?) as usize)),
        127 => Some((10, usize::try_from(u64::from_be_bytes(*bytes.get(2..)?.first_chunk()?)).ok()?)),
        len => Some((2, *len as usize)),
    }
}
