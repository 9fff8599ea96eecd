//! The steps after an event of a connection: its output leaves, and what follows from that.

use crate::accept::counting::memory_of;
use crate::handler::Handler;
use crate::ids::ConnId;
use crate::link::outlet::DriverOutlet;
use crate::link::phase::{Phase, Transport};
use crate::link::state::{Awaits, Link};
use crate::raw::event::RawEvent;
use crate::turn::core::Core;
use crate::turn::shared::Shared;
use tautline_conn::closed::Cause;
use tautline_conn::message::{Delivery, Encoded};
use tautline_conn::tick::millis;
use tautline_io::Driver;
use tautline_tls::{Engine, Session};

/// Most calls of `on_drain` for a connection in one turn. If its handler sends more from there, the next turn continues.
const MAX_DRAINS: usize = 16;

impl<E: Engine, H: Handler> Core<E, H> {
    /// Sends a connection's output after an event. Rare steps are functions of their own, so that a message does not pay for
    /// them.
    pub(crate) fn settle(&mut self, driver: &mut dyn Driver, link: &mut Link<E::Session, H::State>) {
        self.flush(driver, link);
        if link.is_drained() && link.awaits == Awaits::Nothing {
            self.report_drained(driver, link);
        }
        if link.out.has_dropped() {
            self.report_dropped(driver, link);
        }
        if link.held || matches!(link.phase, Phase::Streaming(_)) {
            self.stream_and_resume(driver, link);
        }
        if link.wire.has_failed()
            && let Some(error) = link.wire.take_failure()
        {
            self.fail(link, Cause::Tls(error));
            link.flush(driver, &mut self.shared);
        }
        if link.phase.close_sent() {
            self.await_close(driver, link);
        }
        if link.wire.is_in_flight() {
            self.schedule(link);
        } else if link.phase.is_finished() && !link.is_dirty() {
            self.end(link, Phase::GONE, Cause::Finished);
        }
        if link.phase.is_gone() {
            return;
        }
        if self.shared.visit.did_much() {
            // It goes on, and its next input is read, behind others that did much.
            self.shared.rest(link);
        }
        if link.kernel.is_active() {
            link.enter_kernel(driver, &mut self.shared);
        }
        link.out.tidy(&mut self.shared.pool);
        link.wire.tidy(&mut self.shared.pool);
        let pause = link.holds_back(self.shared.config.limits.pause_receive_above);
        if pause != link.driver_paused {
            link.pause_receive(driver, &mut self.shared, pause);
            self.schedule(link);
        }
    }

    #[inline(never)]
    pub(crate) fn report_drained(&mut self, driver: &mut dyn Driver, link: &mut Link<E::Session, H::State>) {
        let mut drains = 0;
        while link.is_drained() {
            if drains == MAX_DRAINS || self.shared.visit.is_over(&self.shared.clock) {
                self.shared.rest(link);
                break;
            }
            drains += 1;
            link.out.report_drained();
            if link.phase.is_raw() {
                self.report_raw(Some(driver), link, RawEvent::Drained);
            } else {
                link.lend(Some(driver), &mut self.shared, &mut self.links, |conn| {
                    self.application.handler.on_drain(conn)
                });
            }
            self.flush(driver, link);
        }
    }

    /// Reports dropped messages. The handler's own sends may drop more, which wait for the next event: a handler that sends a note
    /// to a peer that does not read would else be called for ever.
    #[cold]
    pub(crate) fn report_dropped(&mut self, driver: &mut dyn Driver, link: &mut Link<E::Session, H::State>) {
        let dropped = link.out.take_dropped();
        if link.phase.takes_messages() {
            link.lend(Some(driver), &mut self.shared, &mut self.links, |conn| {
                self.application.handler.on_dropped(conn, dropped)
            });
            self.flush(driver, link);
        }
    }

    #[inline(never)]
    pub(crate) fn stream_and_resume(&mut self, driver: &mut dyn Driver, link: &mut Link<E::Session, H::State>) {
        if link.awaits != Awaits::Nothing {
            return;
        }
        self.grant(link);
        if matches!(link.phase, Phase::Linger(_)) {
            // Another connection's event has ended it. The end of our direction goes behind the output, which has left above.
            self.flush(driver, link);
        }
        if matches!(link.phase, Phase::Streaming(_)) {
            self.stream(driver, link);
        }
        let pause_above = self.shared.config.limits.pause_receive_above;
        while link.held && link.awaits == Awaits::Nothing && !link.holds_back(pause_above) {
            if self.shared.visit.is_over(&self.shared.clock) {
                return self.shared.rest(link);
            }
            if let Err(stop) = self.resume(driver, link) {
                self.stop(link, stop);
            }
            self.flush(driver, link);
            // The kernel may have taken everything at once, and then no event follows.
            if link.is_drained() && link.awaits == Awaits::Nothing {
                self.report_drained(driver, link);
            }
            self.stream(driver, link);
        }
        self.report_late_end(driver, link);
    }

