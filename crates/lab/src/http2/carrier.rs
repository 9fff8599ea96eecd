//! A connection that carries lanes: its TLS and its HTTP/2.

use super::lane::{Lane, Lanes};
use crate::carrier_tls::CarrierTls;
use std::collections::{HashMap, VecDeque};
use std::sync::PoisonError;
use std::time::Duration;
use tautline::Address;
use tautline::http2::{Code, Connection, Event, Limits, Role};
use tautline::layers::buf::Buf;
use tautline::layers::io::Token;
use tautline::layers::tls::{Content, Handshake, Session};

/// The protocol in ALPN.
pub(super) const ALPN: &[u8] = b"h2";

/// Bytes that wait for a socket at most: lanes keep the others.
const MOST_OUT: usize = 256 << 10;

/// An event of a lane that its loop does not know of yet.
pub(super) enum News {
    Connected(Token),
    /// Bytes have come, or the peer's end.
    Input(Token),
    /// A buffer comes back.
    Sent(Token, Buf),
    Failed(Token, String),
}

/// The state of a carrier.
pub(super) struct Carrier {
    /// Its token at the driver behind.
    pub(super) inner: Token,
    pub(super) address: Address,
    session: Box<dyn Session>,
    /// Takes what the session has negotiated.
    info: Option<CarrierTls>,
    phase: Phase,
    /// Bytes of a record that is not whole.
    wire: Buf,
    conn: Connection,
    /// Frames.
    out: Buf,
    /// Records.
    sealed: Buf,
    /// Whether the driver's last send is not done.
    is_blocked: bool,
    /// Whether it is in the list of those with output.
    pub(super) is_dirty: bool,
    pub(super) lanes: Vec<Token>,
    /// Lanes by their streams.
    streams: HashMap<u32, Token>,
    /// Whether the peer takes no more streams.
    goes_away: bool,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Phase {
    Tls,
    /// The server's settings come next.
    Settings,
    Open,
}

/// The end of a carrier, with the reason.
pub(super) type Ended = String;

impl Carrier {
    pub(super) fn new(inner: Token, address: Address, (session, info): (Box<dyn Session>, Option<CarrierTls>)) -> Self {
        // The server is the one that is measured: its limits count, and ours bound nothing but memory.
        let mut limits = Limits::default();
        (limits.stream_window, limits.connection_window) = (1 << 20, 64 << 20);
        (limits.resets, limits.idle_frames) = (u32::MAX, u32::MAX);
        Self {
            inner,
            address,
            session,
            info,
            phase: Phase::Tls,
            wire: Buf::new(),
            conn: Connection::new(Role::Client, limits),
            out: Buf::new(),
            sealed: Buf::new(),
            is_blocked: false,
            is_dirty: false,
            lanes: Vec::new(),
            streams: HashMap::new(),
            goes_away: false,
        }
    }

    /// Whether it takes another lane.
    pub(super) fn has_room(&self, address: &Address, most: usize) -> bool {
        !self.goes_away && self.lanes.len() < most && self.address == *address
    }

    /// A lane begins. It is connected at once, or with the others once the server's settings have come.
    pub(super) fn add(&mut self, lane: Token, news: &mut VecDeque<News>) {
        self.lanes.push(lane);
        if self.phase == Phase::Open {
            news.push_back(News::Connected(lane));
        }
    }

    /// The socket is connected: begins TLS.
    pub(super) fn connected(&mut self) -> Result<(), Ended> {
        self.session.handshake(&mut [], &mut self.sealed).map(drop).map_err(|error| error.to_string())
    }

    /// Bytes that lanes may add to its output.
    pub(super) const fn room(&self) -> usize {
        if self.is_blocked { 0 } else { MOST_OUT.saturating_sub(self.out.len()) }
    }

