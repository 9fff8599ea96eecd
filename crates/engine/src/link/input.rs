//! The inbound path: wire bytes → TLS → HTTP head → frames → handler.

use crate::conn::Conn;
use crate::dial::times::DialStep;
use crate::handler::{Chunk, Handler};
use crate::link::outlet::DriverOutlet;
use crate::link::phase::{Phase, Transport};
use crate::link::state::{Awaits, Link};
use crate::offload::Step;
use crate::probe::Probe;
use crate::turn::clock::Clock;
use crate::turn::core::Core;
use crate::turn::visit::MESSAGE;
use core::ops::ControlFlow;
use tautline_buf::{Buf, Pool};
use tautline_conn::frames::{self, Read, Visitor};
use tautline_conn::proxy_header::looks_like;
use tautline_conn::tick::Tick;
use tautline_conn::verdict::Stop;
use tautline_io::{Driver, End, Received};
use tautline_tls::{Content, Engine, Handshake, Opened, Session};
use tautline_ws::Event;

/// Most bytes that are carried over. An engine consumes whole records, so less than one remains; more is a bug of the engine.
const MAX_CARRY: usize = 64 << 10;

impl<E: Engine, H: Handler> Core<E, H> {
    /// Notes that input has arrived.
    pub(crate) fn heard(&self, link: &mut Link<E::Session, H::State>, len: usize) {
        self.shared.counters.bytes_in.add(len as u64);
        link.clock.heard = self.shared.now;
        link.ping_sent = false;
    }

    /// Processes received bytes, and ends the connection if they are wrong.
    pub(crate) fn take_input(
        &mut self,
        driver: &mut dyn Driver,
        link: &mut Link<E::Session, H::State>,
        data: Received<'_>,
    ) {
        self.heard(link, data.len());
        self.shared.passing.input = data.len();
        let mut scratch = self.shared.scratch.take().unwrap_or_default();
        let result = if link.carry.is_empty() {
            self.input(driver, link, data.bytes(), &mut scratch)
        } else {
            self.input_behind_carried(driver, link, data, &mut scratch)
        };
        self.shared.scratch = Some(scratch);
        if let Some(token) = self.shared.passing.filled.take() {
            self.shared.send_filled(&mut self.slots, driver, token);
        }
        if let Err(stop) = result {
            self.stop(link, stop);
        }
    }

    /// Processes received bytes behind the carried ones.
    #[inline(never)]
    fn input_behind_carried(
        &mut self,
        driver: &mut dyn Driver,
        link: &mut Link<E::Session, H::State>,
        data: Received<'_>,
        scratch: &mut Buf,
    ) -> Result<(), Stop> {
        let mut carried = std::mem::take(&mut link.carry);
        let wire = match data.join(carried.filled()) {
            Ok(joined) => {
                carried.clear();
                joined
            }
            Err(data) => {
                self.shared.pool.reserve(&mut carried, data.len());
                carried.put(data.bytes());
                carried.filled_mut()
            }
        };
        let result = self.input(driver, link, wire, scratch);
        self.shared.pool.give(carried);
        result
    }

    /// Processes bytes, and carries over an incomplete record.
    #[inline]
    fn input(
        &mut self,
        driver: &mut dyn Driver,
        link: &mut Link<E::Session, H::State>,
        wire: &mut [u8],
        scratch: &mut Buf,
    ) -> Result<(), Stop> {
        let used = self.advance(driver, link, wire, scratch)?;
        match wire.get(used..) {
            Some(rest) if !rest.is_empty() => self.carry_over(link, rest),
            _ => Ok(()),
        }
    }

    #[inline(never)]
    fn carry_over(&mut self, link: &mut Link<E::Session, H::State>, rest: &[u8]) -> Result<(), Stop> {
        if !reads(&link.phase) {
            return Ok(());
        }
        if rest.len() > MAX_CARRY && !link.held {
            return Err(tautline_tls::Error::Library("the engine does not consume its input".into()).into());
        }
        if link.plain() == 0 {
            link.carry = self.shared.pool.take_for(rest.len());
        }
        self.shared.pool.reserve(&mut link.carry, rest.len());
        link.carry.put(rest);
        Ok(())
    }

