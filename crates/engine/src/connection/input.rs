use super::context::Context;
use super::event::Event;
use super::output::{Output, Phase};
use super::state::{Client, Connection, Input, Record};
use core::ops::ControlFlow;
use http::HeaderMap;
use tautline_buf::Pool;
use tautline_conn::closed::{Cause, ConnectError};
use tautline_conn::frames::{self, Read, Visitor};
use tautline_conn::front::{Front, REFUSED, Via};
use tautline_conn::proxy_header::ProxyHeader;
use tautline_conn::verdict::Stop;
use tautline_tls::{Content, Handshake, Opened, Session};
use tautline_ws::{Kind, Role};

/// Bytes of one record, and of a buffer that is worth keeping while its connection waits.
const MAX_CARRY: usize = 64 << 10;

/// The result of one step.
pub(super) enum Step {
    Event(Event),
    /// Something was used up; the next step may find an event.
    Again,
    /// The peer's next bytes are needed, or the caller's answer, or room for our output.
    Wait,
}

impl<S: Session> Connection<S> {
    /// The next event. `None` if the peer's next bytes are needed, or if [too much](Self::holds_back) waits for it.
    ///
    /// Write the [`output`](Self::output) after `None` at the latest. Pings and close frames are answered by then.
    pub fn next(&mut self, context: &mut Context) -> Option<Event> {
        self.forget(context);
        if self.is_quiet() {
            return None;
        }
        if self.pending.is_some() {
            return self.pending.take();
        }
        loop {
            if self.output.wire.has_failed()
                && let Some(error) = self.output.wire.take_failure()
            {
                return self.stop(Stop::Failed(Cause::Tls(error)), context);
            }
            match self.step(context) {
                Ok(Step::Event(event)) => return Some(event),
                Ok(Step::Again) => {}
                Ok(Step::Wait) if self.input.ended && !self.lags() => {
                    return self.peer_ended(context);
                }
                Ok(Step::Wait) => return None,
                Err(stop) => return self.stop(stop, context),
            }
        }
    }

    /// Whether input waits until some output is written, since the peer does not read the answers to it (server).
    ///
    /// A client holds nothing back: otherwise both ends could wait for each other for ever.
    #[must_use]
    pub fn holds_back(&self) -> bool {
        self.is_asked() || self.lags()
    }

    /// Whether the peer of an open connection does not read the answers to its messages.
    fn lags(&self) -> bool {
        self.is_open()
            && matches!(self.role, Role::Server)
            && self.output.len() > self.config.limits.pause_receive_above
    }

    /// Whether a request waits for its answer.
    const fn is_asked(&self) -> bool {
        matches!(self.output.phase, Phase::Waiting(_))
    }

    /// Whether an open connection has nothing to report and nothing to read: so it is before and after each wait.
    #[inline]
    fn is_quiet(&self) -> bool {
        let Input { wire, record, ended, .. } = &self.input;
        self.is_open()
            && wire.is_empty()
            && record.is_none()
            && !ended
            && self.pending.is_none()
            && !self.output.wire.has_failed()
            && !self.holds_back()
    }

    /// Drops the bytes of the last event.
    #[inline]
    pub(super) fn forget(&mut self, context: &mut Context) {
        self.input.forget(&mut context.pool);
    }

    fn step(&mut self, context: &mut Context) -> Result<Step, Stop> {
        if self.output.phase.is_open() {
            if self.lags() {
                self.clock.held_back = true;
                return Ok(Step::Wait);
            }
            return self.frames(context);
        }
        match &mut self.output.phase {
            Phase::Proxy(tunnel) => {
                let (used, stands) = tunnel
                    .read(self.input.wire.filled(), self.output.wire.buf(&mut context.pool))
                    .map_err(Stop::Proxy)?;
                self.input.wire.take(used);
                if !stands {
                    return Ok(Step::Wait);
                }
                self.secure(context)?;
                Ok(Step::Again)
            }
            Phase::ProxyHeader => self.read_proxy_header(),
            Phase::Tls => {
                let Output { session, wire, .. } = &mut self.output;
                let (used, handshake) = session.handshake(self.input.wire.filled_mut(), wire.buf(&mut context.pool))?;
                self.input.wire.take(used);
                if handshake == Handshake::Complete {
                    self.secured(context);
                    return Ok(Step::Again);
                }
                self.check_carry()?;
                Ok(if used > 0 && !self.input.wire.is_empty() { Step::Again } else { Step::Wait })
            }
            Phase::Request(_) | Phase::Answer(_) => {
                if self.input.record.is_none() && !self.open(context)? {
                    return Ok(Step::Wait);
                }
                self.http(context)
            }
            Phase::Linger(_) | Phase::Gone { .. } => {
                self.input.wire.clear();
                self.input.record = None;
                Ok(Step::Wait)
            }
            _ => Ok(Step::Wait),
        }
    }

    /// Opens the next record; false if none is whole. Without TLS all bytes count as one.
    fn open(&mut self, context: &mut Context) -> Result<bool, Stop> {
        let Input { wire, scratch, record, .. } = &mut self.input;
        let Output { session, wire: out, .. } = &mut self.output;
        while !wire.is_empty() {
            let Opened { used, content } = session.open(wire.filled_mut(), scratch, out.sealed_mut())?;
            match content {
                Content::Data(plain) => {
                    *record = Some(Record { plain, used });
                    return Ok(true);
                }
                Content::Control => wire.take(used),
                Content::Partial => {
                    self.check_carry()?;
                    // A scratch that holds no plaintext is worth nothing.
                    context.pool.give(core::mem::take(&mut self.input.scratch));
                    break;
                }
                Content::Closed => {
                    wire.clear();
                    return Err(Stop::Failed(Cause::Finished));
                }
            }
        }
        Ok(false)
    }