    /// Reads bytes of the socket.
    pub(super) fn read(
        &mut self,
        bytes: &mut [u8],
        now: Duration,
        lanes: &mut Lanes,
        news: &mut VecDeque<News>,
        scratch: &mut Buf,
    ) -> Result<(), Ended> {
        if self.wire.is_empty() {
            let used = self.advance(bytes, now, (lanes, news, scratch))?;
            self.wire.put(&bytes[used..]);
            return Ok(());
        }
        let mut wire = std::mem::take(&mut self.wire);
        wire.put(bytes);
        let used = self.advance(wire.filled_mut(), now, (lanes, news, scratch))?;
        wire.take(used);
        self.wire = wire;
        Ok(())
    }

    /// Reads whole records. Returns the bytes that were used.
    fn advance(
        &mut self,
        bytes: &mut [u8],
        now: Duration,
        (lanes, news, scratch): (&mut Lanes, &mut VecDeque<News>, &mut Buf),
    ) -> Result<usize, Ended> {
        let mut used = 0;
        if self.phase == Phase::Tls {
            let shaken = self.session.handshake(bytes, &mut self.sealed);
            let (len, handshake) = shaken.map_err(|error| error.to_string())?;
            used = len;
            if handshake == Handshake::Pending {
                return Ok(used);
            }
            let info = self.session.tls_info();
            if info.alpn.as_deref() != Some(ALPN) {
                return Err("the server does not take HTTP/2: it did not choose h2 by ALPN".to_owned());
            }
            log::info!("HTTP/2 with {}: {info}", self.address);
            if let Some(taken) = &self.info {
                *taken.lock().unwrap_or_else(PoisonError::into_inner) = info;
            }
            self.conn.start(&mut self.out);
            self.phase = Phase::Settings;
        }
        while used < bytes.len() {
            let rest = &mut bytes[used..];
            let opened = self.session.open(rest, scratch, &mut self.sealed).map_err(|error| error.to_string())?;
            used += opened.used;
            match opened.content {
                Content::Data(plain) => self.frames(plain.bytes(rest, scratch), now, lanes, news)?,
                Content::Control => {}
                Content::Partial => break,
                Content::Closed => return Err("the server has ended the connection".to_owned()),
            }
        }
        Ok(used)
    }

    fn frames(
        &mut self,
        plain: &mut [u8],
        now: Duration,
        lanes: &mut Lanes,
        news: &mut VecDeque<News>,
    ) -> Result<(), Ended> {
        let mut used = 0;
        while used < plain.len() {
            let Self { conn, out, streams, .. } = self;
            let read = conn.read(&mut plain[used..], now, out).map_err(|fault| fault.to_string())?;
            used += read.used;
            let Some(event) = read.event else { continue };
            let (stream, mut ends) = match &event {
                Event::Response { stream, end, .. } | Event::Data { stream, end, .. } => (*stream, *end),
                Event::End { stream } => (*stream, true),
                Event::Reset { stream, .. } => (*stream, false),
                Event::Window { stream } => {
                    let stream = *stream;
                    self.go_on(stream, lanes, news);
                    continue;
                }
                Event::GoAway { last, code } => {
                    let (last, code) = (*last, *code);
                    self.go_away(last, code, news);
                    continue;
                }
                _ => continue,
            };
            let Some((token, lane)) = streams.get(&stream).and_then(|token| Some((*token, lanes.get_mut(*token)?)))
            else {
                continue;
            };
            match event {
                Event::Response { head, .. } => lane.respond(&head),
                Event::Data { data, .. } => lane.take(data),
                Event::Reset { code, why, .. } => {
                    let why = why.map_or_else(|| "by the server".to_owned(), |why| format!("since {why}"));
                    news.push_back(News::Failed(token, format!("the stream was reset {why}: {code}")));
                    ends = false;
                }
                _ => {}
            }
            news.push_back(News::Input(token));
            if ends {
                ends_one(lane, token, (streams, stream), (conn, out), news);
            }
        }
        if self.phase == Phase::Settings && self.conn.peer_settings().is_some() {
            self.phase = Phase::Open;
            news.extend(self.lanes.iter().map(|lane| News::Connected(*lane)));
        }
        Ok(())
    }

    fn go_away(&mut self, last: u32, code: Code, news: &mut VecDeque<News>) {
        self.goes_away = true;
        let refused = self.streams.iter().filter(|(stream, _)| **stream > last);
        news.extend(refused.map(|(_, token)| News::Failed(*token, format!("the server goes away: {code}"))));
    }

