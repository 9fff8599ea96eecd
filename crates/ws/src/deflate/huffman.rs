//! Huffman codes for DEFLATE blocks (RFC 1951, section 3.2).

use super::bits::Bits;
use tautline_buf::Buf;

/// Most symbols of a code: literals and lengths.
const MAX_SYMBOLS: usize = 288;

/// Longest code for literals, lengths and distances.
pub(super) const MAX_BITS: usize = 15;

/// A Huffman code: codes and their lengths by symbol. A symbol without a code has length 0.
pub(super) struct Code<const N: usize> {
    codes: [u16; N],
    pub(super) lengths: [u8; N],
}

impl<const N: usize> Code<N> {
    /// The canonical code of these lengths.
    pub(super) fn of(lengths: [u8; N]) -> Self {
        Self::numbered(lengths, &count(&lengths))
    }

    /// The best code for these frequencies, of which at least two are not 0, with at most `longest` bits.
    pub(super) fn best(frequencies: &[u32; N], longest: usize) -> Self {
        let mut lengths = [0; N];
        let numbers = code_lengths(frequencies, longest, &mut lengths);
        Self::numbered(lengths, &numbers)
    }

    fn numbered(lengths: [u8; N], numbers: &[u16; MAX_BITS + 1]) -> Self {
        let mut codes = [0; N];
        number(&lengths, numbers, &mut codes);
        Self { codes, lengths }
    }

    /// Bits of all symbols with these frequencies.
    pub(super) fn cost(&self, frequencies: &[u32; N]) -> usize {
        let bits = frequencies.iter().zip(&self.lengths).map(|(&frequency, &length)| frequency * u32::from(length));
        bits.sum::<u32>() as usize
    }

    #[inline]
    pub(super) fn put(&self, symbol: usize, bits: &mut Bits, out: &mut Buf) {
        bits.put(self.codes[symbol].into(), self.lengths[symbol].into(), out);
    }

    /// As [`put`](Self::put), where [`Bits::make_room`] has made room.
    #[inline]
    pub(super) fn add(&self, symbol: usize, bits: &mut Bits) {
        bits.add(self.codes[symbol].into(), self.lengths[symbol].into());
    }
}

/// Raises zeros until two symbols have a frequency, as a code needs them.
pub(super) fn need_two(frequencies: &mut [u32]) {
    let used = frequencies.iter().filter(|&&frequency| frequency > 0).count();
    let missing = 2_usize.saturating_sub(used);
    frequencies.iter_mut().filter(|frequency| **frequency == 0).take(missing).for_each(|frequency| *frequency = 1);
}

