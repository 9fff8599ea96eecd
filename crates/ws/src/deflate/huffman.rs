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
        let mut codes = [0; N];
        number(&lengths, &mut codes);
        Self { codes, lengths }
    }

    /// The best code for these frequencies, of which at least two are not 0, with at most `longest` bits.
    pub(super) fn best(frequencies: &[u32; N], longest: usize) -> Self {
        let mut lengths = [0; N];
        code_lengths(frequencies, longest, &mut lengths);
        Self::of(lengths)
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
}

/// Raises zeros until two symbols have a frequency, as a code needs them.
pub(super) fn need_two(frequencies: &mut [u32]) {
    let used = frequencies.iter().filter(|&&frequency| frequency > 0).count();
    let missing = 2_usize.saturating_sub(used);
    frequencies.iter_mut().filter(|frequency| **frequency == 0).take(missing).for_each(|frequency| *frequency = 1);
}

/// Finds the lengths of the best code for symbols with these frequencies, none longer than `longest` bits.
///
/// A symbol of frequency 0 gets no code. At least two symbols must have one.
fn code_lengths(frequencies: &[u32], longest: usize, lengths: &mut [u8]) {
    lengths.fill(0);
    // Leaves by rising frequency. A block has less than 2^22 symbols, so frequency and symbol fit into 32 bits.
    let mut leaves = [0_u32; MAX_SYMBOLS];
    let mut count = 0;
    for (symbol, &frequency) in (0_u32..).zip(frequencies) {
        if frequency > 0 {
            leaves[count] = frequency << 9 | symbol;
            count += 1;
        }
    }
    let leaves = &mut leaves[..count];
    leaves.sort_unstable();
    let mut numbers = numbers_by_length(leaves, longest);
    shorten(&mut numbers, longest);
    // The rarest symbols get the longest codes.
    let mut leaves = leaves.iter();
    for length in (1..=longest).rev() {
        for leaf in leaves.by_ref().take(numbers[length].into()) {
            lengths[(leaf & 0x1ff) as usize] = length.to_le_bytes()[0];
        }
    }
}

/// Counts the leaves of each depth in the Huffman tree. Deeper ones than `longest` count as of that depth.
fn numbers_by_length(leaves: &[u32], longest: usize) -> [u16; MAX_BITS + 1] {
    // The leaves, then the inner nodes in the order in which they are made, which is by rising frequency too.
    let mut frequency = [0_u32; MAX_SYMBOLS];
    let mut parent = [0_u16; 2 * MAX_SYMBOLS];
    let count = leaves.len();
    let (mut leaf, mut inner) = (0, 0);
    for made in 0..count.saturating_sub(1) {
        for _ in 0..2 {
            let of_leaf = leaves.get(leaf).map(|leaf| leaf >> 9);
            let node = if inner < made && of_leaf.is_none_or(|of_leaf| frequency[inner] < of_leaf) {
                frequency[made] += frequency[inner];
                inner += 1;
                count + inner - 1
            } else {
                frequency[made] += of_leaf.unwrap_or(0);
                leaf += 1;
                leaf - 1
            };
            parent[node] = u16::try_from(count + made).unwrap_or(0);
        }
    }
    let mut depth = [0_u8; 2 * MAX_SYMBOLS];
    let mut numbers = [0; MAX_BITS + 1];
    for node in (0..(2 * count).saturating_sub(2)).rev() {
        depth[node] = depth[usize::from(parent[node])].saturating_add(1);
        if node < count {
            numbers[usize::from(depth[node]).min(longest)] += 1;
        }
    }
    numbers
}

/// Makes a code complete again whose longest codes were cut to `longest`.
fn shorten(numbers: &mut [u16; MAX_BITS + 1], longest: usize) {
    let used = |numbers: &[u16; MAX_BITS + 1]| -> u32 {
        (1..=longest).map(|length| u32::from(numbers[length]) << (longest - length)).sum()
    };
    let mut excess = used(numbers).saturating_sub(1 << longest);
    while excess > 0 {
        // One of the longest codes goes below a shorter one, which becomes one bit longer.
        let Some(shorter) = (1..longest).rev().find(|&length| numbers[length] > 0) else { return };
        numbers[shorter] -= 1;
        numbers[shorter + 1] += 2;
        numbers[longest] -= 1;
        excess -= 1;
    }
}

/// Numbers the codes of these lengths (section 3.2.2), in the bit order of the output: first bit lowest.
fn number(lengths: &[u8], codes: &mut [u16]) {
    let mut numbers = [0_u16; MAX_BITS + 1];
    for &length in lengths {
        numbers[usize::from(length)] += u16::from(length > 0);
    }
    let mut next = [0_u16; MAX_BITS + 1];
    for length in 1..=MAX_BITS {
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
        number(&lengths, &mut made);
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
