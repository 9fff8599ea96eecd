//! The sink of the driver behind: its tokens become ours, and news of streams follow each event.

use super::carrier::{self, News, Refusal};
use super::front::{Front, State};
use super::table::Entry;
use http::header::USER_AGENT;
use std::io;
use tautline_buf::Buf;
use tautline_io::{Answered, Driver, End, Listener, Received, Sink, Token};

/// Bytes that wait for a peer that reads nothing, above which no more is read of it.
const PAUSE_ABOVE: usize = 64 << 10;
/// Bytes of a stream whose loop pauses, from which on it gets them: it counts them as memory, and holds them back.
const HELD_ABOVE: usize = 4 << 10;

pub(super) struct Behind<'a> {
    pub(super) state: &'a mut State,
    pub(super) sink: &'a mut dyn Sink,
}

impl Behind<'_> {
    /// Passes an event on, with our token, and what it led to.
    fn pass(
        &mut self,
        behind: &mut dyn Driver,
        inner: Token,
        event: impl FnOnce(&mut dyn Sink, &mut dyn Driver, Token),
    ) {
        let Some(token) = self.state.table.outer(inner) else { return };
        let mut front = Front { behind, state: self.state };
        event(self.sink, &mut front, token);
        if front.state.has_news() {
            deliver(&mut front, self.sink);
        }
    }

    fn call<R>(&mut self, behind: &mut dyn Driver, event: impl FnOnce(&mut dyn Sink, &mut dyn Driver) -> R) -> R {
        let mut front = Front { behind, state: self.state };
        let result = event(self.sink, &mut front);
        if front.state.has_news() {
            deliver(&mut front, self.sink);
        }
        result
    }
}

impl Sink for Behind<'_> {
    fn woke(&mut self, behind: &mut dyn Driver) {
        self.state.read_clock();
        self.call(behind, |sink, driver| sink.woke(driver));
    }

    fn may_accept(&self) -> bool {
        self.sink.may_accept()
    }

    fn accepted(&mut self, behind: &mut dyn Driver, inner: Token, listener: Listener) {
        let token = self.state.table.add(Entry::Socket(inner));
        self.call(behind, |sink, driver| sink.accepted(driver, token, listener));
    }

    fn connected(&mut self, behind: &mut dyn Driver, inner: Token) {
        self.pass(behind, inner, |sink, driver, token| sink.connected(driver, token));
    }

    fn received(&mut self, behind: &mut dyn Driver, inner: Token, data: Received<'_>) {
        self.pass(behind, inner, |sink, driver, token| sink.received(driver, token, data));
    }

    fn sent(&mut self, behind: &mut dyn Driver, inner: Token, buf: Buf) {
        if let Some(token) = self.state.table.outer(inner) {
            unblock(self.state, behind, token);
        }
        self.pass(behind, inner, |sink, driver, token| sink.sent(driver, token, buf));
    }

    fn departed(&mut self, behind: &mut dyn Driver, inner: Token, number: u32, nanos: u64) {
        self.pass(behind, inner, |sink, driver, token| sink.departed(driver, token, number, nanos));
    }

    fn ended(&mut self, behind: &mut dyn Driver, inner: Token, end: End) {
        self.pass(behind, inner, |sink, driver, token| sink.ended(driver, token, end));
    }

    fn woken(&mut self, behind: &mut dyn Driver) {
        self.call(behind, |sink, driver| sink.woken(driver));
    }

    fn make_room(&mut self, behind: &mut dyn Driver) -> bool {
        self.call(behind, |sink, driver| sink.make_room(driver))
    }

    fn accept_failed(&mut self, behind: &mut dyn Driver, error: io::Error) {
        self.call(behind, |sink, driver| sink.accept_failed(driver, error));
    }
}

/// A carrier's peer takes bytes again: its streams go on.
fn unblock(state: &mut State, behind: &mut dyn Driver, token: Token) {
    let Some((inner, mut carrier)) = state.table.take_carrier(token) else {
        return;
    };
    carrier.is_blocked = false;
    if core::mem::take(&mut carrier.is_paused) {
        behind.pause_receive(inner, carrier.loop_pauses);
    }
    carrier::go_on(&mut state.table, &mut carrier, &mut state.news);
    state.table.put_carrier(token, inner, carrier);
    state.mark_dirty(token);
}

/// Tells the loop what is new of its streams, and gives it what carriers have for their peers.
pub(super) fn deliver(front: &mut Front<'_>, sink: &mut dyn Sink) {
    loop {
        while let Some(news) = front.state.news.pop_front() {
            tell(front, sink, news);
        }
        let Some(token) = front.state.dirty.pop() else { return };
        flush(front, sink, token);
    }
}