    /// Has a lane, or each of them, send what waited.
    pub(super) fn go_on(&mut self, stream: Option<u32>, lanes: &mut Lanes, news: &mut VecDeque<News>) {
        let one = stream.and_then(|stream| self.streams.get(&stream).copied());
        let all = if stream.is_none() { &*self.lanes } else { &[] };
        for token in one.into_iter().chain(all.iter().copied()) {
            let room = self.room();
            let Some(lane) = lanes.get_mut(token) else { continue };
            lane.go_on(&mut self.conn, room, &mut self.out);
            news.extend(lane.take_kept().map(|buf| News::Sent(token, buf)));
        }
    }

    /// Takes bytes of a lane. Returns the buffer, unless bytes of it wait.
    ///
    /// # Errors
    /// The lane fails.
    pub(super) fn send(&mut self, token: Token, lane: &mut Lane, buf: Buf) -> Result<Option<Buf>, String> {
        let room = self.room();
        let sent = lane.send(buf, &mut self.conn, room, &mut self.out)?;
        if let Some(stream) = lane.stream {
            self.streams.insert(stream, token);
        }
        Ok(sent)
    }

    pub(super) fn shut(&mut self, lane: &mut Lane) {
        let room = self.room();
        lane.shut(&mut self.conn, room, &mut self.out);
    }

    /// The loop has taken bytes of a lane.
    pub(super) fn took(&mut self, lane: &Lane, bytes: usize) {
        if let Some(stream) = lane.stream {
            self.conn.took(stream, bytes, &mut self.out);
        }
    }

    /// A lane has ended.
    pub(super) fn remove(&mut self, token: Token, lane: &mut Lane, abort: bool) {
        let room = self.room();
        lane.close(abort, &mut self.conn, room, &mut self.out);
        self.lanes.retain(|other| *other != token);
        if let Some(stream) = lane.stream {
            self.streams.remove(&stream);
        }
    }

    /// Ends the connection in order, behind its output.
    pub(super) fn end(&mut self) {
        if self.phase != Phase::Tls {
            self.conn.go_away(Code::NO_ERROR, "", &mut self.out);
            // A session that cannot seal has nothing to say any more.
            let _ = self.seal();
            self.session.close(&mut self.sealed);
        }
    }

    fn seal(&mut self) -> Result<(), Ended> {
        if !self.out.is_empty() {
            let sealed = self.session.seal(&[self.out.filled()], &mut self.sealed);
            self.out.clear();
            sealed.map_err(|error| error.to_string())?;
        }
        Ok(())
    }

    /// Records for the socket, if it takes some now.
    pub(super) fn output(&mut self) -> Result<Option<Buf>, Ended> {
        if self.is_blocked {
            return Ok(None);
        }
        self.seal()?;
        Ok((!self.sealed.is_empty()).then(|| std::mem::take(&mut self.sealed)))
    }

    /// The driver has taken the output, or keeps it.
    pub(super) fn sent(&mut self, back: Option<Buf>) {
        self.is_blocked = back.is_none();
        if let Some(mut buf) = back
            && self.sealed.is_empty()
        {
            buf.clear();
            self.sealed = buf;
        }
    }

    /// Whether there is output.
    pub(super) const fn has_output(&self) -> bool {
        !(self.is_blocked || self.out.is_empty() && self.sealed.is_empty())
    }
}

/// The peer has ended a stream.
fn ends_one(
    lane: &mut Lane,
    token: Token,
    (streams, stream): (&mut HashMap<u32, Token>, u32),
    (conn, out): (&mut Connection, &mut Buf),
    news: &mut VecDeque<News>,
) {
    match lane.end(conn, out) {
        Err(why) => news.push_back(News::Failed(token, why)),
        Ok(()) if lane.stream != Some(stream) => {
            streams.remove(&stream);
            streams.extend(lane.stream.map(|next| (next, token)));
        }
        Ok(()) => {}
    }
}
