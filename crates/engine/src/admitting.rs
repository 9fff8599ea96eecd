//! Bounds on connections without a WebSocket, and on all connections.
//!
//! Accepting does not pause for connections that are silent: at a limit, the [first](crate::waiting::Waiting::first) that waits
//! gives way to a new one. It pauses while the server has `max_connections`, of which connections without a WebSocket are at
//! most three quarters.

use crate::admission::{Kind, RETRY, Stays};
use crate::closed::Cause;
use crate::core::Core;
use crate::handler::Handler;
use crate::link::{Link, millis};
use crate::phase::Phase;
use crate::remote::ShardHandle;
use crate::timer::Tick;
use crate::waiting::First;
use tautline_io::Driver;
use tautline_tls::Engine;

impl<E: Engine, H: Handler> Core<E, H> {
    /// Counts a new connection.
    pub(crate) fn count_connection(&mut self, link: &Link<E::Session, H::State>) {
        self.shared.counters.connections.add(1);
        self.shared.counters.handshaking.add(1);
        self.account.add_connection(self.memory_of(link));
        if link.info.dial.is_none() {
            self.admission.count_connection();
            self.admission.insert(Kind::Handshake, link, self.shared.now);
        }
    }

    /// Counts the end of a connection.
    pub(crate) fn uncount_connection(&mut self, link: &Link<E::Session, H::State>) {
        self.shared.counters.connections.sub(1);
        self.account.remove_connection(self.memory_of(link));
        if link.info.dial.is_none() {
            self.admission.uncount_connection();
        }
    }

    /// The memory of a connection's own state, with that of its TLS library.
    pub(crate) fn memory_of(&self, link: &Link<E::Session, H::State>) -> usize {
        size_of_val(link) + self.engine.capabilities().session_memory
    }

    /// The handshake waits for this server, not for the peer: it does not give way to others.
    pub(crate) fn stop_waiting(&mut self, link: &Link<E::Session, H::State>) {
        self.admission.remove(Kind::Handshake, link);
    }

    /// The handshake waits for the peer again.
    pub(crate) fn wait_again(&mut self, link: &Link<E::Session, H::State>) {
        self.admission.insert(Kind::Handshake, link, self.shared.now);
    }

    /// The request waits for the application, not for the client: it does not give way to others.
    pub(crate) fn leave_crowd(&mut self, link: &Link<E::Session, H::State>) {
        self.admission.remove(Kind::Handshake, link);
        self.admission.remove(Kind::Http, link);
    }

    /// The request waits for the client again.
    pub(crate) fn rejoin_crowd(&mut self, link: &Link<E::Session, H::State>) {
        let is_http = matches!(&link.phase, Phase::Request(head) if head.http_end.is_some());
        self.admission.insert(if is_http { Kind::Http } else { Kind::Handshake }, link, self.shared.now);
    }

    /// A connection has left `before`, which was a handshake.
    pub(crate) fn end_handshake(&mut self, link: &Link<E::Session, H::State>, before: &Phase) {
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
            self.shared.counters.http.sub(1);
            self.admission.remove(Kind::Http, link);
        } else {
            self.shared.counters.handshaking.sub(1);
            self.admission.remove(Kind::Handshake, link);
        }
    }

    /// An HTTP request was answered, and another may follow. From the first answer on, the connection has another limit and
    /// age: an answer is no progress towards a WebSocket.
    pub(crate) fn keep_for_http(&mut self, link: &mut Link<E::Session, H::State>) {
        let (now, deadlines) = (self.shared.now, &self.shared.config.deadlines);
        let Phase::Request(head) = &mut link.phase else { return };
        let end = head.http_end.unwrap_or_else(|| now + millis(deadlines.http));
        let is_first = head.http_end.replace(end).is_none();
        link.clock.phase_end = end.min(now + millis(deadlines.handshake));
        if is_first {
            self.shared.counters.handshaking.sub(1);
            self.shared.counters.http.add(1);
            self.admission.remove(Kind::Handshake, link);
            self.admission.insert(Kind::Http, link, now);
        }
    }

    /// Pauses accepting while there are too many connections. New ones then wait in the kernel's backlog.
    pub(crate) fn bound_accepting(&mut self, driver: &mut dyn Driver) {
        let full = self.admission.is_full(&self.shared.config.limits);
        if full == self.admission.paused {
            return;
        }
        self.admission.paused = full;
        driver.pause_accept(full);
        if full {
            self.shared.counters.accept_pauses.add(1);
            self.check_others();
        }
        if full && self.admission.is_news(0, self.shared.now) {
            let (connections, handshakes) = self.admission.of_all_shards();
            let limit = self.shared.config.limits.max_connections;
            log::warn!(
                "accepting pauses: {connections} connections, {handshakes} of them in their handshake \
                 (limits.max_connections: {limit})"
            );
        }
    }

    /// Applies the limits, since one may be passed.
    pub(crate) fn apply_limits(&mut self, driver: &mut dyn Driver) {
        self.admission.due = false;
        self.admission.look_at = Tick::MAX;
        self.bound_accepting(driver);
        // Only a loop whose connections grew in number tells the others. If they told each other, they would go on for as long
        // as the loop with the surplus does not run.
        let grew = std::mem::take(&mut self.admission.grew);
        for kind in [Kind::Handshake, Kind::Http] {
            if self.evict(driver, kind).is_err() && grew {
                self.check_others();
            }
        }
        // The connections that gave way left their places. The next look may be a second away.
        if std::mem::take(&mut self.admission.due) {
            self.bound_accepting(driver);
        }
        if self.admission.waits_for_others() {
            self.admission.look_at = self.shared.now + RETRY;
        }
    }

    /// `Err` if the limit is passed, but by the connections of other loops.
    fn evict(&mut self, driver: &mut dyn Driver, kind: Kind) -> Result<(), ()> {
        loop {
            match self.admission.surplus(kind, &self.shared.config.limits, self.shared.now) {
                Ok(first) => {
                    let before = self.admission.waiting(kind).len();
                    self.visit(driver, first.token, |core, _, link| core.give_way(link, kind, first));
                    if self.admission.waiting(kind).len() == before {
                        return Ok(());
                    }
                }
                Err(Stays::WithinLimit) => return Ok(()),
                Err(Stays::OthersTurn) => return Err(()),
                Err(Stays::Until(at)) => {
                    self.admission.look_at = at;
                    return Ok(());
                }
            }
        }
    }

    /// Has the other loops look at the limits. Until then each can be past them by one connection.
    pub(crate) fn check_others(&self) {
        self.shared.others.iter().for_each(ShardHandle::check_limits);
    }

    /// Ends a connection in favour of newer ones.
    fn give_way(&mut self, link: &mut Link<E::Session, H::State>, kind: Kind, first: First) {
        let First { of_host, of_network, .. } = first;
        let (counters, name, limit) = (&self.shared.counters, kind.name(), kind.limit(&self.shared.config.limits));
        match kind {
            Kind::Handshake => {
                counters.handshakes_failed.add(1);
                counters.handshakes_evicted.add(1);
            }
            Kind::Http => counters.http_evicted.add(1),
        }
        if self.admission.is_news(1 + kind as usize, self.shared.now) {
            log::warn!(
                "{name} ({limit}) is reached: the oldest connections of the largest sources give way to new ones"
            );
        }
        let line = format_args!(
            "gave way to others at {name} ({limit}); {of_host} of its host wait, {of_network} of its network"
        );
        self.shared.log_peer(log::Level::Info, &link.info.peer, line);
        self.end(link, Phase::Gone { reset: kind == Kind::Handshake }, Cause::Overloaded);
    }
}
