use crate::Buf;
use alloc::vec::Vec;

/// The unused buffers of one shard, by size.
///
/// A buffer of a size class is the one that came back last, since its memory is the likeliest to be in the cache. The
/// pool keeps at most `limit` bytes. A buffer that comes back then takes the place of those of other sizes.
///
/// | call | for bytes that |
/// |---|---|
/// | [`take`](Self::take) | are gone before the call ends, such as a cork |
/// | [`take_for`](Self::take_for), [`reserve`](Self::reserve) | may wait for a peer |
/// | [`fit`](Self::fit) | turned out to wait |
///
/// So memory that waits for a peer is in proportion to the bytes in it.
#[derive(Debug)]
pub struct Pool {
    /// The buffer for the next [`take`](Self::take). It is not in `held`, and at most as large as `limit`.
    spare: Buf,
    /// The buffer that came back last, so that most calls need not look at the classes.
    last: Buf,
    /// Buffers of at least `256 << i` bytes at `i`, and less than twice as many.
    classes: [Vec<Buf>; CLASSES],
    /// A bit for each class that has a buffer.
    present: u32,
    /// Memory of the buffers in `classes`.
    held: usize,
    limit: usize,
}

/// Size classes: 256 bytes to 128 MiB. Larger buffers are freed.
const CLASSES: usize = 20;

impl Pool {
    /// Least capacity in bytes of a buffer from [`take`](Self::take).
    pub const MIN_CAPACITY: usize = 4096;

    /// Makes a pool that keeps up to `limit` bytes of unused buffers.
    #[must_use]
    pub const fn new(limit: usize) -> Self {
        let classes = [const { Vec::new() }; CLASSES];
        Self { spare: Buf::new(), last: Buf::new(), classes, present: 0, held: 0, limit }
    }

    /// Returns an empty buffer of any size, which grows on demand: the last one that was [given back](Self::give_back), or
    /// the largest one, since it needs to grow the least.
    #[inline]
    pub fn take(&mut self) -> Buf {
        if self.spare.has_memory() { core::mem::take(&mut self.spare) } else { self.take_largest() }
    }

    /// Takes back a buffer that [`take`](Self::take) returned, for the next such call, and discards its content.
    #[inline]
    pub fn give_back(&mut self, mut buf: Buf) {
        if self.spare.has_memory() || buf.capacity() > self.limit {
            self.give(buf);
        } else {
            buf.clear();
            core::mem::swap(&mut self.spare, &mut buf);
        }
    }

    /// Returns an empty buffer with at least `n` bytes of memory and at most `2 * n`, but no less than 256.
    #[inline]
    pub fn take_for(&mut self, n: usize) -> Buf {
        if self.last_is_for(n) { core::mem::take(&mut self.last) } else { self.take_class(n) }
    }

    /// Makes room for `n` more bytes in `buf`, with memory of this pool.
    #[inline]
    pub fn reserve(&mut self, buf: &mut Buf, n: usize) {
        if buf.room() < n {
            // The path of nearly all messages: a buffer without memory gets the one that came back last.
            if !buf.has_memory() && self.last_is_for(n) {
                core::mem::swap(buf, &mut self.last);
            } else {
                self.grow(buf, n);
            }
        }
    }

    /// Whether the buffer that came back last has at least `n` bytes, and at most twice as many or 256.
    #[inline]
    fn last_is_for(&self, n: usize) -> bool {
        let capacity = self.last.capacity();
        capacity >= n && capacity > 0 && capacity / 2 <= n.max(Buf::SMALL / 2)
    }

    /// Moves the bytes of `buf` into a buffer that fits them, if it [is oversized](Buf::is_oversized).
    pub fn fit(&mut self, buf: &mut Buf) {
        if buf.is_oversized() {
            self.replace(buf, 0);
        }
    }

    /// Takes a buffer back and discards its content.
    #[inline]
    pub fn give(&mut self, mut buf: Buf) {
        if buf.has_memory() {
            buf.clear();
            if !self.last.has_memory() && self.held + buf.capacity() <= self.limit {
                self.last = buf;
            } else {
                self.give_slowly(buf);
            }
        }
    }

    /// The memory of the unused buffers, in bytes, without the spare one.
    #[must_use]
    pub fn held(&self) -> usize {
        self.held + self.last.capacity()
    }

