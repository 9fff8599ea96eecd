use super::block::Block;

/// Bytes that are searched and written as one block.
pub(super) const PIECE: usize = 16 << 10;
/// Bytes behind the window from which on the oldest ones are removed. More means fewer moves of the window.
const SLACK: usize = 8 << 10;
/// Shortest match: the table is by this many bytes.
const MIN_MATCH: usize = 4;
/// Longest match (RFC 1951, section 3.2.5).
const MAX_MATCH: usize = 258;
/// Base-2 logarithm of the number of places in the table.
const HASH_BITS: u32 = 12;
/// A match of this length is taken without a look at the next byte.
const GOOD_MATCH: usize = 12;
/// Of the bytes in a match, one in this many is entered in the table.
const STRIDE: usize = 4;
/// Place from which on the table begins anew.
const LAST_PLACE: usize = 1 << 30;

/// Finds repetitions in a stream of bytes (LZ77).
///
/// Places are counted from the beginning of all streams, so that a new stream only moves the least valid place, and the
/// table needs no clearing. Nothing of an earlier stream is ever referred to.
pub(super) struct Matcher {
    /// The window, then the bytes being searched.
    bytes: Vec<u8>,
    /// Place of the first of them.
    base: usize,
    table: Table,
}

/// The latest place of each hash of four bytes.
struct Table(Box<[u32; 1 << HASH_BITS]>);

impl Matcher {
    pub(super) fn new() -> Self {
        // Place 0 is what the table holds at first, and is never valid.
        Self { bytes: Vec::new(), base: 1, table: Table(Box::new([0; 1 << HASH_BITS])) }
    }

    /// Bytes of memory.
    pub(super) const fn memory(&self) -> usize {
        self.bytes.capacity() + (size_of::<u32>() << HASH_BITS)
    }

    /// Forgets all bytes.
    pub(super) fn forget(&mut self) {
        self.base += self.bytes.len();
        self.bytes.clear();
        if self.base > LAST_PLACE {
            self.table.0.fill(0);
            self.base = 1;
        }
    }

    /// Forgets the last `len` bytes of the stream, as if they had not been searched.
    ///
    /// Older bytes whose places in the table they took are not found again.
    pub(super) fn forget_last(&mut self, len: usize) {
        // Only bytes before a window are ever removed, so what is left are the last bytes of the stream.
        self.bytes.truncate(self.bytes.len().saturating_sub(len));
        let end = as_place(self.base + self.bytes.len());
        for place in self.table.0.iter_mut().filter(|place| **place >= end) {
            *place = 0;
        }
    }

    /// Searches the next bytes, at most [`PIECE`], for repetitions at a distance of at most `window`. Adds their symbols to
    /// `block`. If `is_patient`, a match gives way to a longer one that begins a byte later.
    pub(super) fn search(&mut self, piece: &[u8], window: usize, is_patient: bool, block: &mut Block) {
        self.make_room(piece.len(), window);
        let mut at = self.bytes.len();
        self.bytes.extend_from_slice(piece);
        let Self { bytes, base, table } = self;
        let (bytes, base) = (bytes.as_slice(), *base);
        // The last bytes have no four of their own.
        let last = bytes.len().saturating_sub(MIN_MATCH - 1);
        let (mut literals, mut misses) = (at, 0_usize);
        while at < last {
            let Some(mut found) = table.find(bytes, at, base, window) else {
                // Where nothing repeats, ever fewer places are searched.
                at += 1 + (misses >> 6);
                misses += 1;
                continue;
            };
            misses = 0;
            if is_patient && found.length < GOOD_MATCH && at + 1 < last {
                let next = table.find(bytes, at + 1, base, window);
                if let Some(next) = next.filter(|next| next.length > found.length) {
                    at += 1;
                    found = next;
                }
            }
            block.step(&bytes[literals..at], found.length, found.distance);
            literals = at + found.length;
            at += 1;
            while at < literals.min(last) {
                table.insert(bytes, at, base);
                at += STRIDE;
            }
            at = literals;
        }
        block.literals(&bytes[literals..]);
    }

    /// Removes what lies before the window, if there is much of it.
    fn make_room(&mut self, more: usize, window: usize) {
        if self.base + self.bytes.len() + more > LAST_PLACE {
            self.base = LAST_PLACE + 1;
            self.forget();
        }
        if self.bytes.len() > window + SLACK {
            let gone = self.bytes.len() - window;
            self.bytes.drain(..gone);
            self.base += gone;
        }
        // Not twice the memory, as `Vec` would.
        if self.bytes.capacity() - self.bytes.len() < more {
            let (len, grown) = (self.bytes.len(), (self.bytes.len() / 4).max(more));
            // A lack of memory ends one message, as with buffers, and not the process.
            assert!(self.bytes.try_reserve_exact(grown).is_ok(), "no memory for a window of {} bytes", len + grown);
        }
    }
}

/// A repetition.
#[derive(Clone, Copy)]
struct Found {
    length: usize,
    distance: usize,
}