    /// Processes bytes that were held back.
    pub(crate) fn resume(
        &mut self,
        driver: &mut dyn Driver,
        link: &mut Link<E::Session, H::State>,
    ) -> Result<(), Stop> {
        link.held = false;
        if let Some(probe) = &mut self.probe {
            probe.resumed();
        }
        let mut carried = std::mem::take(&mut link.carry);
        if link.plain() > 0 && self.resume_plain(driver, link, &mut carried)? {
            link.carry = carried;
            return Ok(());
        }
        let mut scratch = self.shared.scratch.take().unwrap_or_default();
        let result = self.advance(driver, link, carried.filled_mut(), &mut scratch);
        self.shared.scratch = Some(scratch);
        carried.take(result.as_ref().map_or(carried.len(), |used| *used));
        if carried.is_empty() || !reads(&link.phase) {
            self.shared.pool.give(carried);
        } else if link.plain() > 0 {
            self.shared.pool.reserve(&mut link.carry, carried.len());
            link.carry.put(carried.filled());
            self.shared.pool.give(carried);
        } else {
            self.shared.pool.fit(&mut carried);
            link.carry = carried;
        }
        result.map(drop)
    }

    /// Processes the opened bytes before `carried`. True if some of them are held back again, or nothing is behind them.
    #[inline(never)]
    fn resume_plain(
        &mut self,
        driver: &mut dyn Driver,
        link: &mut Link<E::Session, H::State>,
        carried: &mut Buf,
    ) -> Result<bool, Stop> {
        let plain = link.plain().min(carried.len());
        link.set_plain(0);
        let used = self.plaintext(driver, link, &mut carried.filled_mut()[..plain])?;
        carried.take(used);
        link.set_plain(plain - used);
        link.held = !carried.is_empty() && (used < plain || link.awaits == Awaits::Visit);
        if carried.is_empty() {
            self.shared.pool.give(std::mem::take(carried));
        }
        Ok(link.held || carried.is_empty())
    }

    /// Processes bytes in the link's phase and later ones. Returns the bytes of `wire` that were used.
    fn advance(
        &mut self,
        driver: &mut dyn Driver,
        link: &mut Link<E::Session, H::State>,
        wire: &mut [u8],
        scratch: &mut Buf,
    ) -> Result<usize, Stop> {
        let mut used = 0;
        loop {
            if !link.phase.is_open() {
                match self.advance_opening(link, wire, used)? {
                    Progress::Records(begin) => used = begin,
                    Progress::Further(begin) => {
                        used = begin;
                        continue;
                    }
                    Progress::Stops(end) => return Ok(end),
                }
            }
            if used < wire.len() && link.holds_back(self.shared.config.limits.pause_receive_above) {
                link.held = true;
                return Ok(used);
            }
            let out = link.wire.sealed_mut();
            if used < wire.len()
                && let Some(probe) = &mut self.probe
            {
                probe.opening();
            }
            let rest = &mut wire[used..];
            let Opened { used: read, content } = link.session.open(rest, scratch, out)?;
            used += read;
            match content {
                Content::Data(plain) => {
                    if let Some(probe) = &mut self.probe {
                        probe.opened();
                    }
                    let plain = plain.bytes(rest, scratch);
                    let len = plain.len();
                    let taken = self.plaintext(driver, link, plain)?;
                    if taken < len && !link.session.is_plain() {
                        self.hold_plain(link, &plain[taken..]);
                        return Ok(used);
                    }
                    used -= len - taken;
                    // No bytes give no data.
                    if used == wire.len() {
                        return Ok(used);
                    }
                    if self.shared.visit.is_over(&self.clock) {
                        self.rest(link);
                    }
                }
                Content::Control => {}
                Content::Partial => return Ok(used),
                Content::Closed => {
                    self.peer_ended(link, End::Finished, true);
                    return Ok(wire.len());
                }
            }
        }
    }

    /// Holds back the rest of a record, which cannot be opened twice.
    #[cold]
    fn hold_plain(&mut self, link: &mut Link<E::Session, H::State>, rest: &[u8]) {
        let mut plain = self.shared.pool.take_for(rest.len());
        plain.put(rest);
        link.keep_plain(plain, &mut self.shared.pool);
    }

