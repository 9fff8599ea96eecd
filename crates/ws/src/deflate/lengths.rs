use super::bits::Bits;
use super::huffman::{Code, need_two};
use tautline_buf::Buf;

/// Symbols of literals, of the end of a block, and of lengths. The last two are never used, but have fixed codes.
pub(super) const LITERALS: usize = 288;
/// Symbols of distances.
pub(super) const DISTANCES: usize = 30;
/// Symbols of the code for lengths: 0 to 15, and three that repeat.
const SYMBOLS: usize = 19;
/// Order in which the lengths of that code are written.
const ORDER: [usize; SYMBOLS] = [16, 17, 18, 0, 8, 7, 9, 6, 10, 5, 11, 4, 12, 3, 13, 2, 14, 1, 15];
/// Bits behind each symbol: how often it repeats.
const EXTRA_BITS: [u8; SYMBOLS] = [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 2, 3, 7];

/// The description of a block's two codes (RFC 1951, section 3.2.7).
pub(super) struct Lengths {
    /// Lengths written of each code.
    literals: usize,
    distances: usize,
    /// Symbols and the bits behind them; the first `count` are used.
    symbols: [(u8, u8); LITERALS + DISTANCES],
    count: usize,
    /// Bits of the symbols, and of those behind them.
    cost: usize,
    code: Code<SYMBOLS>,
    /// Lengths written of the code for lengths.
    described: usize,
}

impl Lengths {
    pub(super) fn new(literals: &Code<LITERALS>, distances: &Code<DISTANCES>) -> Self {
        let (literal_count, distance_count) = (literals.used().max(257), distances.used());
        let total = literal_count + distance_count;
        let mut lengths = [0; LITERALS + DISTANCES];
        literals.copy_lengths(&mut lengths[..literal_count]);
        distances.copy_lengths(&mut lengths[literal_count..total]);
        let (mut symbols, mut count) = ([(0, 0); LITERALS + DISTANCES], 0);
        let mut frequencies = [0; SYMBOLS];
        let mut push = |symbol: u8, extra: usize| {
            symbols[count] = (symbol, extra.to_le_bytes()[0]);
            count += 1;
            frequencies[usize::from(symbol)] += 1;
        };
        let mut rest = &lengths[..total];
        while let [length, ..] = *rest {
            let mut run = rest.iter().take_while(|&&other| other == length).count();
            rest = &rest[run..];
            if length > 0 {
                push(length, 0);
                run -= 1;
            }
            while run >= 3 {
                let (symbol, least, most) = match length {
                    0 if run < 11 => (17, 3, 10),
                    0 => (18, 11, 138),
                    _ => (16, 3, 6),
                };
                let part = run.min(most);
                push(symbol, part - least);
                run -= part;
            }
            (0..run).for_each(|_| push(length, 0));
        }
        let extra: u32 =
            frequencies.iter().zip(EXTRA_BITS).map(|(times, bits): (&u32, u8)| times * u32::from(bits)).sum();
        need_two(&mut frequencies);
        let (code, cost) = Code::best(&frequencies, 7);
        let cost = cost + extra as usize;
        let described = ORDER.iter().rposition(|&symbol| code.length(symbol) > 0).map_or(4, |last| 4.max(last + 1));
        Self { literals: literal_count, distances: distance_count, symbols, count, cost, code, described }
    }

    /// Bits that it takes.
    pub(super) fn cost(&self) -> usize {
        5 + 5 + 4 + 3 * self.described + self.cost
    }

    pub(super) fn put(&self, bits: &mut Bits, out: &mut Buf) {
        let mut number = |value: usize, count| bits.put(u32::try_from(value).unwrap_or(0), count, out);
        number(self.literals - 257, 5);
        number(self.distances - 1, 5);
        number(self.described - 4, 4);
        for symbol in &ORDER[..self.described] {
            number(self.code.length(*symbol).into(), 3);
        }
        for &(symbol, extra) in &self.symbols[..self.count] {
            self.code.put(symbol.into(), bits, out);
            bits.put(extra.into(), EXTRA_BITS[usize::from(symbol)].into(), out);
        }
    }
}