    /// The memory of all unused buffers, in bytes.
    #[must_use]
    pub fn memory(&self) -> usize {
        self.held() + self.spare.capacity()
    }

    /// The memory of the unused buffers in the classes: a part of [`held`](Self::held) that changes rarely.
    #[inline]
    #[must_use]
    pub const fn in_classes(&self) -> usize {
        self.held
    }

    /// Frees all unused buffers.
    #[cold]
    pub fn trim(&mut self) {
        *self = Self::new(self.limit);
    }

    #[inline(never)]
    fn give_slowly(&mut self, buf: Buf) {
        let last = core::mem::take(&mut self.last);
        if let Some(class) = class_of(last.capacity())
            && self.has_room(class)
        {
            self.held += Buf::SMALL << class;
            self.present |= 1 << class;
            self.classes[class].push(last);
        }
        if class_of(buf.capacity()).is_some_and(|class| self.has_room(class)) {
            self.last = buf;
        }
    }

    #[inline(never)]
    fn take_largest(&mut self) -> Buf {
        let largest = self.present.checked_ilog2().unwrap_or(0) as usize;
        if self.last.capacity() >= Self::MIN_CAPACITY.max(Buf::SMALL << largest) {
            return core::mem::take(&mut self.last);
        }
        if Buf::SMALL << largest >= Self::MIN_CAPACITY
            && let Some(buf) = self.pop(largest)
        {
            return buf;
        }
        Buf::with_capacity(Self::MIN_CAPACITY)
    }

    #[inline(never)]
    fn take_class(&mut self, n: usize) -> Buf {
        let class = class_for(n);
        match self.pop(class) {
            Some(buf) => buf,
            None => Buf::with_capacity(if class < CLASSES { Buf::SMALL << class } else { n }),
        }
    }

    fn pop(&mut self, class: usize) -> Option<Buf> {
        let free = self.classes.get_mut(class)?;
        let buf = free.pop()?;
        if free.is_empty() {
            self.present &= !(1 << class);
        }
        self.held -= Buf::SMALL << class;
        Some(buf)
    }

    #[inline(never)]
    fn grow(&mut self, buf: &mut Buf, n: usize) {
        if !buf.has_memory() {
            *buf = self.take_for(n);
        } else if buf.capacity() < buf.len().saturating_add(n) {
            self.replace(buf, n);
        } else {
            buf.reserve(n);
        }
    }

    /// Moves the bytes of `buf` into a buffer with room for `n` more.
    fn replace(&mut self, buf: &mut Buf, n: usize) {
        let mut other = self.take_for(buf.len().saturating_add(n));
        other.put(buf.filled());
        self.give(core::mem::replace(buf, other));
    }

    /// Whether one more buffer of `class` is within the limit, which may free buffers of other classes, the largest first.
    ///
    /// Otherwise the buffers of a burst would keep out those that are needed now.
    fn has_room(&mut self, class: usize) -> bool {
        let size = Buf::SMALL << class;
        while size <= self.limit && self.held + size > self.limit {
            let Some(largest) = (self.present & !(1 << class)).checked_ilog2() else { return false };
            self.pop(largest as usize);
        }
        size <= self.limit
    }
}

/// The class of a buffer with `capacity` bytes; `None` if it is too small or too large to be kept.
fn class_of(capacity: usize) -> Option<usize> {
    let class = capacity.checked_ilog2()?.checked_sub(Buf::SMALL.ilog2())? as usize;
    (class < CLASSES).then_some(class)
}

/// The class whose buffers all have `n` bytes.
const fn class_for(n: usize) -> usize {
    ((n.saturating_sub(1) | (Buf::SMALL - 1)).ilog2() + 1 - Buf::SMALL.ilog2()) as usize
}

#[cfg(test)]
mod tests {
    use super::{Buf, CLASSES, Pool};
    use alloc::vec::Vec;

    #[test]
    fn holds_no_more_memory_than_its_limit() {
        let mut pool = Pool::new(3 * Pool::MIN_CAPACITY);
        let mut bufs: Vec<_> = (0..5).map(|_| pool.take()).collect();
        bufs[3].put(&[1; 10]);
        for buf in bufs {
            pool.give(buf);
        }
        assert_eq!(pool.held(), 3 * Pool::MIN_CAPACITY);
        assert!(pool.take().is_empty());
        assert_eq!(pool.held(), 2 * Pool::MIN_CAPACITY);
    }

