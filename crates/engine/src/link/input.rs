//! Received bytes: those of a visit, those that were held back, and those that wait for the rest of a record.

use crate::handler::Handler;
use crate::link::state::{Awaits, Link};
use crate::turn::core::Core;
use crate::turn::shared::Shared;
use tautline_buf::{Buf, Pool};
use tautline_conn::inbound::{self, Advanced, Record};
use tautline_conn::verdict::Stop;
use tautline_io::{Driver, Received};
use tautline_tls::Engine;

impl<E: Engine, H: Handler> Core<E, H> {
    /// Processes received bytes, and ends the connection if they are wrong.
    pub(crate) fn take_input(
        &mut self,
        driver: &mut dyn Driver,
        link: &mut Link<E::Session, H::State>,
        data: Received<'_>,
    ) {
        self.shared.heard(link, data.len());
        self.shared.passing.input = data.len();
        let mut scratch = self.shared.scratch.take().unwrap_or_default();
        let mut inbound = Inbound { core: self, driver, link };
        let result = if inbound.link.carry.is_empty() {
            inbound.input(data.bytes(), &mut scratch)
        } else {
            inbound.input_behind_carried(data, &mut scratch)
        };
        self.shared.scratch = Some(scratch);
        if let Some(token) = self.shared.passing.filled.take() {
            self.shared.send_filled(&mut self.links, driver, token);
        }
        if let Err(stop) = result {
            self.stop(link, stop);
        }
    }

    /// Processes bytes that were held back.
    pub(crate) fn resume(
        &mut self,
        driver: &mut dyn Driver,
        link: &mut Link<E::Session, H::State>,
    ) -> Result<(), Stop> {
        link.held = false;
        if let Some(probe) = &mut self.shared.probe {
            probe.resumed();
        }
        let mut inbound = Inbound { core: self, driver, link };
        let mut carried = std::mem::take(&mut inbound.link.carry);
        if inbound.link.plain() > 0 && inbound.resume_plain(&mut carried)? {
            link.carry = carried;
            return Ok(());
        }
        let mut scratch = inbound.core.shared.scratch.take().unwrap_or_default();
        let result = inbound.advance(carried.filled_mut(), &mut scratch);
        self.shared.scratch = Some(scratch);
        carried.take(result.as_ref().map_or(carried.len(), |used| *used));
        if carried.is_empty() || !link.phase.reads() {
            self.shared.pool.give(carried);
        } else if link.plain() > 0 {
            link.carry_over(carried.filled(), &mut self.shared.pool);
            self.shared.pool.give(carried);
        } else {
            self.shared.pool.fit(&mut carried);
            link.carry = carried;
        }
        result.map(drop)
    }
}

impl Shared {
    /// Notes that input has arrived.
    pub(crate) fn heard<S, T>(&self, link: &mut Link<S, T>, len: usize) {
        self.counters.bytes_in.add(len as u64);
        link.clock.heard = self.now;
        link.ping_sent = false;
    }
}

impl<S, T> Link<S, T> {
    /// Keeps bytes until more of them arrive, or until they are read.
    fn carry_over(&mut self, rest: &[u8], pool: &mut Pool) {
        if self.plain() == 0 {
            self.carry = pool.take_for(rest.len());
        }
        pool.reserve(&mut self.carry, rest.len());
        self.carry.put(rest);
    }
}

/// A connection of a loop that reads.
pub(crate) struct Inbound<'a, E: Engine, H: Handler> {
    pub(crate) core: &'a mut Core<E, H>,
    pub(crate) driver: &'a mut dyn Driver,
    pub(crate) link: &'a mut Link<E::Session, H::State>,
}

impl<E: Engine, H: Handler> Inbound<'_, E, H> {
    /// Processes received bytes behind the carried ones.
    #[inline(never)]
    fn input_behind_carried(&mut self, data: Received<'_>, scratch: &mut Buf) -> Result<(), Stop> {
        let mut carried = std::mem::take(&mut self.link.carry);
        let wire = match data.join(carried.filled()) {
            Ok(joined) => {
                carried.clear();
                joined
            }
            Err(data) => {
                self.core.shared.pool.reserve(&mut carried, data.len());
                carried.put(data.bytes());
                carried.filled_mut()
            }
        };
        let result = self.input(wire, scratch);
        self.core.shared.pool.give(carried);
        result
    }

    /// Processes bytes, and carries over an incomplete record.
    #[inline]
    fn input(&mut self, wire: &mut [u8], scratch: &mut Buf) -> Result<(), Stop> {
        let used = self.advance(wire, scratch)?;
        if let Some(rest) = wire.get(used..)
            && !rest.is_empty()
            && self.link.phase.reads()
        {
            self.link.carry_over(rest, &mut self.core.shared.pool);
        }
        Ok(())
    }

    /// Processes bytes. Returns those of `wire` that were used. The rest of a record, which cannot be opened twice, is held back.
    #[inline]
    fn advance(&mut self, wire: &mut [u8], scratch: &mut Buf) -> Result<usize, Stop> {
        let Advanced { used, amid } = inbound::advance(self, wire, scratch)?;
        let Some(Record { plain, len }) = amid else { return Ok(used) };
        let rest = plain.bytes(&mut wire[used..], scratch);
        let mut kept = self.core.shared.pool.take_for(rest.len());
        kept.put(rest);
        self.link.keep_plain(kept, &mut self.core.shared.pool);
        Ok(used + len)
    }

    /// Processes the opened bytes before `carried`. True if some of them are held back again, or nothing is behind them.
    #[inline(never)]
    fn resume_plain(&mut self, carried: &mut Buf) -> Result<bool, Stop> {
        let plain = self.link.plain().min(carried.len());
        self.link.set_plain(0);
        let used = inbound::plaintext(self, &mut carried.filled_mut()[..plain])?;
        carried.take(used);
        self.link.set_plain(plain - used);
        self.link.held = !carried.is_empty() && (used < plain || self.link.awaits == Awaits::Visit);
        if carried.is_empty() {
            self.core.shared.pool.give(std::mem::take(carried));
        }
        Ok(self.link.held || carried.is_empty())
    }
}
