//! A decompressor's window in and out, by the means that a peer has.
//!
//! Libraries that inflate tell nobody their window. But what a peer may refer to, a block of ours may too: one that refers to all
//! of it has it put out. And a block of stored bytes puts them into a new one's window.

use super::Inflater;
use crate::Error;
use flate2::{Decompress, FlushDecompress};

/// The largest window (RFC 1951, section 3.2.5: the longest distance).
const MOST: usize = 32 * 1024;

/// The longest match.
const MATCH: usize = 258;

impl Inflater {
    /// The window, after which the decompressor is of no use; empty where nothing can be referred to.
    ///
    /// # Errors
    /// [`Error::ApiMisuse`] within a message, which leaves it as it was; [`Error::InvalidDeflate`] where the last message did
    /// not end between two blocks.
    pub(crate) fn export(&mut self) -> Result<Vec<u8>, Error> {
        if self.consumed > 0 {
            return Err(Error::ApiMisuse("a compressed message has begun to arrive: export the decoder behind it"));
        }
        let Some(mut stream) = self.stream.take().filter(|_| !self.ended) else { return Ok(Vec::new()) };
        let len = usize::try_from(stream.total_out()).map_or(MOST, |len| len.min(MOST));
        if len == 0 {
            return Ok(Vec::new());
        }
        let block = referring_to_all(len);
        let mut window = vec![0; len.next_multiple_of(MATCH)];
        run(&mut stream, &block, &mut window)?;
        window.truncate(len);
        Ok(window)
    }

    /// Gives a new decompressor its window.
    ///
    /// # Errors
    /// [`Error::ApiMisuse`] for one that is too long, and where none is kept.
    pub(crate) fn import(&mut self, window: &[u8]) -> Result<(), Error> {
        let len = u16::try_from(window.len()).ok().filter(|&len| usize::from(len) <= MOST && !self.forgets());
        let len = len.ok_or(Error::ApiMisuse("the window is not one of such a decompressor"))?;
        let mut stream = Decompress::new_with_window_bits(false, 15);
        // RFC 1951, section 3.2.4: not the last block, stored, its length and that inverted.
        let [low, high] = len.to_le_bytes();
        let block = [&[0, low, high, !low, !high], window].concat();
        run(&mut stream, &block, &mut vec![0; window.len()])?;
        self.stream = Some(stream);
        Ok(())
    }
}

/// Has `stream` fill `out` with what `block` makes.
fn run(stream: &mut Decompress, block: &[u8], out: &mut [u8]) -> Result<(), Error> {
    let before = stream.total_out();
    let ran = stream.decompress(block, out, FlushDecompress::None);
    let all = ran.is_ok() && stream.total_out() - before == out.len() as u64;
    if all { Ok(()) } else { Err(Error::InvalidDeflate) }
}

/// A block with fixed codes that repeats the last `len` bytes, at least once. It does not end, as nothing follows it.
fn referring_to_all(len: usize) -> Vec<u8> {
    let mut bits = Bits::default();
    bits.number(0b010, 3); // not the last; fixed codes
    for _ in 0..len.div_ceil(MATCH) {
        bits.code(0b1100_0101, 8); // length 258
        // RFC 1951, section 3.2.5: two codes for each power of two of distances.
        let distance = len - 1;
        if distance < 4 {
            bits.code(distance, 5);
        } else {
            let extra = distance.ilog2() - 1;
            bits.code(2 * (extra as usize + 1) + (distance >> extra & 1), 5);
            bits.number(distance & ((1 << extra) - 1), extra);
        }
    }
    bits.code(0, 7); // the end of the block, so that all before it is put out
    bits.bytes
}

/// Bits, the first one lowest.
#[derive(Default)]
struct Bits {
    bytes: Vec<u8>,
    /// Of the last byte.
    used: u32,
}

impl Bits {
    /// Numbers begin with their lowest bit.
    fn number(&mut self, number: usize, count: u32) {
        for bit in 0..count {
            self.bit(number >> bit & 1 == 1);
        }
    }

    /// Codes begin with their highest bit.
    fn code(&mut self, code: usize, count: u32) {
        for bit in (0..count).rev() {
            self.bit(code >> bit & 1 == 1);
        }
    }

    fn bit(&mut self, set: bool) {
        if self.used == 0 {
            self.bytes.push(0);
        }
        if let Some(last) = self.bytes.last_mut() {
            *last |= u8::from(set) << self.used;
        }
        self.used = (self.used + 1) % 8;
    }
}
