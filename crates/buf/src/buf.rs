use alloc::vec::Vec;
use core::fmt;

/// A growable byte queue: bytes are committed at the tail and taken from the head.
///
/// The first byte of an empty buffer lies at a multiple of [`ALIGN`](Self::ALIGN) bytes. Some processors copy to other
/// places many times more slowly.
///
/// INVARIANT: `start() <= head <= tail <= bytes.len()`; all of `bytes` is initialised. `bytes` is never grown in place,
/// since it could then move to another alignment.
#[derive(Default)]
pub struct Buf {
    bytes: Vec<u8>,
    head: usize,
    tail: usize,
}

impl Buf {
    /// Alignment of a buffer's first byte: a cache line, and the widest vector.
    pub const ALIGN: usize = 64;

    /// Least memory of a buffer that grows, in bytes.
    const LEAST: usize = 64;

    /// From this size on, in bytes, a lack of memory panics. A server can then end the one connection.
    const LARGE: usize = 32 << 10;

    /// Makes a buffer without memory; the first [`reserve`](Self::reserve) or [`put`](Self::put) allocates.
    #[must_use]
    pub const fn new() -> Self {
        Self { bytes: Vec::new(), head: 0, tail: 0 }
    }

    /// Makes a buffer with `capacity` bytes of initialised memory.
    ///
    /// # Panics
    /// If there is no memory for 32 KiB or more. Less of it aborts the process, as elsewhere in Rust.
    #[must_use]
    pub fn with_capacity(capacity: usize) -> Self {
        if capacity == 0 {
            return Self::new();
        }
        // The memory begins anywhere, so there is room to skip to the next multiple.
        let len = capacity.saturating_add(Self::ALIGN - 1);
        if capacity >= Self::LARGE {
            ask_for(len);
        }
        let mut buf = Self { bytes: alloc::vec![0; len], head: 0, tail: 0 };
        let start = buf.start();
        buf.bytes.truncate(start + capacity);
        buf.clear();
        debug_assert!(buf.is_aligned(), "a buffer begins at a multiple of {} bytes", Self::ALIGN);
        buf
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
        self.bytes.len() - self.start()
    }

    /// Whether this buffer has memory.
    #[must_use]
    pub const fn has_memory(&self) -> bool {
        !self.bytes.is_empty()
    }

    /// The number of free bytes behind the filled ones.
    #[must_use]
    pub const fn room(&self) -> usize {
        self.bytes.len() - self.tail
    }

    /// Returns at least `n` free bytes behind the filled ones; grows or compacts the buffer if needed.
    ///
    /// The slice is the whole free part, so it may be longer than `n`. Its content is unspecified: bytes of earlier
    /// use.
    pub fn reserve(&mut self, n: usize) -> &mut [u8] {
        if self.room() < n {
            self.make_room(n);
        }
        &mut self.bytes[self.tail..]
    }

    /// Marks the first `n` free bytes as filled.
    ///
    /// # Panics
    /// If fewer than `n` bytes are free: commit at most what [`reserve`](Self::reserve) returned.
    pub fn commit(&mut self, n: usize) {
        assert!(n <= self.room(), "commit past the reserved bytes");
        self.tail += n;
    }

