//! The inbound path: wire bytes → TLS → HTTP head → frames → handler.

use crate::conn::Conn;
use crate::core::Core;
use crate::dial_times::DialStep;
use crate::handler::{Chunk, Handler};
use crate::link::{Link, Stop};
use crate::offload::Step;
use crate::phase::Phase;
use crate::wire::Transport;
use tautline_buf::Buf;
use tautline_io::{Driver, End, Received};
use tautline_tls::{Content, Engine, Handshake, Opened, Session};
use tautline_ws::{Close, CloseCode, Decoded, Event};

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
        let mut scratch = std::mem::take(&mut self.shared.scratch);
        let result = self.input(driver, link, data, &mut scratch);
        self.shared.scratch = scratch;
        if let Err(stop) = result {
            self.stop(link, stop);
        }
    }

    /// Processes received bytes behind the carried ones, and carries over an incomplete record.
    fn input(
        &mut self,
        driver: &mut dyn Driver,
        link: &mut Link<E::Session, H::State>,
        data: Received<'_>,
        scratch: &mut Buf,
    ) -> Result<(), Stop> {
        let mut carried = std::mem::take(&mut link.carry);
        let wire = if carried.is_empty() {
            data.bytes()
        } else {
            match data.join(carried.filled()) {
                Ok(joined) => {
                    carried.clear();
                    joined
                }
                Err(data) => {
                    carried.put(data.bytes());
                    carried.filled_mut()
                }
            }
        };
        let result = self.advance(driver, link, wire, scratch);
        if let Ok(used) = result
            && used < wire.len()
            && reads(&link.phase)
        {
            let rest = &wire[used..];
            if rest.len() > MAX_CARRY && !link.held {
                return Err(tautline_tls::Error::Library("the engine does not consume its input".into()).into());
            }
            link.carry = self.shared.pool.take_for(rest.len());
            link.carry.put(rest);
        }
        self.shared.pool.give(carried);
        result.map(drop)
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
        let mut scratch = std::mem::take(&mut self.shared.scratch);
        let result = self.advance(driver, link, carried.filled_mut(), &mut scratch);
        self.shared.scratch = scratch;
        carried.take(result.as_ref().map_or(carried.len(), |used| *used));
        if carried.is_empty() || !reads(&link.phase) {
            self.shared.pool.give(carried);
        } else {
            self.shared.pool.fit(&mut carried);
            link.carry = carried;
        }
        result.map(drop)
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
            match &mut link.phase {
                Phase::Proxy(tunnel) => {
                    let out = link.wire.buf(&mut self.shared.pool);
                    let (read, stands) = tunnel.read(&wire[used..], out).map_err(Stop::Proxy)?;
                    used += read;
                    if !stands {
                        return Ok(used);
                    }
                    if let Some(dial) = link.info.dial {
                        self.end_step(dial, DialStep::Tunneled);
                    }
                    self.secure(link)?;
                }
                Phase::Offloaded(_) => {
                    link.held = true;
                    return Ok(used);
                }
                Phase::Waiting(_) | Phase::Streaming(_) => {
                    link.held |= used < wire.len();
                    return Ok(used);
                }
                Phase::Tls => {
                    let len = match self.next_step(link, &wire[used..]) {
                        Step::Here(len) => len,
                        Step::Offloaded if self.offload_handshake(link, &wire[used..])? => return Ok(wire.len()),
                        Step::Offloaded => wire.len() - used,
                        Step::Waits => return Ok(used),
                    };
                    let (read, handshake) = self.handshake_step(link, &mut wire[used..used + len])?;
                    used += read;
                    if handshake == Handshake::Complete {
                        self.secured(link)?;
                    } else if read < len || used == wire.len() {
                        return Ok(used);
                    }
                }
                phase if !reads(phase) => return Ok(wire.len()),
                _ => {
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
                    let Opened { used: read, content } = link.session.open(&mut wire[used..], scratch, out)?;
                    used += read;
                    match content {
                        Content::Data(plain) => {
                            if let Some(probe) = &mut self.probe {
                                probe.opened();
                            }
                            let len = plain.len();
                            used -= len - self.plaintext(driver, link, plain)?;
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
        }
    }

    /// Processes plaintext. Returns the bytes that were used, which with TLS are all: a record cannot be opened twice.
    pub(crate) fn plaintext(
        &mut self,
        driver: &mut dyn Driver,
        link: &mut Link<E::Session, H::State>,
        plain: &mut [u8],
    ) -> Result<usize, Stop> {
        let mut used = 0;
        while used < plain.len() {
            let rest = &mut plain[used..];
            used += match &mut link.phase {
                Phase::Request(_) => self.request(driver, link, rest)?,
                Phase::Answer(_) => self.answer(driver, link, rest)?,
                Phase::Waiting(_) | Phase::Streaming(_) if E::Session::PASSTHROUGH => return Ok(used),
                Phase::Waiting(wait) => {
                    wait.rest.put(rest);
                    rest.len()
                }
                Phase::Streaming(streaming) => {
                    streaming.rest.put(rest);
                    rest.len()
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
        let pause_above = self.shared.config.limits.pause_receive_above;
        let Link {
            token, phase, session, decoder, out, wire, info, cold, state, paused, answered, kernel, clock, ..
        } = &mut *link;
        // Built once for all messages of a record, since a small message costs little more than this.
        let mut conn = Conn {
            token: *token,
            out,
            transport: Transport {
                phase,
                wire,
                session,
                driver: Some(driver),
                token: *token,
                in_kernel: kernel.in_kernel(),
            },
            cold,
            info,
            state,
            paused,
            shared: &mut self.shared,
        };
        let mut used = 0;
        while used < plain.len() {
            if E::Session::PASSTHROUGH && conn.holds_back(*answered, pause_above) {
                break;
            }
            let taken = conn.out.taken();
            if let Some(probe) = &mut self.probe {
                conn.shared.times = None;
                probe.decoding();
            }
            let Decoded { used: read, event } = decoder.decode(&mut plain[used..], &mut conn.shared.pool)?;
            if let Some(probe) = &mut self.probe {
                probe.parsed();
            }
            used += read;
            let Some(event) = event else { break };
            // After our close frame, messages are no longer delivered.
            let open = conn.transport.phase.takes_messages();
            match event {
                Event::Message(message) => {
                    conn.shared.counters.messages_in.add(1);
                    if open {
                        clock.phase_end = conn.shared.now;
                        if let Some(probe) = &mut self.probe {
                            conn.shared.times = probe.calling(conn.info.dial);
                        }
                        self.handler.on_message(&mut conn, message);
                    }
                }
                Event::Chunk { kind, data, first, last } => {
                    conn.shared.counters.messages_in.add(u64::from(last));
                    if open {
                        clock.phase_end = conn.shared.now;
                        if last && let Some(probe) = &mut self.probe {
                            conn.shared.times = probe.calling(conn.info.dial);
                        }
                        self.handler.on_chunk(&mut conn, Chunk { kind, data, first, last });
                    }
                }
                Event::Ping(payload) if open => conn.out.pong(payload, conn.transport.wire, conn.shared)?,
                Event::Pong(payload) if open => self.handler.on_pong(&mut conn, payload),
                Event::Ping(_) | Event::Pong(_) => {}
                Event::Close(close) => {
                    let nothing = (CloseCode::NO_STATUS, String::new());
                    let (code, reason) = close.map_or(nothing, |Close { code, reason }| (code, reason.to_owned()));
                    decoder.recycle(&mut conn.shared.pool);
                    self.peer_closed(link, code, reason);
                    return Ok(plain.len());
                }
            }
            decoder.recycle(&mut conn.shared.pool);
            if conn.out.taken() != taken {
                *answered = conn.out.taken();
            }
        }
        Ok(used)
    }
}

/// Whether records are opened. A client that waits for the server's end opens them too: some servers send close_notify,
/// and no FIN until the client has sent its own close_notify.
const fn reads(phase: &Phase) -> bool {
    !phase.is_ending() || phase.awaits_peer()
}
