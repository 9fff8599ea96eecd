//! Inbound: wire bytes → TLS → HTTP head → frames → handler.

use crate::closed::Cause;
use crate::conn::Conn;
use crate::handler::{Chunk, Handler};
use crate::link::{Link, Phase, Stop, millis};
use crate::offload::Step;
use crate::outbound::Path;
use crate::probe::Probe;
use crate::shard::Core;
use tautline_io::{Driver, End, Received};
use tautline_tls::{Content, Engine, Handshake, Opened, Session};
use tautline_window::Buf;
use tautline_ws::{Close, CloseCode, Decoded, Event};

/// A TLS engine consumes whole records, so what is carried is less than one; anything longer is an engine's bug.
const MAX_CARRY: usize = 64 << 10;

impl<E: Engine, H: Handler, P: Probe> Core<E, H, P> {
    /// Takes what arrived, behind what was carried, and carries what no record is complete with.
    pub(crate) fn input<D: Driver>(
        &mut self,
        driver: &mut D,
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
            && !matches!(link.phase, Phase::Linger)
        {
            let rest = &wire[used..];
            if rest.len() > MAX_CARRY && !link.held {
                return Err(tautline_tls::Error::Library("the engine does not consume its input".into()).into());
            }
            link.carry = self.shared.pool.take();
            link.carry.put(rest);
        }
        self.shared.pool.give(carried);
        result.map(drop)
    }

    /// Goes on with what was held back.
    pub(crate) fn resume<D: Driver>(
        &mut self,
        driver: &mut D,
        link: &mut Link<E::Session, H::State>,
    ) -> Result<(), Stop> {
        link.held = false;
        self.probe.resumed();
        let mut carried = std::mem::take(&mut link.carry);
        let mut scratch = std::mem::take(&mut self.shared.scratch);
        let result = self.advance(driver, link, carried.filled_mut(), &mut scratch);
        self.shared.scratch = scratch;
        carried.take(result.as_ref().map_or(carried.len(), |used| *used));
        if carried.is_empty() || matches!(link.phase, Phase::Linger) {
            self.shared.pool.give(carried);
        } else {
            link.carry = carried;
        }
        result.map(drop)
    }

    /// Returns how much of `wire` is done with.
    fn advance<D: Driver>(
        &mut self,
        driver: &mut D,
        link: &mut Link<E::Session, H::State>,
        wire: &mut [u8],
        scratch: &mut Buf,
    ) -> Result<usize, Stop> {
        let mut used = 0;
        loop {
            match &mut link.phase {
                Phase::Proxy(tunnel) => {
                    let out = link.out.wire(&mut self.shared.pool);
                    let (read, stands) = tunnel.read(&wire[used..], out).map_err(Stop::Proxy)?;
                    used += read;
                    if !stands {
                        return Ok(used);
                    }
                    self.secure(link)?;
                }
                Phase::Away(_) => {
                    link.held = true;
                    return Ok(used);
                }
                Phase::Tls => {
                    let len = match self.next_step(link, &wire[used..]) {
                        Step::Here(len) => len,
                        Step::Away if self.hand_over(link, &wire[used..])? => return Ok(wire.len()),
                        Step::Away => wire.len() - used,
                        Step::Waits => return Ok(used),
                    };
                    let (read, handshake) = self.shake(link, &mut wire[used..used + len])?;
                    used += read;
                    if handshake == Handshake::Complete {
                        self.secured(link)?;
                    } else if read < len || used == wire.len() {
                        return Ok(used);
                    }
                }
                Phase::Linger => return Ok(wire.len()),
                _ => {
                    if used < wire.len() && link.holds_back(self.shared.config.limits.pause_receive_above) {
                        link.held = true;
                        return Ok(used);
                    }
                    let out = link.out.wire(&mut self.shared.pool);
                    if used < wire.len() {
                        self.probe.opening();
                    }
                    let Opened { used: read, content } = link.session.open(&mut wire[used..], scratch, out)?;
                    used += read;
                    match content {
                        Content::Data(plain) => {
                            self.probe.opened();
                            let len = plain.len();
                            used -= len - self.plaintext(driver, link, plain)?;
                        }
                        Content::Control => {}
                        Content::Partial => return Ok(used),
                        Content::Closed => {
                            link.peer_finished = true;
                            self.peer_ended(link, End::Finished);
                            return Ok(wire.len());
                        }
                    }
                }
            }
        }
    }