    /// Processes bytes of a connection that is not open yet or no more, as far as no record needs to be opened.
    #[inline(never)]
    fn advance_opening(
        &mut self,
        link: &mut Link<E::Session, H::State>,
        wire: &mut [u8],
        mut used: usize,
    ) -> Result<Progress, Stop> {
        match &mut link.phase {
            Phase::Proxy(tunnel) => {
                let out = link.wire.buf(&mut self.shared.pool);
                let (read, stands) = tunnel.read(&wire[used..], out).map_err(Stop::Proxy)?;
                used += read;
                if !stands {
                    return Ok(Progress::Stops(used));
                }
                if let Some(dial) = link.info.dial {
                    self.end_step(dial, DialStep::Tunneled);
                }
                self.secure(link)?;
                Ok(Progress::Further(used))
            }
            Phase::ProxyHeader => Ok(match self.read_proxy_header(link, &wire[used..]) {
                Some(len) => Progress::Further(used + len),
                None if link.phase.is_gone() => Progress::Stops(wire.len()),
                None => Progress::Stops(used),
            }),
            Phase::Offloaded(_) => {
                link.held = true;
                Ok(Progress::Stops(used))
            }
            Phase::Waiting(_) | Phase::Streaming(_) => {
                link.held |= used < wire.len();
                Ok(Progress::Stops(used))
            }
            Phase::Tls => {
                let len = match self.next_step(link, &wire[used..]) {
                    Step::Here(len) => len,
                    Step::Offloaded if self.offload_handshake(link, &wire[used..])? => {
                        return Ok(Progress::Stops(wire.len()));
                    }
                    Step::Offloaded => wire.len() - used,
                    Step::Waits => return Ok(Progress::Stops(used)),
                };
                let header = looks_like(&wire[used..]);
                let step = self.handshake_step(link, &mut wire[used..used + len]);
                let (read, handshake) = step.inspect_err(|_| self.hint_at_header(link, header))?;
                used += read;
                if handshake == Handshake::Complete {
                    self.secured(link)?;
                } else if read < len || used == wire.len() {
                    return Ok(Progress::Stops(used));
                }
                Ok(Progress::Further(used))
            }
            phase if !reads(phase) => Ok(Progress::Stops(wire.len())),
            _ => Ok(Progress::Records(used)),
        }
    }

    /// Processes plaintext. Returns the bytes that were used. If those are not all, the others are held back.
    #[inline]
    pub(crate) fn plaintext(
        &mut self,
        driver: &mut dyn Driver,
        link: &mut Link<E::Session, H::State>,
        plain: &mut [u8],
    ) -> Result<usize, Stop> {
        if link.phase.is_open() {
            self.frames(driver, link, plain)
        } else {
            self.plaintext_opening(driver, link, plain)
        }
    }

    #[inline(never)]
    fn plaintext_opening(
        &mut self,
        driver: &mut dyn Driver,
        link: &mut Link<E::Session, H::State>,
        plain: &mut [u8],
    ) -> Result<usize, Stop> {
        let mut used = 0;
        while used < plain.len() {
            let rest = &mut plain[used..];
            used += match &mut link.phase {
                Phase::Request(_) if used > 0 && self.shared.visit.is_over(&self.clock) => {
                    self.rest(link);
                    return Ok(used);
                }
                Phase::Request(_) => self.request(driver, link, rest),
                Phase::Answer(_) => self.answer(driver, link, rest)?,
                Phase::Waiting(_) | Phase::Streaming(_) if link.session.is_plain() => return Ok(used),
                Phase::Waiting(wait) => {
                    wait.with.rest.put(rest);
                    rest.len()
                }
                Phase::Streaming(streaming) => {
                    streaming.rest.put(rest);
                    rest.len()
                }
                Phase::Raw(_) => {
                    let (len, taken) = (rest.len(), self.raw_bytes(driver, link, rest));
                    if taken < len && link.phase.is_raw() {
                        link.paused = true;
                        return Ok(used + taken);
                    }
                    taken
                }
                phase if phase.is_open() => return Ok(used + self.frames(driver, link, rest)?),
                _ => rest.len(),
            };
        }
        Ok(used)
    }

    /// Decodes frames, answers pings and calls the handler. Returns the bytes that were used.
    fn frames(
        &mut self,
        driver: &mut dyn Driver,
        link: &mut Link<E::Session, H::State>,
        plain: &mut [u8],
    ) -> Result<usize, Stop> {
        if link.out.is_push() {
            // A client has nothing to say while it reads its response.
            return Ok(plain.len());
        }
        let is_plain = link.session.is_plain();
        let Link {
            token, phase, session, decoder, out, wire, info, cold, state, paused, answered, kernel, clock, ..
        } = &mut *link;
        // Built once for all messages of a record, since a small message costs little more than this.
        let mut conn = Conn {
            out,
            transport: Transport { phase, wire, session, in_kernel: kernel.in_kernel() },
            outlet: DriverOutlet { driver: Some(driver), token: *token, shared: &mut self.shared },
            cold,
            info,
            state,
            paused,
            slots: &mut self.slots,
        };
        // All that it refers to lies elsewhere, so that the compiler can keep its fields in registers.
        let mut visitor = Visited {
            conn: &mut conn,
            handler: &mut self.handler,
            probe: &mut self.probe,
            clock: &self.clock,
            last_message: &mut clock.phase_end,
            answered,
            may_hold_back: is_plain,
            is_over: false,
        };
        let read = frames::read(decoder, plain, &mut visitor)?;
        if visitor.is_over {
            self.rest(link);
        }
        match read {
            Read::Used(used) => Ok(used),
            Read::Closed(code, reason) => {
                self.peer_closed(link, code, reason);
                Ok(plain.len())
            }
        }
    }
}

