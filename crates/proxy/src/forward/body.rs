use super::{Flaw, Framing};
use std::io::Write as _;

/// Most bytes of the line with a chunk's size.
const MAX_LINE: u16 = 256;
/// Most bytes of all trailers.
const MAX_TRAILERS: u16 = 8 << 10;

/// The form of a body behind the proxy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// Chunks stay chunks, and bytes stay bytes.
    AsIs,
    /// The bytes alone: for a client that knows no chunks.
    Bytes,
}

/// A body on its way.
///
/// ```
/// use tautline_proxy::forward::{Body, Form, Framing};
///
/// let (mut body, mut out) = (Body::new(Framing::Chunked, Form::AsIs), Vec::new());
/// let used = body.pass(b"5;x=y\r\nhello\r\n0\r\nTrailer: t\r\n\r\nnext", |bytes| out.extend_from_slice(bytes))?;
/// assert_eq!((used, body.is_whole(), out), (31, true, b"5\r\nhello\r\n0\r\n\r\n".to_vec()));
/// # Ok::<(), tautline_proxy::forward::Flaw>(())
/// ```
#[derive(Clone, Debug)]
pub struct Body {
    state: State,
    is_chunked: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// Bytes of a body of this length.
    Known(u64),
    /// Bytes until the connection ends.
    UntilEnd,
    /// The line with a chunk's size: its value, and digits and bytes so far.
    Size {
        value: u64,
        digits: u8,
        bytes: u16,
        at: InLine,
    },
    /// Bytes of a chunk.
    Chunk(u64),
    /// CRLF behind a chunk: whether CR was there.
    ChunkEnd(bool),
    /// Behind the last chunk: bytes of trailers, whether the present line has some, and whether CR was there.
    Trailers {
        bytes: u16,
        in_line: bool,
        cr: bool,
    },
    Whole,
}

/// The position in the line with a chunk's size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum InLine {
    Digits,
    Extension,
    Cr,
}

const SIZE: State = State::Size { value: 0, digits: 0, bytes: 0, at: InLine::Digits };

impl Body {
    /// A body that begins.
    #[must_use]
    pub const fn new(framing: Framing, form: Form) -> Self {
        let state = match framing {
            Framing::Empty => State::Whole,
            Framing::Length(len) => State::Known(len),
            Framing::Chunked => SIZE,
            Framing::UntilEnd => State::UntilEnd,
        };
        Self { state, is_chunked: matches!(framing, Framing::Chunked) && matches!(form, Form::AsIs) }
    }

    /// Whether all of it has passed.
    #[must_use]
    pub const fn is_whole(&self) -> bool {
        matches!(self.state, State::Whole)
    }

    /// The connection has ended.
    ///
    /// # Errors
    /// The body is not whole.
    pub const fn end(&mut self) -> Result<(), Flaw> {
        match self.state {
            State::UntilEnd | State::Whole => {
                self.state = State::Whole;
                Ok(())
            }
            _ => Err(Flaw::Cut),
        }
    }

    /// Passes bytes on to `to`. Returns how many belonged to the body.
    ///
    /// # Errors
    /// The body is malformed. Nothing more of it may be passed.
    pub fn pass(&mut self, bytes: &[u8], mut to: impl FnMut(&[u8])) -> Result<usize, Flaw> {
        let mut used = 0;
        while used < bytes.len() && self.state != State::Whole {
            used += match self.state {
                State::Known(left) | State::Chunk(left) => self.data(&bytes[used..], left, &mut to),
                State::UntilEnd => {
                    to(&bytes[used..]);
                    bytes.len() - used
                }
                _ => {
                    self.step(bytes[used], &mut to)?;
                    1
                }
            };
        }
        Ok(used)
    }

    fn data(&mut self, bytes: &[u8], left: u64, to: &mut impl FnMut(&[u8])) -> usize {
        let len = usize::try_from(left).unwrap_or(usize::MAX).min(bytes.len());
        to(&bytes[..len]);
        let left = left - len as u64;
        self.state = match (self.state, left) {
            (State::Known(_), 0) => State::Whole,
            (State::Known(_), left) => State::Known(left),
            (_, 0) => {
                if self.is_chunked {
                    to(b"\r\n");
                }
                State::ChunkEnd(false)
            }
            (_, left) => State::Chunk(left),
        };
        len
    }

