use crate::Buf;
use alloc::vec::Vec;

/// Empty buffers of one shard, last in first out, so that the next taker gets the warmest.
///
/// Keeps at most `limit` bytes; what comes back beyond that is freed.
#[derive(Debug)]
pub struct Pool {
    free: Vec<Buf>,
    held: usize,
    limit: usize,
}

impl Pool {
    /// Smallest buffer that [`take`](Self::take) makes.
    pub const MIN_CAPACITY: usize = 4096;

    /// A pool that keeps up to `limit` bytes of unused buffers.
    #[must_use]
    pub const fn new(limit: usize) -> Self {
        Self { free: Vec::new(), held: 0, limit }
    }

    /// An empty buffer; it grows on demand like any other.
    pub fn take(&mut self) -> Buf {
        match self.free.pop() {
            Some(buf) => {
                self.held -= buf.capacity();
                buf
            }
            None => Buf::with_capacity(Self::MIN_CAPACITY),
        }
    }

    /// Gives a buffer back. What it holds is forgotten.
    pub fn give(&mut self, mut buf: Buf) {
        buf.clear();
        let capacity = buf.capacity();
        if capacity > 0 && self.held + capacity <= self.limit {
            self.held += capacity;
            self.free.push(buf);
        }
    }

    /// Bytes of memory kept for the next takers.
    #[must_use]
    pub const fn held(&self) -> usize {
        self.held
    }
}

#[cfg(test)]
mod tests {
    use super::Pool;

    #[test]
    fn lends_the_warmest_buffer_and_keeps_its_limit() {
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
