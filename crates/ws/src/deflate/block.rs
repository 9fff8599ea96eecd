//! Writes blocks of DEFLATE (RFC 1951, section 3.2.3), in whichever of its three forms takes least.

use super::bits::Bits;
use super::huffman::{Code, MAX_BITS, need_two};
use super::lengths::{DISTANCES, LITERALS, Lengths};
use tautline_buf::Buf;

const END_OF_BLOCK: usize = 256;
/// Most bytes that a block may stand for, so that it can be a stored one.
pub(super) const MAX_BLOCK: usize = 0xffff;
/// Symbols of a block from which on codes of its own can pay. Describing them takes about 40 bytes.
const MIN_OWN_CODES: usize = 48;

/// Bytes that repeat nothing, and then a repetition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Step {
    /// Number of bytes that repeat nothing.
    literals: u16,
    /// Length of the repetition, less 3.
    length: u8,
    /// Distance of the repetition, less 1.
    distance: u16,
}

impl Step {
    /// `literals` is at most [`MAX_BLOCK`]; `length` and `distance` are in range.
    #[expect(clippy::cast_possible_truncation, reason = "all three are in range")]
    const fn new(literals: usize, length: usize, distance: usize) -> Self {
        Self { literals: literals as u16, length: (length - 3) as u8, distance: (distance - 1) as u16 }
    }
}

/// A symbol and the bits behind it (RFC 1951, section 3.2.5).
#[derive(Clone, Copy)]
struct Symbol {
    symbol: usize,
    extra: u32,
    extra_bits: u32,
}

/// The symbols of all lengths, by the length less 3. A table, since a choice between short and long ones is mispredicted.
const LENGTH_SYMBOLS: [(u16, u8); 256] = {
    let mut symbols = [(0, 0); 256];
    let mut length = 0;
    while length < 255_u16 {
        symbols[length as usize] = if length < 8 {
            (257 + length, 0)
        } else {
            let [bits, ..] = (length.ilog2() - 2).to_le_bytes();
            (261 + 4 * bits as u16 + (length >> bits & 3), bits)
        };
        length += 1;
    }
    symbols[255] = (285, 0);
    symbols
};

/// The symbol of a length, of which `length` is 3 less.
#[inline]
fn length_symbol(length: u8) -> Symbol {
    let (symbol, bits) = LENGTH_SYMBOLS[usize::from(length)];
    Symbol { symbol: symbol.into(), extra: u32::from(length) & ((1 << bits) - 1), extra_bits: bits.into() }
}

/// The symbol of a distance, of which `distance` is 1 less.
#[inline]
const fn distance_symbol(distance: u16) -> Symbol {
    let distance = distance as u32;
    if distance < 4 {
        return Symbol { symbol: distance as usize, extra: 0, extra_bits: 0 };
    }
    let bits = distance.ilog2() - 1;
    let symbol = 2 + 2 * bits as usize + (distance >> bits & 1) as usize;
    Symbol { symbol, extra: distance & ((1 << bits) - 1), extra_bits: bits }
}

/// Symbols of a block and how often each occurs.
pub(super) struct Block {
    steps: Vec<Step>,
    /// Number of symbols.
    count: usize,
    literals: [u32; LITERALS],
    distances: [u32; DISTANCES],
    /// Bits behind the symbols.
    extra_bits: usize,
    fixed: Codes,
}

/// The two codes of a block.
struct Codes {
    literals: Code<LITERALS>,
    distances: Code<DISTANCES>,
}

impl Codes {
    /// The codes that need no description (RFC 1951, section 3.2.6).
    fn fixed() -> Self {
        let length = |symbol| match symbol {
            144..256 => 9,
            256..280 => 7,
            _ => 8,
        };
        Self { literals: Code::of(core::array::from_fn(length)), distances: Code::of([5; DISTANCES]) }
    }

    /// The best codes for these frequencies, and the bits of all symbols.
    fn best(literals: &mut [u32; LITERALS], distances: &mut [u32; DISTANCES]) -> (Self, usize) {
        need_two(literals);
        need_two(distances);
        let (literals, of_literals) = Code::best(literals, MAX_BITS);
        let (distances, of_distances) = Code::best(distances, MAX_BITS);
        (Self { literals, distances }, of_literals + of_distances)
    }
}

impl Default for Block {
    fn default() -> Self {
        let (literals, distances) = ([0; LITERALS], [0; DISTANCES]);
        Self { steps: Vec::new(), count: 0, literals, distances, extra_bits: 0, fixed: Codes::fixed() }
    }
}

impl Block {
    /// Adds bytes that repeat nothing, and then a repetition of 3 to 258 bytes at a distance of 1 to 32,768.
    #[inline]
    pub(super) fn step(&mut self, literals: &[u8], length: usize, distance: usize) {
        self.literals(literals);
        let step = Step::new(literals.len(), length, distance);
        let (length, distance) = (length_symbol(step.length), distance_symbol(step.distance));
        self.steps.push(step);
        self.count += 1;
        self.literals[length.symbol] += 1;
        self.distances[distance.symbol] += 1;
        self.extra_bits += (length.extra_bits + distance.extra_bits) as usize;
    }

    /// Adds bytes that repeat nothing, before a repetition or at the end.
    #[inline]
    pub(super) fn literals(&mut self, bytes: &[u8]) {
        self.count += bytes.len();
        bytes.iter().for_each(|&byte| self.literals[usize::from(byte)] += 1);
    }

