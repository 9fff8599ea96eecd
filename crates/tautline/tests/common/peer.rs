//! A client that a test controls byte by byte.

use super::frame::{self, Frame};
use super::{PATIENCE, server};
use std::io::{self, ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use tautline::ClientConfig;
use tautline::layers::buf::Buf;
use tautline::layers::tls::{Content, Engine as _, Error, Handshake, Opened, Session as _};
use tautline::layers::tls_rustls::{Engine, Session};

/// An upgrade request that every server here accepts.
pub(crate) const UPGRADE: &str = "GET /chat HTTP/1.1\r\nHost: localhost\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\
                                  Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n\r\n";

/// A client's connection, with TLS or without.
pub(crate) struct Peer {
    pub(crate) socket: TcpStream,
    session: Option<Box<Session>>,
    /// Received bytes that are not opened yet.
    carry: Vec<u8>,
    /// Plain bytes that the test has not taken yet.
    inbox: Vec<u8>,
    /// Whether the server sent close_notify.
    pub(crate) closed_well: bool,
}

impl Peer {
    /// Connects over TCP. [`secure`](Self::secure) does the TLS handshake.
    pub(crate) fn connect(address: SocketAddr) -> Self {
        Self::over(TcpStream::connect(address).unwrap())
    }

    pub(crate) fn over(socket: TcpStream) -> Self {
        socket.set_nodelay(true).unwrap();
        socket.set_read_timeout(Some(PATIENCE)).unwrap();
        socket.set_write_timeout(Some(PATIENCE)).unwrap();
        Self { socket, session: None, carry: Vec::new(), inbox: Vec::new(), closed_well: false }
    }

    /// The local address, by which the server's log names this client.
    pub(crate) fn name(&self) -> String {
        self.socket.local_addr().unwrap().to_string()
    }

    /// Begins TLS and returns the ClientHello, which is not sent.
    pub(crate) fn hello(&mut self, config: &ClientConfig) -> Vec<u8> {
        self.hello_of(&Engine::client(config).unwrap())
    }

    /// Sends the ClientHello of an engine that may have tickets.
    pub(crate) fn begin(&mut self, engine: &Engine) {
        let hello = self.hello_of(engine);
        self.send_wire(&hello);
    }

    fn hello_of(&mut self, engine: &Engine) -> Vec<u8> {
        let mut session = engine.connect("localhost").unwrap();
        let mut out = Buf::new();
        assert_eq!(session.handshake(&mut [], &mut out).unwrap(), (0, Handshake::Pending));
        self.session = Some(Box::new(session));
        out.filled().to_vec()
    }

    /// Completes the handshake, and returns our last flight, which is not sent.
    pub(crate) fn flight(&mut self) -> Result<Vec<u8>, Error> {
        let mut out = Buf::new();
        loop {
            let session = self.session.as_mut().unwrap();
            let (used, state) = session.handshake(&mut self.carry, &mut out)?;
            self.carry.drain(..used);
            if state == Handshake::Complete {
                return Ok(out.filled().to_vec());
            }
            assert!(self.read_wire().unwrap() > 0, "the server hung up in the handshake");
        }
    }

    /// Reads the server's flight until there is an answer, and returns that, which is not sent. In TLS 1.2 the server then sends
    /// the last flight.
    pub(crate) fn answer(&mut self) -> Vec<u8> {
        let mut out = Buf::new();
        while out.is_empty() {
            assert!(self.read_wire().unwrap() > 0, "the server hung up in the handshake");
            let session = self.session.as_mut().unwrap();
            let (used, _) = session.handshake(&mut self.carry, &mut out).unwrap();
            self.carry.drain(..used);
        }
        out.filled().to_vec()
    }

    /// Does the TLS handshake.
    pub(crate) fn secure(mut self) -> Self {
        let hello = self.hello(&server::client_config());
        self.send_wire(&hello);
        let flight = self.flight().unwrap();
        self.send_wire(&flight);
        self
    }

    /// Does the WebSocket handshake.
    pub(crate) fn upgrade(mut self) -> Self {
        self.send(UPGRADE.as_bytes());
        let head = self.head();
        assert!(head.starts_with("HTTP/1.1 101 "), "{head}");
        self
    }

    /// Seals `plain` if there is TLS.
    pub(crate) fn seal(&mut self, plain: &[u8]) -> Vec<u8> {
        match &mut self.session {
            None => plain.to_vec(),
            Some(session) => {
                let mut out = Buf::new();
                session.seal(&[plain], &mut out).unwrap();
                out.filled().to_vec()
            }
        }
    }

    /// Sends plain bytes, sealed if there is TLS.
    pub(crate) fn send(&mut self, plain: &[u8]) {
        let wire = self.seal(plain);
        self.send_wire(&wire);
    }

    /// Sends bytes unchanged.
    pub(crate) fn send_wire(&mut self, wire: &[u8]) {
        self.socket.write_all(wire).unwrap();
    }

    /// Sends bytes unchanged, to a server that may have hung up.
    pub(crate) fn try_send_wire(&mut self, wire: &[u8]) -> io::Result<()> {
        self.socket.write_all(wire)
    }

    /// The bytes of close_notify; none without TLS.
    pub(crate) fn close_notify(&mut self) -> Vec<u8> {
        let mut out = Buf::new();
        if let Some(session) = &mut self.session {
            session.close(&mut out);
        }
        out.filled().to_vec()
    }

    /// Ends our direction.
    pub(crate) fn finish(&self) {
        self.socket.shutdown(Shutdown::Write).unwrap();
    }

    /// Resets the connection.
    pub(crate) fn reset(self) {
        rustix::net::sockopt::set_socket_linger(&self.socket, Some(std::time::Duration::ZERO)).unwrap();
    }

    /// Reads once into the carry.
    pub(crate) fn read_wire(&mut self) -> io::Result<usize> {
        let mut bytes = [0; 64 << 10];
        // A read with a timeout can be interrupted by any signal (signal(7)).
        let len = loop {
            match self.socket.read(&mut bytes) {
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                other => break other?,
            }
        };
        self.carry.extend_from_slice(&bytes[..len]);
        Ok(len)
    }

    /// Waits for a whole TLS record, and returns its length. It is not opened yet.
    pub(crate) fn record(&mut self) -> usize {
        loop {
            if let [_, _, _, high, low, ..] = self.carry[..] {
                let len = 5 + usize::from(u16::from_be_bytes([high, low]));
                if self.carry.len() >= len {
                    return len;
                }
            }
            assert!(self.read_wire().unwrap() > 0, "the server hung up");
        }
    }

    /// Waits for more plain bytes; false at the end of the stream. An error is the server's alert, or a reset.
    pub(crate) fn fill(&mut self) -> Result<bool, String> {
        let before = self.inbox.len();
        loop {
            self.open_carry().map_err(|error| error.to_string())?;
            if self.inbox.len() > before {
                return Ok(true);
            }
            match self.read_wire() {
                Ok(0) => return Ok(false),
                Ok(_) => {}
                Err(error) => return Err(error.to_string()),
            }
        }
    }

    fn open_carry(&mut self) -> Result<(), Error> {
        let Some(session) = &mut self.session else {
            self.inbox.append(&mut self.carry);
            return Ok(());
        };
        let (mut scratch, mut out, mut at) = (Buf::new(), Buf::new(), 0);
        while at < self.carry.len() {
            let rest = &mut self.carry[at..];
            let Opened { used, content } = session.open(rest, &mut scratch, &mut out)?;
            at += used;
            match content {
                Content::Data(plain) => self.inbox.extend_from_slice(plain.bytes(rest, &mut scratch)),
                Content::Control => {}
                Content::Partial => break,
                Content::Closed => {
                    self.closed_well = true;
                    at = self.carry.len();
                }
            }
        }
        self.carry.drain(..at);
        Ok(())
    }

    /// Waits for an HTTP head.
    pub(crate) fn head(&mut self) -> String {
        loop {
            if let Some(end) = self.inbox.windows(4).position(|four| four == b"\r\n\r\n") {
                return String::from_utf8(self.inbox.drain(..end + 4).collect()).unwrap();
            }
            assert_eq!(self.fill(), Ok(true), "no whole head in {:?}", String::from_utf8_lossy(&self.inbox));
        }
    }

    /// Waits for an HTTP response: head and body.
    pub(crate) fn response(&mut self) -> (String, Vec<u8>) {
        let head = self.head();
        let length = head.lines().find_map(|line| line.strip_prefix("Content-Length: "));
        let length = length.map_or(0, |length| length.parse().unwrap());
        (head, self.bytes(length))
    }

    /// Waits for `len` plain bytes.
    pub(crate) fn bytes(&mut self, len: usize) -> Vec<u8> {
        while self.inbox.len() < len {
            assert_eq!(self.fill(), Ok(true), "the server hung up");
        }
        self.inbox.drain(..len).collect()
    }

    /// Waits for a frame. An error is the end of the stream, or the reason why it broke.
    pub(crate) fn try_frame(&mut self) -> Result<Frame, String> {
        loop {
            if let Some((frame, len)) = frame::parse(&self.inbox) {
                self.inbox.drain(..len);
                return Ok(frame);
            }
            if !self.fill()? {
                return Err("the stream's end".to_owned());
            }
        }
    }

    /// Waits for a frame.
    pub(crate) fn frame(&mut self) -> Frame {
        self.try_frame().unwrap()
    }

    /// Waits for a close frame and skips all others. Returns its code (0 if it has none) and reason.
    pub(crate) fn close_frame(&mut self) -> (u16, String) {
        loop {
            let Frame { first, payload } = self.frame();
            match (first, payload.split_first_chunk()) {
                (frame::CLOSE, None) => return (0, String::new()),
                (frame::CLOSE, Some((code, reason))) => {
                    return (u16::from_be_bytes(*code), String::from_utf8(reason.to_vec()).unwrap());
                }
                _ => {}
            }
        }
    }

    /// Waits for the end of the stream. Nothing may be left before it, and with TLS it must have close_notify.
    pub(crate) fn end(&mut self) {
        assert_eq!(self.fill(), Ok(false), "more than the end: {:?}", self.inbox);
        assert_eq!(self.inbox.len(), 0, "left over: {:?}", self.inbox);
        assert_eq!(self.closed_well, self.session.is_some(), "close_notify");
    }

    /// Reads until the stream ends or breaks, or nothing arrives for [`PATIENCE`].
    pub(crate) fn rest(&mut self) -> (Vec<u8>, Result<(), String>) {
        loop {
            match self.fill() {
                Ok(true) => {}
                Ok(false) => return (std::mem::take(&mut self.inbox), Ok(())),
                Err(error) => return (std::mem::take(&mut self.inbox), Err(error)),
            }
        }
    }

    /// Sends a text and waits for its echo.
    pub(crate) fn echoes(&mut self, text: &str) {
        self.send(&frame::masked(frame::TEXT, text.as_bytes()));
        assert_eq!(self.frame(), Frame { first: frame::TEXT, payload: text.into() });
    }

    /// Closes as a client should, and checks the server's part of the closing handshake.
    pub(crate) fn close(mut self) {
        self.send(&frame::close(1000, ""));
        assert_eq!(self.close_frame(), (1000, String::new()));
        self.end();
    }
}
