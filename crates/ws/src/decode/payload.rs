//! Unmasks payloads in place or into the assembly, inflates them, and hands out what is complete.

use super::found::{Found, Place};
use super::{Decoder, Phase, Progress};
use crate::mask::{copy, mask, mask_copy, rotate};
use crate::{Close, Error, Event, Kind, Message, Opcode, Role};
use core::ops::Range;
use tautline_buf::Pool;

impl Decoder {
    /// Most compressed bytes per chunk, so that a chunk stays near 1 MiB even at DEFLATE's highest ratio.
    const INFLATE_STEP: usize = 1024;

    /// Memory that is reserved for an incomplete frame, as a multiple of the bytes that arrived. The pool rounds it up to
    /// a power of two, so it is less than six times those bytes. A frame's length alone reserves none.
    const AHEAD: usize = 3;

    /// Takes the payload of a control frame from `input[at..]`.
    pub(super) fn take_control(
        &mut self,
        input: &mut [u8],
        at: usize,
        pool: &mut Pool,
    ) -> Result<(usize, Option<Found>), Error> {
        let (range, ended) = self.next_range(input, at);
        let used = range.len();
        let place = if ended && self.assembly.len() == self.keep {
            self.unmask(&mut input[range.clone()]);
            Place::Input(range)
        } else {
            self.append(&input[range], pool);
            Place::Assembly(self.keep..self.assembly.len())
        };
        if !ended {
            return Ok((used, None));
        }
        if matches!(place, Place::Assembly(_)) {
            self.stale = true;
        }
        self.phase = Phase::Header;
        if self.opcode == Opcode::Close {
            Close::parse(self.slice(&place, input))?;
            self.phase = Phase::Closed;
            // A message that is incomplete now stays so.
            self.message = None;
            self.keep = 0;
            self.stale = true;
        }
        Ok((used, Some(Found::Control(self.opcode, place))))
    }

    /// Takes the payload of a data frame from `input[at..]`.
    pub(super) fn take_data(
        &mut self,
        message: Progress,
        input: &mut [u8],
        at: usize,
        pool: &mut Pool,
    ) -> Result<(usize, Option<Found>), Error> {
        let (mut range, mut ended) = self.next_range(input, at);
        if message.compressed && message.streaming && range.len() > Self::INFLATE_STEP {
            range.end = range.start + Self::INFLATE_STEP;
            ended = false;
        }
        let used = range.len();
        let last = ended && self.fin;
        let place = if message.compressed {
            self.unmask(&mut input[range.clone()]);
            self.inflate(message, &input[range], last, pool)?
        } else if message.streaming || (last && self.total == 0) {
            self.unmask(&mut input[range.clone()]);
            self.total += used;
            if message.kind == Kind::Text {
                self.utf8.push(&input[range.clone()])?;
            }
            Place::Input(range)
        } else {
            let from = self.assembly.len();
            self.append(&input[range], pool);
            self.total += used;
            if message.kind == Kind::Text {
                self.utf8.push(&self.assembly.filled()[from..])?;
            }
            Place::Assembly(0..self.assembly.len())
        };
        if last && message.kind == Kind::Text {
            self.utf8.finish()?;
        }
        if ended {
            self.phase = Phase::Header;
        }
        Ok((used, self.found_data(message, place, last)))
    }

    /// Returns the event to hand out, if any, now that the data at `place` has arrived.
    fn found_data(&mut self, message: Progress, place: Place, last: bool) -> Option<Found> {
        let (Place::Input(range) | Place::Assembly(range)) = &place;
        if !last && (!message.streaming || range.is_empty()) {
            return None;
        }
        if matches!(place, Place::Assembly(_)) {
            self.stale = true;
            self.keep = 0;
        }
        self.message = if last { None } else { Some(Progress { first: false, ..message }) };
        Some(if message.streaming {
            Found::Chunk { kind: message.kind, place, first: message.first, last }
        } else {
            Found::Message(message.kind, place)
        })
    }

    /// Inflates a piece of a message and appends it to the assembly.
    fn inflate(&mut self, message: Progress, piece: &[u8], last: bool, pool: &mut Pool) -> Result<Place, Error> {
        let from = self.assembly.len();
        let Some(inflater) = &mut self.inflater else { return Err(Error::ReservedBits) };
        if !self.assembly.has_memory() {
            self.assembly = pool.take();
        }
        inflater.inflate(piece, last, self.max_message, &mut self.assembly)?;
        if !last {
            pool.fit(&mut self.assembly);
        }
        if message.kind == Kind::Text {
            self.utf8.push(&self.assembly.filled()[from..])?;
        }
        Ok(Place::Assembly(0..self.assembly.len()))
    }

    /// Returns the part of the current payload that lies in `input[at..]`, and whether the frame ends with it.
    fn next_range(&self, input: &[u8], at: usize) -> (Range<usize>, bool) {
        let there = input.len() - at;
        let n = usize::try_from(self.remaining).map_or(there, |remaining| remaining.min(there));
        (at..at + n, n as u64 == self.remaining)
    }

    /// Unmasks the next bytes of the payload in place.
    fn unmask(&mut self, data: &mut [u8]) {
        if self.role == Role::Server {
            mask(data, self.key);
        }
        self.advance(data.len());
    }

    /// Appends the next bytes of the payload to the assembly, unmasked.
    fn append(&mut self, data: &[u8], pool: &mut Pool) {
        if data.is_empty() {
            return;
        }
        if self.assembly.room() < data.len() {
            // Memory is reserved ahead, so that a large frame rarely grows it.
            let len = self.assembly.len();
            let ahead = (len + data.len()).saturating_mul(Self::AHEAD) - len;
            let wanted = usize::try_from(self.remaining).map_or(ahead, |remaining| remaining.min(ahead));
            pool.reserve(&mut self.assembly, wanted.max(data.len()));
        }
        let free = &mut self.assembly.reserve(data.len())[..data.len()];
        match self.role {
            Role::Server => mask_copy(data, free, self.key),
            Role::Client => copy(data, free),
        }
        self.assembly.commit(data.len());
        self.advance(data.len());
    }

    const fn advance(&mut self, n: usize) {
        self.key = rotate(self.key, n);
        self.remaining -= n as u64;
    }

    fn slice<'b>(&'b self, place: &Place, input: &'b [u8]) -> &'b [u8] {
        match place {
            Place::Input(range) => &input[range.clone()],
            Place::Assembly(range) => &self.assembly.filled()[range.clone()],
        }
    }

    #[expect(unsafe_code, reason = "text is validated as it arrives, not a second time")]
    pub(super) fn event<'b>(&'b self, found: Found, input: &'b [u8]) -> Result<Event<'b>, Error> {
        Ok(match found {
            Found::Message(kind, place) => {
                let data = self.slice(&place, input);
                // SAFETY: `take_data` has pushed all bytes of a text to `self.utf8` in order, and has called its
                // `finish`. The bytes at `place` are the whole message, in the input or appended to the assembly piece
                // by piece. The inflater only appends, too.
                Event::Message(unsafe { Message::new_unchecked(kind, data) })
            }
            Found::Chunk { kind, place, first, last } => {
                Event::Chunk { kind, data: self.slice(&place, input), first, last }
            }
            Found::Control(Opcode::Ping, place) => Event::Ping(self.slice(&place, input)),
            Found::Control(Opcode::Pong, place) => Event::Pong(self.slice(&place, input)),
            Found::Control(_, place) => Event::Close(Close::parse(self.slice(&place, input))?),
        })
    }
}
