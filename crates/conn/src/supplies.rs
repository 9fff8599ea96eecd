//! Buffers and keys that all connections of a thread share, if their callers do the I/O.

use crate::cork::Means;
use crate::keys::Keys;
use core::fmt;
use tautline_buf::{Buf, Pool};
use tautline_ws::deflate::{DeflateConfig, SharedDeflater};

/// Unused buffers, the generator of mask keys, and the compressor of messages that are framed once for many.
pub struct Supplies {
    /// The unused buffers.
    pub pool: Pool,
    /// Mask keys and nonces.
    pub keys: Keys,
    deflater: Option<Box<SharedDeflater>>,
    /// The buffer of the next connection that reads. All take turns with it, so it is in the cache, and the pool's own
    /// last buffer is one for writing.
    window: Buf,
    limit: usize,
}

impl Supplies {
    /// Keeps at most `limit` bytes of unused buffers, and one to read into.
    #[must_use]
    pub fn new(limit: usize, seed: [u8; 32]) -> Self {
        Self { pool: Pool::new(limit), keys: Keys::new(seed), deflater: None, window: Buf::new(), limit }
    }

    /// The unused buffers.
    pub const fn pool(&mut self) -> &mut Pool {
        &mut self.pool
    }

    /// A random number from 0 to `bound`, both included, for jitter.
    pub fn random(&mut self, bound: u64) -> u64 {
        self.keys.up_to(bound)
    }

    /// The means by which a connection writes frames.
    #[inline]
    pub const fn means(&mut self) -> Means<'_> {
        Means { pool: &mut self.pool, keys: &mut self.keys }
    }

    /// The unused buffers, and the compressor of messages that are framed once for many.
    pub fn for_many(&mut self) -> (&mut Pool, &mut SharedDeflater) {
        let made = || Box::new(SharedDeflater::new(DeflateConfig::default().level));
        (&mut self.pool, self.deflater.get_or_insert_with(made))
    }

    /// An empty buffer of at least `least` bytes to read into.
    pub fn take_window(&mut self, least: usize) -> Buf {
        if self.window.capacity() >= least { core::mem::take(&mut self.window) } else { self.pool.take_for(least) }
    }

    /// Takes back the buffer of a connection that has read all.
    pub fn give_window(&mut self, mut buf: Buf) {
        if self.window.has_memory() || buf.capacity() > self.limit {
            self.pool.give(buf);
        } else {
            buf.clear();
            self.window = buf;
        }
    }
}

impl fmt::Debug for Supplies {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Supplies").field("held", &self.pool.held()).finish_non_exhaustive()
    }
}