    #[test]
    fn bytes_that_wait_get_memory_in_proportion_although_large_buffers_are_free() {
        let mut pool = Pool::new(64 << 20);
        for _ in 0..8 {
            pool.give(Buf::with_capacity(2 << 20));
        }
        for n in (0..40).flat_map(|shift| [1_usize << shift, (1 << shift) + 1, (3 << shift) / 2]) {
            if n > 100 << 20 {
                break;
            }
            let buf = pool.take_for(n);
            assert!(buf.capacity() >= n && buf.capacity() <= (2 * n).max(Buf::SMALL), "{n}: {}", buf.capacity());
            pool.give(buf);
        }
        let mut cork = pool.take();
        assert!(cork.capacity() >= 2 << 20);
        cork.put(b"nine byte");
        pool.fit(&mut cork);
        assert_eq!((cork.filled(), cork.capacity()), (&b"nine byte"[..], Buf::SMALL));
    }

    #[test]
    fn a_spare_buffer_is_kept_within_the_limit_only() {
        let mut pool = Pool::new(1 << 20);
        pool.give_back(Buf::with_capacity(2 << 20));
        assert_eq!((pool.held(), pool.take().capacity()), (0, Pool::MIN_CAPACITY));
        let mut cork = Buf::with_capacity(1 << 16);
        cork.put(b"old");
        pool.give_back(cork);
        let cork = pool.take();
        assert!(cork.is_empty() && cork.capacity() == 1 << 16);
        assert_eq!(pool.take().capacity(), Pool::MIN_CAPACITY);
    }

    #[test]
    fn a_trimmed_pool_has_no_memory_and_works_on() {
        let mut pool = Pool::new(1 << 20);
        pool.give_back(Buf::with_capacity(1 << 12));
        (0..9).for_each(|_| pool.give(Buf::with_capacity(1 << 14)));
        assert_eq!(pool.memory(), (1 << 12) + (9 << 14));
        pool.trim();
        assert_eq!(pool.memory(), 0);
        pool.give(Buf::with_capacity(1 << 14));
        assert_eq!(pool.memory(), 1 << 14);
    }

    #[test]
    fn a_buffer_grows_through_the_pool_and_keeps_its_bytes() {
        let mut pool = Pool::new(1 << 20);
        let mut buf = Buf::new();
        let mut expected = Vec::new();
        for step in 0_u8..200 {
            let piece = [step; 37];
            pool.reserve(&mut buf, piece.len());
            let room = buf.room();
            buf.put(&piece);
            assert_eq!(buf.room(), room - piece.len(), "put did not allocate");
            expected.extend(piece);
        }
        assert_eq!(buf.filled(), expected);
        buf.take(100);
        let (capacity, room) = (buf.capacity(), buf.room());
        pool.reserve(&mut buf, room + 1);
        assert_eq!((buf.capacity(), buf.filled()), (capacity, &expected[100..]), "compacted");
        assert!(pool.held() > 0 && pool.held() < 2 * buf.capacity(), "outgrown buffers came back");
    }

    #[test]
    fn a_buffer_pushes_out_those_of_other_sizes_at_the_limit() {
        let mut pool = Pool::new(1 << 20);
        pool.give(Buf::with_capacity(1 << 20));
        pool.give(Buf::with_capacity(4096));
        assert_eq!(pool.held(), 4096);
        pool.give(Buf::with_capacity(2 << 20));
        assert_eq!(pool.held(), 4096, "larger than the limit");
        (0..300).for_each(|_| pool.give(Buf::with_capacity(4096)));
        assert_eq!(pool.held(), 1 << 20, "its own size stays");
        pool.give(Buf::with_capacity(512 << 10));
        assert_eq!((pool.held(), pool.take().capacity()), (1 << 20, 512 << 10));
        // Beyond the classes nothing is kept.
        let mut pool = Pool::new(usize::MAX / 2);
        pool.give(Buf::with_capacity(Buf::SMALL << CLASSES));
        pool.give(Buf::with_capacity(10));
        assert_eq!(pool.held(), 0);
    }
}
