use super::Driver;
use super::conn::{Conn, Phase};
use super::sys::{Completion, Source, Tried, With};
use crate::{Sent, Sink, Token, socket};
use rustix::io::Errno;
use rustix::net::{self, Shutdown};
use std::mem;
use tautline_window::Buf;

/// Most buffers that wait for another send.
const SPARE: usize = 64;

impl Driver {
    pub(super) fn accept_send(&mut self, token: Token, mut buf: Buf) -> Sent {
        let Some(conn) = self.slots.get_mut(token).filter(|conn| conn.phase != Phase::Failed) else {
            buf.clear();
            return Sent::Done(buf);
        };
        if buf.is_empty() {
            return Sent::Done(buf);
        }
        if conn.phase != Phase::Open || conn.sending.is_some() || conn.owed {
            keep(conn, buf);
            conn.owed = true;
            return Sent::Pending;
        }
        if self.turning && conn.out.len() + buf.len() <= self.config.queue_sends {
            return Sent::Done(self.queue_send(token, buf));
        }
        if !conn.out.is_empty() {
            keep(conn, mem::take(&mut buf));
            buf = mem::take(&mut conn.out);
        }
        if let Err(errno) = socket::send(&conn.fd, &mut buf) {
            buf.clear();
            self.fail_later(token, errno);
        } else if !buf.is_empty() {
            conn.out = buf;
            conn.owed = true;
            self.outgoing.push(token);
            return Sent::Pending;
        }
        Sent::Done(buf)
    }

    /// Keeps `buf` until the end of the turn, when the kernel gets all sends at once, and returns another.
    fn queue_send(&mut self, token: Token, mut buf: Buf) -> Buf {
        let Some(conn) = self.slots.get_mut(token) else { return buf };
        if conn.out.is_empty() {
            conn.out = buf;
            self.outgoing.push(token);
            return self.spare.pop().unwrap_or_default();
        }
        conn.out.put(buf.filled());
        buf.clear();
        buf
    }

    /// Hands the kernel what connections have to send.
    pub(super) fn submit_sends(&mut self) {
        let mut outgoing = mem::take(&mut self.outgoing);
        for token in outgoing.drain(..) {
            self.submit_send(token);
        }
        self.outgoing = outgoing;
    }

    fn submit_send(&mut self, token: Token) {
        let Some(conn) = self.slots.get_mut(token) else { return };
        if !matches!(conn.phase, Phase::Open | Phase::Orphan) || conn.sending.is_some() || conn.out.is_empty() {
            return;
        }
        let out = mem::take(&mut conn.out);
        // Somebody waits for the end of this one, or it has to wait for room.
        let waits = conn.full || conn.owed || conn.finishing || conn.phase == Phase::Orphan;
        let sending = if waits {
            self.ring.send(&conn.fd, token, out).map(Some)
        } else {
            self.ring.try_send(&conn.fd, token, out).map(|()| None)
        };
        conn.flush = self.ring.flushes();
        match sending {
            Ok(sending) => conn.sending = sending,
            Err(error) => self.fail_later(token, Errno::from_io_error(&error).unwrap_or(Errno::IO)),
        }
    }

    /// Behind entering the kernel: the sends that did not wait are over.
    pub(super) fn settle_sends(&mut self) {
        while let Some(Tried { token, buf, fell_short }) = self.ring.settled() {
            match fell_short {
                None => self.keep_spare(buf),
                Some(sent) => self.go_on_sending(token, buf, sent),
            }
        }
    }

    /// The kernel took only `sent` bytes.
    fn go_on_sending(&mut self, token: Token, mut buf: Buf, sent: Result<u32, Errno>) {
        let Some(conn) = self.slots.get_mut(token) else { return self.keep_spare(buf) };
        match sent {
            Ok(sent) => buf.take((sent as usize).min(buf.len())),
            Err(Errno::AGAIN | Errno::INTR) => {}
            Err(errno) => return self.fail_later(token, errno),
        }
        if buf.is_empty() {
            return self.keep_spare(buf);
        }
        conn.full = true;
        let rest = mem::take(&mut conn.out);
        keep(conn, buf);
        keep(conn, rest);
        self.outgoing.push(token);
    }

    pub(super) fn send_completed<S: Sink<Self>>(&mut self, completion: Completion, sink: &mut S) {
        let With::Sent(token, mut buf) = completion.with else { return };
        let Some(conn) = self.slots.get_mut(token) else { return self.keep_spare(buf) };
        conn.sending = None;
        if conn.phase == Phase::Failed {
            return self.keep_spare(buf);
        }
        match completion.result {
            Ok(sent @ 1..) => buf.take((sent as usize).min(buf.len())),
            Ok(0) => return self.fail_later(token, Errno::PIPE),
            Err(errno) => return self.fail_later(token, errno),
        }
        if !buf.is_empty() || !conn.out.is_empty() {
            let rest = mem::take(&mut conn.out);
            keep(conn, buf);
            keep(conn, rest);
            return self.outgoing.push(token);
        }
        conn.full = false;
        if conn.phase == Phase::Orphan {
            return self.remove(token);
        }
        if conn.finishing {
            socket::finish(&conn.fd);
        }
        if mem::take(&mut conn.owed) {
            sink.sent(self, token, buf);
        } else {
            self.keep_spare(buf);
        }
    }

    fn keep_spare(&mut self, mut buf: Buf) {
        if self.spare.len() < SPARE {
            buf.clear();
            self.spare.push(buf);
        }
    }

    /// The user is done with a connection. Returns whether it has nothing left to send.
    pub(super) fn flush_at_close(&mut self, token: Token) -> bool {
        let Some(conn) = self.slots.get_mut(token) else { return true };
        if conn.phase != Phase::Open || conn.drained() {
            return true;
        }
        conn.sending.is_none() && (socket::send(&conn.fd, &mut conn.out).is_err() || conn.out.is_empty())
    }

    /// The user is done with a connection that still has bytes to send.
    pub(super) fn orphan(&mut self, token: Token) {
        let renamed = self.slots.rename(token);
        let Some(conn) = self.slots.get_mut(renamed) else { return };
        conn.phase = Phase::Orphan;
        conn.backlog = None;
        match conn.sending {
            Some(number) => self.ring.rename_send(number, renamed),
            None => self.outgoing.push(renamed),
        }
        self.chores.adopt(renamed, self.config.linger);
    }

    /// Frees a connection, whatever the kernel still does for it, and closes its socket.
    pub(super) fn remove(&mut self, token: Token) {
        let Some(conn) = self.slots.remove(token) else { return };
        self.cancel_requests(token, &conn);
        self.ring.close(conn.fd, conn.flush);
    }

    /// Cancels everything that the kernel does for a connection. Until it has, it keeps the socket: the peer is told
    /// at once all the same.
    pub(super) fn cancel_requests(&mut self, token: Token, conn: &Conn) {
        use super::conn::Multi;
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

/// Appends to what a connection has to send.
fn keep(conn: &mut Conn, buf: Buf) {
    if conn.out.is_empty() {
        conn.out = buf;
    } else {
        conn.out.put(buf.filled());
    }
}
