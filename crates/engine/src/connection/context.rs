use crate::http::date::DateCache;
use crate::turn::clock::since_epoch;
use core::ops::{Deref, DerefMut};
use http::HeaderValue;
use std::io;
use tautline_conn::supplies::Supplies;

/// [Unused buffers, the generator of mask keys](Supplies), and the date of responses: one for all connections of a thread.
///
/// ```
/// let context = tautline_engine::connection::Context::new()?;
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Debug)]
pub struct Context {
    supplies: Supplies,
    dates: DateCache,
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
        Ok(Self { supplies: Supplies::new(limit, seed), dates: DateCache::default() })
    }

    /// The value of `Date` in a response of now.
    pub(super) fn date(&mut self) -> HeaderValue {
        self.dates.at(since_epoch())
    }
}

impl Deref for Context {
    type Target = Supplies;

    fn deref(&self) -> &Supplies {
        &self.supplies
    }
}

impl DerefMut for Context {
    fn deref_mut(&mut self) -> &mut Supplies {
        &mut self.supplies
    }
}
