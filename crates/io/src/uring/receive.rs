use super::Driver;
use super::conn::{Backlog, Conn, Ending, Multi, Phase};
use super::sys::{Completion, Source, With};
use crate::socket::LAST_RECEIVES;
use crate::{End, Received, Sink, Token};
use rustix::event::PollFlags;
use rustix::io::Errno;
use rustix::net::sockopt;
use std::mem;

/// Poll flags for connections whose bytes the kernel only reports, see [`Conn::bulk`].
const TOLD: PollFlags = PollFlags::IN.union(PollFlags::RDHUP).union(PollFlags::PRI).union(PollFlags::RDBAND);

/// Poll flags for errors of connections that are not received from, and for stamps of sent bytes.
const WATCHED: PollFlags = PollFlags::ERR.union(PollFlags::HUP);

/// Whether something lies behind the bytes that can be received, so that a short receive does not mean that all is
/// received.
///
/// Urgent data (`PRI`) cuts receives in two. But a completion for a single wake names all possible reasons of the
/// wake, `PRI` and `RDBAND` among them. Only a completion for several wakes, as urgent data causes, names the actual
/// state. `RDBAND` is never part of that.
pub(super) fn says_more(events: u32) -> bool {
    let says = |flags: PollFlags| events & u32::from(flags.bits()) != 0;
    says(PollFlags::RDHUP | PollFlags::HUP | PollFlags::ERR) || (says(PollFlags::PRI) && !says(PollFlags::RDBAND))
}

impl Driver {
    pub(super) fn receive_completed(&mut self, token: Token, completion: Completion<'_>, sink: &mut dyn Sink) {
        let Completion { mut more, result, with, .. } = completion;
        if let With::Chunk(mut chunk) = with {
            while more && let Some(goes_on) = self.ring.join(token, &mut chunk, self.config.receive_buffer) {
                more = goes_on;
            }
            self.received_last(token, more);
            self.weigh(token, chunk.len());
            self.arrivals.received(chunk.arrival);
            let (buf, start) = chunk.lend();
            self.arrived(token, Received::new(buf, start), sink);
        } else {
            self.received_last(token, more);
            self.nothing_arrived(token, result, sink);
        }
        self.update(token);
    }

    /// Learns how a connection is best received from. Large messages that arrive at once on many connections would push
    /// each other out of the cache before the first is looked at. On few connections they would not.
    fn weigh(&mut self, token: Token, len: usize) {
        self.volume.0 += len;
        let log = usize::from(self.config.buffers) * self.config.buffer as usize;
        let crowded = self.volume.0.max(self.volume.1) > log / 2;
        if let Some(conn) = self.slots.get_mut(token) {
            conn.weigh(len >= self.config.large && (conn.bulk || crowded));
        }
    }

    pub(super) fn received_last(&mut self, token: Token, more: bool) {
        if !more && let Some(conn) = self.slots.get_mut(token) {
            conn.receiving = Multi::Idle;
            if conn.phase == Phase::Failed && conn.error.is_some() {
                self.failures.push_back(token);
            }
        }
    }

    /// Delivers bytes that arrived, or keeps them if the sink cannot have them now.
    fn arrived(&mut self, token: Token, data: Received<'_>, sink: &mut dyn Sink) {
        let (turn, headroom) = (self.turn, self.config.headroom);
        let Some(conn) = self.slots.get_mut(token) else { return };
        let open = conn.phase == Phase::Open;
        if open && !conn.paused && conn.backlog.is_none() && conn.turn != turn {
            conn.turn = turn;
            return sink.received(self, token, data);
        }
        // If a send failed, the bytes that arrived before the failure are still delivered.
        if open || conn.error.is_some() {
            conn.backlog.get_or_insert_with(|| Box::new(Backlog::new(headroom))).put(data.bytes());
            if open && !conn.paused {
                self.enqueue(token);
            }
        }
    }

    fn nothing_arrived(&mut self, token: Token, result: Result<u32, Errno>, sink: &mut dyn Sink) {
        let turn = self.turn;
        let Some(conn) = self.slots.get_mut(token) else { return };
        if conn.phase != Phase::Open {
            return;
        }
        match result {
            Ok(events) if conn.polled => {
                let behind = says_more(events);
                if conn.turn == turn && !conn.hungry && !behind {
                    // The report is older than the bytes received in this turn, like all completions of the turn.
                    return;
                }
                conn.behind |= behind;
                conn.hungry = true;
                if !conn.paused {
                    self.receive_told(token, sink);
                }
            }
            // No buffer or no memory was left: the request has ended, and the bytes wait in the kernel.
            Err(Errno::NOBUFS | Errno::NOMEM) => {
                conn.hungry = true;
                if !conn.paused {
                    self.enqueue(token);
                }
            }
            Err(Errno::CANCELED | Errno::AGAIN | Errno::INTR) => {}
            Ok(_) => self.ends(token, Ending::Finished, sink),
            Err(errno) => self.ends(token, Ending::Failed(errno), sink),
        }
    }

