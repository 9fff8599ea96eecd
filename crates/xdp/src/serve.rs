//! What one connection has for its sink, and what it has to send.

use crate::conn::Phase;
use crate::driver::Driver;
use crate::frame::{ETHERNET, Segment};
use crate::listening::Admission;
use crate::path::TooBig;
use crate::stack::{Due, Stack};
use crate::wire::Wire;
use smoltcp::socket::tcp::State;
use std::cmp::Reverse;
use std::io;
use std::mem;
use std::time::{Duration, Instant};
use tautline_io::{End, Received, Sink, Token};
use tautline_window::Buf;

/// Most frames that one turn takes from the device.
const FRAMES: usize = 64;

/// Most segments that a connection sends at once, before others have their turn.
const BURST: usize = 8;

/// Probes that may stay unanswered.
const PROBES: u8 = 20;

/// What fits one segment: every peer takes 536 bytes of data, less the options.
const SMALL: usize = 500;

/// When a connection that could send, and did not, is looked at again.
const STUCK: Duration = Duration::from_millis(1);

impl<W: Wire> Driver<W> {
    /// Gives received frames to their connections, which are then served.
    pub(crate) fn receive_frames(&mut self) {
        for _ in 0..FRAMES {
            let Some(mut frame) = self.wire.receive() else { break };
            let arrival = if self.stamps.is_some() { self.wire.arrival(&mut frame) } else { None };
            let bytes = self.wire.bytes(&frame);
            if let Some(segment) = Segment::read(bytes, self.facts.mac) {
                self.ingress(&segment, &bytes[ETHERNET..], arrival);
            } else if let Some(told) = TooBig::read(bytes, self.facts.mac) {
                self.shorten(&told);
            }
            self.wire.give_back(frame);
        }
        self.wire.settle();
    }

    fn ingress(&mut self, segment: &Segment, packet: &[u8], arrival: Option<u64>) {
        let mut id = self.pairs.get(&segment.pair).copied();
        if let Some(known) = id
            && segment.opens()
            && self.conns.get(known).is_some_and(|conn| conn.state() == State::TimeWait)
        {
            // The peer uses the port again: what the old connection could still hear is over.
            self.retire(known);
            id = None;
        }
        if id.is_none() && segment.opens() {
            match self.admit(segment) {
                Admission::As(admitted) => id = Some(admitted),
                Admission::Full => return,
                Admission::NobodyListens => {}
            }
        }
        let Some(id) = id else {
            // Smoltcp answers what belongs to no connection with a reset.
            return self.stack.ingress(&mut self.wire, self.now, packet, segment.back, None);
        };
        let Some(conn) = self.conns.get_mut(id) else { return };
        if segment.is_reset() && conn.state() != State::SynSent {
            if !conn.is_exact(segment) {
                // A peer that means it repeats it exactly when asked; anybody else learns nothing.
                Stack::probe(&mut conn.tcp);
                return self.soil(id);
            }
            conn.reset = true;
        }
        Stack::stop_probing(&mut conn.tcp);
        let tcp = conn.tcp.get();
        let before = (tcp.recv_queue(), tcp.send_queue());
        let was = tcp.state();
        if conn.stuck && segment.is_bare_acknowledgement() {
            conn.stuck = false;
            self.stack.insist(&mut self.wire, self.now, packet, segment.back, &mut conn.tcp);
        } else {
            self.stack.ingress(&mut self.wire, self.now, packet, segment.back, Some(&mut conn.tcp));
        }
        let tcp = conn.tcp.get();
        if before.0 != tcp.recv_queue() {
            conn.arrival = arrival;
        }
        let moved = before != (tcp.recv_queue(), tcp.send_queue());
        conn.note(segment, was, moved);
        if moved {
            // Only a segment that the connection took says where its peer is now.
            conn.header = segment.back;
        }
        if was == State::SynSent && conn.state() == State::Closed {
            conn.reset = true;
        }
        self.enqueue(id);
    }

