//! Huffman codes for DEFLATE blocks (RFC 1951, section 3.2).

use super::bits::Bits;
use tautline_buf::Buf;

/// Longest code for literals, lengths and distances.
pub(super) const MAX_BITS: usize = 15;

/// A Huffman code: the code of each symbol, below its length in the upper half. A symbol without a code has length 0.
pub(super) struct Code<const N: usize>([u32; N]);

impl<const N: usize> Code<N> {
    /// The canonical code of these lengths.
    pub(super) fn of(lengths: [u8; N]) -> Self {
        let mut numbers = [0; MAX_BITS + 1];
        for length in lengths {
            numbers[usize::from(length)] += 1;
        }
        let mut code = lengths.map(|length| u32::from(length) << 16);
        number(0..N, &numbers, &mut code);
        Self(code)
    }

    /// The best code for these frequencies, of which at least two are not 0, with at most `longest` bits. Also returns the
    /// bits of all symbols.
    ///
    /// A symbol of frequency 0 gets no code.
    pub(super) fn best(frequencies: &[u32; N], longest: usize) -> (Self, usize) {
        let (mut leaves, mut sorted) = ([0; N], [0; N]);
        let leaves = collect(frequencies, &mut leaves);
        let sorted = &mut sorted[..leaves.len()];
        sort(leaves, sorted);
        let numbers = numbers_by_length::<N>(sorted, longest);
        let (mut code, mut cost) = ([0; N], 0);
        // The rarest symbols get the longest codes.
        let mut rest = sorted.iter();
        for (length, &number) in (1..16).zip(&numbers[1..]).rev() {
            for &leaf in rest.by_ref().take(number.into()) {
                code[symbol(leaf)] = length << 16;
                cost += length * (leaf >> 9);
            }
        }
        number(leaves.iter().map(|&leaf| symbol(leaf)), &numbers, &mut code);
        (Self(code), cost as usize)
    }

    /// Length of a symbol's code.
    #[inline]
    pub(super) const fn length(&self, symbol: usize) -> u8 {
        self.0[symbol].to_le_bytes()[2]
    }

    /// Number of symbols up to the last one with a code.
    pub(super) fn used(&self) -> usize {
        self.0.iter().rposition(|&code| code > 0).map_or(0, |last| last + 1)
    }

    /// Copies the lengths of the first symbols.
    pub(super) fn copy_lengths(&self, lengths: &mut [u8]) {
        lengths.iter_mut().zip(&self.0).for_each(|(length, code)| *length = code.to_le_bytes()[2]);
    }

    #[inline]
    pub(super) fn put(&self, symbol: usize, bits: &mut Bits, out: &mut Buf) {
        bits.put(self.0[symbol] & 0xffff, self.0[symbol] >> 16, out);
    }

    /// As [`put`](Self::put), where [`Bits::make_room`] has made room.
    #[inline]
    pub(super) fn add(&self, symbol: usize, bits: &mut Bits) {
        bits.add(self.0[symbol] & 0xffff, self.0[symbol] >> 16);
    }
}

/// Raises zeros until two symbols have a frequency, as a code needs them.
pub(super) fn need_two(frequencies: &mut [u32]) {
    let used = frequencies.iter().filter(|&&frequency| frequency > 0).count();
    let missing = 2_usize.saturating_sub(used);
    frequencies.iter_mut().filter(|frequency| **frequency == 0).take(missing).for_each(|frequency| *frequency = 1);
}

/// Collects the symbols of a frequency other than 0 with their frequencies, in rising order of symbols.
///
/// A block has less than 2^22 symbols, so frequency and symbol fit into 32 bits.
fn collect<'a>(frequencies: &[u32], leaves: &'a mut [u32]) -> &'a [u32] {
    const CHUNK: usize = 8;
    let mut count = 0;
    for (chunk, first) in frequencies.chunks(CHUNK).zip((0_u32..).step_by(CHUNK)) {
        // Most symbols do not occur, and neither do their neighbours.
        if chunk.iter().fold(0, |all, frequency| all | frequency) == 0 {
            continue;
        }
        for (symbol, &frequency) in (first..).zip(chunk) {
            // Without a branch, which would often be mispredicted.
            leaves[count] = frequency << 9 | symbol;
            count += usize::from(frequency > 0);
        }
    }
    &leaves[..count]
}

/// The symbol of a leaf.
const fn symbol(leaf: u32) -> usize {
    (leaf & 0x1ff) as usize
}

/// Sorts leaves by rising frequency. All but the most frequent symbols are counted instead of compared.
fn sort(leaves: &[u32], sorted: &mut [u32]) {
    const BINS: usize = 64;
    let bin = |leaf: u32| ((leaf >> 9) as usize).min(BINS - 1);
    let mut places = [0_u16; BINS];
    for &leaf in leaves {
        places[bin(leaf)] += 1;
    }
    let mut place = 0;
    for number in &mut places {
        place += core::mem::replace(number, place);
    }
    let frequent = usize::from(places[BINS - 1]);
    for &leaf in leaves {
        let place = &mut places[bin(leaf)];
        sorted[usize::from(*place)] = leaf;
        *place += 1;
    }
    sorted[frequent..].sort_unstable();
}

