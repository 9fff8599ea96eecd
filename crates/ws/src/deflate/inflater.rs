use super::DeflateParams;
use super::bits::TAIL;
use crate::{Error, Role};
use core::cell::Cell;
use core::fmt;
use flate2::{Decompress, FlushDecompress, Status};
use tautline_buf::Buf;

/// The ratio is checked once a message has inflated to more than this many bytes.
const RATIO_FLOOR: u64 = 64 * 1024;

/// Most bytes of output that are reserved at once.
const STEP: usize = 64 * 1024;

/// Decompresses received messages (RFC 7692, section 7.2.2).
///
/// It holds no memory before the first compressed message. Without the peer's context takeover it holds none between
/// messages either.
pub struct Inflater {
    pub(super) stream: Option<Decompress>,
    no_context_takeover: bool,
    max_ratio: u32,
    /// Compressed bytes of the message in progress.
    pub(super) consumed: u64,
    /// Inflated bytes of the message in progress.
    produced: usize,
    /// The last block was final (BFINAL): the next bytes begin a new DEFLATE stream.
    pub(super) ended: bool,
}

impl Inflater {
    /// Makes a decompressor for the end `role`.
    ///
    /// It rejects messages that inflate to more than `max_ratio` times their size.
    ///
    /// `u32::MAX` allows any ratio. See [`DeflateConfig::max_ratio`](super::DeflateConfig::max_ratio).
    #[must_use]
    pub const fn new(params: &DeflateParams, role: Role, max_ratio: u32) -> Self {
        let peer = match role {
            Role::Server => Role::Client,
            Role::Client => Role::Server,
        };
        // The window size is ignored: the library keeps 32 KiB in any case, and the largest window inflates all others.
        let (no_context_takeover, _) = params.sender(peer);
        Self { stream: None, no_context_takeover, max_ratio, consumed: 0, produced: 0, ended: false }
    }

    /// Inflates the next `piece` of a message and appends it to `out`; `fin` marks the last piece.
    ///
    /// A message may inflate to at most `max_message` bytes over all of its pieces. `out` grows in bounded steps, by at
    /// most one byte more than that.
    ///
    /// # Errors
    /// [`Error::MessageTooBig`], [`Error::InflateRatio`], [`Error::InvalidDeflate`]. An error is final: the next
    /// messages of the connection cannot be inflated, and `out` holds a part of this one.
    pub fn inflate(&mut self, piece: &[u8], fin: bool, max_message: usize, out: &mut Buf) -> Result<(), Error> {
        let mut result = self.advance(piece, max_message, out);
        // The tail flushes nothing if the message has no bytes, or if it ends with a final block.
        if fin && result.is_ok() && self.consumed > 0 && !self.ended {
            result = self.advance(&TAIL, max_message, out);
        }
        if result.is_err() || (fin && self.no_context_takeover) {
            let stream = self.stream.take();
            self.ended = false;
            if let Some(stream) = stream.filter(|_| result.is_ok()) {
                keep_idle(stream);
            }
        }
        if fin {
            self.consumed = 0;
            self.produced = 0;
        }
        result
    }

    /// Whether the peer compresses each message by itself.
    pub(super) const fn no_context_takeover(&self) -> bool {
        self.no_context_takeover
    }

    /// Approximate memory that the decompressor holds, in bytes.
    #[must_use]
    pub const fn memory(&self) -> usize {
        if self.stream.is_some() { 47_552 } else { 0 }
    }

    fn advance(&mut self, input: &[u8], max_message: usize, out: &mut Buf) -> Result<(), Error> {
        let mut rest = input;
        while !rest.is_empty() {
            let stream = self.stream.get_or_insert_with(take_idle);
            if self.ended {
                stream.reset(false);
                self.ended = false;
            }
            loop {
                // One byte beyond the limit distinguishes a message that is too big from one that just fits.
                let allowed = max_message.saturating_sub(self.produced).saturating_add(1);
                let free = out.reserve(rest.len().saturating_mul(4).clamp(512, STEP).min(allowed));
                let room = free.len().min(allowed);
                let (read, written) = (stream.total_in(), stream.total_out());
                let status = stream.decompress(rest, &mut free[..room], FlushDecompress::None);
                let read = stream.total_in() - read;
                let written = usize::try_from(stream.total_out() - written).map_err(|_| Error::InvalidDeflate)?;
                out.commit(written);
                rest = usize::try_from(read).ok().and_then(|read| rest.get(read..)).ok_or(Error::InvalidDeflate)?;
                self.consumed = self.consumed.saturating_add(read);
                self.produced = self.produced.saturating_add(written);
                // This comes before the status, so that the first error does not depend on how the message was cut.
                check(self.consumed, self.produced, max_message, self.max_ratio)?;
                match status.map_err(|_| Error::InvalidDeflate)? {
                    Status::StreamEnd => {
                        self.ended = true;
                        break;
                    }
                    // Output room is left and all input was used, so there is no more output.
                    _ if written < room && rest.is_empty() => break,
                    _ if written == 0 && read == 0 => return Err(Error::InvalidDeflate),
                    _ => {}
                }
            }
        }
        Ok(())
    }
}

thread_local! {
    /// Memory of an earlier message without context takeover. Nothing but its amount outlives that message.
    static IDLE: Cell<Option<Decompress>> = const { Cell::new(None) };
}

/// A decompressor without a window, in memory of an earlier one if this thread has any.
fn take_idle() -> Decompress {
    let idle = IDLE.try_with(Cell::take).ok().flatten();
    idle.unwrap_or_else(|| Decompress::new_with_window_bits(false, 15))
}

/// Keeps the memory of a decompressor for this thread's next message.
fn keep_idle(mut stream: Decompress) {
    stream.reset(false);
    // Fails while the thread ends; then the memory is freed here.
    let _ = IDLE.try_with(|idle| idle.set(Some(stream)));
}

fn check(consumed: u64, produced: usize, max_message: usize, max_ratio: u32) -> Result<(), Error> {
    if produced > max_message {
        return Err(Error::MessageTooBig { limit: max_message });
    }
    let produced = produced as u64;
    if produced > RATIO_FLOOR && produced > consumed.saturating_mul(u64::from(max_ratio)) {
        return Err(Error::InflateRatio { limit: max_ratio });
    }
    Ok(())
}

impl fmt::Debug for Inflater {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Inflater")
            .field("no_context_takeover", &self.no_context_takeover)
            .field("memory", &self.memory())
            .finish_non_exhaustive()
    }
}
