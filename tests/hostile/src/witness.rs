//! A relay before a server that notes the heads of all requests, read as strictly as the server reads them.

use crate::outcome::Result;
use std::io::{self, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;

/// Heads of requests, in any order.
type Heads = Arc<Mutex<Vec<String>>>;

/// The relay.
pub(crate) struct Witness {
    pub(crate) address: SocketAddr,
    heads: Heads,
}

impl Witness {
    /// Begins to relay to a server. It ends with the process.
    pub(crate) fn before(server: SocketAddr) -> Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let (address, heads) = (listener.local_addr()?, Heads::default());
        let noted = heads.clone();
        thread::spawn(move || {
            for client in listener.incoming().flatten() {
                let heads = noted.clone();
                thread::spawn(move || _ = relay(client, server, &heads));
            }
        });
        Ok(Self { address, heads })
    }

    /// Forgets all requests so far.
    pub(crate) fn forget(&self) {
        self.heads.lock().unwrap_or_else(PoisonError::into_inner).clear();
    }

    /// The heads of the requests since.
    pub(crate) fn requests(&self) -> Vec<String> {
        self.heads.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// Relays one connection both ways. A request is noted before the server gets it.
fn relay(mut client: TcpStream, server: SocketAddr, heads: &Heads) -> io::Result<()> {
    let mut server = TcpStream::connect(server)?;
    let (mut back, mut forth) = (server.try_clone()?, client.try_clone()?);
    thread::spawn(move || {
        let _ = io::copy(&mut back, &mut forth);
        let _ = forth.shutdown(Shutdown::Both);
    });
    let (mut reader, mut bytes) = (Reader::default(), vec![0; 64 << 10]);
    loop {
        let len = client.read(&mut bytes).unwrap_or(0);
        if len == 0 {
            return server.shutdown(Shutdown::Write);
        }
        let new = reader.read(&bytes[..len]);
        heads.lock().unwrap_or_else(PoisonError::into_inner).extend(new);
        server.write_all(&bytes[..len])?;
    }
}

/// Finds the heads in a stream of requests.
#[derive(Debug, Default)]
struct Reader {
    rest: Vec<u8>,
    /// Bytes of a body that are to come.
    body: usize,
    is_chunked: bool,
    /// A WebSocket was asked for: what follows is no HTTP, unless it begins like a request.
    is_switched: bool,
}

impl Reader {
    /// Takes bytes. Returns the heads that are whole now.
    fn read(&mut self, bytes: &[u8]) -> Vec<String> {
        self.rest.extend_from_slice(bytes);
        let mut heads = Vec::new();
        loop {
            let passed = self.body.min(self.rest.len());
            self.rest.drain(..passed);
            self.body -= passed;
            if self.body > 0 || self.is_chunked && !self.chunk() {
                return heads;
            }
            if self.body > 0 {
                continue;
            }
            if self.is_switched && !self.rest.first().is_some_and(u8::is_ascii_uppercase) {
                self.rest.clear();
                return heads;
            }
            let Some(end) = position(&self.rest, b"\r\n\r\n") else { return heads };
            let head = String::from_utf8_lossy(&self.rest[..end]).into_owned();
            self.rest.drain(..end + 4);
            let field = |name: &str| {
                let fields = head.lines().filter_map(|line| line.split_once(':'));
                fields
                    .filter(|(key, _)| key.eq_ignore_ascii_case(name))
                    .map(|(_, value)| value.trim().to_owned())
                    .next()
            };
            self.body = field("content-length").and_then(|len| len.parse().ok()).unwrap_or(0);
            self.is_chunked = field("transfer-encoding").is_some();
            self.is_switched = field("upgrade").is_some();
            heads.push(head);
        }
    }

    /// Takes the line before the next chunk, or the last chunk. False if that is not whole.
    fn chunk(&mut self) -> bool {
        let Some(end) = position(&self.rest, b"\r\n") else { return false };
        let line = String::from_utf8_lossy(&self.rest[..end]).into_owned();
        let len = usize::from_str_radix(line.split(';').next().unwrap_or_default().trim(), 16).unwrap_or(0);
        if len > 0 {
            self.rest.drain(..end + 2);
            self.body = len + 2;
            return true;
        }
        // Without trailers, as a proxy writes it.
        if self.rest.len() < end + 4 {
            return false;
        }
        self.rest.drain(..end + 4);
        self.is_chunked = false;
        true
    }
}

fn position(bytes: &[u8], wanted: &[u8]) -> Option<usize> {
    bytes.windows(wanted.len()).position(|window| window == wanted)
}

#[cfg(test)]
mod tests {
    use super::Reader;

    #[test]
    fn bodies_are_no_requests_and_what_follows_them_is() {
        let stream = b"POST /a HTTP/1.1\r\nContent-Length: 19\r\n\r\nGET /x HTTP/1.1\r\n\r\nPOST /b HTTP/1.1\r\n\
            Transfer-Encoding: chunked\r\n\r\n6\r\nGET /y\r\n0\r\n\r\nGET /c HTTP/1.1\r\nUpgrade: websocket\r\n\r\n\x81\x80";
        for piece in [1, 7, stream.len()] {
            let mut reader = Reader::default();
            let heads: Vec<String> = stream.chunks(piece).flat_map(|bytes| reader.read(bytes)).collect();
            let paths: Vec<&str> = heads.iter().filter_map(|head| head.split(' ').nth(1)).collect();
            assert_eq!(paths, ["/a", "/b", "/c"], "{piece}");
        }
        // A refused upgrade is followed by requests.
        let mut reader = Reader::default();
        let heads = reader.read(b"GET /c HTTP/1.1\r\nUpgrade: websocket\r\n\r\nGET /hidden HTTP/1.1\r\n\r\n");
        assert_eq!(heads.len(), 2);
    }
}
