use crate::http::date::DateCache;
use crate::turn::clock::since_epoch;
use http::HeaderValue;
use std::io;
use tautline_buf::{Buf, Pool};
use tautline_conn::cork::Means;
use tautline_conn::keys::Keys;
use tautline_ws::deflate::{DeflateConfig, SharedDeflater};

/// Unused buffers, the generator of mask keys, and the date of responses: one for all connections of a thread.
///
/// ```
/// let context = tautline_engine::connection::Context::new()?;
/// # Ok::<(), std::io::Error>(())
/// ```
pub struct Context {
    pub(super) pool: Pool,
    pub(super) keys: Keys,
    /// Compresses messages that are framed once for many.
    deflater: Option<Box<SharedDeflater>>,
    dates: DateCache,
    /// The buffer of the next connection that reads. All take turns with it, so it is in the cache, and the pool's own
    /// last buffer is one for writing.
    window: Buf,
    limit: usize,
}

impl Context {
    /// Bytes of unused buffers that a context keeps, unless [`with_limit`](Self::with_limit) says otherwise.
    const LIMIT: usize = 4 << 20;

    /// Makes a context. The system seeds its generator.
    ///
    /// # Errors
    /// The system has no random numbers.
    pub fn new() -> io::Result<Self> {
        Self::with_limit(Self::LIMIT)
    }

    /// Makes a context that keeps at most `limit` bytes of unused buffers, and one to read into.
    ///
    /// # Errors
    /// The system has no random numbers.
    pub fn with_limit(limit: usize) -> io::Result<Self> {
        let mut seed = [0; 32];
        getrandom::fill(&mut seed).map_err(|error| io::Error::other(format!("no random numbers: {error}")))?;
        Ok(Self {
            pool: Pool::new(limit),
            keys: Keys::new(seed),
            deflater: None,
            dates: DateCache::default(),
            window: Buf::new(),
            limit,
        })
    }

    /// The unused buffers.
    pub const fn pool(&mut self) -> &mut Pool {
        &mut self.pool
    }

    /// The means by which a connection writes frames.
    pub(super) const fn means(&mut self) -> Means<'_> {
        Means { pool: &mut self.pool, keys: &mut self.keys }
    }

    /// The unused buffers, and the compressor of messages that are framed once for many.
    pub(super) fn for_many(&mut self) -> (&mut Pool, &mut SharedDeflater) {
        let made = || Box::new(SharedDeflater::new(DeflateConfig::default().level));
        (&mut self.pool, self.deflater.get_or_insert_with(made))
    }

    /// An empty buffer of at least `least` bytes to read into.
    pub(super) fn take_window(&mut self, least: usize) -> Buf {
        if self.window.capacity() >= least { core::mem::take(&mut self.window) } else { self.pool.take_for(least) }
    }

    /// Takes back the buffer of a connection that has read all.
    pub(super) fn give_window(&mut self, mut buf: Buf) {
        if self.window.has_memory() || buf.capacity() > self.limit {
            self.pool.give(buf);
        } else {
            buf.clear();
            self.window = buf;
        }
    }

    /// The value of `Date` in a response of now.
    pub(super) fn date(&mut self) -> HeaderValue {
        self.dates.at(since_epoch())
    }

    /// A random number from 0 to `bound`, both included, for jitter.
    pub fn random(&mut self, bound: u64) -> u64 {
        self.keys.up_to(bound)
    }
}

impl std::fmt::Debug for Context {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Context").field("held", &self.pool.held()).finish_non_exhaustive()
    }
}