    /// Our close frame was sent, and the peer's is awaited.
    #[inline(never)]
    pub(crate) fn await_close(&mut self, driver: &mut dyn Driver, link: &mut Link<E::Session, H::State>) {
        link.clock.phase_end = self.shared.now + millis(self.shared.config.deadlines.close);
        self.schedule(link);
        if link.reconnects() || link.out.is_push() {
            // A stale peer may not answer, and one that reads a response does not.
            self.end(link, Phase::finishing(false), Cause::Local);
            link.flush(driver, &mut self.shared);
        }
    }

    /// Flushes a connection, or fails it if the slow-consumer policy gave up on the peer.
    pub(crate) fn flush(&mut self, driver: &mut dyn Driver, link: &mut Link<E::Session, H::State>) {
        if matches!(link.phase, Phase::Overrun) {
            self.fail(link, Cause::SlowConsumer);
        }
        link.flush(driver, &mut self.shared);
    }

    pub(crate) fn release(&mut self, driver: &mut dyn Driver, link: Box<Link<E::Session, H::State>>, reset: bool) {
        self.access.end_access(&link, &self.shared);
        self.shared.counters.carried.sub(u64::from(driver.carrier(link.token).is_some()));
        driver.close(link.token, reset || link.wire.is_in_flight());
        self.drop_link(link);
    }

    /// Uncounts a connection, gives its memory back, and drops its state.
    pub(crate) fn drop_link(&mut self, mut link: Box<Link<E::Session, H::State>>) {
        let memory = memory_of(&link, &self.engine);
        self.admission.end_connection(&link, memory, &mut self.shared);
        self.shared.discharge(&link);
        self.openings.forget_input(&link);
        self.access.forget_access(link.token);
        link.out.release(&mut self.shared.pool);
        link.wire.release(&mut self.shared.pool);
        link.decoder.recycle(&mut self.shared.pool);
        self.shared.pool.give(std::mem::take(&mut link.carry));
        let id = ConnId { shard: self.shared.shard, token: link.token };
        self.application.guard(&mut self.shared, format_args!("the state of connection {id}"), |_, _| drop(link));
    }
}

impl<S, T> Link<S, T> {
    /// Has the driver read nothing of this connection, or read again.
    #[inline(never)]
    fn pause_receive(&mut self, driver: &mut dyn Driver, shared: &mut Shared, pause: bool) {
        self.driver_paused = pause;
        self.clock.heard = shared.now;
        if self.phase.takes_messages() {
            self.clock.phase_end = shared.now;
        }
        self.ping_sent = false;
        driver.pause_receive(self.token, pause);
        if pause && self.awaits == Awaits::Nothing {
            shared.counters.receive_pauses.add(1);
            let waiting = self.out.buffered(&self.wire);
            let line = format_args!("reading pauses: {waiting} bytes wait for it (limits.pause_receive_above)");
            shared.log_peer(log::Level::Debug, &self.info.peer, line);
        }
    }
}

impl Shared {
    pub(crate) fn publish_to<S: Session, T>(
        &mut self,
        driver: &mut dyn Driver,
        link: &mut Link<S, T>,
        message: &Encoded,
    ) -> Delivery {
        if !link.phase.takes_messages() {
            return Delivery::Closed;
        }
        let Link { token, phase, session, out, wire, kernel, .. } = link;
        let mut transport = Transport { phase, wire, session, in_kernel: kernel.in_kernel() };
        let mut outlet = DriverOutlet { driver: Some(driver), token: *token, shared: self };
        if out.is_blocked(transport.wire) {
            // Flushed first: a peer is slow only if the kernel takes no more bytes for it.
            out.flush_all(&mut transport, &mut outlet);
        }
        out.publish(message, &mut transport, &mut outlet)
    }

    pub(crate) fn mark_dirty<S, T>(&mut self, link: &mut Link<S, T>) {
        if !link.dirty {
            link.dirty = true;
            self.dirty.push(link.token);
        }
    }
}
