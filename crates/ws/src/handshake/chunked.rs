//! The chunked coding of bodies (RFC 9112, section 7.1), byte by byte, for readers that differ in what they do with the content.

/// Most bytes of the line with a chunk's size.
const MAX_LINE: u16 = 256;
/// Most bytes of all trailers together.
pub(super) const MAX_TRAILERS: usize = 8 << 10;

/// Reads a chunked body. Lines end with CRLF and nothing else. Extensions and trailers are passed over.
///
/// ```
/// use tautline_ws::handshake::{ChunkPart, Chunked};
///
/// let (mut chunked, mut content) = (Chunked::default(), Vec::new());
/// let used = chunked.read(b"5;x=y\r\nhello\r\n0\r\n\r\nnext", |part| {
///     if let ChunkPart::Data(data) = part {
///         content.extend_from_slice(data);
///     }
///     Ok(())
/// });
/// assert_eq!((used, chunked.is_whole(), &content[..]), (Ok(19), true, &b"hello"[..]));
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Chunked(State);

/// A part of a chunked body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChunkPart<'b> {
    /// A chunk of this many bytes, at least one, begins.
    Begin(u64),
    /// Bytes of a chunk.
    Data(&'b [u8]),
    /// The bytes of a chunk are complete.
    End,
    /// The body is whole.
    Last,
}

/// The reason why a chunked body cannot be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChunkFlaw {
    /// The line with a chunk's size is malformed.
    Size,
    /// That line is too long.
    LongLine,
    /// A chunk is longer than any limit.
    TooLarge,
    /// No line end is behind a chunk.
    End,
    /// The trailers are malformed.
    Trailers,
    /// The trailers are too long.
    LongTrailers,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
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
        bytes: usize,
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

impl Default for State {
    fn default() -> Self {
        Self::Size { value: 0, digits: 0, bytes: 0, at: InLine::Digits }
    }
}

impl Chunked {
    /// Whether all of the body has been read.
    #[must_use]
    pub const fn is_whole(&self) -> bool {
        matches!(self.0, State::Whole)
    }

    /// Reads from the front of `bytes`, and calls `to` with each part. Returns how many bytes belonged to the body.
    ///
    /// # Errors
    /// The body is malformed, or `to` refuses a part of it.
    pub fn read(
        &mut self,
        bytes: &[u8],
        mut to: impl FnMut(ChunkPart<'_>) -> Result<(), ChunkFlaw>,
    ) -> Result<usize, ChunkFlaw> {
        let mut used = 0;
        while used < bytes.len() && !self.is_whole() {
            let rest = &bytes[used..];
            if let State::Chunk(left) = self.0 {
                let data = &rest[..usize::try_from(left).unwrap_or(usize::MAX).min(rest.len())];
                to(ChunkPart::Data(data))?;
                used += data.len();
                self.0 = State::Chunk(left - data.len() as u64);
                if self.0 == State::Chunk(0) {
                    to(ChunkPart::End)?;
                    self.0 = State::ChunkEnd(false);
                }
                continue;
            }
            self.0 = self.0.after(rest[0])?;
            used += 1;
            match self.0 {
                State::Chunk(len) => to(ChunkPart::Begin(len))?,
                State::Whole => to(ChunkPart::Last)?,
                _ => {}
            }
        }
        Ok(used)
    }
}

impl State {
    /// The state behind one byte of the framing.
    fn after(self, byte: u8) -> Result<Self, ChunkFlaw> {
        Ok(match (self, byte) {
            (Self::Size { value, digits, at: InLine::Cr, .. }, b'\n') if digits > 0 => match value {
                0 => Self::Trailers { bytes: 0, in_line: false, cr: false },
                len => Self::Chunk(len),
            },
            (Self::Size { at: InLine::Cr, .. }, _) => return Err(ChunkFlaw::Size),
            (Self::Size { bytes: MAX_LINE.., .. }, _) => return Err(ChunkFlaw::LongLine),
            (Self::Size { value, digits, bytes, at }, byte) => {
                let digit = char::from(byte).to_digit(16).filter(|_| at == InLine::Digits);
                let (value, digits, at) = match (digit, byte) {
                    // 15 digits cannot overflow 64 bits.
                    (Some(_), _) if digits == 15 => return Err(ChunkFlaw::TooLarge),
                    (Some(digit), _) => (value << 4 | u64::from(digit), digits + 1, at),
                    (None, b'\r') => (value, digits, InLine::Cr),
                    (None, b';') if digits > 0 => (value, digits, InLine::Extension),
                    (None, b'\t' | b' '..=b'~' | 0x80..) if at == InLine::Extension => (value, digits, at),
                    (None, _) => return Err(ChunkFlaw::Size),
                };
                Self::Size { value, digits, bytes: bytes + 1, at }
            }
            (Self::ChunkEnd(false), b'\r') => Self::ChunkEnd(true),
            (Self::ChunkEnd(true), b'\n') => Self::default(),
            (Self::Trailers { bytes: MAX_TRAILERS.., .. }, _) => return Err(ChunkFlaw::LongTrailers),
            (Self::Trailers { in_line: false, cr: true, .. }, b'\n') => Self::Whole,
            (Self::Trailers { bytes, cr: true, .. }, b'\n') => {
                Self::Trailers { bytes: bytes + 1, in_line: false, cr: false }
            }
            (Self::Trailers { bytes, in_line, cr: false }, b'\r') => {
                Self::Trailers { bytes: bytes + 1, in_line, cr: true }
            }
            (Self::Trailers { bytes, cr: false, .. }, b'\t' | b' '..=b'~' | 0x80..) => {
                Self::Trailers { bytes: bytes + 1, in_line: true, cr: false }
            }
            (Self::Trailers { .. }, _) => return Err(ChunkFlaw::Trailers),
            _ => return Err(ChunkFlaw::End),
        })
    }
}
