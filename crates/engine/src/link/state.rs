use crate::conn::Conn;
use crate::link::info::{Cold, Info};
use crate::link::kernel_tls::Handover;
use crate::link::outlet::DriverOutlet;
use crate::link::phase::{Phase, Transport};
use crate::raw::lent::Raw;
use crate::raw::slots::Slots;
use crate::turn::shared::Shared;
use crate::turn::timer::Tick;
use tautline_buf::Buf;
use tautline_conn::closed::Cause;
use tautline_conn::config::Deadlines;
use tautline_conn::due::{Due, Times};
use tautline_conn::outbound::Outbound;
use tautline_conn::verdict::Verdict;
use tautline_conn::wire::Wire;
use tautline_io::{Driver, Token};
use tautline_tls::Session;
use tautline_ws::{CloseCode, Decoder};

/// The expected cost of a client's handshake.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum HandshakeCost {
    /// Unknown or cheap.
    Plain,
    /// Cheap, if the client's ticket is valid.
    Resumes,
    /// Expensive. The number is the bytes that did not suffice for the last step.
    Heavy(u32),
    /// Cheap, since the server has answered and nothing is left to sign.
    Answered,
}

/// The event that a connection awaits before it goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Awaits {
    Nothing,
    /// A turn with [time for connections that open](crate::accept::opening).
    Opening,
    /// Its next [visit](crate::turn::visit).
    Visit,
}

/// A connection.
pub(crate) struct Link<S, T> {
    pub(crate) token: Token,
    pub(crate) phase: Phase,
    pub(crate) session: S,
    pub(crate) cost: HandshakeCost,
    pub(crate) decoder: Decoder,
    /// Received bytes that are not opened yet: a partial record, or records held back. Usually without memory.
    pub(crate) carry: Buf,
    pub(crate) out: Outbound,
    pub(crate) wire: Wire,
    pub(crate) info: Info,
    pub(crate) cold: Option<Box<Cold>>,
    pub(crate) state: T,
    /// Whether the application pauses reading.
    pub(crate) paused: bool,
    /// Whether the driver pauses reading.
    pub(crate) driver_paused: bool,
    /// Whether it is in [`Shared::dirty`].
    pub(crate) dirty: bool,
    /// Whether the shard's account may have an entry for it.
    pub(crate) charged: bool,
    /// Whether bytes in `carry` were held back.
    pub(crate) held: bool,
    /// The event that the connection awaits before it goes on.
    pub(crate) awaits: Awaits,
    /// [`Outbound::taken`] after the last answer to the peer's own input.
    pub(crate) answered: u64,
    /// Whether a ping was sent since the peer's last input.
    pub(crate) ping_sent: bool,
    /// Directions that go to the kernel, or are with it.
    pub(crate) kernel: Handover,
    pub(crate) clock: Clock,
}

/// Times of a connection.
#[derive(Clone, Copy, Default)]
pub(crate) struct Clock {
    /// When input last arrived.
    pub(crate) heard: Tick,
    /// The deadline of the current phase. An open connection has none, and keeps here when its last message arrived: one field
    /// for both, since it is there for each of a million connections.
    pub(crate) phase_end: Tick,
    /// When the connection's entry in the wheel is due.
    pub(crate) scheduled: Tick,
}

impl<S, T> Link<S, T> {
    /// The next deadline, and the action that is then due.
    pub(crate) fn next_due(&self, deadlines: &Deadlines) -> (Tick, Due) {
        self.times().next(&self.phase, deadlines)
    }

    /// The times from which its deadlines count.
    pub(crate) fn times(&self) -> Times {
        let Clock { heard, phase_end, .. } = self.clock;
        // The reader of a response says nothing.
        let reads = !self.driver_paused && !self.out.is_push();
        let stuck_since = self.wire.is_in_flight().then(|| self.wire.stuck_since());
        Times { heard, phase_end, ping_sent: self.ping_sent, reads, stuck_since }
    }

    /// The first bytes of `carry` that are opened already: the rest of a record, held back amid it.
    pub(crate) fn plain(&self) -> usize {
        self.cold.as_ref().and_then(|cold| cold.more.as_ref()).map_or(0, |more| more.plain as usize)
    }

    /// Notes how many bytes of `carry` are opened already.
    pub(crate) fn set_plain(&mut self, len: usize) {
        if len != self.plain() {
            // A record has at most 16 KiB.
            self.cold.get_or_insert_default().more().plain = u32::try_from(len).unwrap_or(u32::MAX);
        }
    }

    /// Whether `on_drain` must be called now.
    pub(crate) fn is_drained(&self) -> bool {
        self.out.is_drained(&self.wire) && (self.phase.takes_messages() || self.phase.is_raw())
    }

    /// Whether texts that are published together leave as one array.
    pub(crate) fn joins(&self) -> bool {
        self.cold.as_ref().and_then(|cold| cold.more.as_ref()).is_some_and(|more| more.joins)
    }

    /// Whether the application wants to connect again at once.
    pub(crate) fn reconnects(&self) -> bool {
        self.cold.as_ref().and_then(|cold| cold.more.as_ref()).is_some_and(|more| more.reconnects)
    }