    /// Serves the connections whose time has come.
    pub(crate) fn run_timers(&mut self) {
        while let Some(&Reverse((at, id))) = self.timers.peek()
            && at <= self.now
        {
            self.timers.pop();
            let Some(conn) = self.conns.get_mut(id) else { continue };
            if conn.timer != Some(at) {
                continue;
            }
            conn.timer = None;
            if conn.deadline.is_some_and(|deadline| deadline <= self.now) {
                // Half open for too long, or closed for too long.
                self.abort(id);
                continue;
            }
            self.soil(id);
            self.enqueue(id);
        }
    }

    /// Tells the sink all there is about one connection, and sends what it answers.
    pub(crate) fn serve<S: Sink<Self>>(&mut self, id: Token, buffer: &mut [u8], sink: &mut S) {
        let Some(conn) = self.conns.get_mut(id) else { return };
        conn.queued = false;
        match conn.phase {
            Phase::HalfOpen(_) | Phase::Waiting(_) => self.handshake(id),
            Phase::Resolving { .. } => self.resolve(id),
            Phase::Connecting => self.connecting(id, sink),
            Phase::Open => {}
            Phase::Failed => return,
            Phase::Orphan => self.go_on_closing(id),
        }
        let is_open = |driver: &Self| driver.conns.get(id).is_some_and(|conn| conn.phase == Phase::Open);
        if is_open(self) {
            self.receive(id, buffer, sink);
        }
        if is_open(self) {
            self.check_end(id, sink);
        }
        if is_open(self) {
            self.go_on_sending(id, sink);
        }
        self.egress(id);
    }

    fn connecting<S: Sink<Self>>(&mut self, id: Token, sink: &mut S) {
        let Some(conn) = self.conns.get_mut(id) else { return };
        match conn.state() {
            State::SynSent | State::SynReceived => {}
            State::Closed => {
                let kind = if conn.reset { io::ErrorKind::ConnectionRefused } else { io::ErrorKind::TimedOut };
                self.fail(id, kind.into(), sink);
            }
            _ => {
                conn.phase = Phase::Open;
                conn.finish();
                if let Some(token) = conn.token {
                    sink.connected(self, token);
                }
            }
        }
    }

    fn receive<S: Sink<Self>>(&mut self, id: Token, buffer: &mut [u8], sink: &mut S) {
        let start = self.config.headroom;
        let Some(conn) = self.conns.get_mut(id) else { return };
        let (false, Some(token)) = (conn.paused || conn.finished, conn.token) else { return };
        if let Some(stamps) = &mut self.stamps {
            (stamps.began, stamps.arrival) = (stamps.ticker.now(), conn.arrival);
        }
        let len = conn.take_received(&mut buffer[start..]);
        if len > 0 {
            sink.received(self, token, Received::new(&mut buffer[..start + len], start));
        }
    }

    /// Tells the sink that the peer finished, or that the connection broke.
    fn check_end<S: Sink<Self>>(&mut self, id: Token, sink: &mut S) {
        let Some(conn) = self.conns.get_mut(id) else { return };
        let Some(token) = conn.token else { return };
        if !conn.paused && !conn.finished && conn.is_at_end() {
            conn.finished = true;
            sink.ended(self, token, End::Finished);
        }
        let Some(conn) = self.conns.get_mut(id) else { return };
        if conn.phase != Phase::Open || conn.state() != State::Closed {
            return;
        }
        let both = conn.finishing && conn.is_at_end();
        if !conn.reset && both {
            // Over on both sides; what was not delivered yet waits.
            return;
        }
        let kind = if conn.reset { io::ErrorKind::ConnectionReset } else { io::ErrorKind::TimedOut };
        self.fail(id, kind.into(), sink);
    }

    fn go_on_sending<S: Sink<Self>>(&mut self, id: Token, sink: &mut S) {
        let Some(conn) = self.conns.get_mut(id) else { return };
        if !conn.pending.is_empty() {
            let mut pending = mem::take(&mut conn.pending);
            conn.put(&mut pending);
            if !pending.is_empty() {
                conn.pending = pending;
                return;
            }
            conn.finish();
            if let Some(token) = conn.token {
                sink.sent(self, token, pending);
            }
        }
    }

