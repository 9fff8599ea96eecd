use super::{DeflateParams, TAIL};
use crate::{Error, Role};
use core::fmt;
use flate2::{Compress, Compression, FlushCompress};
use tautline_window::Buf;

/// The most output room that is asked for at once, in bytes.
const STEP: usize = 64 * 1024;

/// Compresses messages to be sent (RFC 7692, section 7.2.1).
///
/// Holds no memory before the first compressed message, nor between messages where each is compressed by itself.
pub struct Deflater {
    stream: Option<Compress>,
    between: Between,
    window_bits: u8,
    level: u32,
    /// The message in progress has had a byte.
    begun: bool,
}

/// What becomes of the window between two messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Between {
    /// It stays (context takeover).
    Kept,
    /// It goes, with all memory.
    Dropped,
    /// It is forgotten, the memory stays: for a compressor that serves many connections.
    Emptied,
}

impl Deflater {
    /// A compressor for the end at `role`, with effort `level`, 0 to 9 (more counts as 9).
    #[must_use]
    pub fn new(params: &DeflateParams, role: Role, level: u32) -> Self {
        let (forget, window_bits) = params.sender(role);
        let between = if forget { Between::Dropped } else { Between::Kept };
        Self { stream: None, between, window_bits: window_bits.min(15), level: level.min(9), begun: false }
    }

    /// A compressor of messages that go to many connections, each message by itself.
    pub(super) const fn for_many(window_bits: u8, level: u32) -> Self {
        Self { stream: None, between: Between::Emptied, window_bits, level, begun: false }
    }

    /// Base-2 logarithm of the window.
    #[must_use]
    pub const fn window_bits(&self) -> u8 {
        self.window_bits
    }

    /// Whether compressing can make messages smaller. Where the peer allows a window of 256 bytes only, which no zlib
    /// compresses with, it cannot: [`deflate`](Self::deflate) then yields stored blocks, and messages are better sent as
    /// they are.
    #[must_use]
    pub const fn compresses(&self) -> bool {
        self.window_bits >= 9 && self.level > 0
    }

    /// Compresses the next piece of a message and appends what comes of it to `out`; `fin` says that it is the last.
    ///
    /// Pieces before the last may yield nothing yet. What a whole message yields belongs into its frames in order, cut
    /// anywhere. It can be larger than the payload, where that does not compress: by a thousandth and a few bytes, at
    /// level 1 by a twentieth.
    ///
    /// # Errors
    /// [`Error::Compressor`], which leaves the message unusable.
    pub fn deflate(&mut self, payload: &[u8], fin: bool, out: &mut Buf) -> Result<(), Error> {
        self.begun |= !payload.is_empty();
        if self.begun {
            let flush = if fin { FlushCompress::Sync } else { FlushCompress::None };
            self.advance(payload, flush, out)?;
            if fin {
                strip_tail(out)?;
            }
        } else if fin {
            // A stored block without bytes, less the tail (RFC 7692, section 7.2.3.6).
            out.put(&[0]);
        }
        if fin {
            self.begun = false;
            match (self.between, &mut self.stream) {
                (Between::Dropped, stream) => *stream = None,
                (Between::Emptied, Some(stream)) => stream.reset(),
                _ => {}
            }
        }
        Ok(())
    }

    /// Appends what a message in progress still has in here, up to a whole byte, and lets the memory go.
    pub(crate) fn flush(&mut self, out: &mut Buf) -> Result<(), Error> {
        if self.begun {
            self.advance(&[], FlushCompress::Sync, out)?;
        }
        self.stream = None;
        Ok(())
    }

    /// Lets the memory go, unless a message is in progress. Always permitted: a sender need not use its window, the
    /// messages that follow merely compress less well at first. For connections that fell idle.
    pub fn release(&mut self) {
        if !self.begun {
            self.stream = None;
        }
    }

    /// Bytes of memory held, approximately.
    #[must_use]
    pub const fn memory(&self) -> usize {
        if self.stream.is_some() { (4 << self.window_bits) + 248_960 } else { 0 }
    }

    fn advance(&mut self, payload: &[u8], flush: FlushCompress, out: &mut Buf) -> Result<(), Error> {
        let stream = self.stream.get_or_insert_with(|| {
            // Stored blocks refer to nothing, so they are right for a window of any size.
            let level = if self.window_bits < 9 { 0 } else { self.level };
            Compress::new_with_window_bits(Compression::new(level), false, self.window_bits.max(9))
        });
        let mut rest = payload;
        loop {
            let free = out.reserve((rest.len() / 2).clamp(512, STEP));
            let room = free.len();
            let (read, written) = (stream.total_in(), stream.total_out());
            stream.compress(rest, free, flush).map_err(|_| Error::Compressor)?;
            let read = usize::try_from(stream.total_in() - read).map_err(|_| Error::Compressor)?;
            let written = usize::try_from(stream.total_out() - written).map_err(|_| Error::Compressor)?;
            out.commit(written);
            rest = rest.get(read..).ok_or(Error::Compressor)?;
            if written < room {
                // Room is left over, so all input was taken and nothing is held back that `flush` would bring.
                return if rest.is_empty() { Ok(()) } else { Err(Error::Compressor) };
            }
        }
    }
}

fn strip_tail(out: &mut Buf) -> Result<(), Error> {
    let len = out.filled().strip_suffix(&TAIL).ok_or(Error::Compressor)?.len();
    out.truncate(len);
    Ok(())
}

impl fmt::Debug for Deflater {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Deflater")
            .field("between", &self.between)
            .field("window_bits", &self.window_bits)
            .field("level", &self.level)
            .field("memory", &self.memory())
            .finish_non_exhaustive()
    }
}
