//! An attacker's end of a connection, byte by byte.

use crate::http2::{self, Streams};
use crate::outcome::Result;
use crate::script::{Begin, Step};
use crate::seen::{End, Seen};
use crate::server::Server;
use crate::tls::{self, Ended};
use crate::wire::{self, Frame};
use rustix::io::Errno;
use rustix::net::{RecvFlags, sockopt};
use rustls::ClientConnection;
use std::io::{self, ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};
use tautline_testkit::raw_peer::{RawPeer, kind};

/// Longest wait for one read.
const PATIENCE: Duration = Duration::from_secs(20);
/// Longest wait for one write: a server that takes nothing for this time does not read from an attacker that does not.
const WRITE_PATIENCE: Duration = Duration::from_secs(1);

/// A TCP connection, with TLS or without.
pub(crate) struct Peer {
    pub(crate) stream: TcpStream,
    raw: Option<RawPeer>,
    /// The connection of an edited handshake.
    edited: Option<Box<ClientConnection>>,
    /// The server has TLS, but this connection has no keys.
    below_tls: bool,
    /// Received bytes that are not opened.
    wire: Vec<u8>,
    /// Received plain bytes.
    pub(crate) plain: Vec<u8>,
    /// HTTP/2, if the connection speaks it.
    streams: Option<Streams>,
    seen: Seen,
}

impl Peer {
    /// Connects to a server and brings the connection into a state.
    pub(crate) fn begin(server: &Server, begin: Begin) -> Result<Self> {
        let mut peer = Self::connect(server.address)?;
        peer.below_tls = server.target.tls.is_some() && begin == Begin::Tcp;
        if begin != Begin::Tcp && server.target.tls.is_some() {
            peer.raw = Some(tls::connect(&mut peer.stream, &server.roots, begin == Begin::Http2)?);
        }
        match begin {
            Begin::Tcp | Begin::Secure => {}
            Begin::Open => peer.upgrade("")?,
            Begin::Deflate => peer.upgrade("Sec-WebSocket-Extensions: permessage-deflate\r\n")?,
            Begin::Http2 => {
                peer.streams = Some(Streams::default());
                peer.send(&http2::preface())?;
            }
        }
        Ok(peer)
    }

    /// Opens a WebSocket, over TLS with these roots if there are some.
    pub(crate) fn websocket(address: SocketAddr, roots: Option<&str>) -> Result<Self> {
        let mut peer = Self::connect(address)?;
        peer.raw = roots.map(|roots| tls::connect(&mut peer.stream, roots, false)).transpose()?;
        peer.upgrade("")?;
        Ok(peer)
    }

    /// Opens a WebSocket on a stream of HTTP/2.
    pub(crate) fn stream(address: SocketAddr, roots: &str) -> Result<Self> {
        let mut peer = Self::connect(address)?;
        peer.raw = Some(tls::connect(&mut peer.stream, roots, true)?);
        peer.send(&[http2::preface(), http2::websocket(http2::STREAM)].concat())?;
        peer.streams = Some(Streams::honest());
        while peer.seen.status.is_none() {
            if !peer.read()? {
                return Err("the server hung up before it answered on the stream".into());
            }
        }
        if peer.seen.status != Some(200) {
            return Err(format!("a WebSocket over HTTP/2 was answered with {:?}", peer.seen.status).into());
        }
        peer.seen = Seen::default();
        Ok(peer)
    }

    /// Sends bytes of the WebSocket of an honest client, which may be on a stream.
    pub(crate) fn send_message(&mut self, bytes: &[u8]) -> Result<()> {
        match self.streams {
            Some(_) => self.send(&http2::frame(http2::DATA, 0, http2::STREAM, bytes)),
            None => self.send(bytes),
        }
    }

    pub(crate) fn connect(address: SocketAddr) -> io::Result<Self> {
        let stream = TcpStream::connect(address)?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.set_write_timeout(Some(WRITE_PATIENCE))?;
        Ok(Self {
            stream,
            raw: None,
            edited: None,
            below_tls: false,
            wire: Vec::new(),
            plain: Vec::new(),
            streams: None,
            seen: Seen::default(),
        })
    }

    fn upgrade(&mut self, further: &str) -> Result<()> {
        self.send(&wire::upgrade(further))?;
        while self.take_head().is_none() {
            if !self.read()? {
                return Err("the server hung up before it answered the upgrade".into());
            }
        }
        if self.seen.status != Some(101) {
            return Err(format!("the upgrade was answered with {:?}", self.seen.head).into());
        }
        self.seen = Seen::default();
        Ok(())
    }

