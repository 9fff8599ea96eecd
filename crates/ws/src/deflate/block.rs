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

/// A literal, or a match of 3 to 258 bytes at a distance of 1 to 32,768 bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Token(u32);

impl Token {
    const MATCH: u32 = 1 << 31;

    const fn literal(byte: u8) -> Self {
        Self(byte as u32)
    }

    /// A match; `length` and `distance` are in range.
    #[expect(clippy::cast_possible_truncation, reason = "the masks leave 8 and 15 bits")]
    const fn copy(length: usize, distance: usize) -> Self {
        let (length, distance) = (((length - 3) & 0xff) as u32, ((distance - 1) & 0x7fff) as u32);
        Self(Self::MATCH | length << 15 | distance)
    }

    const fn is_copy(self) -> bool {
        self.0 & Self::MATCH != 0
    }

    const fn byte(self) -> usize {
        (self.0 & 0xff) as usize
    }

    /// Length less 3, of a match.
    const fn length(self) -> u32 {
        self.0 >> 15 & 0xff
    }

    /// Distance less 1, of a match.
    const fn distance(self) -> u32 {
        self.0 & 0x7fff
    }
}

/// A symbol and the bits behind it (RFC 1951, section 3.2.5).
#[derive(Clone, Copy)]
struct Symbol {
    symbol: usize,
    extra: u32,
    extra_bits: u32,
}

/// The symbol of a length, of which `length` is 3 less.
const fn length_symbol(length: u32) -> Symbol {
    match length {
        255 => Symbol { symbol: 285, extra: 0, extra_bits: 0 },
        0..=7 => Symbol { symbol: 257 + length as usize, extra: 0, extra_bits: 0 },
        _ => {
            let bits = length.ilog2() - 2;
            let symbol = 261 + 4 * bits as usize + (length >> bits & 3) as usize;
            Symbol { symbol, extra: length & ((1 << bits) - 1), extra_bits: bits }
        }
    }
}

/// The symbol of a distance, of which `distance` is 1 less.
const fn distance_symbol(distance: u32) -> Symbol {
    if distance < 4 {
        return Symbol { symbol: distance as usize, extra: 0, extra_bits: 0 };
    }
    let bits = distance.ilog2() - 1;
    let symbol = 2 + 2 * bits as usize + (distance >> bits & 1) as usize;
    Symbol { symbol, extra: distance & ((1 << bits) - 1), extra_bits: bits }
}

/// Symbols of a block and how often each occurs.
pub(super) struct Block {
    tokens: Vec<Token>,
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

    /// The best codes for these frequencies.
    fn best(literals: &mut [u32; LITERALS], distances: &mut [u32; DISTANCES]) -> Self {
        need_two(literals);
        need_two(distances);
        Self { literals: Code::best(literals, MAX_BITS), distances: Code::best(distances, MAX_BITS) }
    }
}

impl Default for Block {
    fn default() -> Self {
        let (literals, distances) = ([0; LITERALS], [0; DISTANCES]);
        Self { tokens: Vec::new(), literals, distances, extra_bits: 0, fixed: Codes::fixed() }
    }
}

impl Block {
    /// Adds bytes that repeat nothing.
    #[inline]
    pub(super) fn literals(&mut self, bytes: &[u8]) {
        self.tokens.extend(bytes.iter().map(|&byte| Token::literal(byte)));
        bytes.iter().for_each(|&byte| self.literals[usize::from(byte)] += 1);
    }

    /// Adds a repetition of 3 to 258 bytes at a distance of 1 to 32,768.
    #[inline]
    pub(super) fn copy(&mut self, length: usize, distance: usize) {
        let token = Token::copy(length, distance);
        let (length, distance) = (length_symbol(token.length()), distance_symbol(token.distance()));
        self.tokens.push(token);
        self.literals[length.symbol] += 1;
        self.distances[distance.symbol] += 1;
        self.extra_bits += (length.extra_bits + distance.extra_bits) as usize;
    }

    /// Writes the block, and empties it. `bytes` are those that it stands for, at most [`MAX_BLOCK`]. `may_describe` allows
    /// codes of its own, which take longer and less.
    pub(super) fn write(&mut self, bytes: &[u8], may_describe: bool, bits: &mut Bits, out: &mut Buf) {
        self.literals[END_OF_BLOCK] = 1;
        let fixed = 3 + self.cost(&self.fixed);
        let stored = 8 * (5 + bytes.len());
        let may_describe = may_describe && self.tokens.len() >= MIN_OWN_CODES;
        if !may_describe || !self.write_with_own_codes(fixed.min(stored), bits, out) {
            if stored < fixed {
                store(bytes, bits, out);
            } else {
                out.reserve(fixed / 8 + 16);
                bits.put(0b010, 3, out);
                self.put_symbols(&self.fixed, bits, out);
            }
        }
        self.tokens.clear();
        self.literals.fill(0);
        self.distances.fill(0);
        self.extra_bits = 0;
    }

    /// Writes the block with codes of its own, if that takes less than `least` bits.
    fn write_with_own_codes(&mut self, least: usize, bits: &mut Bits, out: &mut Buf) -> bool {
        let codes = Codes::best(&mut self.literals, &mut self.distances);
        let description = Lengths::new(&codes.literals.lengths, &codes.distances.lengths);
        let cost = 3 + description.cost() + self.cost(&codes);
        if cost >= least {
            return false;
        }
        out.reserve(cost / 8 + 16);
        bits.put(0b100, 3, out);
        description.put(bits, out);
        self.put_symbols(&codes, bits, out);
        true
    }

    /// Bits of all symbols.
    fn cost(&self, codes: &Codes) -> usize {
        codes.literals.cost(&self.literals) + codes.distances.cost(&self.distances) + self.extra_bits
    }

    fn put_symbols(&self, codes: &Codes, bits: &mut Bits, out: &mut Buf) {
        for token in &self.tokens {
            if token.is_copy() {
                let (length, distance) = (length_symbol(token.length()), distance_symbol(token.distance()));
                bits.make_room(out);
                codes.literals.add(length.symbol, bits);
                bits.add(length.extra, length.extra_bits);
                codes.distances.add(distance.symbol, bits);
                bits.add(distance.extra, distance.extra_bits);
            } else {
                codes.literals.put(token.byte(), bits, out);
            }
        }
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
        let mut next = 3;
        for (symbol, number) in (257..=284).zip(257_u32..) {
            let bits = if symbol < 265 { 0 } else { (number - 261) / 4 };
            for extra in 0..1 << bits {
                let made = length_symbol(next - 3);
                if next < 258 {
                    assert_eq!((made.symbol, made.extra, made.extra_bits), (symbol, extra, bits), "{next}");
                }
                next += 1;
            }
        }
        assert_eq!((next, length_symbol(255).symbol, length_symbol(255).extra_bits), (259, 285, 0));
        let mut next = 1;
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
    fn tokens_keep_their_parts() {
        for (length, distance) in [(3, 1), (258, 32_768), (100, 5)] {
            let token = Token::copy(length, distance);
            assert!(token.is_copy());
            assert_eq!((token.length() as usize, token.distance() as usize), (length - 3, distance - 1));
        }
        assert!(!Token::literal(255).is_copy() && Token::literal(255).byte() == 255);
    }
}
