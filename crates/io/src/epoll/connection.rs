use super::Driver;
use crate::{Address, End, Received, Sent, Sink, Token, socket};
use rustix::event::epoll::EventFlags;
use rustix::fd::{AsFd, OwnedFd};
use rustix::io::Errno;
use rustix::net::{self, RecvFlags, SendFlags, Shutdown, sockopt};
use std::io;
use std::mem;
use std::time::Duration;
use tautline_window::Buf;

/// Most receives that follow a failed send. The kernel holds a bounded rest, as nothing more arrives on a connection
/// that cannot be sent on; the number only guards against one that can still be received on.
const LAST_RECEIVES: usize = 64;

/// Sends until the kernel's buffer is full. A short write says that it is: epoll tells when there is room.
pub(super) fn send(fd: &OwnedFd, buf: &mut Buf) -> Result<(), Errno> {
    if buf.is_empty() {
        return Ok(());
    }
    loop {
        match net::send(fd, buf.filled(), SendFlags::NOSIGNAL) {
            Ok(sent) => {
                buf.take(sent);
                return Ok(());
            }
            Err(Errno::AGAIN) => return Ok(()),
            Err(Errno::INTR) => {}
            Err(errno) => return Err(errno),
        }
    }
}

/// Finishes our direction.
pub(super) fn finish(fd: impl AsFd) {
    // Fails only where the connection is broken already, which other calls report.
    let _ = net::shutdown(fd, Shutdown::Write);
}

/// Makes close(2) discard what is unsent and reset a TCP connection.
pub(super) fn reset_on_close(fd: impl AsFd) {
    // Fails only for what is no socket.
    let _ = sockopt::set_socket_linger(fd, Some(Duration::ZERO));
}

impl Driver {
    pub(super) fn connection_event<S: Sink<Self>>(
        &mut self,
        token: Token,
        flags: EventFlags,
        buffer: &mut [u8],
        sink: &mut S,
    ) {
        // A connection that was closed since the kernel made the event is skipped.
        let Some(conn) = self.slots.get_mut(token) else { return };
        if conn.failed {
            // Most are closed as soon as the sink hears of it, which saves this call.
            return conn.unwatch(&self.epoll);
        }
        if conn.connecting {
            return self.connect_event(token, flags, sink);
        }
        let in_or_over = EventFlags::IN | EventFlags::RDHUP | EventFlags::HUP | EventFlags::ERR;
        if flags.intersects(in_or_over) {
            if conn.paused || conn.finished || conn.orphan {
                self.unwanted(token, flags, sink);
            } else {
                self.receive(token, buffer, sink);
            }
        }
        // A hang-up can come without room to send: only trying to send says why.
        if flags.intersects(EventFlags::OUT | EventFlags::HUP | EventFlags::ERR) {
            self.flush(token, sink);
        }
    }

    pub(super) fn start_connecting(&mut self, token: Token, address: Address) {
        let Some(conn) = self.slots.get_mut(token) else { return };
        match socket::connect(&conn.fd, &address) {
            Ok(()) => self.rewatch(token),
            Err(Errno::AGAIN) if matches!(address, Address::Unix(_)) => self.chores.retry_later(token, address),
            Err(errno) => self.fail_later(token, errno.into()),
        }
    }

    fn connect_event<S: Sink<Self>>(&mut self, token: Token, flags: EventFlags, sink: &mut S) {
        let Some(conn) = self.slots.get_mut(token) else { return };
        match sockopt::socket_error(&conn.fd) {
            Ok(Ok(())) if flags.contains(EventFlags::OUT) => {
                conn.connecting = false;
                if conn.finishing && conn.pending.is_empty() {
                    finish(&conn.fd);
                }
                self.rewatch(token);
                sink.connected(self, token);
            }
            Ok(Ok(())) => {}
            Ok(Err(errno)) | Err(errno) => self.fail(token, errno.into(), sink),
        }
    }

    fn receive<S: Sink<Self>>(&mut self, token: Token, buffer: &mut [u8], sink: &mut S) {
        let Some(conn) = self.slots.get_mut(token) else { return };
        let start = self.config.headroom;
        match net::recv(&conn.fd, &mut buffer[start..], RecvFlags::empty()) {
            Ok((0, _)) => {
                // Most are closed now; otherwise the next event changes what is watched.
                conn.finished = true;
                sink.ended(self, token, End::Finished);
            }
            Ok((len, _)) => sink.received(self, token, Received::new(&mut buffer[..start + len], start)),
            Err(Errno::AGAIN | Errno::INTR) => {}
            Err(errno) => self.fail(token, errno.into(), sink),
        }
    }