    /// Takes a byte of the framing.
    fn step(&mut self, byte: u8, to: &mut impl FnMut(&[u8])) -> Result<(), Flaw> {
        self.state = match self.state {
            State::Size { value, digits, bytes, at } => return self.size(byte, (value, digits, bytes, at), to),
            State::ChunkEnd(false) if byte == b'\r' => State::ChunkEnd(true),
            State::ChunkEnd(true) if byte == b'\n' => SIZE,
            State::ChunkEnd(_) => return Err(Flaw::ChunkEnd),
            State::Trailers { in_line: false, cr: true, .. } if byte == b'\n' => {
                if self.is_chunked {
                    to(b"0\r\n\r\n");
                }
                State::Whole
            }
            State::Trailers { bytes, in_line, cr } => {
                if bytes == MAX_TRAILERS {
                    return Err(Flaw::Trailers);
                }
                let bytes = bytes + 1;
                match (byte, cr) {
                    (b'\n', true) => State::Trailers { bytes, in_line: false, cr: false },
                    (b'\r', false) => State::Trailers { bytes, in_line, cr: true },
                    (b'\t' | b' '..=b'~' | 0x80.., false) => State::Trailers { bytes, in_line: true, cr: false },
                    _ => return Err(Flaw::Trailers),
                }
            }
            other => other,
        };
        Ok(())
    }

