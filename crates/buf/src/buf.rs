use alloc::vec::Vec;
use core::fmt;

/// A growable byte queue: bytes are committed at the tail and taken from the head.
///
/// INVARIANT: `head <= tail <= bytes.len()`; all of `bytes` is initialised.
#[derive(Default)]
pub struct Buf {
    bytes: Vec<u8>,
    head: usize,
    tail: usize,
}

impl Buf {
    /// Makes a buffer without memory; the first [`reserve`](Self::reserve) or [`put`](Self::put) allocates.
    #[must_use]
    pub const fn new() -> Self {
        Self { bytes: Vec::new(), head: 0, tail: 0 }
    }

    /// Makes a buffer with `capacity` bytes of initialised memory.
    #[must_use]
    pub fn with_capacity(capacity: usize) -> Self {
        Self { bytes: alloc::vec![0; capacity], head: 0, tail: 0 }
    }

    /// The bytes that were committed and not yet taken.
    #[must_use]
    pub fn filled(&self) -> &[u8] {
        &self.bytes[self.head..self.tail]
    }

    /// The filled bytes, to change in place.
    pub fn filled_mut(&mut self) -> &mut [u8] {
        &mut self.bytes[self.head..self.tail]
    }

    /// The number of filled bytes.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.tail - self.head
    }

    /// Whether no byte is filled.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.head == self.tail
    }

    /// The memory that this buffer holds, in bytes.
    #[must_use]
    pub fn capacity(&self) -> usize {
        self.bytes.len()
    }

    /// Returns at least `n` free bytes behind the filled ones; grows or compacts the buffer if needed.
    ///
    /// The slice is the whole free part, so it may be longer than `n`. Its content is unspecified: bytes of earlier
    /// use.
    pub fn reserve(&mut self, n: usize) -> &mut [u8] {
        if self.bytes.len() - self.tail < n {
            self.make_room(n);
        }
        &mut self.bytes[self.tail..]
    }

    /// Marks the first `n` free bytes as filled.
    ///
    /// # Panics
    /// If fewer than `n` bytes are free: commit at most what [`reserve`](Self::reserve) returned.
    pub fn commit(&mut self, n: usize) {
        assert!(n <= self.bytes.len() - self.tail, "commit past the reserved bytes");
        self.tail += n;
    }

    /// Removes `n` bytes from the head.
    ///
    /// # Panics
    /// If fewer than `n` bytes are filled.
    pub fn take(&mut self, n: usize) {
        assert!(n <= self.len(), "take past the filled bytes");
        self.head += n;
        if self.head == self.tail {
            self.head = 0;
            self.tail = 0;
        }
    }

    /// Appends a copy of `data`.
    pub fn put(&mut self, data: &[u8]) {
        self.reserve(data.len())[..data.len()].copy_from_slice(data);
        self.tail += data.len();
    }

    /// Shortens the filled bytes to the first `len`; does nothing if there are fewer.
    pub fn truncate(&mut self, len: usize) {
        if len < self.len() {
            self.tail = self.head + len;
        }
    }

    /// Removes all filled bytes and keeps the memory.
    pub const fn clear(&mut self) {
        self.head = 0;
        self.tail = 0;
    }

    #[cold]
    fn make_room(&mut self, n: usize) {
        let len = self.len();
        if self.head > 0 {
            self.bytes.copy_within(self.head..self.tail, 0);
            self.head = 0;
            self.tail = len;
        }
        let needed = len.saturating_add(n);
        if needed > self.bytes.len() {
            let grown = needed.max(self.bytes.len().saturating_mul(2)).max(64);
            self.bytes.resize(grown, 0);
        }
    }
}

impl fmt::Debug for Buf {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Buf").field("len", &self.len()).field("capacity", &self.capacity()).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::Buf;
    use alloc::collections::VecDeque;
    use alloc::vec::Vec;

    #[test]
    fn behaves_like_a_queue_of_bytes() {
        let mut buf = Buf::new();
        let mut oracle = VecDeque::new();
        let mut seed = 0x2545_f491_4f6c_dd1d_u64;
        // Under Miri a step takes about 1000 times as long.
        let steps = if cfg!(miri) { 300_usize } else { 20_000 };
        for step in 0..steps {
            seed ^= seed << 13;
            seed ^= seed >> 7;
            seed ^= seed << 17;
            let n = usize::try_from(seed % 97).unwrap();
            match seed % 5 {
                0 | 1 => {
                    let data: Vec<u8> = (0..n).map(|i| i.to_le_bytes()[0] ^ step.to_le_bytes()[0]).collect();
                    buf.put(&data);
                    oracle.extend(data);
                }
                2 => {
                    let free = buf.reserve(n);
                    assert!(free.len() >= n);
                    free[..n].fill(7);
                    buf.commit(n);
                    oracle.extend(core::iter::repeat_n(7, n));
                }
                3 => {
                    // Three times `n`, so that this step removes as much as the others add.
                    let n = (3 * n).min(buf.len());
                    buf.take(n);
                    oracle.drain(..n);
                }
                _ if seed.is_multiple_of(31) => {
                    buf.truncate(n);
                    oracle.truncate(n);
                }
                _ => {}
            }
            assert_eq!(buf.len(), oracle.len());
            assert!(buf.filled().iter().eq(oracle.iter()));
        }
    }

    #[test]
    #[should_panic(expected = "commit past the reserved bytes")]
    fn commit_past_the_memory_panics() {
        let mut buf = Buf::with_capacity(4);
        buf.commit(5);
    }

    #[test]
    #[should_panic(expected = "take past the filled bytes")]
    fn take_past_the_filled_bytes_panics() {
        let mut buf = Buf::with_capacity(4);
        buf.put(b"ab");
        buf.take(3);
    }
}
