//! Connections that hold still, to be given to another process: all requests have ended, and their bytes are kept.

use super::Driver;
use super::conn::{Backlog, Ending, Multi, Phase};
use super::receive::says_more;
use super::send::keep_first;
use super::sys::{BufferRing, Completion, Source, With};
use crate::{Held, Sink, Token};
use rustix::fd::AsFd;
use rustix::io::Errno;
use std::io;
use std::mem;
use std::time::{Duration, Instant};

/// The longest time that requests may take to end. The kernel ends those of sockets at once.
const LONGEST: Duration = Duration::from_secs(2);

impl Driver {
    /// Ends all requests of connections and listeners, and keeps what they received or did not send.
    pub(super) fn stop_requests(&mut self) -> io::Result<()> {
        let Some(mut buffer_ring) = self.ring.lend_inbox() else {
            return Err(io::Error::other("connections cannot hold still within a turn"));
        };
        self.still = true;
        let stopped = self.stop_requests_with(&mut buffer_ring);
        self.ring.return_inbox(buffer_ring);
        stopped
    }

    fn stop_requests_with(&mut self, buffer_ring: &mut BufferRing) -> io::Result<()> {
        (0..self.listeners.sockets.len()).for_each(|number| self.stop(number));
        for token in self.slots.tokens() {
            let Some(conn) = self.slots.get_mut(token).filter(|conn| conn.phase == Phase::Open) else { continue };
            if conn.receiving == Multi::Armed {
                conn.receiving = Multi::Cancelled;
                self.ring.cancel(Source::Receive(token));
            }
            if let Some(number) = conn.sending {
                self.ring.cancel(Source::Send(number));
            }
        }
        let start = Instant::now();
        let mut woken = false;
        while self.requests_run() {
            if start.elapsed() > LONGEST {
                return Err(io::Error::new(
                    io::ErrorKind::TimedOut,
                    "io_uring does not end the requests of connections",
                ));
            }
            self.ring.rewind(buffer_ring);
            self.ring.enter(Some(Duration::from_millis(10)))?;
            while let Some(completion) = self.ring.next(buffer_ring) {
                woken |= completion.source == Source::Wake;
                let received = matches!(completion.source, Source::Receive(_));
                self.keep_completion(completion);
                if received {
                    buffer_ring.recycle();
                }
            }
        }
        if woken {
            self.wake.clear();
            self.wake.waker().wake();
        }
        Ok(())
    }

    /// Whether requests run that end soon. Zero-copy sends end when the peer has acknowledged them: their connections stay.
    fn requests_run(&self) -> bool {
        let ends = self.config.zero_copy == usize::MAX;
        let listens = self.listeners.sockets.iter().flatten().any(|socket| socket.accepting != Multi::Idle);
        listens
            || self.slots.tokens().into_iter().filter_map(|token| self.slots.get(token)).any(|conn| {
                conn.phase == Phase::Open && (conn.receiving != Multi::Idle || ends && conn.sending.is_some())
            })
    }

    /// Keeps the news of a completion for the next turn.
    fn keep_completion(&mut self, completion: Completion<'_>) {
        let more = completion.more;
        match completion.source {
            Source::Receive(token) => {
                self.received_last(token, more);
                self.keep_received(token, completion);
            }
            Source::Send(_) => self.keep_unsent(completion),
            Source::Accept { listener, generation } => {
                let Some(Some(socket)) = self.listeners.sockets.get_mut(listener as usize) else { return };
                if !more && generation == socket.generation {
                    socket.accepting = Multi::Idle;
                    self.listeners.unarmed = true;
                }
                if let With::Accepted(fd) = completion.with {
                    self.listeners.waiting.push_back((listener, fd));
                }
            }
            Source::Connect(token) => {
                if self.slots.get(token).is_some_and(|conn| conn.phase == Phase::Connecting) {
                    self.await_connection(token);
                }
            }
            Source::Watch(token) => {
                if let Some(conn) = self.slots.get_mut(token) {
                    conn.watching = more;
                    conn.alarm = true;
                }
            }
            Source::Wake => self.waking = more,
            Source::Cancel => {}
        }
    }

    fn keep_received(&mut self, token: Token, completion: Completion<'_>) {
        let headroom = self.config.headroom;
        let Some(conn) = self.slots.get_mut(token) else { return };
        if conn.phase != Phase::Open && conn.error.is_none() {
            return;
        }
        match (completion.with, completion.result) {
            (With::Chunk(mut chunk), _) => {
                let (buf, start) = chunk.lend();
                conn.backlog.get_or_insert_with(|| Box::new(Backlog::new(headroom))).put(&buf[start..]);
            }
            (_, Ok(events)) if conn.polled => {
                conn.behind |= says_more(events);
                conn.hungry = true;
            }
            (_, Err(Errno::NOBUFS | Errno::NOMEM)) => conn.hungry = true,
            (_, Err(Errno::CANCELED | Errno::AGAIN | Errno::INTR)) => return,
            (_, Ok(_)) => conn.ending = Some(Ending::Finished),
            (_, Err(errno)) => conn.ending = Some(Ending::Failed(errno)),
        }
        self.enqueue(token);
    }

    fn keep_unsent(&mut self, completion: Completion<'_>) {
        let Some((token, buf)) = self.take_unsent(completion) else { return };
        let Some(conn) = self.slots.get_mut(token) else { return };
        if buf.is_empty() && conn.out.is_empty() {
            self.sent.push_back((token, buf));
        } else {
            keep_first(conn, buf);
        }
    }

    /// Goes on after all had held still.
    pub(super) fn move_again(&mut self) {
        self.still = false;
        for token in self.slots.tokens() {
            self.update(token);
            self.go_on_sending(token);
        }
    }

    /// Reports the sends that ended while all held still.
    pub(super) fn report_sent(&mut self, sink: &mut dyn Sink) {
        for _ in 0..self.sent.len() {
            let Some((token, buf)) = self.sent.pop_front() else { return };
            self.sent_all(token, buf, sink);
        }
    }

    pub(super) fn held_still(&self, token: Token) -> Option<Held<'_>> {
        let conn = self.slots.get(token).filter(|_| self.still)?;
        let movable = conn.phase == Phase::Open
            && conn.receiving == Multi::Idle
            && conn.sending.is_none()
            && !matches!(conn.ending, Some(Ending::Failed(_)));
        let received = conn.backlog.as_ref().map_or(&[][..], |backlog| backlog.rest());
        movable.then(|| Held { socket: conn.fd.as_fd(), received, unsent: conn.out.filled() })
    }

    /// Frees a connection, whose socket another process has. Requests that watch it would keep the socket open here.
    pub(super) fn let_go(&mut self, token: Token) {
        let Some(conn) = self.slots.remove(token) else { return };
        self.waiting -= usize::from(conn.full);
        if conn.receiving == Multi::Armed {
            self.ring.cancel(Source::Receive(token));
        }
        if conn.watching {
            self.ring.cancel(Source::Watch(token));
        }
        self.ring.close(conn.fd, conn.flush);
    }

    /// Stops accepting. Connections that were accepted already are still delivered.
    pub(super) fn let_listeners_go(&mut self) {
        for socket in self.listeners.sockets.iter_mut().flatten() {
            socket.listening.leave_file();
            socket.listening.is_shared = true;
        }
        let waiting = mem::take(&mut self.listeners.waiting);
        self.close_listeners();
        self.listeners.waiting = waiting;
    }
}
