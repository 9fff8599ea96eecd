//! Serves one connection: reports to the sink, and sends.

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
use tautline_buf::Buf;
use tautline_io::{End, Received, Sink, Token};

/// Most frames that one turn takes from the device.
const FRAMES: usize = 64;

/// Most segments that a connection sends before others have their turn.
const BURST: usize = 8;

/// Most probes without an answer.
const PROBES: u8 = 20;

/// Most bytes that fit one segment for every peer: 536 bytes of data, less the options.
const SMALL: usize = 500;

/// Time until a connection is tried again that could send and did not.
const STUCK_RETRY: Duration = Duration::from_millis(1);

impl<W: Wire> Driver<W> {
    /// Gives received frames to their connections, and queues those.
    pub(crate) fn receive_frames(&mut self) {
        for _ in 0..FRAMES {
            let Some(mut frame) = self.wire.receive() else { break };
            let arrival = if self.stamps.is_some() { self.wire.arrival(&mut frame) } else { None };
            let bytes = self.wire.bytes(&frame);
            if let Some(segment) = Segment::read(bytes, self.info.mac) {
                self.ingress(&segment, &bytes[ETHERNET..], arrival);
            } else if let Some(message) = TooBig::read(bytes, self.info.mac) {
                self.lower_path_mtu(&message);
            }
            self.wire.give_back(frame);
        }
        self.wire.recycle();
    }

    fn ingress(&mut self, segment: &Segment, packet: &[u8], arrival: Option<u64>) {
        let mut id = self.pairs.get(&segment.pair).copied();
        if let Some(known) = id
            && segment.is_syn()
            && self.conns.get(known).is_some_and(|conn| conn.state() == State::TimeWait)
        {
            // The peer reuses its port, so the old connection receives nothing more.
            self.retire(known);
            id = None;
        }
        if id.is_none() && segment.is_syn() {
            match self.admit(segment) {
                Admission::Admitted(admitted) => id = Some(admitted),
                Admission::Full => return,
                Admission::NoListener => {}
            }
        }
        let Some(id) = id else {
            // smoltcp answers a segment without a connection with a reset.
            return self.stack.ingress(&mut self.wire, self.now, packet, segment.reply_header, None);
        };
        let Some(conn) = self.conns.get_mut(id) else { return };
        if segment.is_reset() && conn.state() != State::SynSent {
            if !conn.is_exact(segment) {
                // Asked for an acknowledgement, a genuine peer sends an exact reset. Others learn nothing.
                Stack::probe(&mut conn.tcp);
                return self.mark_dirty(id);
            }
            conn.reset = true;
        }
        Stack::stop_probing(&mut conn.tcp);
        let tcp = conn.tcp.get();
        let before = (tcp.recv_queue(), tcp.send_queue());
        let was = tcp.state();
        if conn.stuck && segment.is_pure_ack() {
            conn.stuck = false;
            self.stack.force_retransmit(&mut self.wire, self.now, packet, segment.reply_header, &mut conn.tcp);
        } else {
            self.stack.ingress(&mut self.wire, self.now, packet, segment.reply_header, Some(&mut conn.tcp));
        }
        let tcp = conn.tcp.get();
        if before.0 != tcp.recv_queue() {
            conn.arrival = arrival;
        }
        let moved = before != (tcp.recv_queue(), tcp.send_queue());
        conn.on_segment(segment, was, moved);
        if moved {
            // Only a segment that the connection accepted updates the peer's hardware address.
            conn.header = segment.reply_header;
        }
        if was == State::SynSent && conn.state() == State::Closed {
            conn.reset = true;
        }
        self.enqueue(id);
    }

