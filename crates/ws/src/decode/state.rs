//! A decoder's state as plain data, so that another decoder can continue the connection, possibly in another process.

use super::assembly::Content;
use super::{Decoder, Phase, Progress};
use crate::{Error, Header, Kind, Opcode, Role};
use tautline_buf::Pool;
use tautline_buf::fields::{put, take, take_array, take_u64};

/// The state of a [`Decoder`] that changes with a connection, made by [`Decoder::state`].
///
/// [`encode`](Self::encode) and [`decode`](Self::decode) convert it to bytes and back.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DecoderState {
    /// The beginning of an incomplete header, at most 13 bytes.
    pub header: Vec<u8>,
    /// The frame whose payload is arriving.
    pub frame: Option<FrameState>,
    /// The message in progress.
    pub message: Option<MessageState>,
    /// The next messages are handed out in chunks.
    pub streaming: bool,
    /// A close frame was received.
    pub closed: bool,
    /// The last bytes, at most 32 KiB, that the peer's compressor may refer to; empty without context takeover.
    pub window: Vec<u8>,
}

/// A frame whose payload is arriving.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FrameState {
    /// The frame's opcode.
    pub opcode: Opcode,
    /// The message ends with this frame.
    pub fin: bool,
    /// The masking key, rotated to the next byte of the payload; zeros if frames are not masked.
    pub key: [u8; 4],
    /// Bytes of the payload that have not arrived yet.
    pub remaining: u64,
    /// A control frame's payload so far, unmasked; empty for data frames.
    pub control: Vec<u8>,
}

/// A message in progress.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MessageState {
    /// The message's kind.
    pub kind: Kind,
    /// The message is compressed, and none of its payload has arrived.
    pub compressed: bool,
    /// The message is handed out in chunks.
    pub streaming: bool,
    /// No chunk of the message was handed out.
    pub first: bool,
    /// Bytes of the message so far, if it is not compressed.
    pub total: usize,
    /// The message so far; empty if it is handed out in chunks.
    pub data: Vec<u8>,
    /// The incomplete character at the end of a text that is handed out in chunks; otherwise empty.
    pub character: Vec<u8>,
}

const VERSION: u8 = 1;
const NOT_A_STATE: Error = Error::ApiMisuse("the bytes are not the state of a decoder, or one of another version");
const IMPOSSIBLE: Error = Error::ApiMisuse("a decoder with these settings cannot be in that state");

impl Decoder {
    /// The state, for a decoder with the same settings that may take this one's place. Until then this one can go on.
    ///
    /// The caller moves the bytes that [`decode`](Self::decode) did not use along with the state.
    ///
    /// # Errors
    /// * [`Error::ApiMisuse`] inside a compressed message, since an inflater's state within one cannot be read. The
    ///   decoder is unchanged: decode on until [`is_idle`](Self::is_idle).
    /// * [`Error::InvalidDeflate`] if the peer ended a compressed message inside a block. The decoder has failed then.
    /// * The earlier error, if the decoder has failed.
    pub fn state(&mut self, pool: &mut Pool) -> Result<DecoderState, Error> {
        if let Phase::Failed(error) = &self.phase {
            return Err(**error);
        }
        self.recycle(pool);
        match self.inflater.as_mut().map_or(Ok(Vec::new()), |inflater| inflater.window()) {
            Ok(window) => Ok(self.state_with(window)),
            Err(error @ Error::ApiMisuse(_)) => Err(error),
            Err(error) => Err(self.fail(error, pool)),
        }
    }

    fn state_with(&self, window: Vec<u8>) -> DecoderState {
        let in_control = matches!(self.phase, Phase::Payload) && self.opcode.is_control();
        let (data, control) = self.assembly.parts();
        DecoderState {
            header: self.head[..self.head_len.into()].to_vec(),
            frame: matches!(self.phase, Phase::Payload).then(|| FrameState {
                opcode: self.opcode,
                fin: self.fin || in_control,
                key: self.key,
                remaining: self.remaining,
                control: control.to_vec(),
            }),
            message: self.message.map(|message| MessageState {
                kind: message.kind,
                compressed: message.compressed,
                streaming: message.streaming,
                first: message.first,
                total: self.total,
                data: data.to_vec(),
                character: if message.streaming { self.assembly.incomplete().to_vec() } else { Vec::new() },
            }),
            streaming: self.streaming,
            closed: matches!(self.phase, Phase::Closed),
            window,
        }
    }

    /// Continues the state that another decoder [had](Self::state).
    ///
    /// This decoder must be new and have the same settings.
    ///
    /// # Errors
    /// [`Error::ApiMisuse`] if a decoder with these settings cannot be in that state.
    pub fn import(mut self, state: &DecoderState) -> Result<Self, Error> {
        let DecoderState { header, frame, message, streaming, closed, window } = state;
        let begun = !header.is_empty() || frame.is_some() || message.is_some();
        if (*closed && begun) || (!header.is_empty() && frame.is_some()) {
            return Err(IMPOSSIBLE);
        }
        self.phase = if *closed { Phase::Closed } else { Phase::Header };
        self.streaming = *streaming;
        if !window.is_empty() {
            self.inflater.as_mut().ok_or(IMPOSSIBLE)?.import(window)?;
        }
        self.import_header(header)?;
        if let Some(message) = message {
            self.import_message(message)?;
        }
        if let Some(frame) = frame {
            self.import_frame(frame)?;
        }
        self.resume_fast_path();
        Ok(self)
    }