fn tell(front: &mut Front<'_>, sink: &mut dyn Sink, news: News) {
    match news {
        News::Accepted(token) if front.state.table.stream(token).is_some() => {
            sink.accepted(front, token, Listener(0));
        }
        News::Input(token) => input(front, sink, token),
        News::Failed(token, why) => {
            if front.state.table.stream(token).is_some() {
                let broken = || End::Failed(io::ErrorKind::ConnectionReset.into());
                sink.ended(front, token, why.map_or_else(broken, End::Faulty));
            }
        }
        News::Answered(token, refusal) => answered(front, sink, token, &refusal),
        News::Faulty(token, stream, fault) => sink.stream_failed(front, token, stream, fault),
        News::Sent(token, buf) if front.state.table.stream(token).is_some() => sink.sent(front, token, buf),
        News::Ended(token) => {
            if let Some(stream) = front.state.table.stream(token)
                && !core::mem::replace(&mut stream.told, true)
            {
                sink.ended(front, token, End::Finished);
            }
        }
        News::Carries(token, some) => sink.carries(front, token, some),
        News::Accepted(_) | News::Sent(..) => {}
    }
}

/// Tells a loop of an answer that is not its own.
fn answered(front: &mut Front<'_>, sink: &mut dyn Sink, token: Token, refusal: &Refusal) {
    let request = refusal.head.as_ref().map(|head| &head.request);
    let answered = Answered {
        status: refusal.status.as_u16(),
        method: request.map(|request| request.method().as_str()),
        // That of a plain CONNECT names a host instead.
        path: request.and_then(|request| Some(request.uri().path_and_query()?.path())),
        user_agent: request.and_then(|request| request.headers().get(USER_AGENT)?.to_str().ok()),
    };
    sink.answered(front, token, &answered);
}

/// Gives a loop the bytes of a stream.
fn input(front: &mut Front<'_>, sink: &mut dyn Sink, token: Token) {
    let Some(stream) = front.state.table.stream(token) else { return };
    if stream.is_paused && stream.inbound.len() < HELD_ABOVE {
        // They wait. A few bytes do not hold the memory of a large message.
        stream.inbound.fit();
        return;
    }
    let mut bytes = core::mem::take(&mut stream.inbound);
    // The window of a stream that pauses stays as it is.
    let owed = if stream.is_paused { 0 } else { core::mem::take(&mut stream.owed) };
    let (id, of) = (stream.id, stream.carrier);
    stream.is_begun = true;
    if !bytes.is_empty() {
        sink.received(front, token, Received::new(bytes.filled_mut(), 0));
    }
    if owed > 0
        && let Some(carrier) = front.state.table.carrier(of)
    {
        carrier.conn.took(id, owed, &mut carrier.out);
        front.state.mark_dirty(of);
    }
    front.state.table.give(bytes);
    let Some(stream) = front.state.table.stream(token) else { return };
    let is_tunnel = matches!(stream.body, super::request::Body::Tunnel);
    if stream.peer_ended && is_tunnel && stream.inbound.is_empty() && !stream.is_paused && !stream.told {
        stream.told = true;
        sink.ended(front, token, End::Finished);
    }
}

/// Has the streams of carriers that gave much in the turn before go on.
pub(super) fn begin_turn(state: &mut State) {
    state.turn += 1;
    for token in core::mem::take(&mut state.resting) {
        let Some((inner, mut carrier)) = state.table.take_carrier(token) else {
            continue;
        };
        carrier.rests_no_more();
        if !carrier.is_blocked {
            carrier::go_on(&mut state.table, &mut carrier, &mut state.news);
        }
        state.table.put_carrier(token, inner, carrier);
        state.mark_dirty(token);
    }
}

/// Gives a carrier's frames to the loop, which seals and sends them.
fn flush(front: &mut Front<'_>, sink: &mut dyn Sink, token: Token) {
    let Some(carrier) = front.state.table.carrier(token) else { return };
    carrier.is_dirty = false;
    if carrier.is_blocked {
        carrier.out.fit();
        if carrier.out.len() > PAUSE_ABOVE && !carrier.is_paused {
            carrier.is_paused = true;
            front.pause_carrier(token);
        }
        return;
    }
    let end = carrier.end();
    let out = core::mem::take(&mut carrier.out);
    if carrier.gives(front.state.turn, out.len()) {
        front.state.resting.push(token);
    }
    sink.carried(front, token, out.filled(), end);
    front.state.table.give(out);
    let Some((inner, mut carrier)) = front.state.table.take_carrier(token) else {
        return;
    };
    if !carrier.is_blocked {
        carrier::go_on(&mut front.state.table, &mut carrier, &mut front.state.news);
    }
    front.state.table.put_carrier(token, inner, carrier);
    if end.is_none() {
        front.state.mark_dirty(token);
    }
}