    /// An event for bytes that nobody wants now, or for the end of a connection that is not received from.
    fn unwanted<S: Sink<Self>>(&mut self, token: Token, flags: EventFlags, sink: &mut S) {
        let Some(conn) = self.slots.get_mut(token) else { return };
        if flags.contains(EventFlags::ERR)
            && let Ok(Err(errno)) | Err(errno) = sockopt::socket_error(&conn.fd)
        {
            return self.fail(token, errno.into(), sink);
        }
        if flags.intersects(EventFlags::HUP | EventFlags::ERR) && conn.pending.is_empty() {
            // Cannot be masked, so epoll has to forget it. Resuming and sending bring it back.
            return conn.unwatch(&self.epoll);
        }
        self.rewatch(token);
    }

    /// Goes on with a pending send.
    fn flush<S: Sink<Self>>(&mut self, token: Token, sink: &mut S) {
        let Some(conn) = self.slots.get_mut(token) else { return };
        if conn.failed {
            return;
        }
        if conn.pending.is_empty() {
            if conn.watched() {
                self.rewatch(token);
            }
            return;
        }
        if let Err(errno) = send(&conn.fd, &mut conn.pending) {
            return self.fail_later(token, errno.into());
        }
        if !conn.pending.is_empty() {
            return;
        }
        if conn.orphan {
            return self.slots.remove(token);
        }
        if conn.finishing {
            finish(&conn.fd);
        }
        let buf = mem::take(&mut conn.pending);
        sink.sent(self, token, buf);
        // Only now, as the sink often sends more, which would watch it again.
        self.rewatch(token);
    }

    /// Keeps what of `buf` was not sent yet.
    pub(super) fn keep(&mut self, token: Token, mut buf: Buf) -> Sent {
        let Some(conn) = self.slots.get_mut(token) else { return Sent::Done(buf) };
        if conn.failed {
            buf.clear();
        }
        if buf.is_empty() {
            return Sent::Done(buf);
        }
        if conn.pending.is_empty() {
            conn.pending = buf;
            self.rewatch(token);
        } else {
            // Against the contract, but losing bytes in the middle of a stream would be worse.
            conn.pending.put(buf.filled());
        }
        Sent::Pending
    }

    /// The user is done with a connection that still has bytes to send.
    pub(super) fn orphan(&mut self, token: Token) {
        let renamed = self.slots.rename(token);
        let Some(conn) = self.slots.get_mut(renamed) else { return };
        if conn.rename(&self.epoll, renamed).is_err() {
            return self.slots.remove(renamed);
        }
        self.chores.adopt(renamed, self.config.linger);
    }

    pub(super) fn rewatch(&mut self, token: Token) {
        if let Some(conn) = self.slots.get_mut(token)
            && !conn.failed
            && let Err(error) = conn.watch(&self.epoll, token)
        {
            self.fail_later(token, error);
        }
    }

    /// Breaks a connection and tells the sink.
    fn fail<S: Sink<Self>>(&mut self, token: Token, error: io::Error, sink: &mut S) {
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

    /// Whether there is somebody to tell.
    fn break_off(&mut self, token: Token) -> bool {
        let Some(conn) = self.slots.get_mut(token) else { return false };
        if conn.orphan {
            self.slots.remove(token);
            return false;
        }
        conn.pending = Buf::new();
        !mem::replace(&mut conn.failed, true)
    }

    /// Delivers what arrived before a send failed, often the peer's reason, and then the failure.
    pub(super) fn deliver_failures<S: Sink<Self>>(&mut self, buffer: &mut [u8], sink: &mut S) {
        let start = self.config.headroom;
        // Those that the sink's calls add wait for the next turn.
        for _ in 0..self.failures.len() {
            let Some((token, error)) = self.failures.pop_front() else { return };
            for _ in 0..LAST_RECEIVES {
                let Some(conn) = self.slots.get(token) else { break };
                if conn.paused || conn.finished || conn.connecting {
                    break;
                }
                match net::recv(&conn.fd, &mut buffer[start..], RecvFlags::empty()) {
                    Ok((len @ 1.., _)) => {
                        sink.received(self, token, Received::new(&mut buffer[..start + len], start));
                    }
                    _ => break,
                }
            }
            if self.slots.get(token).is_some() {
                sink.ended(self, token, End::Failed(error));
            }
        }
    }
}