/// Counts the leaves of each depth in the Huffman tree of these leaves, none of them deeper than `longest`.
fn numbers_by_length<const N: usize>(leaves: &[u32], longest: usize) -> [u16; MAX_BITS + 1] {
    // The inner nodes in the order in which they are made, which is by rising frequency.
    let mut frequency = [u32::MAX; N];
    let mut parent = [0_u16; N];
    let (mut leaf, mut inner) = (0, 0);
    let root = leaves.len().saturating_sub(2);
    for made in 0..=root {
        let mut sum = 0;
        for _ in 0..2 {
            // Without branches: a node that is not taken is written again when it is. Of equals the leaf is taken, so
            // that the tree stays low.
            let of_leaf = leaves.get(leaf).map_or(u32::MAX, |leaf| leaf >> 9);
            let of_inner = frequency[inner];
            parent[inner] = u16::try_from(made).unwrap_or(0);
            let takes_inner = of_inner < of_leaf;
            sum += of_inner.min(of_leaf);
            inner += usize::from(takes_inner);
            leaf += usize::from(!takes_inner);
        }
        frequency[made] = sum;
    }
    // From the root down, a node that turns out to be an inner one becomes two leaves below it.
    let mut depth = [0_u16; N];
    let mut numbers = [0; MAX_BITS + 1];
    numbers[1] = 2;
    for node in (0..root).rev() {
        depth[node] = depth[usize::from(parent[node])] + 1;
        let mut at = usize::from(depth[node]);
        if at >= longest {
            // Too deep: the longest code with room below it becomes two instead.
            at = longest - 1;
            while at > 1 && numbers[at] == 0 {
                at -= 1;
            }
        }
        numbers[at] -= 1;
        numbers[at + 1] += 2;
    }
    numbers
}

/// Numbers the codes of these symbols, which are in rising order (section 3.2.2). The codes are in the bit order of the
/// output: first bit lowest. `numbers` says how many codes have each length.
fn number(symbols: impl Iterator<Item = usize>, numbers: &[u16; MAX_BITS + 1], codes: &mut [u32]) {
    let mut next = [0_u16; MAX_BITS + 1];
    for length in 2..=MAX_BITS {
        next[length] = next[length - 1].wrapping_add(numbers[length - 1]) << 1;
    }
    for symbol in symbols {
        let code = &mut codes[symbol];
        let length = *code >> 16;
        let value = &mut next[length as usize & MAX_BITS];
        *code |= u32::from(value.reverse_bits()) >> (16 - length);
        *value = value.wrapping_add(1);
    }
}

#[cfg(test)]
mod tests {
    use super::super::lengths::LITERALS;
    use super::*;
    use proptest::prelude::*;

    /// Sum of 2^-length over all codes, in units of 2^-15.
    fn kraft(lengths: &[u8]) -> u32 {
        lengths.iter().filter(|&&length| length > 0).map(|&length| 1 << (15 - length)).sum()
    }

    fn cost(frequencies: &[u32], lengths: &[u8]) -> u64 {
        frequencies.iter().zip(lengths).map(|(&f, &l)| u64::from(f) * u64::from(l)).sum()
    }

    /// Lengths of the best code for these frequencies.
    fn lengths<const N: usize>(frequencies: &[u32; N], longest: usize) -> [u8; N] {
        let (code, bits) = Code::best(frequencies, longest);
        let lengths = core::array::from_fn(|symbol| code.length(symbol));
        assert_eq!(bits as u64, cost(frequencies, &lengths));
        assert_eq!(code.0, Code::of(lengths).0);
        lengths
    }

    #[test]
    fn codes_are_those_of_rfc_1951_section_3_2_2() {
        let code = Code::of([3, 3, 3, 3, 3, 2, 4, 4]);
        let expected: [u16; 8] = [0b010, 0b011, 0b100, 0b101, 0b110, 0b00, 0b1110, 0b1111];
        for (symbol, expected) in expected.into_iter().enumerate() {
            let length = u32::from(code.length(symbol));
            assert_eq!(code.0[symbol], length << 16 | u32::from(expected.reverse_bits() >> (16 - length)));
        }
    }

    #[test]
    fn lengths_are_the_best_ones() {
        assert_eq!(lengths(&[45, 13, 12, 16, 9, 5], 15), [1, 3, 3, 3, 4, 4]);
        assert_eq!(lengths(&[0, 7, 0, 0, 1, 0], 15), [0, 1, 0, 0, 1, 0]);
    }

    #[test]
    fn codes_are_cut_to_the_longest_one_allowed() {
        // Fibonacci's numbers make the deepest tree.
        let mut frequencies = [1_u32; 24];
        for i in 2..24 {
            frequencies[i] = frequencies[i - 1] + frequencies[i - 2];
        }
        for longest in [7, 15] {
            let lengths = lengths(&frequencies, longest);
            assert_eq!(usize::from(lengths.into_iter().max().unwrap()), longest);
            assert_eq!(kraft(&lengths), 1 << 15);
        }
    }

    proptest! {
        #[test]
        fn every_code_is_complete_and_no_rarer_symbol_is_shorter(
            frequencies in proptest::collection::vec(prop_oneof![Just(0), 1..4_u32, 1..4000_u32], 2..LITERALS),
            longest in 9..=MAX_BITS,
        ) {
            prop_assume!(frequencies.iter().filter(|&&frequency| frequency > 0).count() > 1);
            let mut padded = [0; LITERALS];
            padded[..frequencies.len()].copy_from_slice(&frequencies);
            let lengths = lengths(&padded, longest);
            prop_assert_eq!(kraft(&lengths), 1 << 15);
            prop_assert!(lengths.iter().all(|&length| usize::from(length) <= longest));
            for (frequency, length) in frequencies.iter().zip(&lengths) {
                prop_assert_eq!(*frequency > 0, *length > 0);
                for (other, longer) in frequencies.iter().zip(&lengths) {
                    prop_assert!(*other == 0 || frequency <= other || length <= longer);
                }
            }
            prop_assert!(cost(&frequencies, &lengths) <= frequencies.iter().map(|&f| u64::from(f) * 9).sum());
        }
    }
}