    /// Ends a stream. The sink hears of it after the bytes that it did not get yet.
    fn ends(&mut self, token: Token, ending: Ending, sink: &mut dyn Sink) {
        let Some(conn) = self.slots.get_mut(token) else { return };
        if let (Ending::Failed(errno), true) = (ending, conn.paused) {
            self.fail(token, errno, sink);
        } else if conn.paused || conn.backlog.is_some() {
            conn.ending = Some(ending);
            if !conn.paused {
                self.enqueue(token);
            }
        } else {
            self.deliver_ending(token, ending, sink);
        }
    }

    fn deliver_ending(&mut self, token: Token, ending: Ending, sink: &mut dyn Sink) {
        let Some(conn) = self.slots.get_mut(token) else { return };
        match ending {
            Ending::Finished => {
                conn.finished = true;
                sink.ended(self, token, End::Finished);
            }
            Ending::Failed(errno) => self.fail(token, errno, sink),
        }
    }

    /// Receives bytes that the kernel reported, unless the connection has to wait for its turn.
    fn receive_told(&mut self, token: Token, sink: &mut dyn Sink) {
        let turn = self.turn;
        let Some(conn) = self.slots.get_mut(token) else { return };
        if conn.queued || conn.backlog.is_some() || conn.turn == turn {
            return self.enqueue(token);
        }
        conn.hungry = false;
        self.receive_directly(token, sink);
        if self.slots.get(token).is_some_and(|conn| conn.hungry && !conn.paused) {
            self.enqueue(token);
        }
    }

    pub(super) fn enqueue(&mut self, token: Token) {
        if let Some(conn) = self.slots.get_mut(token)
            && !mem::replace(&mut conn.queued, true)
        {
            self.queue.push_back(token);
        }
    }

    /// Goes on with the next connection that has something to deliver.
    pub(super) fn go_on(&mut self, sink: &mut dyn Sink) {
        let Some(token) = self.queue.pop_front() else { return };
        let turn = self.turn;
        let Some(conn) = self.slots.get_mut(token) else { return };
        conn.queued = false;
        if conn.phase != Phase::Open || conn.paused {
            return;
        }
        if (conn.backlog.is_some() || conn.hungry) && conn.turn == turn {
            // The connection had its share of this turn.
            return self.enqueue(token);
        }
        if conn.backlog.is_some() {
            self.deliver_backlog(token, sink);
        } else if mem::take(&mut conn.hungry) {
            self.receive_directly(token, sink);
        }
        if let Some(conn) = self.slots.get_mut(token)
            && conn.phase == Phase::Open
            && !conn.paused
        {
            if conn.backlog.is_some() || conn.hungry {
                self.enqueue(token);
            } else if let Some(ending) = conn.ending.take() {
                self.deliver_ending(token, ending, sink);
            }
        }
        self.update(token);
    }

    /// Delivers a bounded part of the backlog.
    fn deliver_backlog(&mut self, token: Token, sink: &mut dyn Sink) {
        let (turn, most) = (self.turn, self.config.receive_buffer);
        let Some(conn) = self.slots.get_mut(token) else { return };
        let Some(mut backlog) = conn.backlog.take() else { return };
        conn.turn = turn;
        let (buf, start) = backlog.take(most);
        self.arrivals.received(None);
        if buf.len() > start {
            sink.received(self, token, Received::new(buf, start));
        }
        if backlog.len() > 0
            && let Some(conn) = self.slots.get_mut(token)
        {
            conn.backlog = Some(backlog);
        }
    }

    /// Receives as the epoll driver does: into one buffer, which stays in the cache.
    fn receive_directly(&mut self, token: Token, sink: &mut dyn Sink) {
        let (turn, start) = (self.turn, self.config.headroom);
        let mut memory = mem::take(&mut self.buffer);
        let buffer = &mut memory.reserve(start + self.config.receive_buffer)[..start + self.config.receive_buffer];
        if let Some(conn) = self.slots.get_mut(token) {
            match self.arrivals.receive(&conn.fd, &mut buffer[start..]) {
                Ok(0) => self.ends(token, Ending::Finished, sink),
                Ok(len) => {
                    conn.turn = turn;
                    conn.hungry = conn.polled && (conn.behind || start + len == buffer.len());
                    self.weigh(token, len);
                    sink.received(self, token, Received::new(&mut buffer[..start + len], start));
                }
                Err(Errno::AGAIN) => conn.behind = false,
                Err(Errno::INTR) => conn.hungry = true,
                Err(errno) => self.ends(token, Ending::Failed(errno), sink),
            }
        }
        self.buffer = memory;
    }

