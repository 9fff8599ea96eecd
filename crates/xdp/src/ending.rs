//! Connections that the user closed or that failed.

use crate::conn::Phase;
use crate::driver::Driver;
use crate::stack::Tcp;
use crate::wire::Wire;
use smoltcp::socket::tcp::State;
use std::io;
use std::net::SocketAddr;
use std::time::Instant;
use tautline_io::Token;

impl<W: Wire> Driver<W> {
    /// Closes a connection for the user, or aborts it.
    pub(crate) fn abandon(&mut self, id: Token, abort: bool) {
        let Some(conn) = self.conns.get_mut(id) else { return };
        conn.token = None;
        match conn.phase {
            Phase::Open if !abort => {
                conn.phase = Phase::Orphan;
                conn.finishing = true;
                conn.deadline = Some(Instant::now() + self.config.linger);
                self.mark_dirty(id);
                self.enqueue(id);
            }
            // The peer does not know of the connection yet.
            Phase::Resolving { .. } | Phase::Connecting => self.remove(id),
            _ => self.abort(id),
        }
    }

    /// Sends pending bytes, then the FIN.
    pub(crate) fn continue_closing(&mut self, id: Token) {
        let Some(conn) = self.conns.get_mut(id) else { return };
        let mut pending = std::mem::take(&mut conn.pending);
        conn.put(&mut pending);
        conn.pending = pending;
        let tcp = conn.tcp.get();
        if conn.pending.is_empty() && tcp.send_queue() == 0 && tcp.recv_queue() > 0 {
            // The bytes will not be read, so the peer gets a reset (RFC 1122 section 4.2.2.13).
            return self.abort(id);
        }
        conn.finish();
        if conn.state() == State::Closed {
            self.remove(id);
        }
    }

    /// Ends all connections.
    pub(crate) fn end(&mut self) {
        self.end_listening();
        for id in self.conns.tokens() {
            if self.conns.get(id).is_some_and(|conn| conn.phase != Phase::Orphan) {
                self.abort(id);
            }
        }
        let end = self.now + self.config.linger;
        loop {
            self.work_in_background();
            self.wake.take();
            self.failures.clear();
            for id in self.queue.drain(..) {
                if let Some(conn) = self.conns.get_mut(id) {
                    conn.queued = false;
                }
            }
            let left = end.saturating_duration_since(self.now);
            if !self.has_unsettled() || left.is_zero() || self.wait(Some(left)).is_err() {
                break;
            }
        }
        for id in self.conns.tokens() {
            if self.conns.get(id).is_some_and(|conn| !conn.is_settled()) {
                self.abort(id);
            }
        }
        self.wire.flush();
    }

    fn has_unsettled(&self) -> bool {
        self.conns.tokens().into_iter().filter_map(|id| self.conns.get(id)).any(|conn| !conn.is_settled())
    }

    /// Resets a connection and removes it.
    pub(crate) fn abort(&mut self, id: Token) {
        let Some(conn) = self.conns.get_mut(id) else { return };
        if !matches!(conn.state(), State::TimeWait | State::SynSent) {
            conn.tcp.get_mut().abort();
            self.stack.egress(&mut self.wire, self.now, conn.header, &mut conn.tcp, 1);
        }
        self.remove(id);
    }

    /// Replaces a connection in `TIME-WAIT`, so that a new one can use its pair.
    ///
    /// If the user still has a token, undelivered bytes stay available.
    pub(crate) fn retire(&mut self, id: Token) {
        let Some(conn) = self.conns.get_mut(id) else { return };
        if conn.token.is_none() {
            return self.remove(id);
        }
        conn.save_undelivered();
        conn.tcp = Tcp::closed();
        self.pairs.remove(&conn.pair);
    }

    /// Removes a connection.
    pub(crate) fn remove(&mut self, id: Token) {
        let Some(conn) = self.conns.remove(id) else { return };
        if self.pairs.get(&conn.pair) == Some(&id) {
            self.pairs.remove(&conn.pair);
        }
        if matches!(conn.phase, Phase::HalfOpen(_)) {
            self.listening.half_open_count -= 1;
        }
        if let Some(token) = conn.token {
            self.tokens.remove(token);
        }
        self.release(conn.pair.local);
    }

    /// Takes the frames of a local endpoint from the kernel, or counts one more use.
    pub(crate) fn claim(&mut self, local: SocketAddr) -> io::Result<()> {
        if let Some(count) = self.claims.get_mut(&local) {
            *count += 1;
            return Ok(());
        }
        self.wire.claim(local, true)?;
        self.claims.insert(local, 1);
        Ok(())
    }

    /// Counts one use less, and leaves the frames to the kernel after the last.
    pub(crate) fn release(&mut self, local: SocketAddr) {
        let Some(count) = self.claims.get_mut(&local) else { return };
        *count -= 1;
        if *count == 0 {
            self.claims.remove(&local);
            // Removal fails only if the endpoint is not there.
            let _ = self.wire.claim(local, false);
        }
    }
}