    /// Queues the connections whose timers expired.
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
                // It was half open or closing for too long.
                self.abort(id);
                continue;
            }
            self.mark_dirty(id);
            self.enqueue(id);
        }
    }

    /// Reports all events of one connection to the sink, and sends.
    pub(crate) fn serve(&mut self, id: Token, buffer: &mut [u8], sink: &mut dyn Sink) {
        let Some(conn) = self.conns.get_mut(id) else { return };
        conn.queued = false;
        match conn.phase {
            Phase::HalfOpen(_) | Phase::Waiting(_) => self.handshake(id),
            Phase::Resolving { .. } => self.resolve(id),
            Phase::Connecting => self.connecting(id, sink),
            Phase::Open => {}
            Phase::Failed => return,
            Phase::Orphan => self.continue_closing(id),
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

    fn connecting(&mut self, id: Token, sink: &mut dyn Sink) {
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

    fn receive(&mut self, id: Token, buffer: &mut [u8], sink: &mut dyn Sink) {
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

    /// Reports the peer's FIN or a failure to the sink.
    fn check_end(&mut self, id: Token, sink: &mut dyn Sink) {
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
            // Both sides finished. Undelivered bytes wait.
            return;
        }
        let kind = if conn.reset { io::ErrorKind::ConnectionReset } else { io::ErrorKind::TimedOut };
        self.fail(id, kind.into(), sink);
    }

    fn go_on_sending(&mut self, id: Token, sink: &mut dyn Sink) {
        let Some(conn) = self.conns.get_mut(id) else { return };
        if !conn.pending.is_empty() {
            let mut pending = mem::take(&mut conn.pending);
            conn.put(&mut pending);
            if !pending.is_empty() {
                pending.fit();
                conn.pending = pending;
                return;
            }
            conn.finish();
            if let Some(token) = conn.token {
                sink.sent(self, token, pending);
            }
        }
    }

    /// Fails a connection and reports it to the sink.
    pub(crate) fn fail(&mut self, id: Token, error: io::Error, sink: &mut dyn Sink) {
        if let Some(token) = self.mark_failed(id) {
            sink.ended(self, token, End::Failed(error));
        }
    }

    /// Fails a connection. The next turn, which does not wait, reports it to the sink.
    pub(crate) fn fail_later(&mut self, id: Token, error: io::Error) {
        if self.mark_failed(id).is_some() {
            self.failures.push_back((id, error));
        }
    }

    /// Marks a connection as failed. Returns the user's token if the failure must be reported.
    fn mark_failed(&mut self, id: Token) -> Option<Token> {
        let conn = self.conns.get_mut(id)?;
        conn.pending = Buf::new();
        let token = conn.token?;
        (mem::replace(&mut conn.phase, Phase::Failed) != Phase::Failed).then_some(token)
    }

    /// Delivers the bytes that arrived before a failure, often the peer's reason, and then reports the failure.
    pub(crate) fn deliver_failure(&mut self, buffer: &mut [u8], sink: &mut dyn Sink) {
        let Some((id, error)) = self.failures.pop_front() else { return };
        self.receive(id, buffer, sink);
        if let Some(token) = self.conns.get(id).and_then(|conn| conn.token) {
            sink.ended(self, token, End::Failed(error));
        }
    }

    /// Sends for a connection, and schedules its next timer.
    pub(crate) fn egress(&mut self, id: Token) {
        let Some(conn) = self.conns.get_mut(id) else { return };
        conn.dirty = false;
        if matches!(conn.phase, Phase::Resolving { .. }) {
            return self.schedule(id, None);
        }
        conn.save_undelivered();
        // Up to `SMALL` bytes fit one segment, whatever the peer's limit (RFC 9293 section 3.7.1).
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
            // No time of the stack is shorter than `retransmit`, so nothing is due before the running timer.
            return;
        }
        let at = match self.stack.due(self.now, &mut conn.tcp) {
            Due::At(at) if at > self.now => Some(self.stack.round_up(at)),
            Due::At(_) if sent || !self.wire.has_room() => {
                self.mark_dirty(id);
                None
            }
            Due::At(_) => Some(self.now + STUCK_RETRY),
            Due::Never => None,
            Due::Stuck => {
                conn.stuck = true;
                Stack::probe(&mut conn.tcp);
                Some(self.stack.round_up(self.now + STUCK_RETRY))
            }
        };
        self.schedule(id, at);
    }

    /// Sets a timer for `at` or for the deadline, whichever is earlier.
    fn schedule(&mut self, id: Token, at: Option<Instant>) {
        let Some(conn) = self.conns.get_mut(id) else { return };
        let deadline = conn.deadline.map(|deadline| self.stack.round_up(deadline));
        let Some(at) = at.into_iter().chain(deadline).min() else { return };
        if conn.timer.is_none_or(|timer| at < timer) {
            conn.timer = Some(at);
            self.timers.push(Reverse((at, id)));
        }
    }
}
