use super::context::Context;
use super::event::Event;
use super::output::Phase;
use super::state::{Connection, Found, Input, Plain};
use tautline_buf::Pool;
use tautline_conn::closed::Cause;
use tautline_conn::verdict::Stop;
use tautline_tls::{Content, Handshake, Session};
use tautline_ws::{Close, CloseCode, Decoded, Kind, Role};

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

/// An event of the decoder, without a borrow of its bytes.
enum Decoding {
    Nothing,
    Message(Kind),
    Chunk { kind: Kind, first: bool, last: bool },
    Ping,
    Pong,
    Close(CloseCode, String),
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
        if let Some(event) = self.pending.take() {
            return Some(event);
        }
        loop {
            if let Some(error) = self.output.take_failure() {
                return self.stop(Stop::Failed(Cause::Tls(error)), context);
            }
            match self.step(context) {
                Ok(Step::Event(event)) => return Some(event),
                Ok(Step::Again) => {}
                Ok(Step::Wait) if self.input.ended && (self.is_asked() || !self.holds_back()) => {
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
        self.is_asked()
            || self.is_open()
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
        let Input { wire, plain, ended, .. } = &self.input;
        self.is_open()
            && wire.is_empty()
            && plain.is_none()
            && !ended
            && self.pending.is_none()
            && !self.output.has_failed()
            && !self.holds_back()
    }

    /// Drops the bytes of the last event.
    #[inline]
    pub(super) fn forget(&mut self, context: &mut Context) {
        self.input.forget(&mut context.pool);
    }

    fn step(&mut self, context: &mut Context) -> Result<Step, Stop> {
        if self.output.phase.is_open() {
            if self.holds_back() {
                self.clock.held_back = true;
                return Ok(Step::Wait);
            }
            return self.frames(context);
        }
        match &mut self.output.phase {
            Phase::Proxy(tunnel) => {
                let (used, stands) =
                    tunnel.read(self.input.wire.filled(), &mut self.output.wire).map_err(Stop::Proxy)?;
                self.input.wire.take(used);
                if !stands {
                    return Ok(Step::Wait);
                }
                self.secure(context)?;
                Ok(Step::Again)
            }
            Phase::Tls => {
                let (session, wire) = self.output.parts();
                let (used, handshake) = session.handshake(self.input.wire.filled_mut(), wire)?;
                self.input.wire.take(used);
                if handshake == Handshake::Complete {
                    self.secured(context);
                    return Ok(Step::Again);
                }
                self.check_carry()?;
                Ok(if used > 0 && !self.input.wire.is_empty() { Step::Again } else { Step::Wait })
            }
            Phase::Request(_) | Phase::Answer(_) => {
                if self.input.plain.is_none() && !self.open(context)? {
                    return Ok(Step::Wait);
                }
                self.head(context)
            }
            Phase::Linger(_) | Phase::Gone { .. } => {
                self.input.wire.clear();
                self.input.plain = None;
                Ok(Step::Wait)
            }
            _ => Ok(Step::Wait),
        }
    }

    /// Opens the next record; false if none is whole. Without TLS all bytes count as one.
    fn open(&mut self, context: &mut Context) -> Result<bool, Stop> {
        let Input { wire, scratch, plain, .. } = &mut self.input;
        if wire.is_empty() {
            return Ok(false);
        }
        if self.output.is_plain {
            *plain = Some(Plain { in_scratch: false, rest: 0..wire.len(), record: wire.len() });
            return Ok(true);
        }
        let (session, out) = self.output.parts();
        loop {
            let bytes = wire.filled_mut();
            let begin = bytes.as_ptr().addr();
            let end = begin + bytes.len();
            let opened = session.open(bytes, scratch, out)?;
            let used = opened.used;
            match opened.content {
                Content::Data(data) => {
                    let (at, len) = (data.as_ptr().addr(), data.len());
                    let in_scratch = !(begin..end).contains(&at);
                    let from = at - if in_scratch { scratch.filled().as_ptr().addr() } else { begin };
                    if len == 0 {
                        wire.take(used);
                        continue;
                    }
                    *plain = Some(Plain { in_scratch, rest: from..from + len, record: used });
                    return Ok(true);
                }
                Content::Control => wire.take(used),
                Content::Partial => {
                    self.check_carry()?;
                    // A scratch that holds no plaintext is worth nothing.
                    if scratch_is_idle(&self.input) {
                        context.pool.give(core::mem::take(&mut self.input.scratch));
                    }
                    return Ok(false);
                }
                Content::Closed => {
                    wire.clear();
                    return Err(Stop::Failed(Cause::Finished));
                }
            }
        }
    }

    /// Decodes the next frame.
    fn frames(&mut self, context: &mut Context) -> Result<Step, Stop> {
        if self.input.plain.is_none() && !self.open(context)? {
            return Ok(Step::Wait);
        }
        let decoding = self.input.decode(&mut context.pool)?;
        let is_open = self.is_open();
        match decoding {
            Decoding::Message(kind) if is_open => {
                self.clock.phase_end = self.clock.heard;
                return Ok(Step::Event(Event::Message(kind)));
            }
            Decoding::Chunk { kind, first, last } if is_open => {
                self.clock.phase_end = self.clock.heard;
                return Ok(Step::Event(Event::Chunk { kind, first, last }));
            }
            Decoding::Pong if is_open => return Ok(Step::Event(Event::Pong)),
            Decoding::Close(code, reason) => return Ok(Step::Event(self.peer_closed(code, reason, context))),
            Decoding::Ping if is_open => self.output.pong(self.input.payload().data, context)?,
            // After our close frame, messages are no longer delivered.
            _ => {}
        }
        self.forget(context);
        Ok(Step::Again)
    }

    /// An engine uses whole records, so less than one remains; more is a bug of the engine.
    fn check_carry(&self) -> Result<(), Stop> {
        if self.input.wire.len() > MAX_CARRY && !self.output.phase.is_open() {
            return Err(tautline_tls::Error::Library("the engine does not consume its input".into()).into());
        }
        Ok(())
    }
}

const fn scratch_is_idle(input: &Input) -> bool {
    input.scratch.has_memory() && input.plain.is_none()
}

impl Input {
    /// Decodes the next event of the plaintext, which is not empty.
    fn decode(&mut self, pool: &mut Pool) -> Result<Decoding, tautline_ws::Error> {
        let Self { wire, scratch, plain, found, decoder, .. } = self;
        let Some(plain) = plain else { return Ok(Decoding::Nothing) };
        let source = if plain.in_scratch { scratch } else { wire };
        let input = &mut source.filled_mut()[plain.rest.clone()];
        let (begin, start) = (input.as_ptr().addr(), plain.rest.start);
        let end = begin + input.len();
        // The place of bytes in `source`; `None` if they lie in the decoder.
        let place = |data: &[u8]| {
            let at = data.as_ptr().addr();
            // A place behind the end of the input is that of an empty message at the end.
            (begin..=end).contains(&at).then(|| at - begin + start..at - begin + start + data.len())
        };
        let Decoded { used, event } = decoder.decode(input, pool)?;
        let (decoding, kind, place) = match event {
            None => (Decoding::Nothing, Kind::Binary, None),
            Some(tautline_ws::Event::Message(message)) => {
                (Decoding::Message(message.kind()), message.kind(), place(message.data()))
            }
            Some(tautline_ws::Event::Ping(payload)) => (Decoding::Ping, Kind::Binary, place(payload)),
            Some(tautline_ws::Event::Pong(payload)) => (Decoding::Pong, Kind::Binary, place(payload)),
            Some(tautline_ws::Event::Close(close)) => {
                let close = close
                    .map_or((CloseCode::NO_STATUS, String::new()), |Close { code, reason }| (code, reason.to_owned()));
                (Decoding::Close(close.0, close.1), Kind::Binary, None)
            }
            Some(tautline_ws::Event::Chunk { kind, data, first, last }) => {
                (Decoding::Chunk { kind, first, last }, kind, place(data))
            }
        };
        plain.rest.start += used;
        *found = match (&decoding, place, plain.in_scratch) {
            (Decoding::Nothing | Decoding::Close(..), ..) => Found::Nothing,
            (_, Some(range), false) => Found::Wire(kind, range),
            (_, Some(range), true) => Found::Scratch(kind, range),
            (_, None, _) => Found::Decoder(kind),
        };
        Ok(decoding)
    }

    /// Drops the bytes of the last event, and a record that is used up.
    #[inline]
    pub(super) fn forget(&mut self, pool: &mut Pool) {
        self.found = Found::Nothing;
        self.decoder.recycle(pool);
        if let Some(plain) = &self.plain
            && plain.rest.is_empty()
        {
            self.wire.take(plain.record);
            self.plain = None;
        }
    }

    /// Gives memory back: no byte is expected soon.
    pub(super) fn rest(&mut self, context: &mut Context) {
        if self.plain.is_some() {
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