    /// Returns how much of `plain` is done with: all of it where it was sealed, since it cannot be opened twice.
    fn plaintext<D: Driver>(
        &mut self,
        driver: &mut D,
        link: &mut Link<E::Session, H::State>,
        plain: &mut [u8],
    ) -> Result<usize, Stop> {
        let mut used = 0;
        while used < plain.len() {
            let rest = &mut plain[used..];
            used += match link.phase {
                Phase::Request(_) => self.request(driver, link, rest)?,
                Phase::Answer(_) => self.answer(driver, link, rest)?,
                Phase::Open | Phase::CloseSent => return Ok(used + self.frames(driver, link, rest)?),
                _ => rest.len(),
            };
        }
        Ok(used)
    }

    fn frames<D: Driver>(
        &mut self,
        driver: &mut D,
        link: &mut Link<E::Session, H::State>,
        plain: &mut [u8],
    ) -> Result<usize, Stop> {
        let pause_above = self.shared.config.limits.pause_receive_above;
        let mut used = 0;
        while used < plain.len() {
            if E::Session::PASSTHROUGH && link.holds_back(pause_above) {
                break;
            }
            let taken = link.out.taken();
            let Link { token, phase, session, decoder, out, info, rare, state, paused, .. } = &mut *link;
            self.probe.decoding();
            let Decoded { used: read, event } = decoder.decode(&mut plain[used..], &mut self.shared.pool)?;
            self.probe.parsed();
            used += read;
            let Some(event) = event else { break };
            let mut way = Path { driver: &mut *driver, token: *token, session: &mut *session };
            let mut conn = Conn {
                token: *token,
                out: &mut *out,
                way: &mut way,
                rare: &mut *rare,
                info: &*info,
                state: &mut *state,
                paused: &mut *paused,
                shared: &mut self.shared,
            };
            // Once our close frame is on its way, messages are not delivered any more.
            let open = matches!(phase, Phase::Open) && !conn.out.is_closing();
            match event {
                Event::Message(message) => {
                    conn.shared.counters.messages_in += 1;
                    if open {
                        self.probe.calling();
                        self.handler.on_message(&mut conn, message);
                    }
                }
                Event::Chunk { kind, data, first, last } => {
                    conn.shared.counters.messages_in += u64::from(last);
                    if open {
                        if last {
                            self.probe.calling();
                        }
                        self.handler.on_chunk(&mut conn, Chunk { kind, data, first, last });
                    }
                }
                Event::Ping(payload) => out.pong(payload, &mut self.shared)?,
                Event::Pong(payload) => {
                    if open {
                        self.handler.on_pong(&mut conn, payload);
                    }
                }
                Event::Close(close) => {
                    let (code, reason) = match close {
                        Some(Close { code, reason }) => (code, reason.to_owned()),
                        None => (CloseCode::NO_STATUS, String::new()),
                    };
                    decoder.recycle(&mut self.shared.pool);
                    self.peer_closed(link, code, reason);
                    return Ok(plain.len());
                }
            }
            decoder.recycle(&mut self.shared.pool);
            if link.out.taken() != taken {
                link.answered = link.out.taken();
            }
        }
        Ok(used)
    }

    /// The peer's close frame: answered, and with that the WebSocket connection is closed (RFC 6455, section 7.1.4).
    fn peer_closed(&mut self, link: &mut Link<E::Session, H::State>, code: CloseCode, reason: String) {
        let ours_first = link.out.is_closing();
        link.rare.get_or_insert_default().peer_close = Some((code, reason));
        link.out.close_now(code, "");
        let cause = if ours_first { Cause::Local } else { Cause::Peer };
        self.report(link, cause);
        // The server closes the TCP connection first; a client gives it the time (section 7.1.1).
        if link.info.dial.is_none() {
            link.out.finish();
        }
        self.linger(link);
    }

    /// From now on only what is left to send matters, and the peer's end of stream.
    pub(crate) fn linger(&mut self, link: &mut Link<E::Session, H::State>) {
        self.leave_handshake(link);
        link.phase = Phase::Linger;
        link.clock.phase_end = self.shared.now + millis(self.shared.config.deadlines.close);
        self.schedule(link);
    }
}