impl Table {
    /// The match of the bytes at `at` with those at the latest place of their hash, which is `at` from now on.
    #[inline(always)]
    fn find(&mut self, bytes: &[u8], at: usize, base: usize, window: usize) -> Option<Found> {
        let here = word(bytes, at);
        let place = &mut self.0[slot(here)];
        // An older place than the first byte's wraps to one far behind the end.
        let other = (*place as usize).wrapping_sub(base);
        *place = as_place(base + at);
        if other >= at || at - other > window || word(bytes, other) != here {
            return None;
        }
        let length = MIN_MATCH + common(&bytes[other + MIN_MATCH..], &bytes[at + MIN_MATCH..]);
        Some(Found { length, distance: at - other })
    }

    #[inline(always)]
    fn insert(&mut self, bytes: &[u8], at: usize, base: usize) {
        self.0[slot(word(bytes, at))] = as_place(base + at);
    }
}

/// A place, which is below 2^31.
#[inline]
#[expect(clippy::cast_possible_truncation, reason = "the mask leaves 31 bits")]
const fn as_place(place: usize) -> u32 {
    (place & 0x7fff_ffff) as u32
}

/// The four bytes at `at`; 0 behind the end.
#[inline]
fn word(bytes: &[u8], at: usize) -> u32 {
    bytes.get(at..).and_then(|rest| rest.first_chunk()).map_or(0, |word| u32::from_le_bytes(*word))
}

/// Place in the table of four bytes.
#[inline]
const fn slot(word: u32) -> usize {
    (word.wrapping_mul(0x9e37_79b1) >> (32 - HASH_BITS)) as usize
}

/// Number of equal bytes at the beginning of both, at most as many as a match may have behind its
/// first four.
#[inline]
fn common(a: &[u8], b: &[u8]) -> usize {
    let most = a.len().min(b.len()).min(MAX_MATCH - MIN_MATCH);
    let (a, b) = (&a[..most], &b[..most]);
    let (words_a, rest_a) = a.as_chunks::<8>();
    let (words_b, rest_b) = b.as_chunks::<8>();
    for (index, (a, b)) in words_a.iter().zip(words_b).enumerate() {
        let differs = u64::from_le_bytes(*a) ^ u64::from_le_bytes(*b);
        if differs != 0 {
            return 8 * index + differs.trailing_zeros() as usize / 8;
        }
    }
    8 * words_a.len() + rest_a.iter().zip(rest_b).take_while(|(a, b)| a == b).count()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn common_beginnings_are_counted_to_the_byte() {
        let bytes: Vec<u8> = (0..400_u32).map(|i| (i * i % 251).to_le_bytes()[0]).collect();
        for differs in 0..300 {
            let mut other = bytes.clone();
            other[differs] ^= 1;
            assert_eq!(common(&bytes, &other), differs.min(MAX_MATCH - MIN_MATCH));
        }
        assert_eq!(common(&bytes[..5], &bytes), 5);
    }

    #[test]
    fn memory_stays_bounded_over_a_long_stream() {
        let mut matcher = Matcher::new();
        let mut block = Block::default();
        let piece: Vec<u8> = (0..PIECE).map(|i| (i * 31 % 253).to_le_bytes()[0]).collect();
        for len in [1, 100, PIECE].into_iter().cycle().take(300) {
            matcher.search(&piece[..len], 1 << 9, true, &mut block);
        }
        assert!(matcher.bytes.capacity() <= 512 + SLACK + 2 * PIECE, "{}", matcher.bytes.capacity());
        let mut matcher = Matcher::new();
        for _ in 0..300 {
            matcher.search(&piece[..1000], 1 << 15, true, &mut block);
        }
        assert!(matcher.memory() <= (16 << 10) + (54 << 10), "{}", matcher.memory());
    }

    #[test]
    fn a_new_stream_starts_with_an_empty_table_when_places_run_out() {
        let mut matcher = Matcher::new();
        let mut block = Block::default();
        matcher.search(b"abcdabcdabcd", 1 << 15, true, &mut block);
        for is_forgotten in [false, true] {
            matcher.base = LAST_PLACE;
            if is_forgotten {
                matcher.bytes.clear();
            }
            matcher.search(b"abcdabcdabcd", 1 << 15, true, &mut block);
            assert_eq!((matcher.base, matcher.bytes.len()), (1, 12));
            assert!(matcher.table.0.iter().all(|place| *place <= 12));
        }
    }

    #[test]
    fn forgotten_bytes_are_not_found_again() {
        let mut matcher = Matcher::new();
        let mut block = Block::default();
        for (piece, forgotten) in [(&b"abcdabcdabcd"[..], 0), (b"efghefghefgh", 12), (b"ijkl", 100)] {
            matcher.search(piece, 1 << 15, true, &mut block);
            matcher.forget_last(forgotten);
            let end = matcher.base + matcher.bytes.len();
            assert!(matcher.table.0.iter().all(|place| (*place as usize) < end), "{piece:?}");
        }
        assert_eq!(matcher.bytes, b"");
    }
}