    /// Breaks a connection and tells the sink.
    pub(crate) fn fail<S: Sink<Self>>(&mut self, id: Token, error: io::Error, sink: &mut S) {
        if let Some(token) = self.break_off(id) {
            sink.ended(self, token, End::Failed(error));
        }
    }

    /// Breaks a connection; the sink hears of it in the next turn, which does not wait.
    pub(crate) fn fail_later(&mut self, id: Token, error: io::Error) {
        if self.break_off(id).is_some() {
            self.failures.push_back((id, error));
        }
    }

    /// The one to tell, if there is one.
    fn break_off(&mut self, id: Token) -> Option<Token> {
        let conn = self.conns.get_mut(id)?;
        conn.pending = Buf::new();
        let token = conn.token?;
        (mem::replace(&mut conn.phase, Phase::Failed) != Phase::Failed).then_some(token)
    }

    /// Delivers what arrived before the failure, often the peer's reason, and then the failure.
    pub(crate) fn deliver_failure<S: Sink<Self>>(&mut self, buffer: &mut [u8], sink: &mut S) {
        let Some((id, error)) = self.failures.pop_front() else { return };
        self.receive(id, buffer, sink);
        if let Some(token) = self.conns.get(id).and_then(|conn| conn.token) {
            sink.ended(self, token, End::Failed(error));
        }
    }

    /// Sends what a connection has to send, and notes when to look at it again.
    pub(crate) fn egress(&mut self, id: Token) {
        let Some(conn) = self.conns.get_mut(id) else { return };
        conn.dirty = false;
        if matches!(conn.phase, Phase::Resolving { .. }) {
            return self.schedule(id, None);
        }
        conn.keep();
        // One segment holds that much, whatever the peer's limit (RFC 9293 section 3.7.1).
        let most = if conn.tcp.get().send_queue() <= SMALL { 1 } else { BURST };
        let sent = self.stack.egress(&mut self.wire, self.now, conn.header, &mut conn.tcp, most);
        if sent && conn.tcp.get().keep_alive().is_some() {
            conn.probes += 1;
            if conn.probes == PROBES {
                conn.probes = 0;
                Stack::stop_probing(&mut conn.tcp);
            }
        }
        let over = conn.state() == State::Closed;
        if over && matches!(conn.phase, Phase::Orphan | Phase::HalfOpen(_)) {
            return self.remove(id);
        }
        if over && conn.phase == Phase::Failed {
            return;
        }
        let soon = self.now + self.config.retransmit;
        if sent && most == 1 && conn.phase == Phase::Open && conn.timer.is_some_and(|timer| timer <= soon) {
            // Nothing falls due before the timer that runs already: every time of the stack is as long or longer.
            return;
        }
        let at = match self.stack.due(self.now, &mut conn.tcp) {
            Due::At(at) if at > self.now => Some(self.stack.coarse(at)),
            Due::At(_) if sent || !self.wire.has_room() => {
                self.soil(id);
                None
            }
            Due::At(_) => Some(self.now + STUCK),
            Due::Never => None,
            Due::Stuck => {
                conn.stuck = true;
                Stack::probe(&mut conn.tcp);
                Some(self.stack.coarse(self.now + STUCK))
            }
        };
        self.schedule(id, at);
    }

    /// Looks at a connection again at `at`, or at its deadline.
    fn schedule(&mut self, id: Token, at: Option<Instant>) {
        let Some(conn) = self.conns.get_mut(id) else { return };
        let deadline = conn.deadline.map(|deadline| self.stack.coarse(deadline));
        let Some(at) = at.into_iter().chain(deadline).min() else { return };
        if conn.timer.is_none_or(|timer| at < timer) {
            conn.timer = Some(at);
            self.timers.push(Reverse((at, id)));
        }
    }
}
