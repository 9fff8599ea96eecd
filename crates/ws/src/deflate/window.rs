//! Reads and fills a decompressor's window by feeding it DEFLATE blocks.
//!
//! Libraries for DEFLATE do not expose the window, but a block can copy from it. Reading therefore feeds a block
//! that copies the whole window, and the decompressor outputs the copy. A block of stored bytes fills the window of a
//! new decompressor.

use super::Inflater;
use crate::Error;
use flate2::{Decompress, FlushDecompress};

/// The largest window in bytes: the longest distance (RFC 1951, section 3.2.5).
const MAX_WINDOW: usize = 32 * 1024;

const TOO_LONG: Error = Error::ApiMisuse("the decompressor keeps no window, or one of at most 32 KiB");

/// The longest match in bytes.
const MAX_MATCH: usize = 258;

impl Inflater {
    /// Copies the window out of the decompressor, which can go on. Empty if there is no window.
    ///
    /// # Errors
    /// [`Error::ApiMisuse`] inside a message, which leaves the decompressor unchanged; [`Error::InvalidDeflate`] if the
    /// last message ended inside a block. The next messages cannot be inflated then.
    pub(crate) fn window(&mut self) -> Result<Vec<u8>, Error> {
        if self.consumed > 0 {
            return Err(Error::ApiMisuse("a compressed message is arriving: decode on until its end"));
        }
        let Some(mut stream) = self.stream.take().filter(|_| !self.ended) else { return Ok(Vec::new()) };
        let len = usize::try_from(stream.total_out()).map_or(MAX_WINDOW, |len| len.min(MAX_WINDOW));
        if len == 0 {
            return Ok(Vec::new());
        }
        let block = copy_of_last(len);
        let mut window = vec![0; len.next_multiple_of(MAX_MATCH)];
        run(&mut stream, &block, &mut window)?;
        window.truncate(len);
        // The copy has become part of the window.
        stream.reset(false);
        fill(&mut stream, &window)?;
        self.stream = Some(stream);
        Ok(window)
    }

    /// Fills a new decompressor's window.
    ///
    /// # Errors
    /// [`Error::ApiMisuse`] if the window is too long, or if there is no context takeover.
    pub(crate) fn import(&mut self, window: &[u8]) -> Result<(), Error> {
        if self.no_context_takeover() {
            return Err(TOO_LONG);
        }
        let mut stream = Decompress::new_with_window_bits(false, 15);
        fill(&mut stream, window)?;
        self.stream = Some(stream);
        Ok(())
    }
}

/// Fills the window of a decompressor that has not begun.
fn fill(stream: &mut Decompress, window: &[u8]) -> Result<(), Error> {
    let len = u16::try_from(window.len()).ok().filter(|&len| usize::from(len) <= MAX_WINDOW).ok_or(TOO_LONG)?;
    // RFC 1951, section 3.2.4: a stored block, not the last one; its length and the length's complement.
    let [low, high] = len.to_le_bytes();
    let block = [&[0, low, high, !low, !high], window].concat();
    run(stream, &block, &mut vec![0; window.len()])
}

/// Decompresses `block`, whose output must fill `out`.
fn run(stream: &mut Decompress, block: &[u8], out: &mut [u8]) -> Result<(), Error> {
    let before = stream.total_out();
    let ran = stream.decompress(block, out, FlushDecompress::None);
    let all = ran.is_ok() && stream.total_out() - before == out.len() as u64;
    if all { Ok(()) } else { Err(Error::InvalidDeflate) }
}

/// Makes a block with fixed Huffman codes that copies the last `len` bytes.
///
/// All its matches have the length [`MAX_MATCH`], so the copy repeats its beginning up to a multiple of that.
fn copy_of_last(len: usize) -> Vec<u8> {
    let mut bits = BitWriter::default();
    bits.number(0b010, 3); // not the last block; fixed codes
    for _ in 0..len.div_ceil(MAX_MATCH) {
        bits.code(0b1100_0101, 8); // length 258
        // RFC 1951, section 3.2.5: there are two codes per power of two of distances.
        let distance = len - 1;
        if distance < 4 {
            bits.code(distance, 5);
        } else {
            let extra = distance.ilog2() - 1;
            bits.code(2 * (extra as usize + 1) + (distance >> extra & 1), 5);
            bits.number(distance & ((1 << extra) - 1), extra);
        }
    }
    bits.code(0, 7); // the end of the block, so that the decompressor outputs all before it
    bits.bytes
}

/// Writes bits into bytes, lowest bit first.
#[derive(Default)]
struct BitWriter {
    bytes: Vec<u8>,
    /// Number of bits written to the last byte; 0 if it is full.
    used: u32,
}

impl BitWriter {
    /// Writes a number, lowest bit first.
    fn number(&mut self, number: usize, count: u32) {
        for bit in 0..count {
            self.bit(number >> bit & 1 == 1);
        }
    }

    /// Writes a Huffman code, highest bit first.
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
