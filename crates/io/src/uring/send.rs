use super::Driver;
use super::conn::{Conn, Multi, Phase};
use super::sys::{Completion, Source, With};
use crate::{Sent, Sink, Token, socket, stamp};
use rustix::fd::AsFd;
use rustix::io::Errno;
use rustix::net::{self, SendFlags, Shutdown};
use std::mem;
use tautline_buf::Buf;

impl Driver {
    /// Sends at once the bytes that the kernel has room for, and has the ring send the rest. Sending all bytes through
    /// the ring, together for all connections of a turn, costs more (`docs/drivers.md`).
    pub(super) fn accept_send(&mut self, token: Token, mut buf: Buf) -> Sent {
        let Some(conn) = self.slots.get_mut(token).filter(|conn| conn.phase != Phase::Failed) else {
            buf.clear();
            return Sent::Done(buf);
        };
        if conn.phase == Phase::Open && conn.drained() && (buf.len() < self.config.zero_copy || conn.copied) {
            let before = buf.len();
            let sent = socket::send(&conn.fd, &mut buf, SendFlags::empty());
            if conn.stamped {
                self.departures.add(token.index, before - buf.len());
            }
            if let Err(errno) = sent
                && !socket::is_shortage(errno)
            {
                buf.clear();
                self.fail_later(token, errno);
                return Sent::Done(buf);
            }
        }
        if buf.is_empty() {
            return Sent::Done(buf);
        }
        keep(conn, buf);
        self.waiting += usize::from(!mem::replace(&mut conn.full, true));
        self.go_on_sending(token);
        Sent::Pending
    }

    /// Sends stamped bytes of an open connection on which nothing is pending. Returns the number of the last byte if the
    /// kernel took all of them.
    pub(super) fn send_all_stamped(&mut self, token: Token, buf: &mut Buf) -> Option<u32> {
        let conn = self.slots.get_mut(token).filter(|conn| conn.phase == Phase::Open && conn.drained())?;
        if !conn.stamped {
            conn.stamped = self.departures.begin(token.index, &conn.fd);
            if !conn.stamped {
                return None;
            }
            // The kernel announces stamps like errors.
            self.update(token);
        }
        let conn = self.slots.get(token)?;
        self.departures.send(token.index, &conn.fd, buf)
    }

    /// Reports the stamps of a connection's sends.
    pub(super) fn report_departures(&mut self, token: Token, sink: &mut dyn Sink) {
        while let Some(conn) = self.slots.get(token).filter(|conn| conn.stamped)
            && let Some(departure) = stamp::next_departure(conn.fd.as_fd())
        {
            sink.departed(self, token, departure.number, departure.nanos);
        }
    }

    /// The kernel has sent bytes of a request.
    pub(super) fn count_sent(&mut self, token: Token, result: Result<u32, Errno>) {
        if let Ok(sent) = result
            && self.slots.get(token).is_some_and(|conn| conn.stamped)
        {
            self.departures.add(token.index, sent as usize);
        }
    }

    /// Has the ring send the bytes that a connection still has to send.
    pub(super) fn go_on_sending(&mut self, token: Token) {
        let Some(conn) = self.slots.get_mut(token) else { return };
        if self.still
            || !matches!(conn.phase, Phase::Open | Phase::Orphan)
            || conn.sending.is_some()
            || conn.out.is_empty()
        {
            return;
        }
        #[cfg(test)]
        if crate::faults::strike().is_err() {
            let buf = mem::take(&mut conn.out);
            return self.try_later(token, buf);
        }
        let zero_copy = conn.out.len() >= self.config.zero_copy && !conn.copied;
        let sending = self.ring.send(&conn.fd, token, mem::take(&mut conn.out), zero_copy);
        conn.flush = self.ring.flushes();
        match sending {
            Ok(number) => conn.sending = Some(number),
            Err(error) => self.fail_later(token, Errno::from_io_error(&error).unwrap_or(Errno::IO)),
        }
    }

    /// Repeats a send later, for which the kernel had no memory.
    fn try_later(&mut self, token: Token, buf: Buf) {
        let Some(conn) = self.slots.get_mut(token) else { return };
        keep_first(conn, buf);
        self.deferred.send_later(token);
    }

    /// Ends a send, and returns the bytes that are left of it. `None` if the connection has failed, or is gone.
    pub(super) fn take_unsent(&mut self, completion: Completion<'_>) -> Option<(Token, Buf)> {
        let With::Sent(token, mut buf) = completion.with else { return None };
        self.count_sent(token, completion.result);
        let conn = self.slots.get_mut(token)?;
        conn.sending = None;
        if conn.phase == Phase::Failed {
            return None;
        }
        match completion.result {
            Ok(sent @ 1..) => buf.take((sent as usize).min(buf.len())),
            Err(Errno::OPNOTSUPP) if !conn.copied => conn.copied = true,
            // Nothing is wrong with the connection: a signal came, the kernel gave the request up, or had no memory for it.
            Err(Errno::INTR | Errno::AGAIN | Errno::CANCELED) => {}
            Err(errno) if socket::is_shortage(errno) => {}
            // A send of no bytes is a failure too.
            broken => {
                self.fail_later(token, broken.err().unwrap_or(Errno::PIPE));
                return None;
            }
        }
        Some((token, buf))
    }