/// Finds the lengths of the best code for symbols with these frequencies, none longer than `longest` bits, and counts the
/// symbols of each length.
///
/// A symbol of frequency 0 gets no code. At least two symbols must have one.
fn code_lengths(frequencies: &[u32], longest: usize, lengths: &mut [u8]) -> [u16; MAX_BITS + 1] {
    // A block has less than 2^22 symbols, so frequency and symbol fit into 32 bits.
    let (mut leaves, mut sorted) = ([0_u32; MAX_SYMBOLS], [0_u32; MAX_SYMBOLS]);
    let mut count = 0;
    for (symbol, &frequency) in (0_u32..).zip(frequencies) {
        // Without a branch, which would often be mispredicted.
        leaves[count] = frequency << 9 | symbol;
        count += usize::from(frequency > 0);
    }
    let sorted = &mut sorted[..count];
    sort(&leaves[..count], sorted);
    let numbers = numbers_by_length(sorted, longest);
    // The rarest symbols get the longest codes.
    lengths.fill(0);
    let mut leaves = sorted.iter();
    for (length, &number) in (1_u8..16).zip(&numbers[1..]).rev() {
        for leaf in leaves.by_ref().take(number.into()) {
            lengths[(leaf & 0x1ff) as usize] = length;
        }
    }
    numbers
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
fn numbers_by_length(leaves: &[u32], longest: usize) -> [u16; MAX_BITS + 1] {
    // The inner nodes in the order in which they are made, which is by rising frequency.
    let mut frequency = [u32::MAX; MAX_SYMBOLS];
    let mut parent = [0_u16; MAX_SYMBOLS];
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
    let mut depth = [0_u16; MAX_SYMBOLS];
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

/// Numbers the codes of these lengths (section 3.2.2), in the bit order of the output: first bit lowest. `numbers` says how
/// many codes have each length.
fn number(lengths: &[u8], numbers: &[u16; MAX_BITS + 1], codes: &mut [u16]) {
    let mut next = [0_u16; MAX_BITS + 1];
    for length in 2..=MAX_BITS {
        next[length] = next[length - 1].wrapping_add(numbers[length - 1]) << 1;
    }
    for (code, &length) in codes.iter_mut().zip(lengths) {
        if length > 0 {
            let value = &mut next[usize::from(length)];
            *code = value.reverse_bits() >> (16 - u32::from(length));
            *value = value.wrapping_add(1);
        }
    }
}

/// How many codes have each length.
fn count(lengths: &[u8]) -> [u16; MAX_BITS + 1] {
    let mut numbers = [0; MAX_BITS + 1];
    for &length in lengths {
        numbers[usize::from(length)] += 1;
    }
    numbers
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Sum of 2^-length over all codes, in units of 2^-15.
    fn kraft(lengths: &[u8]) -> u32 {
        lengths.iter().filter(|&&length| length > 0).map(|&length| 1 << (15 - length)).sum()
    }

    fn cost(frequencies: &[u32], lengths: &[u8]) -> u64 {
        frequencies.iter().zip(lengths).map(|(&f, &l)| u64::from(f) * u64::from(l)).sum()
    }

    #[test]
    fn codes_are_those_of_rfc_1951_section_3_2_2() {
        let lengths = [3, 3, 3, 3, 3, 2, 4, 4];
        let mut made = [0; 8];
        number(&lengths, &count(&lengths), &mut made);
        let expected: [u16; 8] = [0b010, 0b011, 0b100, 0b101, 0b110, 0b00, 0b1110, 0b1111];
        for ((made, expected), length) in made.iter().zip(expected).zip(lengths) {
            assert_eq!(*made, expected.reverse_bits() >> (16 - u32::from(length)));
        }
    }

    #[test]
    fn lengths_are_the_best_ones() {
        let mut lengths = [9; 6];
        code_lengths(&[45, 13, 12, 16, 9, 5], 15, &mut lengths);
        assert_eq!(lengths, [1, 3, 3, 3, 4, 4]);
        code_lengths(&[0, 7, 0, 0, 1, 0], 15, &mut lengths);
        assert_eq!(lengths, [0, 1, 0, 0, 1, 0]);
    }

    #[test]
    fn codes_are_cut_to_the_longest_one_allowed() {
        // Fibonacci's numbers make the deepest tree.
        let mut frequencies = [1_u32; 24];
        for i in 2..24 {
            frequencies[i] = frequencies[i - 1] + frequencies[i - 2];
        }
        let mut lengths = [0; 24];
        for longest in [7, 15] {
            code_lengths(&frequencies, longest, &mut lengths);
            assert_eq!(usize::from(lengths.into_iter().max().unwrap()), longest);
            assert_eq!(kraft(&lengths), 1 << 15);
        }
    }

    proptest! {
        #[test]
        fn every_code_is_complete_and_no_rarer_symbol_is_shorter(
            frequencies in proptest::collection::vec(prop_oneof![Just(0), 1..4_u32, 1..4000_u32], 2..MAX_SYMBOLS),
            longest in 9..=MAX_BITS,
        ) {
            prop_assume!(frequencies.iter().filter(|&&frequency| frequency > 0).count() > 1);
            let mut lengths = vec![0; frequencies.len()];
            code_lengths(&frequencies, longest, &mut lengths);
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
