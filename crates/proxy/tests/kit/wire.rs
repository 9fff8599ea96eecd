//! Ends of WebSockets whose every byte a test chooses.

use super::{LONG, head, reader, scripted};
use std::io::{BufReader, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;
use tautline::ServerHandle;

pub(crate) const TEXT: u8 = 0x81;
pub(crate) const BINARY: u8 = 0x82;
pub(crate) const CLOSE: u8 = 0x88;
pub(crate) const PING: u8 = 0x89;
pub(crate) const PONG: u8 = 0x8a;
const MASK: [u8; 4] = [1, 2, 3, 4];

/// One end: of a client, or of a server.
pub(crate) struct End {
    pub(crate) stream: TcpStream,
    pub(crate) reader: BufReader<TcpStream>,
    /// The head that it has got.
    pub(crate) head: String,
    is_client: bool,
}

/// The accept value of the key of [`request`].
const ACCEPT: &str = "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=";
/// The key that clients with HTTP/2 are given, in lower case, and its accept value.
const OF_HTTP2: [&str; 2] = ["sec-websocket-key: aaaaaaaaaaaaaaaaaaaaaa==", "ICX+Yqv66kxgM0FcWaLWlFLwTAI="];

/// A request for a WebSocket, with further lines.
pub(crate) fn request(lines: &str) -> String {
    format!(
        "GET /ws HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n\
         Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n{lines}\r\n"
    )
}

/// The response to it, with further lines.
pub(crate) fn response(lines: &str) -> String {
    format!(
        "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
         Sec-WebSocket-Accept: {ACCEPT}\r\n{lines}\r\n"
    )
}

/// A server each of whose WebSockets comes to the test.
pub(crate) fn server(lines: &'static str) -> (String, Receiver<End>) {
    let (sender, ends) = channel();
    let (address, _) = scripted(move |mut stream| {
        let mut reader = reader(&stream);
        let Some(head) = head(&mut reader) else { return };
        let accept = if head.contains(OF_HTTP2[0]) { OF_HTTP2[1] } else { ACCEPT };
        stream.write_all(response(lines).replace(ACCEPT, accept).as_bytes()).unwrap();
        let _ = sender.send(End { stream, reader, head, is_client: false });
    });
    (address, ends)
}

/// The bytes of a frame.
pub(crate) fn frame(is_client: bool, first: u8, payload: &[u8]) -> Vec<u8> {
    let bit = if is_client { 0x80 } else { 0 };
    let mut frame = vec![first];
    match payload.len() {
        len @ 0..=125 => frame.push(bit | u8::try_from(len).unwrap()),
        len @ 126..=65_535 => {
            frame.push(bit | 126);
            frame.extend(u16::try_from(len).unwrap().to_be_bytes());
        }
        len => {
            frame.push(bit | 127);
            frame.extend((len as u64).to_be_bytes());
        }
    }
    if is_client {
        frame.extend(MASK);
    }
    let mask = if is_client { MASK } else { [0; 4] };
    frame.extend(payload.iter().zip(mask.iter().cycle()).map(|(byte, mask)| byte ^ mask));
    frame
}

/// The payload of a close frame.
pub(crate) fn closing(code: u16, reason: &str) -> Vec<u8> {
    [&code.to_be_bytes()[..], reason.as_bytes()].concat()
}

impl End {
    /// A client of a proxy, with further lines in its request.
    pub(crate) fn open(proxy: &ServerHandle, lines: &str) -> Self {
        let end = Self::asking(proxy, lines);
        assert!(end.head.starts_with("http/1.1 101 "), "{}", end.head);
        end
    }

    /// A client of a proxy, whatever it is answered.
    pub(crate) fn asking(proxy: &ServerHandle, lines: &str) -> Self {
        let mut stream = TcpStream::connect(proxy.addresses()[0].to_string()).unwrap();
        stream.set_write_timeout(Some(LONG)).unwrap();
        stream.write_all(request(lines).as_bytes()).unwrap();
        let mut reader = reader(&stream);
        let head = head(&mut reader).unwrap();
        Self { stream, reader, head, is_client: true }
    }

    /// Opens a pair.
    pub(crate) fn pair(proxy: &ServerHandle, servers: &Receiver<Self>) -> (Self, Self) {
        let client = Self::open(proxy, "");
        (client, servers.recv_timeout(LONG).unwrap())
    }

    pub(crate) fn send(&mut self, first: u8, payload: &[u8]) {
        let frame = frame(self.is_client, first, payload);
        self.stream.write_all(&frame).unwrap();
    }

    /// Sends a close frame.
    pub(crate) fn close(&mut self, code: u16, reason: &str) {
        self.send(CLOSE, &closing(code, reason));
    }

    /// Reads a frame: its first byte and its payload. The proxy masks those for servers alone.
    pub(crate) fn next(&mut self) -> (u8, Vec<u8>) {
        self.try_next().unwrap()
    }

    pub(crate) fn try_next(&mut self) -> std::io::Result<(u8, Vec<u8>)> {
        let mut exact = |len: usize| {
            let mut bytes = vec![0; len];
            self.reader.read_exact(&mut bytes).map(|()| bytes)
        };
        let start = exact(2)?;
        assert_eq!(start[1] & 0x80 != 0, !self.is_client, "the mask");
        let len = match start[1] & 0x7f {
            126 => u64::from(u16::from_be_bytes(exact(2)?.try_into().unwrap())),
            127 => u64::from_be_bytes(exact(8)?.try_into().unwrap()),
            len => len.into(),
        };
        let mask = if self.is_client { vec![0; 4] } else { exact(4)? };
        let payload = exact(usize::try_from(len).unwrap())?;
        Ok((start[0], payload.iter().zip(mask.iter().cycle()).map(|(byte, mask)| byte ^ mask).collect()))
    }

    /// Reads the close frame: its code, or 1005, and its reason.
    pub(crate) fn closed(&mut self) -> (u16, String) {
        let (first, payload) = self.next();
        assert_eq!(first, CLOSE, "{payload:?}");
        match payload.split_at_checked(2) {
            Some((code, reason)) => {
                let code = u16::from_be_bytes(code.try_into().unwrap());
                (code, String::from_utf8(reason.to_vec()).unwrap())
            }
            None => (1005, String::new()),
        }
    }

    /// Reads the end of the stream, and nothing before it.
    pub(crate) fn ended(&mut self) {
        let mut rest = Vec::new();
        // A reset comes if the other side had bytes that it did not want any more.
        let _ = self.reader.read_to_end(&mut rest);
        assert_eq!(rest, b"", "behind the end");
    }

    /// Resets the connection.
    pub(crate) fn reset(self) {
        rustix::net::sockopt::set_socket_linger(&self.stream, Some(Duration::ZERO)).unwrap();
    }

    /// Ends our direction.
    pub(crate) fn finish(&self) {
        self.stream.shutdown(Shutdown::Write).unwrap();
    }
}