    pub(super) fn send_completed(&mut self, completion: Completion<'_>, sink: &mut dyn Sink) {
        let lacks_memory = completion.result.is_err_and(socket::is_shortage);
        let Some((token, buf)) = self.take_unsent(completion) else { return };
        if lacks_memory {
            return self.try_later(token, buf);
        }
        let Some(conn) = self.slots.get_mut(token) else { return };
        if !buf.is_empty() || !conn.out.is_empty() {
            keep_first(conn, buf);
            return self.go_on_sending(token);
        }
        self.sent_all(token, buf, sink);
    }

    /// All bytes of a connection have left.
    pub(super) fn sent_all(&mut self, token: Token, buf: Buf, sink: &mut dyn Sink) {
        let Some(conn) = self.slots.get_mut(token) else { return };
        match conn.phase {
            Phase::Orphan => self.remove(token),
            Phase::Failed => {}
            _ => {
                if conn.finishing {
                    socket::finish(&conn.fd);
                }
                self.waiting -= usize::from(mem::take(&mut conn.full));
                sink.sent(self, token, buf);
            }
        }
    }

    /// Sends what the kernel takes for a connection that is being closed. Returns whether nothing is left that can be
    /// sent.
    pub(super) fn flush_at_close(&mut self, token: Token) -> bool {
        let Some(conn) = self.slots.get_mut(token) else { return true };
        if conn.phase != Phase::Open || conn.drained() {
            return true;
        }
        if conn.sending.is_some() {
            return false;
        }
        match socket::send(&conn.fd, &mut conn.out, SendFlags::empty()) {
            Err(errno) if !socket::is_shortage(errno) => true,
            _ => conn.out.is_empty(),
        }
    }

    /// Goes on sending for a connection that the user closed, under a token that the user does not know. Its other
    /// requests are cancelled now: they keep the old token, and could not be found by the new one.
    pub(super) fn orphan(&mut self, token: Token) {
        let Some(conn) = self.slots.get_mut(token) else { return };
        let (receiving, watching) = (mem::replace(&mut conn.receiving, Multi::Idle), mem::take(&mut conn.watching));
        if receiving == Multi::Armed {
            self.ring.cancel(Source::Receive(token));
        }
        if watching {
            self.ring.cancel(Source::Watch(token));
        }
        let renamed = self.slots.rename(token);
        let Some(conn) = self.slots.get_mut(renamed) else { return };
        conn.phase = Phase::Orphan;
        conn.backlog = None;
        match conn.sending {
            Some(number) => self.ring.rename_send(number, renamed),
            None => self.go_on_sending(renamed),
        }
        self.deferred.adopt(renamed, self.config.linger);
    }

    /// Frees a connection, cancels its requests, and closes its socket.
    pub(super) fn remove(&mut self, token: Token) {
        let Some(conn) = self.slots.remove(token) else { return };
        self.waiting -= usize::from(conn.full);
        self.cancel_requests(token, &conn);
        self.ring.close(conn.fd, conn.flush);
    }

    /// Cancels all requests of a connection. The kernel keeps the socket until they have ended; shutdown(2) lets the
    /// peer know at once all the same.
    pub(super) fn cancel_requests(&mut self, token: Token, conn: &Conn) {
        let requests = [
            (conn.receiving == Multi::Armed).then_some(Source::Receive(token)),
            conn.watching.then_some(Source::Watch(token)),
            (conn.phase == Phase::Connecting).then_some(Source::Connect(token)),
            conn.sending.map(Source::Send),
        ];
        for request in requests.into_iter().flatten() {
            self.ring.cancel(request);
        }
        let _ = net::shutdown(&conn.fd, Shutdown::Both);
    }
}

/// Puts `buf` before the bytes that a connection has to send.
pub(super) fn keep_first(conn: &mut Conn, buf: Buf) {
    let rest = mem::take(&mut conn.out);
    keep(conn, buf);
    keep(conn, rest);
}

/// Appends `buf` to the bytes that a connection has to send. The peer may leave them unread for long, so few bytes do not
/// keep much memory.
fn keep(conn: &mut Conn, mut buf: Buf) {
    buf.fit();
    if conn.out.is_empty() {
        conn.out = buf;
    } else {
        conn.out.put(buf.filled());
    }
}