    /// Removes `n` bytes from the head.
    ///
    /// # Panics
    /// If fewer than `n` bytes are filled.
    #[inline]
    pub fn take(&mut self, n: usize) {
        assert!(n <= self.len(), "take past the filled bytes");
        self.head += n;
        if self.head == self.tail {
            self.clear();
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
    pub fn clear(&mut self) {
        let start = self.start();
        self.head = start;
        self.tail = start;
    }

    /// Whether the memory is more than four times the filled bytes and is worth giving back.
    #[must_use]
    pub fn is_oversized(&self) -> bool {
        let capacity = self.capacity();
        capacity > Self::SMALL && capacity / 4 > self.len()
    }

    /// Moves the filled bytes into memory that fits them, if the buffer [is oversized](Self::is_oversized).
    ///
    /// For a buffer that waits for a peer. Otherwise a few bytes could hold the memory of a large message.
    pub fn fit(&mut self) {
        if self.is_oversized() {
            let mut fitting = Self::with_capacity(self.len().next_power_of_two().max(Self::SMALL));
            fitting.put(self.filled());
            *self = fitting;
        }
    }

    /// Memory that is never worth giving back, in bytes.
    pub(crate) const SMALL: usize = 256;

    /// Index of the first aligned byte; 0 without memory.
    fn start(&self) -> usize {
        if self.bytes.is_empty() { 0 } else { self.bytes.as_ptr().addr().wrapping_neg() % Self::ALIGN }
    }

    fn is_aligned(&self) -> bool {
        self.bytes[self.start()..].as_ptr().addr().is_multiple_of(Self::ALIGN)
    }

    #[cold]
    fn make_room(&mut self, n: usize) {
        let (len, start) = (self.len(), self.start());
        let needed = len.saturating_add(n);
        if needed <= self.bytes.len() - start {
            self.bytes.copy_within(self.head..self.tail, start);
            self.head = start;
            self.tail = start + len;
            return;
        }
        let grown = needed.checked_next_power_of_two().unwrap_or(needed).max(Self::LEAST);
        let mut larger = Self::with_capacity(grown);
        larger.put(self.filled());
        *self = larger;
    }
}

/// Panics if the allocator has no `len` bytes. A vector of zeros would abort the process instead, so this asks first.
/// The caller still allocates zeros, because the system has large areas of them at no cost.
#[cold]
fn ask_for(len: usize) {
    let mut memory: Vec<u8> = Vec::new();
    let asked = memory.try_reserve_exact(len);
    // Otherwise the compiler leaves out an allocation that nobody uses.
    core::hint::black_box(&memory);
    assert!(asked.is_ok(), "no memory for a buffer of {len} bytes");
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
    fn begins_at_a_multiple_of_64_bytes_however_it_got_its_memory() {
        let first = |buf: &Buf| buf.filled().as_ptr().addr() % Buf::ALIGN;
        // Kept, so that the allocator returns other places.
        let mut kept = Vec::new();
        for capacity in [1, 3, 64, 100, 255, 4096, 5000, 70_000] {
            let mut buf = Buf::with_capacity(capacity);
            assert_eq!((buf.capacity(), buf.room()), (capacity, capacity));
            buf.put(&[1; 1]);
            assert_eq!(first(&buf), 0, "new, {capacity}");
            buf.take(1);
            buf.put(&[2; 1]);
            assert_eq!(first(&buf), 0, "emptied, {capacity}");
            buf.put(&alloc::vec![3; 3 * capacity]);
            assert_eq!(first(&buf), 0, "grown, {capacity}");
            buf.take(1);
            let room = buf.room();
            buf.put(&alloc::vec![4; room + 1]);
            assert_eq!(first(&buf), 0, "compacted, {capacity}");
            buf.clear();
            buf.put(&[5; 1]);
            assert_eq!(first(&buf), 0, "cleared, {capacity}");
            buf.fit();
            assert_eq!((first(&buf), buf.filled()), (0, &[5][..]), "fitted, {capacity}");
            kept.push((buf, Vec::<u8>::with_capacity(capacity % 48 + 1)));
        }
    }

    #[test]
    fn fit_gives_back_memory_that_few_bytes_hold() {
        let mut buf = Buf::with_capacity(1 << 20);
        buf.put(&[7; 9]);
        buf.fit();
        assert_eq!((buf.filled(), buf.capacity()), (&[7; 9][..], Buf::SMALL));
        buf.put(&[7; 100]);
        buf.fit();
        assert_eq!(buf.capacity(), Buf::SMALL);
        Buf::new().fit();
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
