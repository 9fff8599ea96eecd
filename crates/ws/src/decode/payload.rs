//! Payloads: unmasking them where they lie or into the assembly, inflating, and handing out what is whole.

use super::{Decoder, Phase, Progress};
use crate::mask::{mask, mask_copy, rotate};
use crate::{Close, Error, Event, Kind, Message, Opcode, Role};
use core::ops::Range;
use tautline_window::Pool;

/// Where something lies.
pub(super) enum Place {
    Input(Range<usize>),
    Assembly(Range<usize>),
}

/// An event as offsets, so that the state can be changed while it is found.
pub(super) enum Found {
    Message(Kind, Place),
    Chunk { kind: Kind, place: Place, first: bool, last: bool },
    Control(Opcode, Place),
}

impl Decoder {
    /// Inflates at most this much at a time where chunks are handed out, so that one of them stays near 1 MiB at the most
    /// that DEFLATE can expand.
    const INFLATE_STEP: usize = 1024;

    /// Memory that a frame's declared length alone may claim.
    const TRUST: usize = 16 * 1024;

    /// The payload of a control frame from `input[at..]` on.
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
            // A message that was not finished never will be.
            self.message = None;
            self.keep = 0;
            self.stale = true;
        }
        Ok((used, Some(Found::Control(self.opcode, place))))
    }

    /// The payload of a data frame from `input[at..]` on.
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

    /// What to hand out of a message now that the data at `place` has arrived.
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

    /// Inflates a piece of a message behind what is in the assembly.
    fn inflate(&mut self, message: Progress, piece: &[u8], last: bool, pool: &mut Pool) -> Result<Place, Error> {
        let from = self.assembly.len();
        let Some(inflater) = &mut self.inflater else { return Err(Error::ReservedBits) };
        if self.assembly.capacity() == 0 {
            self.assembly = pool.take();
        }
        inflater.inflate(piece, last, self.max_message, &mut self.assembly)?;
        if message.kind == Kind::Text {
            self.utf8.push(&self.assembly.filled()[from..])?;
        }
        Ok(Place::Assembly(0..self.assembly.len()))
    }

    /// The part of the current frame's payload that lies in `input[at..]`, and whether the frame ends with it.
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

    /// Unmasks the next bytes of the payload behind what is in the assembly.
    fn append(&mut self, data: &[u8], pool: &mut Pool) {
        if data.is_empty() {
            return;
        }
        if self.assembly.capacity() == 0 {
            self.assembly = pool.take();
        }
        // As much again as has arrived may be claimed ahead, so that a large frame grows its buffer few times.
        let len = self.assembly.len();
        let trust = Self::TRUST.max(len.saturating_mul(2)) - len;
        let ahead = usize::try_from(self.remaining).map_or(trust, |remaining| remaining.min(trust));
        let free = &mut self.assembly.reserve(data.len().max(ahead))[..data.len()];
        match self.role {
            Role::Server => mask_copy(data, free, self.key),
            Role::Client => free.copy_from_slice(data),
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
                // SAFETY: `take_data` has shown all bytes of a text to `self.utf8` in order, and its end: those at `place`
                // are all of the message, in the input or appended to the assembly piece by piece. The inflater, too, only
                // appends.
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
