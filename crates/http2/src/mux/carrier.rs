//! A connection that carries streams.

use super::request::{self, Body};
use super::stream::{Output, Stream};
use super::table::{Entry, Table};
use crate::code::{Code, Fault};
use crate::connection::Connection;
use crate::event::Event;
use crate::fields::RequestHead;
use crate::limits::Limits;
use crate::role::Role;
use core::time::Duration;
use http::{HeaderMap, Method, StatusCode};
use std::collections::VecDeque;
use tautline_buf::Buf;
use tautline_io::{CarrierEnd, StreamFault, Token};

/// The connections of a driver.
pub(super) type Connections = Table<Carrier, Stream>;

/// Bytes that all streams of a carrier give it before they leave.
pub(super) const MOST_OUT: usize = 256 << 10;
/// Bytes that a carrier gives its loop in a turn. Its streams go on in the next one, so that a peer which takes all at once does
/// not hold up the others of the loop.
pub(super) const MOST_IN_TURN: usize = 1 << 20;
/// Memory of a carrier that counts.
const LEAST_HELD: usize = 4 << 10;
/// A carrier without streams ends after this time.
pub(super) const IDLE: Duration = Duration::from_secs(60);

/// An event of a stream that its loop does not know of yet.
#[derive(Debug)]
pub(super) enum News {
    Accepted(Token),
    /// Bytes have come, or the peer's end.
    Input(Token),
    /// The stream was reset: for this fault of the peer, if it was one.
    Failed(Token, Option<&'static str>),
    /// A stream of this carrier was refused or reset for a fault of the peer.
    Faulty(Token, u32, StreamFault),
    /// The peer got this answer: to a stream of which the loop knows, or to one of this carrier.
    Answered(Token, Box<Refusal>),
    /// A buffer comes back.
    Sent(Token, Buf),
    /// The peer's end, of a stream whose answer is whole.
    Ended(Token),
    /// This carrier has its first stream now, or none any more.
    Carries(Token, bool),
}

/// An answer in place of the loop's, and what is known of its request.
#[derive(Debug)]
pub(super) struct Refusal {
    pub(super) status: StatusCode,
    pub(super) head: Option<Box<RequestHead>>,
}

/// The state of a carrier.
#[derive(Debug)]
pub(super) struct Carrier {
    pub(super) conn: Connection,
    /// Frames for the peer.
    pub(super) out: Buf,
    /// Its streams by their numbers there.
    pub(super) streams: Vec<(u32, Token)>,
    /// Whether the loop's last send of it is not done.
    pub(super) is_blocked: bool,
    /// Whether it is in the list of those with output.
    pub(super) is_dirty: bool,
    /// Whether nothing is read until output has left.
    pub(super) is_paused: bool,
    /// Whether the loop has nothing read.
    pub(super) loop_pauses: bool,
    /// A turn, and the bytes that it has given its loop in that.
    gave: (u64, usize),
    /// The fault of its peer, after which nothing is read.
    pub(super) fault: Option<Fault>,
    /// When its last stream ended.
    pub(super) idle_since: Duration,
    /// The place of the stream that goes on first once there is room.
    next: usize,
}

impl Carrier {
    pub(super) fn new(limits: Limits, now: Duration, is_blocked: bool) -> Self {
        let mut carrier = Self {
            conn: Connection::new(Role::Server, limits),
            out: Buf::new(),
            streams: Vec::new(),
            is_blocked,
            is_dirty: false,
            is_paused: false,
            loop_pauses: false,
            gave: (0, 0),
            fault: None,
            idle_since: now,
            next: 0,
        };
        carrier.conn.start(&mut carrier.out);
        carrier
    }

    /// The bytes that may wait for the carrier in all.
    pub(super) const fn most(&self) -> usize {
        if self.is_blocked || self.gave.1 >= MOST_IN_TURN { 0 } else { MOST_OUT }
    }

    /// It gives its loop bytes in this turn. Whether its streams wait for the next one.
    pub(super) const fn gives(&mut self, turn: u64, bytes: usize) -> bool {
        let before = if self.gave.0 == turn { self.gave.1 } else { 0 };
        self.gave = (turn, before + bytes);
        before < MOST_IN_TURN && self.gave.1 >= MOST_IN_TURN
    }