    /// Makes the requests that the state of a connection needs, and cancels those that it does not need.
    pub(super) fn update(&mut self, token: Token) {
        let Some(conn) = self.slots.get_mut(token) else { return };
        if conn.phase != Phase::Open || self.still {
            return;
        }
        if conn.stamped && !conn.watching {
            conn.watching = true;
            self.ring.poll(&conn.fd, WATCHED, true, Source::Watch(token));
            conn.flush = self.ring.flushes();
        }
        let over = conn.finished || conn.ending.is_some();
        let silent = over || conn.paused;
        let full = conn.backlog.as_ref().is_some_and(|backlog| backlog.len() > self.config.receive_buffer);
        match conn.receiving {
            Multi::Idle if !silent && !conn.hungry && !full => {
                conn.receiving = Multi::Armed;
                conn.polled = conn.bulk;
                if conn.bulk {
                    self.ring.poll(&conn.fd, TOLD, true, Source::Receive(token));
                } else {
                    self.ring.receive(&conn.fd, token);
                }
            }
            Multi::Idle if silent && !conn.watching => {
                conn.watching = true;
                self.ring.poll(&conn.fd, WATCHED, true, Source::Watch(token));
            }
            Multi::Idle if silent && conn.alarm => {
                conn.alarm = false;
                return self.look_for_error(token);
            }
            // A pause alone cancels nothing: only bytes that arrive during it do.
            Multi::Armed
                if full
                    || (conn.paused && (conn.backlog.is_some() || conn.hungry))
                    || (conn.polled && over)
                    || conn.polled != conn.bulk =>
            {
                conn.receiving = Multi::Cancelled;
                return self.ring.cancel(Source::Receive(token));
            }
            _ => return,
        }
        conn.flush = self.ring.flushes();
    }

    pub(super) fn watch_completed(&mut self, token: Token, completion: &Completion<'_>, sink: &mut dyn Sink) {
        self.report_departures(token, sink);
        let Some(conn) = self.slots.get_mut(token) else { return };
        conn.watching = completion.more;
        if completion.result.is_ok_and(|events| events & u32::from(PollFlags::HUP.bits()) != 0) {
            // It lasts: a new watch would report it at once. No stamp is worth that.
            conn.stamped = false;
        }
        if conn.phase == Phase::Open {
            conn.alarm = true;
            self.update(token);
        }
    }

    /// Fails a connection that is not received from, if its socket has an error.
    fn look_for_error(&mut self, token: Token) {
        let Some(conn) = self.slots.get(token) else { return };
        if let Ok(Err(errno)) | Err(errno) = sockopt::socket_error(&conn.fd) {
            self.fail_later(token, errno);
        }
    }

    /// Breaks a connection and tells the sink.
    pub(super) fn fail(&mut self, token: Token, errno: Errno, sink: &mut dyn Sink) {
        if self.break_off(token).is_some() {
            sink.ended(self, token, End::Failed(errno.into()));
        }
    }

    /// Breaks a connection; the sink hears of it in the next turn, which does not wait for anything else.
    pub(super) fn fail_later(&mut self, token: Token, errno: Errno) {
        let Some(conn) = self.break_off(token) else { return };
        conn.error = Some(errno);
        match conn.receiving {
            Multi::Idle => self.failures.push_back(token),
            Multi::Armed => {
                conn.receiving = Multi::Cancelled;
                self.ring.cancel(Source::Receive(token));
            }
            Multi::Cancelled => {}
        }
    }

    /// Marks a connection as failed. Returns it if the sink is to hear of the failure.
    fn break_off(&mut self, token: Token) -> Option<&mut Conn> {
        if self.slots.get(token)?.phase == Phase::Orphan {
            self.remove(token);
            return None;
        }
        let conn = self.slots.get_mut(token)?;
        conn.out = tautline_buf::Buf::new();
        (mem::replace(&mut conn.phase, Phase::Failed) != Phase::Failed).then_some(conn)
    }

    /// Delivers bytes that arrived before a send failed, often the peer's reason, and then the failure.
    pub(super) fn deliver_failure(&mut self, sink: &mut dyn Sink) {
        let Some(token) = self.failures.pop_front() else { return };
        while self.slots.get(token).is_some_and(|conn| !conn.paused && conn.backlog.is_some()) {
            self.deliver_backlog(token, sink);
        }
        let start = self.config.headroom;
        let mut memory = mem::take(&mut self.buffer);
        let buffer = &mut memory.reserve(start + self.config.receive_buffer)[..start + self.config.receive_buffer];
        for _ in 0..LAST_RECEIVES {
            let Some(conn) = self.slots.get(token) else { break };
            if conn.paused || conn.finished {
                break;
            }
            match self.arrivals.receive(&conn.fd, &mut buffer[start..]) {
                Ok(len @ 1..) => sink.received(self, token, Received::new(&mut buffer[..start + len], start)),
                Err(Errno::INTR) => {}
                _ => break,
            }
        }
        self.buffer = memory;
        if let Some(conn) = self.slots.get_mut(token)
            && let Some(errno) = conn.error.take()
        {
            sink.ended(self, token, End::Failed(errno.into()));
        }
    }
}
