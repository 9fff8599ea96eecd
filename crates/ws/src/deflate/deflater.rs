use super::DeflateParams;
use super::bits::TAIL;
use super::fast::FastDeflate;
use crate::{Error, Role};
use core::fmt;
use flate2::{Compress, Compression, FlushCompress};
use tautline_buf::Buf;

/// Most bytes of output that are reserved at once.
const STEP: usize = 64 * 1024;

/// Compresses messages to be sent (RFC 7692, section 7.2.1).
///
/// It holds no memory before the first compressed message. Without context takeover it holds none between messages
/// either.
pub struct Deflater {
    stream: Option<Stream>,
    after_message: AfterMessage,
    window_bits: u8,
    level: u32,
    /// The message in progress has had at least one byte of input.
    begun: bool,
}

/// A compressor in use.
enum Stream {
    /// Ours, for levels 1 to 3.
    Fast(FastDeflate),
    /// zlib, for stored blocks, and for levels that look longer for repetitions.
    Zlib(Compress),
}

/// Highest level of our own compressor.
const MAX_FAST: u32 = 3;

/// The compressor's action after a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum AfterMessage {
    /// Keep the window: context takeover.
    KeepWindow,
    /// Free all memory, and the window with it.
    FreeMemory,
    /// Reset the window and keep the memory, for a compressor that serves many connections.
    ResetWindow,
}

impl Deflater {
    /// Makes a compressor for the end `role`, with effort `level`, 0 to 9 (larger values count as 9).
    #[must_use]
    pub fn new(params: &DeflateParams, role: Role, level: u32) -> Self {
        let (no_context_takeover, window_bits) = params.sender(role);
        let after_message = if no_context_takeover { AfterMessage::FreeMemory } else { AfterMessage::KeepWindow };
        Self { stream: None, after_message, window_bits: window_bits.min(15), level: level.min(9), begun: false }
    }

    /// Makes a compressor for messages to many connections, which compresses each message by itself.
    pub(super) const fn for_many(window_bits: u8, level: u32) -> Self {
        Self { stream: None, after_message: AfterMessage::ResetWindow, window_bits, level, begun: false }
    }

    /// Base-2 logarithm of the window size.
    #[must_use]
    pub const fn window_bits(&self) -> u8 {
        self.window_bits
    }

    /// Whether compressing can make messages smaller.
    ///
    /// If the peer allows only a window of 256 bytes, with which zlib does not compress, [`deflate`](Self::deflate)
    /// yields stored blocks. Messages are then better sent uncompressed.
    #[must_use]
    pub const fn compresses(&self) -> bool {
        self.window_bits >= 9 && self.level > 0
    }

    /// Compresses the next piece of a message and appends the output to `out`; `fin` marks the last piece.
    ///
    /// A piece before the last may yield no output yet. The output of all pieces is the payload of the message's
    /// frames, cut anywhere. If the message is incompressible, the output is larger than it: by 0.1 % and a few bytes,
    /// at level 1 by 5 %.
    ///
    /// # Errors
    /// [`Error::Compressor`] if zlib fails; the message is then unusable.
    pub fn deflate(&mut self, payload: &[u8], fin: bool, out: &mut Buf) -> Result<(), Error> {
        self.begun |= !payload.is_empty();
        if self.begun {
            self.advance(payload, fin, out)?;
        } else if fin {
            // An empty stored block, less the tail (RFC 7692, section 7.2.3.6).
            out.put(&[0]);
        }
        if fin {
            self.begun = false;
            self.after_message();
        }
        Ok(())
    }

    /// Forgets the last message, of `len` bytes, since it is sent uncompressed: the peer's window does not get it.
    ///
    /// Levels 1 to 3 keep the window before it. zlib cannot go back, and begins a new one.
    pub(crate) fn forget_last(&mut self, len: usize) {
        match &mut self.stream {
            Some(Stream::Fast(stream)) => stream.forget_last(len),
            Some(Stream::Zlib(stream)) => stream.reset(),
            None => {}
        }
    }

    /// Appends the pending output of the message in progress, up to a whole byte, and frees the memory.
    pub(crate) fn flush(&mut self, out: &mut Buf) -> Result<(), Error> {
        match &mut self.stream {
            Some(Stream::Fast(stream)) if self.begun => stream.flush(out),
            Some(Stream::Zlib(stream)) if self.begun => compress(stream, &[], FlushCompress::Sync, out)?,
            _ => {}
        }
        self.stream = None;
        Ok(())
    }

    /// Frees the memory of an idle connection's compressor, unless a message is in progress.
    ///
    /// This is always permitted, since a sender need not refer to its window. The next messages compress less well at
    /// first.
    pub fn release(&mut self) {
        if !self.begun {
            self.stream = None;
        }
    }

    /// Approximate memory that the compressor holds, in bytes.
    #[must_use]
    pub const fn memory(&self) -> usize {
        match &self.stream {
            None => 0,
            Some(Stream::Fast(stream)) => stream.memory(),
            Some(Stream::Zlib(_)) => (4 << self.window_bits) + 248_960,
        }
    }

    /// Compresses the next bytes of a message, and ends it with the last ones.
    fn advance(&mut self, payload: &[u8], fin: bool, out: &mut Buf) -> Result<(), Error> {
        match self.stream.get_or_insert_with(|| Stream::new(self.window_bits, self.level)) {
            Stream::Fast(stream) => {
                stream.deflate(payload, 1 << self.window_bits, out);
                if fin {
                    stream.end_message(out);
                }
                Ok(())
            }
            Stream::Zlib(stream) => {
                let flush = if fin { FlushCompress::Sync } else { FlushCompress::None };
                compress(stream, payload, flush, out)?;
                if fin { strip_tail(out) } else { Ok(()) }
            }
        }
    }

    fn after_message(&mut self) {
        match (self.after_message, self.stream.take()) {
            (AfterMessage::KeepWindow, stream) => self.stream = stream,
            (_, Some(Stream::Fast(stream))) => stream.give_back(),
            (AfterMessage::ResetWindow, Some(Stream::Zlib(mut stream))) => {
                stream.reset();
                self.stream = Some(Stream::Zlib(stream));
            }
            (_, None) | (AfterMessage::FreeMemory, Some(Stream::Zlib(_))) => {}
        }
    }
}

impl Stream {
    fn new(window_bits: u8, level: u32) -> Self {
        match level {
            1..=MAX_FAST if window_bits >= 9 => Self::Fast(FastDeflate::new(level)),
            _ => {
                // Stored blocks refer to nothing, so they are right for a window of any size.
                let level = if window_bits < 9 { 0 } else { level };
                Self::Zlib(Compress::new_with_window_bits(Compression::new(level), false, window_bits.max(9)))
            }
        }
    }
}

/// Compresses the next bytes by zlib.
fn compress(stream: &mut Compress, payload: &[u8], flush: FlushCompress, out: &mut Buf) -> Result<(), Error> {
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
            // Output room is left, so all input was read and `flush` brings no more output.
            return if rest.is_empty() { Ok(()) } else { Err(Error::Compressor) };
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
            .field("after_message", &self.after_message)
            .field("window_bits", &self.window_bits)
            .field("level", &self.level)
            .field("memory", &self.memory())
            .finish_non_exhaustive()
    }
}
