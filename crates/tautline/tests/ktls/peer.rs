//! A client that seals records as a test says.

use crate::common::frame::{self, Frame};
use crate::common::peer::UPGRADE;
use crate::common::{PATIENCE, Started, server};
use std::io::{self, Write};
use std::net::TcpStream;
use std::time::Duration;
use tautline_testkit::raw_peer::{RawPeer, kind, read_record};

pub(crate) struct Peer {
    pub(crate) stream: TcpStream,
    pub(crate) raw_peer: RawPeer,
    inbox: Vec<u8>,
}

impl Peer {
    /// A client with an open WebSocket.
    pub(crate) fn new(server: &Started) -> Self {
        Self::with_suite(server, None)
    }

    pub(crate) fn with_suite(server: &Started, suite: Option<u16>) -> Self {
        let mut peer = Self::secured(server, suite);
        peer.send(kind::DATA, UPGRADE.as_bytes());
        assert!(peer.head().starts_with("HTTP/1.1 101 "));
        peer
    }

    /// A client after the TLS handshake, before the first request.
    pub(crate) fn secured(server: &Started, suite: Option<u16>) -> Self {
        let mut stream = TcpStream::connect(server.tcp()).unwrap();
        stream.set_nodelay(true).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        let raw_peer = RawPeer::connect(&mut stream, server::AUTHORITY.certificate(), suite);
        Self { stream, raw_peer, inbox: Vec::new() }
    }

    /// Waits for an HTTP head.
    pub(crate) fn head(&mut self) -> String {
        loop {
            if let Some(end) = self.inbox.windows(4).position(|four| four == b"\r\n\r\n") {
                return String::from_utf8(self.inbox.drain(..end + 4).collect()).unwrap();
            }
            assert_eq!(self.fill().unwrap(), None, "before a whole head");
        }
    }

    /// Reads slowly until the next alert, and returns the data and the alert.
    pub(crate) fn rest(&mut self) -> (Vec<u8>, Vec<u8>) {
        loop {
            if let Some((_, alert)) = self.fill().unwrap() {
                return (std::mem::take(&mut self.inbox), alert);
            }
            if self.inbox.len().is_multiple_of(7) {
                std::thread::sleep(Duration::from_millis(1));
            }
        }
    }

    /// Sends one record.
    pub(crate) fn send(&mut self, kind: u8, content: &[u8]) {
        let record = self.raw_peer.seal(kind, content, 0);
        self.stream.write_all(&record).unwrap();
    }

    /// Reads the next record. Application data goes to the inbox, and tickets and key updates are handled. Other content is
    /// returned.
    pub(crate) fn fill(&mut self) -> io::Result<Option<(u8, Vec<u8>)>> {
        let record = read_record(&mut self.stream)?;
        for (kind, content) in self.raw_peer.open(&record) {
            match kind {
                kind::DATA => self.inbox.extend(content),
                kind::HANDSHAKE => {}
                kind => return Ok(Some((kind, content))),
            }
        }
        Ok(None)
    }

    pub(crate) fn frame(&mut self) -> Frame {
        loop {
            if let Some((frame, len)) = frame::parse(&self.inbox) {
                self.inbox.drain(..len);
                return frame;
            }
            assert_eq!(self.fill().unwrap(), None, "before a whole frame");
        }
    }

    /// Sends a message in records of up to 16 KiB and waits for its echo.
    pub(crate) fn echoes(&mut self, payload: &[u8]) {
        for part in frame::masked(frame::BINARY, payload).chunks(16_384) {
            self.send(kind::DATA, part);
        }
        assert!(self.frame() == Frame { first: frame::BINARY, payload: payload.to_vec() });
    }

    /// Sends a message in records of one byte, with empty and padded ones between them, and waits for its echo.
    pub(crate) fn say_split(&mut self, payload: &[u8]) {
        let mut wire = Vec::new();
        for (at, byte) in frame::masked(frame::BINARY, payload).into_iter().enumerate() {
            wire.extend(self.raw_peer.seal(kind::DATA, &[byte], at % 50));
            wire.extend(self.raw_peer.seal(kind::DATA, &[], at % 3));
        }
        self.stream.write_all(&wire).unwrap();
        assert_eq!(self.frame(), Frame { first: frame::BINARY, payload: payload.to_vec() });
    }

    /// Waits for an alert, skipping data, and then for the end of the stream.
    pub(crate) fn alert(&mut self) -> Vec<u8> {
        let alert = loop {
            if let Some((kind, content)) = self.fill().unwrap() {
                assert_eq!(kind, kind::ALERT);
                break content;
            }
        };
        assert_eq!(self.fill().unwrap_err().kind(), io::ErrorKind::UnexpectedEof, "after the alert");
        alert
    }

    /// Closes as a client should, and checks the server's part of the closing handshake.
    pub(crate) fn close(mut self) {
        self.send(kind::DATA, &frame::close(1000, ""));
        assert_eq!(self.frame().first, frame::CLOSE);
        assert_eq!(self.alert(), [1, 0]);
    }
}
