/// Bytes that memcpy copies by vectors on every processor, not by `rep movsb`.
const PIECE: usize = 1024;

/// Copies `from` to `to`, which may begin at any place.
///
/// memcpy of 2 KiB and more is `rep movsb` on many processors. If `to` begins at an odd place, that is up to 20 times
/// slower than vectors on Zen 3 and Zen 4 (`docs/experiments.md`, "Copies").
///
/// # Panics
/// If the two differ in length.
#[inline]
pub fn copy_in_pieces(from: &[u8], to: &mut [u8]) {
    assert!(from.len() == to.len(), "source and destination differ in length");
    for (to, from) in to.chunks_mut(PIECE).zip(from.chunks(PIECE)) {
        to.copy_from_slice(from);
    }
}

#[cfg(test)]
mod tests {
    use super::{PIECE, copy_in_pieces};
    use alloc::vec::Vec;

    #[test]
    fn copies_every_length_around_a_piece() {
        for len in [0, 1, PIECE - 1, PIECE, PIECE + 1, 3 * PIECE + 7] {
            let from: Vec<u8> = (0..len).map(|i| i.to_le_bytes()[0] ^ i.to_le_bytes()[1]).collect();
            let mut to = alloc::vec![0xaa; len + 2];
            copy_in_pieces(&from, &mut to[1..=len]);
            assert_eq!((to[0], &to[1..=len], to[len + 1]), (0xaa, &from[..], 0xaa), "{len}");
        }
    }
}