    /// Its streams go on.
    pub(super) const fn rests_no_more(&mut self) {
        self.gave.1 = 0;
    }

    /// Its memory, if that is worth counting.
    pub(super) fn held(&self) -> usize {
        let held = self.conn.held() + self.out.capacity();
        if held < LEAST_HELD { 0 } else { held }
    }

    /// Whether it ends once its output has left.
    pub(super) fn end(&self) -> Option<CarrierEnd> {
        match self.fault {
            Some(fault) => Some(CarrierEnd::Fault(fault.why)),
            None => (self.conn.is_done() && self.streams.is_empty()).then_some(CarrierEnd::Done),
        }
    }

    fn stream(&self, id: u32) -> Option<Token> {
        let at = self.streams.binary_search_by_key(&id, |(id, _)| *id).ok()?;
        Some(self.streams[at].1)
    }

    /// Forgets a stream. Whether it was the last.
    pub(super) fn forget(&mut self, id: u32, now: Duration) -> bool {
        let Ok(at) = self.streams.binary_search_by_key(&id, |(id, _)| *id) else { return false };
        self.streams.remove(at);
        if self.streams.is_empty() {
            self.idle_since = now;
        }
        self.streams.is_empty()
    }
}

/// Reads plaintext of a carrier, and passes what it holds to its streams.
pub(super) fn read(table: &mut Connections, token: Token, plain: &mut [u8], now: Duration, news: &mut VecDeque<News>) {
    let Some((inner, mut carrier)) = table.take_carrier(token) else { return };
    table.lend(&mut carrier.out);
    let mut used = 0;
    while used < plain.len() && carrier.fault.is_none() {
        let Carrier { conn, out, .. } = &mut *carrier;
        match conn.read(&mut plain[used..], now, out) {
            Ok(read) => {
                used += read.used;
                if let Some(event) = read.event {
                    take_event(table, &mut carrier, token, event, now, news);
                }
            }
            Err(fault) => {
                carrier.conn.go_away(fault.code, fault.why, &mut carrier.out);
                carrier.fault = Some(fault);
                news.extend(carrier.streams.iter().map(|(_, stream)| News::Failed(*stream, Some(fault.why))));
            }
        }
    }
    if carrier.out.is_empty() {
        table.give(core::mem::take(&mut carrier.out));
    }
    table.put_carrier(token, inner, carrier);
}

fn take_event(
    table: &mut Connections,
    carrier: &mut Carrier,
    token: Token,
    event: Event<'_>,
    now: Duration,
    news: &mut VecDeque<News>,
) {
    match event {
        Event::Request { stream, head, end } => {
            let mut text = Buf::new();
            match request::write(&head, end, &mut text) {
                Ok(body) => {
                    let has_body = head.request.method() != Method::HEAD;
                    let mut state = Stream::new(token, stream, body, has_body, end);
                    state.inbound = text;
                    let outer = table.add(Entry::Stream(Box::new(state)));
                    let at = carrier.streams.partition_point(|(id, _)| *id < stream);
                    carrier.streams.insert(at, (stream, outer));
                    if carrier.streams.len() == 1 {
                        news.push_back(News::Carries(token, true));
                    }
                    news.extend([News::Accepted(outer), News::Input(outer)]);
                }
                Err(status) => {
                    news.push_back(News::Answered(token, Box::new(Refusal { status, head: Some(head) })));
                    carrier.conn.respond(stream, status, &HeaderMap::new(), true, &mut carrier.out);
                    if !end {
                        carrier.conn.reset(stream, Code::NO_ERROR, &mut carrier.out);
                    }
                }
            }
        }
        Event::Data { stream, data, end } => {
            let len = data.len();
            let mut inbound = Buf::new();
            let Some((outer, state)) = carrier.stream(stream).and_then(|token| Some((token, table.stream(token)?)))
            else {
                return carrier.conn.took(stream, len, &mut carrier.out);
            };
            if !state.inbound.has_memory() {
                table.lend(&mut inbound);
            }
            let Some(state) = table.stream(outer) else { return };
            if inbound.has_memory() {
                state.inbound = inbound;
            }
            state.owed += len;
            state.peer_ended |= end;
            request::write_body(state.body, data, end, &mut state.open, &mut state.inbound);
            news.push_back(News::Input(outer));
        }
        Event::End { stream } => {
            if let Some((outer, state)) = carrier.stream(stream).and_then(|token| Some((token, table.stream(token)?))) {
                state.peer_ended = true;
                request::write_body(state.body, &[], true, &mut state.open, &mut state.inbound);
                news.push_back(News::Input(outer));
            }
        }
        Event::Refused { stream, why } => {
            news.push_back(News::Faulty(token, stream, why));
            if why == StreamFault::Head {
                let status = StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE;
                news.push_back(News::Answered(token, Box::new(Refusal { status, head: None })));
            }
        }
        Event::Reset { stream, code, why } => {
            match why {
                Some(fault) => news.push_back(News::Faulty(token, stream, fault)),
                None => log::debug!("stream {stream} was reset by the peer: {code}"),
            }
            if let Some(outer) = carrier.stream(stream) {
                if carrier.forget(stream, now) {
                    news.push_back(News::Carries(token, false));
                }
                news.push_back(News::Failed(outer, why.map(StreamFault::text)));
            }
        }
        Event::Window { stream } => {
            let Some(id) = stream else { return go_on(table, carrier, news) };
            if let Some(outer) = carrier.stream(id) {
                go_on_one(table, carrier, outer, news);
            }
        }
        Event::GoAway { .. } | Event::Pong(_) | Event::Response { .. } => {}
    }
}

/// Has the streams of a carrier send what waited, in turn: the one that found no room goes first the next time.
pub(super) fn go_on(table: &mut Connections, carrier: &mut Carrier, news: &mut VecDeque<News>) {
    let number = carrier.streams.len();
    for step in 0..number {
        let at = (carrier.next + step) % number;
        if carrier.out.len() >= carrier.most() || !carrier.conn.has_window() {
            carrier.next = at;
            return;
        }
        let (_, outer) = carrier.streams[at];
        go_on_one(table, carrier, outer, news);
    }
}

fn go_on_one(table: &mut Connections, carrier: &mut Carrier, outer: Token, news: &mut VecDeque<News>) {
    let most = carrier.most();
    let Some(state) = table.stream(outer) else { return };
    state.go_on(&mut carrier.conn, most, &mut carrier.out);
    if let Some(buf) = state.take_spent() {
        news.push_back(News::Sent(outer, buf));
    }
}

/// Gives a stream's answer to its carrier. Returns the buffer, unless bytes of it wait.
pub(super) fn send(table: &mut Connections, token: Token, buf: Buf, news: &mut VecDeque<News>) -> Option<Buf> {
    let Some(stream) = table.stream(token) else { return Some(cleared(buf)) };
    let of = stream.carrier;
    let Some((inner, mut carrier)) = table.take_carrier(of) else {
        return Some(cleared(buf));
    };
    table.lend(&mut carrier.out);
    let most = carrier.most();
    let mut back = Some(buf);
    if let Some(stream) = table.stream(token)
        && let Some(buf) = back.take()
    {
        let Carrier { conn, out, .. } = &mut *carrier;
        match stream.answer(buf, conn, most, out) {
            Output::Taken => {}
            Output::Replaced(status) => {
                news.push_back(News::Answered(token, Box::new(Refusal { status, head: None })));
            }
            Output::Reset => news.push_back(News::Failed(token, None)),
        }
        back = stream.take_spent();
    }
    table.put_carrier(of, inner, carrier);
    back
}

/// A stream's loop ends its direction.
pub(super) fn shut(table: &mut Connections, token: Token, news: &mut VecDeque<News>) {
    let Some(stream) = table.stream(token) else { return };
    let of = stream.carrier;
    let Some((inner, mut carrier)) = table.take_carrier(of) else { return };
    let most = carrier.most();
    if let Some(stream) = table.stream(token) {
        let Carrier { conn, out, .. } = &mut *carrier;
        match stream.shut(conn, most, out) {
            Output::Reset => news.push_back(News::Failed(token, None)),
            // A peer that has its answer ends nothing: the loop waits for that no longer.
            _ if stream.body != Body::Tunnel || stream.is_answered() => news.push_back(News::Ended(token)),
            _ => {}
        }
    }
    table.put_carrier(of, inner, carrier);
}

fn cleared(mut buf: Buf) -> Buf {
    buf.clear();
    buf
}
