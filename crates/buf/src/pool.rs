use crate::Buf;
use alloc::vec::Vec;

/// The unused buffers of one shard.
///
/// [`take`](Self::take) returns the buffer that came back last, since its memory is the likeliest to be in the cache.
/// The pool keeps at most `limit` bytes and frees a buffer that would exceed them.
#[derive(Debug)]
pub struct Pool {
    free: Vec<Buf>,
    held: usize,
    limit: usize,
}

impl Pool {
    /// Capacity in bytes of a new buffer, which [`take`](Self::take) makes if the pool is empty.
    pub const MIN_CAPACITY: usize = 4096;

    /// Makes a pool that keeps up to `limit` bytes of unused buffers.
    #[must_use]
    pub const fn new(limit: usize) -> Self {
        Self { free: Vec::new(), held: 0, limit }
    }

    /// Returns an empty buffer, which grows on demand.
    pub fn take(&mut self) -> Buf {
        match self.free.pop() {
            Some(buf) => {
                self.held -= buf.capacity();
                buf
            }
            None => Buf::with_capacity(Self::MIN_CAPACITY),
        }
    }

    /// Takes a buffer back and discards its content.
    pub fn give(&mut self, mut buf: Buf) {
        buf.clear();
        let capacity = buf.capacity();
        if capacity > 0 && self.held + capacity <= self.limit {
            self.held += capacity;
            self.free.push(buf);
        }
    }

    /// The memory of the unused buffers, in bytes.
    #[must_use]
    pub const fn held(&self) -> usize {
        self.held
    }
}

#[cfg(test)]
mod tests {
    use super::Pool;

    #[test]
    fn holds_no_more_memory_than_its_limit() {
        let mut pool = Pool::new(3 * Pool::MIN_CAPACITY);
        let mut bufs: alloc::vec::Vec<_> = (0..5).map(|_| pool.take()).collect();
        bufs[3].put(&[1; 10]);
        for buf in bufs {
            pool.give(buf);
        }
        assert_eq!(pool.held(), 3 * Pool::MIN_CAPACITY);
        assert!(pool.take().is_empty());
        assert_eq!(pool.held(), 2 * Pool::MIN_CAPACITY);
    }
}