    /// Decodes frames up to the next event for the caller.
    fn frames(&mut self, context: &mut Context) -> Result<Step, Stop> {
        if self.input.record.is_none() && !self.open(context)? {
            return Ok(Step::Wait);
        }
        let Input { wire, scratch, record: Some(Record { plain, .. }), payload, decoder, .. } = &mut self.input else {
            return Ok(Step::Wait);
        };
        let mut first = First { output: &mut self.output, context: &mut *context, event: None };
        match frames::read(decoder, plain.bytes(wire.filled_mut(), scratch), &mut first)? {
            Read::Closed(code, reason) => Ok(Step::Event(self.peer_closed(code, reason, context))),
            Read::Used(used) => {
                plain.range.start += used;
                let Some((event, kind, len)) = first.event else {
                    self.forget(context);
                    return Ok(Step::Again);
                };
                *payload = (kind, plain.range.start.saturating_sub(len)..plain.range.start);
                if !matches!(event, Event::Pong) {
                    self.clock.phase_end = self.clock.heard;
                }
                Ok(Step::Event(event))
            }
        }
    }

    /// An engine uses whole records, so less than one remains; more is a bug of the engine.
    fn check_carry(&self) -> Result<(), Stop> {
        if self.input.wire.len() > MAX_CARRY && !self.output.phase.is_open() {
            return Err(tautline_tls::Error::Library("the engine does not consume its input".into()).into());
        }
        Ok(())
    }
}

/// The visitor of a connection without I/O: it answers a ping, and keeps the first event for the caller.
struct First<'a, S> {
    output: &'a mut Output<S>,
    context: &'a mut Context,
    /// The event, and kind and length of its bytes.
    event: Option<(Event, Kind, usize)>,
}

impl<S: Session> Visitor for First<'_, S> {
    #[inline]
    fn pool(&mut self) -> &mut Pool {
        &mut self.context.pool
    }

    #[inline]
    fn wants_frame(&mut self, _: usize) -> bool {
        true
    }

    #[inline]
    fn visit(&mut self, event: tautline_ws::Event<'_>) -> Result<ControlFlow<()>, Stop> {
        use tautline_ws::Event as Received;
        if !self.output.is_open() {
            // After our close frame, messages are no longer delivered.
            return Ok(ControlFlow::Continue(()));
        }
        match event {
            Received::Message(message) => {
                let kind = message.kind();
                self.event = Some((Event::Message(kind), kind, message.data().len()));
            }
            Received::Chunk { kind, data, first, last } => {
                self.event = Some((Event::Chunk { kind, first, last }, kind, data.len()));
            }
            Received::Pong(payload) => self.event = Some((Event::Pong, Kind::Binary, payload.len())),
            Received::Ping(payload) => self.output.pong(payload, self.context)?,
            Received::Close(_) => {}
        }
        Ok(ControlFlow::Break(()))
    }
}

impl Input {
    /// Drops the bytes of the last event, and a record that is used up.
    #[inline]
    pub(super) fn forget(&mut self, pool: &mut Pool) {
        self.payload = (Kind::Binary, 0..0);
        self.decoder.recycle(pool);
        if let Some(Record { plain, used }) = &self.record
            && plain.range.is_empty()
        {
            self.wire.take(*used);
            self.record = None;
        }
    }

    /// Gives memory back: no byte is expected soon.
    pub(super) fn rest(&mut self, context: &mut Context) {
        if self.record.is_some() {
            return;
        }
        context.pool.give(core::mem::take(&mut self.scratch));
        if self.wire.is_empty() {
            context.give_window(core::mem::take(&mut self.wire));
        } else {
            context.pool.fit(&mut self.wire);
        }
    }
}

/// Proxies before a server.
impl<S: Session> Connection<S> {
    /// The peer may not connect.
    pub(super) fn refuse_peer(&mut self) {
        self.output.abort();
        self.output.phase = Phase::GONE;
        self.pending = Some(Event::Failed(Box::new(ConnectError::Proxy(REFUSED.to_owned()))));
    }

    /// Reads the header of the PROXY protocol. TLS or HTTP follows.
    pub(super) fn read_proxy_header(&mut self) -> Result<Step, Stop> {
        let read = ProxyHeader::read(self.input.wire.filled());
        let Some((header, len)) = read.map_err(|error| Stop::Proxy(format!("the proxy sent {error}")))? else {
            return Ok(Step::Wait);
        };
        self.input.wire.take(len);
        self.output.phase = if self.output.session.is_plain() { Self::first_request(&self.config) } else { Phase::Tls };
        if let (Some(client), Some(named)) = (&mut self.client, header.client().cloned()) {
            let direct = std::mem::replace(&mut client.peer, named);
            client.via = Some(Via::new(direct, Some(header)));
        }
        Ok(Step::Again)
    }
}

impl Client {
    /// The head of a request is whole, whose peer may name the client.
    pub(super) fn note_forwarded(&mut self, front: &Front, headers: &HeaderMap) {
        if front.forwarded_from.is_empty() {
            return;
        }
        let client = front.client(headers, self.via.as_ref().map_or(&self.peer, Via::base));
        if client != self.peer {
            let direct = std::mem::replace(&mut self.peer, client);
            self.via.get_or_insert_with(|| Via::new(direct, None));
        }
    }
}