/// The visitor of a loop: it calls the handler.
struct Visited<'v, 'c, H: Handler> {
    conn: &'v mut Conn<'c, H::State>,
    handler: &'v mut H,
    probe: &'v mut Option<Box<dyn Probe>>,
    clock: &'v Clock,
    /// When the last message arrived.
    last_message: &'v mut Tick,
    /// [`Link::answered`].
    answered: &'v mut u64,
    /// Whether plaintext can be held back amid a read. A record of TLS is visited as a whole.
    may_hold_back: bool,
    /// Whether the [visit](crate::turn::visit) is over.
    is_over: bool,
}

impl<H: Handler> Visitor for Visited<'_, '_, H> {
    #[inline]
    fn pool(&mut self) -> &mut Pool {
        &mut self.conn.outlet.shared.pool
    }

    #[inline]
    fn wants_frame(&mut self, used: usize) -> bool {
        if used > 0 && self.conn.outlet.shared.visit.is_over(self.clock) {
            self.is_over = true;
            return false;
        }
        if self.may_hold_back && self.conn.holds_back(*self.answered) {
            return false;
        }
        if let Some(probe) = self.probe {
            self.conn.outlet.shared.times = None;
            probe.decoding();
        }
        true
    }

    #[inline]
    fn decoded(&mut self) {
        if let Some(probe) = self.probe {
            probe.parsed();
        }
    }

    #[inline]
    fn visit(&mut self, event: Event<'_>) -> Result<ControlFlow<()>, Stop> {
        let Self { conn, handler, .. } = self;
        let taken = conn.out.taken();
        // After our close frame, messages are no longer delivered.
        let open = conn.transport.phase.takes_messages();
        conn.outlet.shared.visit.spend(MESSAGE + len_of(&event));
        match event {
            Event::Message(message) => {
                conn.outlet.shared.counters.messages_in.add(1);
                if open {
                    *self.last_message = conn.outlet.shared.now;
                    if let Some(probe) = self.probe {
                        conn.outlet.shared.times = probe.calling(conn.info.dial);
                    }
                    handler.on_message(conn, message);
                }
            }
            Event::Chunk { kind, data, first, last } => {
                conn.outlet.shared.counters.messages_in.add(u64::from(last));
                if open {
                    *self.last_message = conn.outlet.shared.now;
                    if last && let Some(probe) = self.probe {
                        conn.outlet.shared.times = probe.calling(conn.info.dial);
                    }
                    handler.on_chunk(conn, Chunk { kind, data, first, last });
                }
            }
            Event::Ping(payload) if open => conn.out.pong(payload, conn.transport.wire, conn.outlet.shared.means())?,
            Event::Pong(payload) if open => handler.on_pong(conn, payload),
            Event::Ping(_) | Event::Pong(_) | Event::Close(_) => {}
        }
        if conn.out.taken() != taken {
            *self.answered = conn.out.taken();
        }
        Ok(ControlFlow::Continue(()))
    }
}

/// Bytes of a message or chunk, as the handler gets them.
#[inline]
const fn len_of(event: &Event<'_>) -> usize {
    match event {
        Event::Message(message) => message.data().len(),
        Event::Chunk { data, .. } => data.len(),
        _ => 0,
    }
}

/// The state of input after a step of a connection that is not open. The numbers are the bytes that were used.
enum Progress {
    /// Records are opened next.
    Records(usize),
    /// Another phase began, or more of it follows.
    Further(usize),
    /// Nothing more can be done with these bytes for now.
    Stops(usize),
}

/// Whether records are opened. A client that waits for the server's end opens them too: some servers send close_notify,
/// and no FIN until the client has sent its own close_notify.
const fn reads(phase: &Phase) -> bool {
    !phase.is_ending() || phase.awaits_peer()
}