    fn import_header(&mut self, header: &[u8]) -> Result<(), Error> {
        let needed = header.get(1).map_or(2, |&second| Header::len_of(second));
        if header.len() >= needed || Header::parse(header) != Ok(None) {
            return if header.is_empty() { Ok(()) } else { Err(IMPOSSIBLE) };
        }
        self.head[..header.len()].copy_from_slice(header);
        // At most 13.
        self.head_len = header.len().to_le_bytes()[0];
        Ok(())
    }

    /// Restores the message in progress. Text is validated again, since it is later handed out unchecked.
    fn import_message(&mut self, message: &MessageState) -> Result<(), Error> {
        let MessageState { kind, compressed, streaming, first, total, ref data, ref character } = *message;
        let is_possible = if compressed {
            self.inflater.is_some() && first && total == 0 && data.is_empty() && character.is_empty()
        } else if streaming {
            data.is_empty() && character.len() <= total && first == (total == 0)
        } else {
            first && total == data.len() && character.is_empty()
        };
        if !is_possible || total > self.max_message || (kind == Kind::Binary && !character.is_empty()) {
            return Err(IMPOSSIBLE);
        }
        self.assembly.begin(Content::of(kind, streaming));
        if !self.assembly.import(data, character) {
            return Err(IMPOSSIBLE);
        }
        self.total = total;
        self.message = Some(Progress { kind, compressed, streaming, first });
        Ok(())
    }

    fn import_frame(&mut self, frame: &FrameState) -> Result<(), Error> {
        let FrameState { opcode, fin, key, remaining, ref control } = *frame;
        let is_possible = if opcode.is_control() {
            fin && remaining.saturating_add(control.len() as u64) <= 125
        } else {
            let room = self.most_received().saturating_sub(self.total) as u64;
            control.is_empty() && self.message.is_some() && remaining <= room
        };
        if !is_possible || (self.role == Role::Client && key != [0; 4]) {
            return Err(IMPOSSIBLE);
        }
        self.assembly.import_control(control);
        (self.opcode, self.fin, self.key, self.remaining) = (opcode, fin, key, remaining);
        self.phase = Phase::Payload;
        Ok(())
    }
}

impl DecoderState {
    /// Appends the state as bytes.
    ///
    /// The format is this library's own. It begins with a version, and [`decode`](Self::decode) rejects an unknown one.
    ///
    /// Integers are big-endian; the number of bytes is in parentheses. First come version (1), flags (1), header and
    /// window. A frame has opcode (1), `fin` (1), key (4), `remaining` (8) and control payload. A message has flags
    /// (1), `total` (8), data and incomplete character. Each field of variable length has its length (4) in front.
    ///
    /// Flags of the state: streaming 1, closed 2, has a frame 4, has a message 8. Flags of a message: text 1,
    /// compressed 2, streaming 4, first 8.
    pub fn encode(&self, out: &mut Vec<u8>) {
        let flags = [self.streaming, self.closed, self.frame.is_some(), self.message.is_some()];
        out.extend([VERSION, bits(flags)]);
        put(&self.header, out);
        put(&self.window, out);
        if let Some(FrameState { opcode, fin, key, remaining, control }) = &self.frame {
            out.extend([*opcode as u8, u8::from(*fin)]);
            out.extend(key);
            out.extend(remaining.to_be_bytes());
            put(control, out);
        }
        if let Some(MessageState { kind, compressed, streaming, first, total, data, character }) = &self.message {
            out.push(bits([*kind == Kind::Text, *compressed, *streaming, *first]));
            out.extend((*total as u64).to_be_bytes());
            put(data, out);
            put(character, out);
        }
    }

    /// Reads a state that [`encode`](Self::encode) wrote.
    ///
    /// # Errors
    /// [`Error::ApiMisuse`] if `bytes` are not exactly one state of this version.
    pub fn decode(bytes: &[u8]) -> Result<Self, Error> {
        let mut rest = bytes;
        match Self::read(&mut rest) {
            Some(state) if rest.is_empty() => Ok(state),
            _ => Err(NOT_A_STATE),
        }
    }

    fn read(rest: &mut &[u8]) -> Option<Self> {
        let [VERSION, flags @ 0..=15] = *take_array(rest)? else { return None };
        let flag = |flags: u8, bit: u8| flags >> bit & 1 == 1;
        let (header, window) = (take(rest)?.to_vec(), take(rest)?.to_vec());
        let mut frame = || {
            let [opcode, fin @ 0..=1] = *take_array(rest)? else { return None };
            Some(FrameState {
                opcode: Opcode::parse(opcode).ok()?,
                fin: fin == 1,
                key: *take_array(rest)?,
                remaining: take_u64(rest)?,
                control: take(rest)?.to_vec(),
            })
        };
        let frame = if flag(flags, 2) { Some(frame()?) } else { None };
        let mut message = || {
            let [flags @ 0..=15] = *take_array(rest)? else { return None };
            Some(MessageState {
                kind: if flag(flags, 0) { Kind::Text } else { Kind::Binary },
                compressed: flag(flags, 1),
                streaming: flag(flags, 2),
                first: flag(flags, 3),
                total: usize::try_from(take_u64(rest)?).ok()?,
                data: take(rest)?.to_vec(),
                character: take(rest)?.to_vec(),
            })
        };
        let message = if flag(flags, 3) { Some(message()?) } else { None };
        Some(Self { header, frame, message, streaming: flag(flags, 0), closed: flag(flags, 1), window })
    }
}

fn bits(flags: [bool; 4]) -> u8 {
    flags.iter().enumerate().fold(0, |all, (bit, &set)| all | u8::from(set) << bit)
}

#[cfg(test)]
mod tests;
