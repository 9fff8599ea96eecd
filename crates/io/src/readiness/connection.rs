use super::conn::{BEHIND, ENDS, InKernel, Phase};
use super::driver::Driver;
use super::kernel;
use super::poll::Poll;
use crate::socket::LAST_RECEIVES;
use crate::{Address, End, Received, Sent, Sink, Token, socket};
use rustix::event::epoll::EventFlags;
use rustix::fd::AsFd;
use rustix::io::Errno;
use rustix::net::{SendFlags, sockopt};
use std::io;
use std::mem;
use std::time::Duration;
use tautline_buf::Buf;

/// Makes close(2) discard unsent bytes and reset a TCP connection.
pub(super) fn reset_on_close(fd: impl AsFd) {
    // Fails only for descriptors that are no sockets.
    let _ = sockopt::set_socket_linger(fd, Some(Duration::ZERO));
}

impl<P: Poll> Driver<P> {
    pub(super) fn connection_event(
        &mut self,
        token: Token,
        mut flags: EventFlags,
        buffer: &mut [u8],
        sink: &mut dyn Sink,
    ) {
        if flags.contains(EventFlags::ERR) {
            flags = self.report_departures(token, flags, sink);
        }
        // A connection that was closed since the kernel made the event is skipped.
        let Some(conn) = self.slots.get(token) else { return };
        if conn.phase == Phase::Connecting {
            self.connect_event(token, flags, sink);
        }
        if flags.intersects(EventFlags::IN.union(BEHIND)) {
            self.readable(token, flags, buffer, sink);
        }
        // A hang-up can come without room to send: only an attempt to send says why.
        if flags.intersects(EventFlags::OUT | EventFlags::HUP | EventFlags::ERR) {
            self.flush(token, flags, sink);
        }
    }

    pub(super) fn start_connecting(&mut self, token: Token, address: Address) {
        let Some(conn) = self.slots.get_mut(token) else { return };
        match socket::connect(&conn.fd, &address) {
            Ok(()) => {
                if let Err(error) = conn.watch(&mut self.poll, token) {
                    self.fail_later(token, error);
                }
            }
            Err(Errno::AGAIN) if matches!(address, Address::Unix(_)) => self.deferred.retry_later(token, address),
            Err(errno) => self.fail_later(token, errno.into()),
        }
    }

    fn connect_event(&mut self, token: Token, flags: EventFlags, sink: &mut dyn Sink) {
        let Some(conn) = self.slots.get_mut(token) else { return };
        match sockopt::socket_error(&conn.fd) {
            Ok(Ok(())) if flags.contains(EventFlags::OUT) => {
                conn.phase = Phase::Open;
                if conn.finishing && conn.pending.is_empty() {
                    socket::finish(&conn.fd);
                }
                sink.connected(self, token);
            }
            Ok(Ok(())) => {}
            Ok(Err(errno)) | Err(errno) => self.fail(token, errno.into(), sink),
        }
    }

    /// Receives, or remembers that it can: the kernel reports only once that there is something to receive.
    fn readable(&mut self, token: Token, flags: EventFlags, buffer: &mut [u8], sink: &mut dyn Sink) {
        let Some(conn) = self.slots.get_mut(token) else { return };
        if conn.phase != Phase::Open {
            return;
        }
        conn.readable = true;
        conn.behind |= flags & BEHIND;
        if conn.paused || conn.finished {
            if flags.contains(EventFlags::ERR) {
                self.report_error(token, sink);
            }
        } else if !conn.queued {
            self.receive(token, buffer, sink);
        }
    }

    /// Receives from the next queued connection.
    pub(super) fn receive_again(&mut self, buffer: &mut [u8], sink: &mut dyn Sink) {
        let Some(token) = self.queue.pop_front() else { return };
        let Some(conn) = self.slots.get_mut(token) else { return };
        conn.queued = false;
        if self.goes_on(token, sink) {
            self.receive(token, buffer, sink);
        }
    }

    /// Whether more is to be received. Otherwise an error of the socket is reported.
    fn goes_on(&mut self, token: Token, sink: &mut dyn Sink) -> bool {
        let Some(conn) = self.slots.get(token).filter(|conn| conn.phase == Phase::Open) else { return false };
        let wanted = !conn.paused && !conn.finished;
        if !wanted && conn.behind.contains(EventFlags::ERR) {
            self.report_error(token, sink);
        }
        wanted
    }

