//! Unmasks payloads in place or into the assembly, inflates them, and hands out what is complete.

use super::found::{Found, Place};
use super::{Decoder, Phase, Progress};
use crate::mask::{copy, mask, mask_copy, rotate};
use crate::{Close, Error, Event, Message, Opcode, Role};
use tautline_buf::Pool;

impl Decoder {
    /// Most compressed bytes per chunk, so that a chunk stays near 1 MiB even at DEFLATE's highest ratio.
    const INFLATE_STEP: usize = 1024;

    /// Cuts the next piece of the current frame's payload off the front of `input`.
    pub(super) fn split_payload<'i>(&self, input: &'i mut [u8]) -> (&'i mut [u8], &'i mut [u8]) {
        let mut n = usize::try_from(self.remaining).map_or(input.len(), |remaining| remaining.min(input.len()));
        if let Some(Progress { compressed: true, streaming: true, .. }) = self.message
            && !self.opcode.is_control()
        {
            n = n.min(Self::INFLATE_STEP);
        }
        input.split_at_mut(n)
    }

    /// Takes a piece of a control frame's payload.
    pub(super) fn take_control<'i>(
        &mut self,
        piece: &'i mut [u8],
        pool: &mut Pool,
    ) -> Result<Option<Found<'i>>, Error> {
        let ended = piece.len() as u64 == self.remaining;
        let place = if ended && !self.assembly.has_control() {
            Place::Input(self.unmask(piece))
        } else {
            self.append_control(piece, pool);
            Place::Assembly
        };
        if !ended {
            return Ok(None);
        }
        if matches!(place, Place::Assembly) {
            self.assembly.hand_out_control();
        }
        self.phase = Phase::Header;
        if self.opcode == Opcode::Close {
            Close::parse(self.bytes_at(&place))?;
            self.phase = Phase::Closed;
            // A message that is incomplete now stays so.
            self.message = None;
            if matches!(place, Place::Input(_)) {
                self.assembly.clear(pool);
            }
        }
        Ok(Some(Found::Control(self.opcode, place)))
    }

    /// Takes a piece of a data frame's payload.
    pub(super) fn take_data<'i>(
        &mut self,
        message: Progress,
        piece: &'i mut [u8],
        pool: &mut Pool,
    ) -> Result<Option<Found<'i>>, Error> {
        let ended = piece.len() as u64 == self.remaining;
        let last = ended && self.fin;
        if ended {
            self.phase = Phase::Header;
        }
        if !message.compressed && !message.streaming && last && self.total == 0 {
            self.message = None;
            return Message::validate(message.kind, self.unmask(piece)).map(|message| Some(Found::Message(message)));
        }
        let place = if message.compressed {
            self.total += piece.len();
            let piece = self.unmask(piece);
            let Some(inflater) = &mut self.inflater else { return Err(Error::ReservedBits) };
            self.assembly.inflate(inflater, piece, last, self.max_message, pool)?;
            Place::Assembly
        } else if message.streaming {
            self.total += piece.len();
            let piece = self.unmask(piece);
            self.assembly.pass(piece)?;
            Place::Input(piece)
        } else {
            self.total += piece.len();
            self.append(piece, pool)?;
            Place::Assembly
        };
        if last {
            self.assembly.finish()?;
        }
        Ok(self.found_data(message, place, last))
    }

    /// Returns the event to hand out, if any, now that the data at `place` has arrived.
    fn found_data<'i>(&mut self, message: Progress, place: Place<'i>, last: bool) -> Option<Found<'i>> {
        let is_empty = match place {
            Place::Input(piece) => piece.is_empty(),
            Place::Assembly => self.assembly.has_no_message(),
        };
        if !last && (!message.streaming || is_empty) {
            return None;
        }
        if matches!(place, Place::Assembly) {
            self.assembly.hand_out_message();
        }
        self.message = if last { None } else { Some(Progress { first: false, ..message }) };
        Some(if message.streaming {
            Found::Chunk { kind: message.kind, place, first: message.first, last }
        } else {
            Found::Assembled
        })
    }

    /// Unmasks the next bytes of the payload in place.
    fn unmask<'i>(&mut self, piece: &'i mut [u8]) -> &'i [u8] {
        if self.role == Role::Server {
            mask(piece, self.key);
        }
        self.advance(piece.len());
        piece
    }

    /// Appends the next bytes of a message to the assembly, unmasked.
    fn append(&mut self, piece: &[u8], pool: &mut Pool) -> Result<(), Error> {
        if piece.is_empty() {
            return Ok(());
        }
        let (role, key) = (self.role, self.key);
        let appended =
            self.assembly.append(piece.len(), self.remaining, pool, |free| unmask_to(role, key, piece, free));
        self.advance(piece.len());
        appended
    }

    /// Appends the next bytes of a control frame to the assembly, unmasked.
    fn append_control(&mut self, piece: &[u8], pool: &mut Pool) {
        if piece.is_empty() {
            return;
        }
        let (role, key) = (self.role, self.key);
        let fill = |free: &mut [u8]| unmask_to(role, key, piece, free);
        self.assembly.append_control(piece.len(), self.remaining, pool, fill);
        self.advance(piece.len());
    }

    const fn advance(&mut self, n: usize) {
        self.key = rotate(self.key, n);
        self.remaining -= n as u64;
    }

    fn bytes_at<'b>(&'b self, place: &Place<'b>) -> &'b [u8] {
        match place {
            Place::Input(piece) => piece,
            Place::Assembly => self.assembly.held().unwrap_or_default(),
        }
    }

    pub(super) fn event<'b>(&'b self, found: Found<'b>) -> Result<Event<'b>, Error> {
        Ok(match found {
            Found::Message(message) => Event::Message(message),
            Found::Assembled => Event::Message(self.assembly.whole()?),
            Found::Chunk { kind, place, first, last } => {
                Event::Chunk { kind, data: self.bytes_at(&place), first, last }
            }
            Found::Control(Opcode::Ping, place) => Event::Ping(self.bytes_at(&place)),
            Found::Control(Opcode::Pong, place) => Event::Pong(self.bytes_at(&place)),
            Found::Control(_, place) => Event::Close(Close::parse(self.bytes_at(&place))?),
        })
    }
}

fn unmask_to(role: Role, key: [u8; 4], piece: &[u8], free: &mut [u8]) {
    match role {
        Role::Server => mask_copy(piece, free, key),
        Role::Client => copy(piece, free),
    }
}