    /// Takes a byte of the line with a chunk's size.
    fn size(
        &mut self,
        byte: u8,
        (value, digits, bytes, at): (u64, u8, u16, InLine),
        to: &mut impl FnMut(&[u8]),
    ) -> Result<(), Flaw> {
        if bytes == MAX_LINE {
            return Err(Flaw::ChunkSize);
        }
        let line = |value, digits, at| State::Size { value, digits, bytes: bytes + 1, at };
        self.state = match (at, byte) {
            (InLine::Digits, b'0'..=b'9' | b'a'..=b'f' | b'A'..=b'F') if digits < 15 => {
                let digit = char::from(byte).to_digit(16).ok_or(Flaw::ChunkSize)?;
                line(value * 16 + u64::from(digit), digits + 1, InLine::Digits)
            }
            (InLine::Digits, b';') if digits > 0 => line(value, digits, InLine::Extension),
            (InLine::Digits, b'\r') if digits > 0 => line(value, digits, InLine::Cr),
            (InLine::Extension, b'\r') => line(value, digits, InLine::Cr),
            (InLine::Extension, b'\t' | b' '..=b'~' | 0x80..) => line(value, digits, InLine::Extension),
            (InLine::Cr, b'\n') if value == 0 => State::Trailers { bytes: 0, in_line: false, cr: false },
            (InLine::Cr, b'\n') => {
                if self.is_chunked {
                    let mut text = [0; 18];
                    let mut room = &mut text[..];
                    // A number of 15 digits fits.
                    let _ = write!(room, "{value:x}\r\n");
                    let left = room.len();
                    to(&text[..text.len() - left]);
                }
                State::Chunk(value)
            }
            _ => return Err(Flaw::ChunkSize),
        };
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::{Body, Form};
    use crate::forward::{Flaw, Framing};
    use proptest::prelude::*;

    /// Passes `wire` in pieces of `step` bytes. Returns what came out, and the bytes behind the body.
    fn pass(framing: Framing, form: Form, wire: &[u8], step: usize) -> Result<(Vec<u8>, usize, bool), Flaw> {
        let (mut body, mut out, mut used) = (Body::new(framing, form), Vec::new(), 0);
        for piece in wire.chunks(step) {
            let took = body.pass(piece, |bytes| out.extend_from_slice(bytes))?;
            used += took;
            if took < piece.len() {
                break;
            }
        }
        Ok((out, wire.len() - used, body.is_whole()))
    }

    fn chunked(chunks: &[Vec<u8>], with: &str, trailers: &str) -> Vec<u8> {
        let mut wire = Vec::new();
        for chunk in chunks {
            wire.extend(format!("{:X}{with}\r\n", chunk.len()).bytes());
            wire.extend(chunk);
            wire.extend(b"\r\n");
        }
        wire.extend(format!("0{with}\r\n{trailers}\r\n").bytes());
        wire
    }

    proptest! {
        #[test]
        fn chunks_pass_however_they_are_cut(
            chunks in prop::collection::vec(prop::collection::vec(any::<u8>(), 1..40), 0..6),
            step in 1usize..50,
            behind in prop::collection::vec(any::<u8>(), 0..9),
        ) {
            let clean: Vec<u8> = chunks.concat();
            let mut wire = chunked(&chunks, ";a=\"b\"", "x: y\r\nz:\r\n");
            wire.extend(&behind);
            let plain = pass(Framing::Chunked, Form::Bytes, &wire, step).unwrap();
            prop_assert_eq!(&plain, &(clean.clone(), behind.len(), true));
            let (again, left, whole) = pass(Framing::Chunked, Form::AsIs, &wire, step).unwrap();
            prop_assert_eq!((left, whole), (behind.len(), true));
            // The result has neither extensions nor trailers, and is the same body.
            prop_assert_eq!(pass(Framing::Chunked, Form::Bytes, &again, 7).unwrap(), (clean, 0, true));
            prop_assert!(!again.windows(2).any(|pair| pair == b"z:") || chunks.concat().windows(2).any(|pair| pair == b"z:"));
        }

        #[test]
        fn a_known_length_ends_there(len in 1u64..100, wire in prop::collection::vec(any::<u8>(), 0..200), step in 1usize..50) {
            let (out, left, whole) = pass(Framing::Length(len), Form::AsIs, &wire, step).unwrap();
            let expected = wire.len().min(usize::try_from(len).unwrap());
            prop_assert_eq!((&out[..], left, whole), (&wire[..expected], wire.len() - expected, expected as u64 == len));
        }

        #[test]
        fn any_bytes_are_refused_or_reframed(wire in prop::collection::vec(any::<u8>(), 0..300), step in 1usize..50) {
            let one = pass(Framing::Chunked, Form::AsIs, &wire, step);
            prop_assert_eq!(&one, &pass(Framing::Chunked, Form::AsIs, &wire, usize::MAX));
            if let Ok((out, _, true)) = one {
                prop_assert!(pass(Framing::Chunked, Form::AsIs, &out, 3) == Ok((out.clone(), 0, true)));
            }
        }
    }

    #[test]
    fn malformed_chunks_are_refused() {
        for (wire, flaw) in [
            (&b"\r\n"[..], Flaw::ChunkSize),
            (b"5\nhello", Flaw::ChunkSize),
            (b" 5\r\nhello", Flaw::ChunkSize),
            (b"0x5\r\n", Flaw::ChunkSize),
            (b"-1\r\n", Flaw::ChunkSize),
            (b"5 \r\n", Flaw::ChunkSize),
            (b"5;a\nb\r\n", Flaw::ChunkSize),
            (b"5\r5\r\n", Flaw::ChunkSize),
            (b"1000000000000000\r\n", Flaw::ChunkSize),
            (b"2\r\nabc\r\n", Flaw::ChunkEnd),
            (b"2\r\nab\n", Flaw::ChunkEnd),
            (b"0\r\nx: y\n\r\n", Flaw::Trailers),
            (b"0\r\n\rX", Flaw::Trailers),
            (b"0\r\nx\0: y\r\n", Flaw::Trailers),
        ] {
            for step in [1, 2, 3, 100] {
                let text = String::from_utf8_lossy(wire);
                assert_eq!(pass(Framing::Chunked, Form::AsIs, wire, step), Err(flaw), "{text:?} {step}");
            }
        }
        let long = format!("1;{}\r\n", "x".repeat(300));
        assert_eq!(pass(Framing::Chunked, Form::AsIs, long.as_bytes(), 9), Err(Flaw::ChunkSize));
        let long = format!("0\r\n{}\r\n", "x: y\r\n".repeat(3000));
        assert_eq!(pass(Framing::Chunked, Form::AsIs, long.as_bytes(), 9), Err(Flaw::Trailers));
    }

    #[test]
    fn only_a_body_without_a_length_ends_with_its_connection() {
        let end = |framing| Body::new(framing, Form::AsIs).end();
        assert_eq!((end(Framing::UntilEnd), end(Framing::Empty)), (Ok(()), Ok(())));
        assert_eq!((end(Framing::Length(1)), end(Framing::Chunked)), (Err(Flaw::Cut), Err(Flaw::Cut)));
    }
}