    /// Does the steps. Stops at the first one that the server does not take, which returns false, or when it is told to.
    pub(crate) fn act(&mut self, server: &Server, steps: &[Step], stop: &AtomicBool) -> Result<bool> {
        match self.try_act(server, steps, stop) {
            Err(error) if error.downcast_ref::<io::Error>().is_some() => Ok(false),
            other => other.map(|()| true),
        }
    }

    fn try_act(&mut self, server: &Server, steps: &[Step], stop: &AtomicBool) -> Result<()> {
        for step in steps {
            if stop.load(Ordering::Relaxed) {
                break;
            }
            match step {
                Step::Send(bytes) => self.send(bytes)?,
                Step::Pieces(bytes, len) => bytes.chunks(*len).try_for_each(|piece| self.send(piece))?,
                Step::Wire(bytes) => self.stream.write_all(bytes)?,
                Step::Drip(bytes, pause) => self.drip(bytes, *pause, stop)?,
                Step::Record(kind, content, padding) => {
                    let record = self.raw()?.seal(*kind, content, *padding);
                    self.stream.write_all(&record)?;
                }
                Step::NextKeys => self.raw()?.tx.update(),
                Step::WrongTag(content) => {
                    let mut record = self.raw()?.seal(kind::DATA, content, 0);
                    if let Some(last) = record.last_mut() {
                        *last ^= 1;
                    }
                    self.stream.write_all(&record)?;
                }
                Step::Handshake(edit) => match tls::handshake(&mut self.stream, server, *edit)? {
                    Ended::Complete(own) => self.edited = Some(own),
                    Ended::Cut => {}
                    Ended::Alert(alert) => self.seen.alert = Some(alert),
                    Ended::Differs => self.seen.word = "the hellos differ",
                },
                Step::Times(times, steps) => (0..*times).try_for_each(|_| self.try_act(server, steps, stop))?,
                Step::Pause(time) => thread::sleep(*time),
                Step::Discard => self.discard()?,
                Step::HalfClose => self.stream.shutdown(Shutdown::Write)?,
                Step::Reset => sockopt::set_socket_linger(&self.stream, Some(Duration::ZERO))?,
            }
        }
        Ok(())
    }

    fn raw(&mut self) -> Result<&mut RawPeer> {
        self.raw.as_mut().ok_or_else(|| "a record needs TLS".into())
    }

    /// Sends plain bytes: with TLS in records of at most 2^14 bytes.
    pub(crate) fn send(&mut self, plain: &[u8]) -> Result<()> {
        match &mut self.raw {
            None => self.stream.write_all(plain)?,
            Some(raw) => {
                let wire: Vec<u8> = plain.chunks(1 << 14).flat_map(|piece| raw.seal(kind::DATA, piece, 0)).collect();
                self.stream.write_all(&wire)?;
            }
        }
        Ok(())
    }

    /// Sends bytes one by one, until the server answers or hangs up.
    /// Reads what has come, without waiting for more.
    fn discard(&self) -> Result<()> {
        let mut buffer = vec![0; 256 << 10];
        loop {
            match rustix::net::recv(&self.stream, &mut buffer[..], RecvFlags::DONTWAIT) {
                Ok((0, _)) => return Err("the server hung up".into()),
                Ok(_) => {}
                Err(Errno::AGAIN) => return Ok(()),
                Err(errno) => return Err(errno.into()),
            }
        }
    }

    fn drip(&mut self, bytes: &[u8], pause: Duration, stop: &AtomicBool) -> Result<()> {
        self.set_patience(pause)?;
        for byte in bytes {
            self.send(&[*byte])?;
            // The wait for an answer is the pause. Tickets are no answer.
            let is_over = matches!(self.read(), Ok(false)) || !self.plain.is_empty() || self.seen.alert.is_some();
            if is_over || stop.load(Ordering::Relaxed) {
                break;
            }
        }
        Ok(self.set_patience(PATIENCE)?)
    }

    /// Reads once; false at the end. An error of the connection is an end too.
    pub(crate) fn read(&mut self) -> io::Result<bool> {
        let mut bytes = [0; 64 << 10];
        match self.stream.read(&mut bytes) {
            Ok(0) => self.seen.end = Some(End::Finished),
            Ok(len) => {
                self.wire.extend_from_slice(&bytes[..len]);
                let before = if self.streams.is_some() { std::mem::take(&mut self.plain) } else { Vec::new() };
                self.open();
                self.read_streams(before)?;
            }
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => return Err(error),
            Err(_) => self.seen.end = Some(End::Reset),
        }
        Ok(self.seen.end.is_none())
    }