    pub(super) fn enqueue(&mut self, token: Token) {
        if let Some(conn) = self.slots.get_mut(token)
            && !mem::replace(&mut conn.queued, true)
        {
            self.queue.push_back(token);
        }
    }

    /// Receives once, and once more if the peer's end is all that lies behind the bytes: it needs no turn of its own.
    fn receive(&mut self, token: Token, buffer: &mut [u8], sink: &mut dyn Sink) {
        if self.receive_once(token, buffer, sink) {
            self.receive_end(token, buffer, sink);
        }
    }

    /// Receives the peer's end.
    #[cold]
    fn receive_end(&mut self, token: Token, buffer: &mut [u8], sink: &mut dyn Sink) {
        if self.unqueue(token) && self.goes_on(token, sink) {
            self.receive_once(token, buffer, sink);
        }
    }

    /// Takes the connection out of the queue, if it is the last there.
    fn unqueue(&mut self, token: Token) -> bool {
        let is_last = self.queue.pop_back_if(|last| *last == token).is_some();
        if is_last && let Some(conn) = self.slots.get_mut(token) {
            conn.queued = false;
        }
        is_last
    }

    /// Receives. Returns whether it was queued although nothing but the peer's end lies behind the bytes.
    #[inline(always)]
    fn receive_once(&mut self, token: Token, buffer: &mut [u8], sink: &mut dyn Sink) -> bool {
        let Some(conn) = self.slots.get_mut(token) else { return false };
        let start = self.config.headroom;
        match kernel::receive(conn, &mut self.arrivals, &mut buffer[start..]) {
            Ok(0) => {
                conn.finished = true;
                let broken = conn.behind.contains(EventFlags::ERR);
                sink.ended(self, token, End::Finished);
                if broken {
                    self.report_error(token, sink);
                }
            }
            Ok(len) => {
                // With kernel TLS a receive also stops between two records of different types.
                let stops = start + len == buffer.len() || conn.kernel.has(InKernel::RECEIVE);
                conn.readable = stops || !conn.behind.is_empty();
                let ends = !stops && conn.behind.intersects(ENDS) && !conn.behind.contains(EventFlags::PRI);
                if conn.readable {
                    self.enqueue(token);
                } else {
                    self.poll.rearm(conn.fd.as_fd(), EventFlags::IN);
                }
                sink.received(self, token, Received::new(&mut buffer[..start + len], start));
                return ends;
            }
            Err(Errno::AGAIN) => {
                conn.readable = false;
                conn.behind = EventFlags::empty();
                if conn.kernel.has(InKernel::REFUSED) {
                    return false;
                }
                match if P::EDGES { Ok(()) } else { kernel::rest(conn) } {
                    Ok(()) => self.poll.rearm(conn.fd.as_fd(), EventFlags::IN),
                    Err(errno) => self.fail(token, errno.into(), sink),
                }
            }
            Err(Errno::INTR) => self.enqueue(token),
            Err(errno) => self.fail(token, errno.into(), sink),
        }
        false
    }

    /// Fails a connection that is not received from, if its socket has an error.
    fn report_error(&mut self, token: Token, sink: &mut dyn Sink) {
        let Some(conn) = self.slots.get(token) else { return };
        if let Ok(Err(errno)) | Err(errno) = sockopt::socket_error(&conn.fd) {
            self.fail(token, errno.into(), sink);
        }
    }

    /// Goes on with a pending send.
    fn flush(&mut self, token: Token, flags: EventFlags, sink: &mut dyn Sink) {
        let Some(conn) = self.slots.get_mut(token) else { return };
        if !matches!(conn.phase, Phase::Open | Phase::Orphan) {
            return;
        }
        if conn.pending.is_empty() {
            if flags == EventFlags::OUT
                && let Err(error) = conn.watch_out(&mut self.poll, token, false)
            {
                self.fail_later(token, error);
            }
            return;
        }
        let mut pending = mem::take(&mut conn.pending);
        let sent =
            kernel::send(conn, token, (&mut self.sealing, &mut self.departures), (&mut pending, SendFlags::empty()));
        conn.pending = pending;
        if let Err(error) = sent {
            return self.cannot_send(token, error);
        }
        if !conn.pending.is_empty() {
            conn.pending.fit();
            return self.poll.rearm(conn.fd.as_fd(), EventFlags::OUT);
        }
        if conn.phase == Phase::Orphan {
            return self.remove(token);
        }
        if conn.finishing {
            socket::finish(&conn.fd);
        }
        self.waiting -= usize::from(conn.kernel.has(InKernel::FULL));
        conn.kernel.remove(InKernel::FULL);
        let buf = mem::take(&mut conn.pending);
        sink.sent(self, token, buf);
    }

