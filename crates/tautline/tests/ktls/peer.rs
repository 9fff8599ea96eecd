//! A client that seals records as it likes.

use crate::common::frame::{self, Frame};
use crate::common::peer::UPGRADE;
use crate::common::{PATIENCE, Started, server};
use std::io::{self, Write};
use std::net::TcpStream;
use tautline_testkit::wild::{Wild, kind, read_record};

pub(crate) struct Peer {
    pub(crate) stream: TcpStream,
    pub(crate) wild: Wild,
    inbox: Vec<u8>,
}

impl Peer {
    /// Opens a WebSocket.
    pub(crate) fn new(server: &Started) -> Self {
        Self::with_suite(server, None)
    }

    pub(crate) fn with_suite(server: &Started, suite: Option<u16>) -> Self {
        let mut stream = TcpStream::connect(server.tcp()).unwrap();
        stream.set_nodelay(true).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        let wild = Wild::connect(&mut stream, server::AUTHORITY.certificate(), suite);
        let mut peer = Self { stream, wild, inbox: Vec::new() };
        peer.send(kind::DATA, UPGRADE.as_bytes());
        let head = loop {
            peer.fill().unwrap();
            if let Some(end) = peer.inbox.windows(4).position(|four| four == b"\r\n\r\n") {
                break peer.inbox.drain(..end + 4).collect::<Vec<_>>();
            }
        };
        assert!(head.starts_with(b"HTTP/1.1 101 "));
        peer
    }

    /// Sends one record.
    pub(crate) fn send(&mut self, kind: u8, content: &[u8]) {
        let record = self.wild.seal(kind, content, 0);
        self.stream.write_all(&record).unwrap();
    }

    /// Takes the next record: application data goes to the inbox, tickets and key updates are seen to, all else is returned.
    pub(crate) fn fill(&mut self) -> io::Result<Option<(u8, Vec<u8>)>> {
        let record = read_record(&mut self.stream)?;
        for (kind, content) in self.wild.open(&record) {
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

    /// The same in records of one byte, with empty and padded ones between them.
    pub(crate) fn say_split(&mut self, payload: &[u8]) {
        let mut wire = Vec::new();
        for (at, byte) in frame::masked(frame::BINARY, payload).into_iter().enumerate() {
            wire.extend(self.wild.seal(kind::DATA, &[byte], at % 50));
            wire.extend(self.wild.seal(kind::DATA, &[], at % 3));
        }
        self.stream.write_all(&wire).unwrap();
        assert_eq!(self.frame(), Frame { first: frame::BINARY, payload: payload.to_vec() });
    }

    /// Waits for an alert, past all data, and then for the stream's end.
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

    /// Closes as a client should, and checks the server's part of it.
    pub(crate) fn close(mut self) {
        self.send(kind::DATA, &frame::close(1000, ""));
        assert_eq!(self.frame().first, frame::CLOSE);
        assert_eq!(self.alert(), [1, 0]);
    }
}