    /// Reads the frames of HTTP/2 in the plain bytes, whose data follows the bytes `before`. Sends what an honest client owes.
    fn read_streams(&mut self, before: Vec<u8>) -> io::Result<()> {
        let Some(streams) = &mut self.streams else { return Ok(()) };
        let (frames, mut owed) = (std::mem::replace(&mut self.plain, before), Vec::new());
        streams.read(&frames, &mut self.seen, &mut self.plain, &mut owed);
        if owed.is_empty() { Ok(()) } else { self.send(&owed).map_err(io::Error::other) }
    }

    /// Opens the whole records among the received bytes.
    fn open(&mut self) {
        if let Some(own) = &mut self.edited {
            let mut rest = &self.wire[..];
            while !rest.is_empty() {
                let result = own.read_tls(&mut rest).map(|_| own.process_new_packets());
                if let Ok(Err(rustls::Error::AlertReceived(alert))) = result {
                    self.seen.alert = Some(alert.into());
                }
                match result {
                    // Tickets are the proof that the server has accepted the client's Finished.
                    Ok(Ok(_)) if own.tls13_tickets_received() > 0 => self.seen.word = "handshake",
                    Ok(Ok(_)) => {}
                    _ => break,
                }
            }
            self.wire.clear();
            return;
        }
        if self.below_tls {
            self.alert_in_the_clear();
            return;
        }
        let Some(raw) = &mut self.raw else {
            self.plain.append(&mut self.wire);
            return;
        };
        let mut at = 0;
        while let Some([_, _, _, high, low]) = self.wire.get(at..at + 5)
            && let end = at + 5 + usize::from(u16::from_be_bytes([*high, *low]))
            && let Some(record) = self.wire.get(at..end)
        {
            for (kind, content) in raw.open(record) {
                match (kind, &content[..]) {
                    (kind::DATA, _) => self.plain.extend_from_slice(&content),
                    (kind::ALERT, [_, code]) if *code > 0 => self.seen.alert = Some(*code),
                    _ => {}
                }
            }
            at = end;
        }
        self.wire.drain(..at);
    }

    /// Looks for an alert among records that have no keys yet.
    fn alert_in_the_clear(&mut self) {
        while let [kind, _, _, high, low, rest @ ..] = &self.wire[..]
            && let len = usize::from(u16::from_be_bytes([*high, *low]))
            && let Some(content) = rest.get(..len)
        {
            if let (21, [_, code]) = (kind, content) {
                self.seen.alert = Some(*code);
            }
            self.wire.drain(..5 + len);
        }
    }

    /// Takes the head of an HTTP answer from the received bytes, if it is there.
    fn take_head(&mut self) -> Option<()> {
        let end = self.plain.windows(4).position(|four| four == b"\r\n\r\n")? + 4;
        let head = String::from_utf8_lossy(&self.plain[..end]).into_owned();
        self.seen.status = Some(head.strip_prefix("HTTP/1.1 ")?.get(..3)?.parse().ok()?);
        self.seen.head = head;
        self.plain.drain(..end);
        Some(())
    }

    pub(crate) const fn end(&self) -> Option<End> {
        self.seen.end
    }

    /// Sets how long a read may wait.
    pub(crate) fn set_patience(&self, patience: Duration) -> io::Result<()> {
        self.stream.set_read_timeout(Some(patience.max(Duration::from_millis(1))))
    }

    /// Waits for a frame.
    pub(crate) fn frame(&mut self) -> Result<Frame> {
        loop {
            if let Some((frame, len)) = wire::parse(&self.plain) {
                self.plain.drain(..len);
                if self.plain.is_empty() {
                    // A soak has thousands of peers: none keeps memory between its messages.
                    self.plain.shrink_to_fit();
                    self.wire.shrink_to_fit();
                }
                return Ok(frame);
            }
            if !self.read()? {
                return Err("the server hung up".into());
            }
        }
    }

    /// Reads until the connection ends, `done` holds, or `patience` is over.
    pub(crate) fn observe(mut self, patience: Duration, done: impl Fn(&Seen) -> bool) -> Seen {
        let until = Instant::now() + patience;
        loop {
            self.digest();
            let left = until.saturating_duration_since(Instant::now());
            if self.seen.end.is_some() || left.is_zero() || done(&self.seen) || self.set_patience(left).is_err() {
                return self.seen;
            }
            if self.read().is_err() {
                return self.seen;
            }
        }
    }

    /// Takes the answer's head and whole frames from the received bytes.
    fn digest(&mut self) {
        if self.seen.status.is_none() && self.plain.starts_with(b"HTTP/") {
            self.take_head();
        }
        while !self.plain.starts_with(b"HTTP/")
            && self.seen.status.is_none_or(|status| status == 101)
            && let Some((frame, len)) = wire::parse(&self.plain)
        {
            self.plain.drain(..len);
            self.seen.frames.push(frame);
        }
    }
}