    /// Whether input is held back for now.
    ///
    /// That is so if the application pauses, or if too many answers wait for the peer to read them. Messages from elsewhere do
    /// not count, since a slow reader of those must still be heard. A client holds nothing back: otherwise both ends could wait
    /// for each other for ever. While the session is offloaded, or a request waits
    /// for its answer or gets it, or the connection waits for a later turn, all further input waits.
    pub(crate) fn holds_back(&self, pause_above: usize) -> bool {
        match self.phase {
            _ if self.awaits == Awaits::Visit => true,
            _ if self.awaits == Awaits::Opening => !self.carry.is_empty(),
            Phase::Open => {
                self.paused || self.info.dial.is_none() && self.out.lags(&self.wire, self.answered, pause_above)
            }
            Phase::Raw(_) => self.paused,
            Phase::Offloaded(_) | Phase::Waiting(_) | Phase::Streaming(_) => !self.carry.is_empty(),
            _ => false,
        }
    }

    /// Lends this connection to the handler, without a `driver` if it has ended, and with others of the loop.
    pub(crate) fn lend<R>(
        &mut self,
        driver: Option<&mut dyn Driver>,
        shared: &mut Shared,
        slots: &mut dyn Slots<T>,
        act: impl FnOnce(&mut Conn<'_, T>) -> R,
    ) -> R
    where
        S: Session,
    {
        act(&mut self.conn(driver, shared, slots))
    }

    /// Lends a raw connection to the handler.
    pub(crate) fn lend_raw<R>(
        &mut self,
        driver: Option<&mut dyn Driver>,
        shared: &mut Shared,
        slots: &mut dyn Slots<T>,
        act: impl FnOnce(&mut Raw<'_, T>) -> R,
    ) -> R
    where
        S: Session,
    {
        shared.joining.terms = None;
        act(&mut Raw { conn: self.conn(driver, shared, slots) })
    }

    #[inline]
    fn conn<'a, 'd: 'a>(
        &'a mut self,
        driver: Option<&'d mut dyn Driver>,
        shared: &'a mut Shared,
        slots: &'a mut dyn Slots<T>,
    ) -> Conn<'a, T>
    where
        S: Session,
    {
        // A shorter life, as that of the other parts.
        let driver = driver.map(|driver| driver as &mut dyn Driver);
        // Those are of another call.
        shared.times = None;
        Conn {
            out: &mut self.out,
            transport: Transport {
                phase: &mut self.phase,
                wire: &mut self.wire,
                session: &mut self.session,
                in_kernel: self.kernel.in_kernel(),
            },
            outlet: DriverOutlet { driver, token: self.token, shared },
            cold: &mut self.cold,
            info: &self.info,
            state: &mut self.state,
            paused: &mut self.paused,
            slots,
        }
    }

    /// Sends plaintext of a connection that carries others.
    pub(crate) fn write(&mut self, driver: &mut dyn Driver, shared: &mut Shared, plain: &[u8])
    where
        S: Session,
    {
        let Self { token, phase, out, wire, session, kernel, .. } = self;
        let mut transport = Transport { phase, wire, session, in_kernel: kernel.in_kernel() };
        out.write(plain, &mut transport, &mut DriverOutlet { driver: Some(driver), token: *token, shared });
    }

    /// Gives the driver as many bytes as it takes.
    pub(crate) fn flush(&mut self, driver: &mut dyn Driver, shared: &mut Shared)
    where
        S: Session,
    {
        let Self { token, phase, out, wire, session, kernel, .. } = self;
        out.flush(
            &mut Transport { phase, wire, session, in_kernel: kernel.in_kernel() },
            &mut DriverOutlet { driver: Some(driver), token: *token, shared },
        );
    }

    /// Whether a flush would have an effect.
    pub(crate) fn is_dirty(&mut self) -> bool {
        !self.wire.is_in_flight()
            && (!self.out.is_empty()
                || !self.wire.is_flushed()
                || self.phase.finish_mut().is_some_and(|finish| finish.is_due()))
    }

    /// Queues the notice of an end to the peer, unless it is a response. Returns the phase of that end.
    pub(crate) fn begin_end(&mut self, verdict: Verdict, cause: &Cause) -> Phase {
        self.out.begin_end(&mut self.phase, verdict, cause)
    }

    /// Queues a close frame behind all waiting messages, unless the connection closes already.
    pub(crate) fn close(&mut self, code: CloseCode, reason: &str) {
        self.out.close(&mut self.phase, code, reason);
    }

    /// Drops the waiting messages, and queues a close frame.
    pub(crate) fn close_now(&mut self, code: CloseCode, reason: &str) {
        self.out.close_now(&mut self.phase, code, reason);
    }
}

#[cfg(test)]
mod tests {
    use super::Link;
    use tautline_tls_rustls::fused::Session;

    /// Ten thousand idle connections must not cost more than ten megabytes, including memory of driver and allocator.
    #[test]
    fn is_small() {
        let size = size_of::<Link<Session, ()>>();
        assert!(size <= 736, "{size}");
    }
}