    /// Writes the block, and empties it. `bytes` are those that it stands for, at most [`MAX_BLOCK`]. `may_describe` allows
    /// codes of its own, which take longer and less.
    pub(super) fn write(&mut self, bytes: &[u8], may_describe: bool, bits: &mut Bits, out: &mut Buf) {
        self.literals[END_OF_BLOCK] = 1;
        let fixed = 3 + self.fixed_cost();
        let stored = 8 * (5 + bytes.len());
        let may_describe = may_describe && self.count >= MIN_OWN_CODES;
        if !may_describe || !self.write_with_own_codes(bytes, fixed.min(stored), bits, out) {
            if stored < fixed {
                store(bytes, bits, out);
            } else {
                out.reserve(fixed / 8 + 16);
                bits.put(0b010, 3, out);
                self.put_symbols(bytes, &self.fixed, bits, out);
            }
        }
        self.steps.clear();
        self.count = 0;
        self.literals.fill(0);
        self.distances.fill(0);
        self.extra_bits = 0;
    }

    /// Writes the block with codes of its own, if that takes less than `least` bits.
    fn write_with_own_codes(&mut self, bytes: &[u8], least: usize, bits: &mut Bits, out: &mut Buf) -> bool {
        let (codes, symbols) = Codes::best(&mut self.literals, &mut self.distances);
        let description = Lengths::new(&codes.literals, &codes.distances);
        let cost = 3 + description.cost() + symbols + self.extra_bits;
        if cost >= least {
            return false;
        }
        out.reserve(cost / 8 + 16);
        bits.put(0b100, 3, out);
        description.put(bits, out);
        self.put_symbols(bytes, &codes, bits, out);
        true
    }

    /// Bits of all symbols in the codes that need no description.
    fn fixed_cost(&self) -> usize {
        let sum = |symbols: core::ops::Range<usize>| self.literals[symbols].iter().sum::<u32>() as usize;
        let all = 8 * (self.count + 1) + sum(144..256) - sum(256..280);
        all + 5 * self.steps.len() + self.extra_bits
    }

    fn put_symbols(&self, bytes: &[u8], codes: &Codes, bits: &mut Bits, out: &mut Buf) {
        let mut rest = bytes;
        for step in &self.steps {
            let (literals, after) = rest.split_at(step.literals.into());
            literals.iter().for_each(|&byte| codes.literals.put(byte.into(), bits, out));
            let (length, distance) = (length_symbol(step.length), distance_symbol(step.distance));
            bits.make_room(out);
            codes.literals.add(length.symbol, bits);
            bits.add(length.extra, length.extra_bits);
            codes.distances.add(distance.symbol, bits);
            bits.add(distance.extra, distance.extra_bits);
            rest = &after[usize::from(step.length) + 3..];
        }
        rest.iter().for_each(|&byte| codes.literals.put(byte.into(), bits, out));
        codes.literals.put(END_OF_BLOCK, bits, out);
        bits.put_bytes(out);
    }
}

/// Writes a stored block.
fn store(bytes: &[u8], bits: &mut Bits, out: &mut Buf) {
    bits.begin_stored(out);
    let [low, high] = u16::try_from(bytes.len()).unwrap_or(u16::MAX).to_le_bytes();
    out.put(&[low, high, !low, !high]);
    out.put(bytes);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn symbols_are_those_of_rfc_1951_section_3_2_5() {
        // The tables of the RFC: first length or distance, number of extra bits, of each symbol.
        let mut next = 3_u16;
        for (symbol, number) in (257..=284).zip(257_u32..) {
            let bits = if symbol < 265 { 0 } else { (number - 261) / 4 };
            for extra in 0..1 << bits {
                let made = length_symbol(u8::try_from(next - 3).unwrap());
                if next < 258 {
                    assert_eq!((made.symbol, made.extra, made.extra_bits), (symbol, extra, bits), "{next}");
                }
                next += 1;
            }
        }
        assert_eq!((next, length_symbol(255).symbol, length_symbol(255).extra_bits), (259, 285, 0));
        let mut next = 1_u16;
        for (symbol, number) in (0..DISTANCES).zip(0_u32..) {
            let bits = if symbol < 4 { 0 } else { number / 2 - 1 };
            for extra in 0..1 << bits {
                let made = distance_symbol(next - 1);
                assert_eq!((made.symbol, made.extra, made.extra_bits), (symbol, extra, bits), "{next}");
                next += 1;
            }
        }
        assert_eq!(next, 32_769);
    }

    #[test]
    fn steps_keep_their_parts() {
        assert_eq!(Step::new(65_535, 3, 1), Step { literals: 65_535, length: 0, distance: 0 });
        assert_eq!(Step::new(0, 258, 32_768), Step { literals: 0, length: 255, distance: 32_767 });
    }

    #[test]
    fn the_bits_of_fixed_codes_are_counted_rightly() {
        let mut block = Block::default();
        block.step(&[0, 143, 144, 255], 3, 1);
        block.step(&[], 258, 32_768);
        block.literals(b"abc");
        block.literals[END_OF_BLOCK] = 1;
        // RFC 1951, section 3.2.6: 8 and 9 bits for literals, 7 and 8 for lengths, 5 for distances, and 7 for the end.
        let (literals, repetitions) = (8 + 8 + 9 + 9 + 3 * 8, 7 + 5 + 8 + 5 + 13);
        assert_eq!((block.count, block.fixed_cost()), (9, literals + repetitions + 7));
    }
}
