//! The steps of connections that the limits follow: which of them wait for their peer, and how many there are.

use crate::accept::admission::{Admission, Kind};
use crate::link::info::{Cold, More};
use crate::link::phase::Phase;
use crate::link::state::Link;
use crate::threads::remote::ShardHandle;
use crate::turn::shared::Shared;
use crate::turn::timer::Tick;
use tautline_io::Driver;
use tautline_tls::Engine;

/// Memory of a connection in tables of the loop and of the driver, as measured.
const BESIDE_LINK: usize = 48;

/// Memory of a TLS session beside its own state, as measured with `fused`.
const SESSION: usize = 96;

/// The memory of a connection's own state, with that of its TLS library.
pub(crate) fn memory_of<E: Engine, T>(link: &Link<E::Session, T>, engine: &E) -> usize {
    let beside = if engine.is_plain() { BESIDE_LINK } else { BESIDE_LINK + SESSION };
    size_of_val(link) + beside + engine.capabilities().session_memory + memory_of_via(link)
}

/// The memory of what a connection knows of its client's way.
pub(crate) fn memory_of_via<S, T>(link: &Link<S, T>) -> usize {
    const BOXES: usize = size_of::<Cold>() + size_of::<More>();
    link.cold.as_ref().and_then(|cold| cold.via()).map_or(0, |via| BOXES + via.memory())
}

impl Shared {
    /// Has the other loops look at the limits. Until then each can be past them by one connection.
    pub(crate) fn check_others(&self) {
        self.others.iter().for_each(ShardHandle::check_limits);
    }
}

impl Admission {
    /// Counts a new connection.
    pub(crate) fn begin_connection<S, T>(&mut self, link: &Link<S, T>, memory: usize, shared: &mut Shared) {
        shared.counters.connections.add(1);
        shared.counters.handshaking.add(1);
        shared.account.add_connection(memory);
        if link.info.dial.is_none() {
            self.count_connection();
            self.insert(Kind::Handshake, link, shared.now);
        }
    }

    /// Counts the end of a connection.
    pub(crate) fn end_connection<S, T>(&mut self, link: &Link<S, T>, memory: usize, shared: &mut Shared) {
        shared.counters.connections.sub(1);
        shared.account.remove_connection(memory);
        if link.info.dial.is_none() {
            self.uncount_connection();
            self.leave_place(link.token);
        }
    }

    /// The handshake waits for this server, not for the peer: it does not give way to others.
    pub(crate) fn stop_waiting<S, T>(&mut self, link: &Link<S, T>) {
        self.remove(Kind::Handshake, link);
    }

    /// The handshake waits for the peer again.
    pub(crate) fn wait_again<S, T>(&mut self, link: &Link<S, T>, now: Tick) {
        self.insert(Kind::Handshake, link, now);
    }

    /// The request waits for the application, not for the client: it does not give way to others.
    pub(crate) fn leave_crowd<S, T>(&mut self, link: &Link<S, T>) {
        self.remove(Kind::Handshake, link);
        self.remove(Kind::Http, link);
    }

    /// The request waits for the client again.
    pub(crate) fn rejoin_crowd<S, T>(&mut self, link: &Link<S, T>, now: Tick) {
        let is_http = matches!(&link.phase, Phase::Request(head) if head.http_end.is_some());
        self.insert(if is_http { Kind::Http } else { Kind::Handshake }, link, now);
    }

    /// A connection that may carry others carries none: it gives way as one that waits for its next request.
    pub(crate) fn begin_carrier<S, T>(&mut self, link: &Link<S, T>, now: Tick) {
        self.insert(Kind::Http, link, now);
    }

    /// A connection has left `before`, which was a handshake.
    pub(crate) fn end_handshake<S, T>(&mut self, link: &Link<S, T>, before: &Phase, shared: &Shared) {
        let head = match before {
            Phase::Request(head) => Some(head),
            Phase::Waiting(wait) => {
                self.unanswered -= 1;
                Some(&wait.head)
            }
            Phase::Streaming(streaming) => Some(&streaming.head),
            _ => None,
        };
        if head.is_some_and(|head| head.http_end.is_some()) {
            shared.counters.http.sub(1);
            self.remove(Kind::Http, link);
        } else {
            shared.counters.handshaking.sub(1);
            self.remove(Kind::Handshake, link);
        }
    }

    /// An HTTP request was answered, and another may follow. From the first answer on, the connection has another limit and
    /// age: an answer is no progress towards a WebSocket.
    pub(crate) fn keep_for_http<S, T>(&mut self, link: &mut Link<S, T>, shared: &Shared) {
        let now = shared.now;
        let Some((end, is_first)) = link.phase.await_next(now, &shared.config.deadlines) else { return };
        link.clock.phase_end = end;
        if is_first {
            shared.counters.handshaking.sub(1);
            shared.counters.http.add(1);
            self.remove(Kind::Handshake, link);
            self.insert(Kind::Http, link, now);
        }
    }

    /// Pauses accepting while there are too many connections. New ones then wait in the kernel's backlog.
    pub(crate) fn bound_accepting(&mut self, driver: &mut dyn Driver, shared: &Shared) {
        let full = self.is_full(&shared.config.limits);
        if full == self.paused {
            return;
        }
        self.paused = full;
        driver.pause_accept(full);
        if full {
            shared.counters.accept_pauses.add(1);
            shared.check_others();
        }
        if full && self.is_news(0, shared.now) {
            let (connections, handshakes) = self.of_all_shards();
            let limit = shared.config.limits.max_connections;
            log::warn!(
                "accepting pauses: {connections} connections, {handshakes} of them in their handshake \
                 (limits.max_connections: {limit})"
            );
        }
    }
}
