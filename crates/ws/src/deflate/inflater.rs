use super::{DeflateParams, TAIL};
use crate::{Error, Role};
use core::fmt;
use flate2::{Decompress, FlushDecompress, Status};
use tautline_window::Buf;

/// A message may inflate to this many bytes before its ratio is looked at.
const RATIO_FLOOR: u64 = 64 * 1024;

/// The most output room that is asked for at once, in bytes.
const STEP: usize = 64 * 1024;

/// Decompresses received messages (RFC 7692, section 7.2.2).
///
/// Holds no memory before the first compressed message, nor between messages where the peer compresses each by itself.
pub struct Inflater {
    pub(super) stream: Option<Decompress>,
    forget: bool,
    max_ratio: u32,
    /// Compressed bytes of the message in progress.
    pub(super) consumed: u64,
    /// Inflated bytes of the message in progress.
    produced: usize,
    /// The last block seen was final (BFINAL), so that what follows is a new DEFLATE stream.
    pub(super) ended: bool,
}

impl Inflater {
    /// A decompressor for the end at `role`, that refuses messages that become more than `max_ratio` times larger
    /// (`u32::MAX` for none; [`DeflateConfig::max_ratio`](super::DeflateConfig::max_ratio)).
    #[must_use]
    pub const fn new(params: &DeflateParams, role: Role, max_ratio: u32) -> Self {
        let peer = match role {
            Role::Server => Role::Client,
            Role::Client => Role::Server,
        };
        // The window is not passed on: the library keeps 32 KiB in any case, and the largest inflates all others.
        let (forget, _) = params.sender(peer);
        Self { stream: None, forget, max_ratio, consumed: 0, produced: 0, ended: false }
    }

    /// Inflates the next `piece` of a message and appends it to `out`; `fin` says that it is the last.
    ///
    /// At most `max_message` bytes come of one message, over all of its pieces, and `out` grows in bounded steps by at
    /// most one byte more.
    ///
    /// # Errors
    /// [`Error::MessageTooBig`], [`Error::InflateRatio`], [`Error::InvalidDeflate`]. Errors are final: what follows on the
    /// connection cannot be inflated, and `out` holds a part of the message.
    pub fn inflate(&mut self, piece: &[u8], fin: bool, max_message: usize, out: &mut Buf) -> Result<(), Error> {
        let mut result = self.advance(piece, max_message, out);
        // A message of no bytes at all, and one that ends with a final block, have nothing to be flushed by the tail.
        if fin && result.is_ok() && self.consumed > 0 && !self.ended {
            result = self.advance(&TAIL, max_message, out);
        }
        if result.is_err() || (fin && self.forget) {
            self.stream = None;
            self.ended = false;
        }
        if fin {
            self.consumed = 0;
            self.produced = 0;
        }
        result
    }

    /// Whether the peer compresses each message by itself.
    pub(super) const fn forgets(&self) -> bool {
        self.forget
    }

    /// Bytes of memory held, approximately.
    #[must_use]
    pub const fn memory(&self) -> usize {
        if self.stream.is_some() { 47_552 } else { 0 }
    }

    fn advance(&mut self, input: &[u8], max_message: usize, out: &mut Buf) -> Result<(), Error> {
        let mut rest = input;
        while !rest.is_empty() {
            let stream = self.stream.get_or_insert_with(|| Decompress::new_with_window_bits(false, 15));
            if self.ended {
                stream.reset(false);
                self.ended = false;
            }
            loop {
                // One byte more than allowed tells a message that is too big from one that just fits.
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
                // Before the status: which error comes first must not depend on how the message was cut.
                check(self.consumed, self.produced, max_message, self.max_ratio)?;
                match status.map_err(|_| Error::InvalidDeflate)? {
                    Status::StreamEnd => {
                        self.ended = true;
                        break;
                    }
                    // Room is left over, so all input was used and all output came.
                    _ if written < room && rest.is_empty() => break,
                    _ if written == 0 && read == 0 => return Err(Error::InvalidDeflate),
                    _ => {}
                }
            }
        }
        Ok(())
    }
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
        f.debug_struct("Inflater").field("forget", &self.forget).field("memory", &self.memory()).finish_non_exhaustive()
    }
}