    /// Handles a failed send: repeats it later if the kernel had no memory, and fails the connection otherwise.
    pub(super) fn cannot_send(&mut self, token: Token, error: io::Error) {
        if Errno::from_io_error(&error).is_some_and(socket::is_shortage) {
            self.deferred.send_later(token);
        } else {
            self.fail_later(token, error);
        }
    }

    /// Has room to send reported once more, if bytes are pending.
    pub(super) fn report_room(&mut self, token: Token) {
        if let Some(conn) = self.slots.get(token)
            && !conn.pending.is_empty()
            && let Err(error) = conn.watch_again(&mut self.poll, token)
        {
            self.fail_later(token, error);
        }
    }

    /// Keeps the unsent rest of `buf`.
    pub(super) fn keep(&mut self, token: Token, mut buf: Buf) -> Sent {
        let Some(conn) = self.slots.get_mut(token) else { return Sent::Done(buf) };
        if conn.phase == Phase::Failed {
            buf.clear();
        }
        if buf.is_empty() {
            return Sent::Done(buf);
        }
        if conn.pending.is_empty() {
            // The peer may leave the rest unread for long, so few bytes do not keep much memory.
            buf.fit();
            conn.pending = buf;
            self.waiting += usize::from(!conn.kernel.has(InKernel::FULL));
            conn.kernel.add(InKernel::FULL);
            if let Err(error) = conn.watch_out(&mut self.poll, token, true) {
                self.fail_later(token, error);
            }
        } else {
            // A second send breaks the contract, but losing bytes in the middle of a stream would be worse.
            conn.pending.put(buf.filled());
        }
        Sent::Pending
    }

    /// Goes on sending for a connection that the user closed, under a token that the user does not know.
    pub(super) fn orphan(&mut self, token: Token) {
        let renamed = self.slots.rename(token);
        let Some(conn) = self.slots.get_mut(renamed) else { return };
        if conn.watch_again(&mut self.poll, renamed).is_err() {
            return self.remove(renamed);
        }
        self.deferred.adopt(renamed, self.config.linger);
    }

    /// Breaks a connection and tells the sink.
    fn fail(&mut self, token: Token, error: io::Error, sink: &mut dyn Sink) {
        if self.break_off(token) {
            sink.ended(self, token, End::Failed(error));
        }
    }

    /// Breaks a connection; the sink hears of it in the next turn, which does not wait.
    pub(super) fn fail_later(&mut self, token: Token, error: io::Error) {
        if self.break_off(token) {
            self.failures.push_back((token, error));
        }
    }

    /// Marks a connection as failed. Returns whether the sink is to hear of it.
    fn break_off(&mut self, token: Token) -> bool {
        let Some(conn) = self.slots.get_mut(token) else { return false };
        if conn.phase == Phase::Orphan {
            self.remove(token);
            return false;
        }
        conn.pending = Buf::new();
        mem::replace(&mut conn.phase, Phase::Failed) != Phase::Failed
    }

    /// Delivers bytes that arrived before a send failed, often the peer's reason, and then the failure.
    pub(super) fn deliver_failure(&mut self, buffer: &mut [u8], sink: &mut dyn Sink) {
        let Some((token, error)) = self.failures.pop_front() else { return };
        let start = self.config.headroom;
        for _ in 0..LAST_RECEIVES {
            let Some(conn) = self.slots.get_mut(token) else { return };
            if conn.paused || conn.finished {
                break;
            }
            match kernel::receive(conn, &mut self.arrivals, &mut buffer[start..]) {
                Ok(len @ 1..) => sink.received(self, token, Received::new(&mut buffer[..start + len], start)),
                Err(Errno::INTR) => {}
                _ => break,
            }
        }
        if self.slots.get(token).is_some() {
            sink.ended(self, token, End::Failed(error));
        }
    }
}
