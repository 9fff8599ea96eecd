use super::Deflater;
use crate::Error;
use core::fmt;
use tautline_buf::Buf;

/// Compresses messages for many connections; each thread that sends such messages has one.
///
/// It compresses each message by itself, so every connection that allows the window can read it.
///
/// From the first message on, it may hold the memory of one compressor per window size in use (see the
/// [module](crate::deflate)).
pub struct SharedDeflater {
    level: u32,
    by_window: [Option<Deflater>; Self::WINDOWS],
    runs: u64,
}

impl SharedDeflater {
    /// Number of window sizes, from [`MIN_WINDOW`](Self::MIN_WINDOW) up.
    pub(crate) const WINDOWS: usize = 7;
    /// Base-2 logarithm of the smallest window that zlib compresses with.
    pub(crate) const MIN_WINDOW: u8 = 9;

    /// Makes a compressor with effort `level`, 0 to 9 (larger values count as 9).
    #[must_use]
    pub fn new(level: u32) -> Self {
        Self { level: level.min(9), by_window: Default::default(), runs: 0 }
    }

    /// How many messages were compressed, counted once per window size.
    #[must_use]
    pub const fn runs(&self) -> u64 {
        self.runs
    }

    /// The index of a window size; `None` if zlib does not compress with it.
    pub(crate) fn slot(window_bits: u8) -> Option<usize> {
        window_bits.checked_sub(Self::MIN_WINDOW).map(usize::from).filter(|&slot| slot < Self::WINDOWS)
    }

    /// Compresses a whole message for `window_bits`.
    pub(crate) fn deflate(&mut self, window_bits: u8, payload: &[u8], out: &mut Buf) -> Result<(), Error> {
        let slot = Self::slot(window_bits).and_then(|slot| self.by_window.get_mut(slot)).ok_or(Error::Compressor)?;
        self.runs += 1;
        // It is put back once the message is whole. A compressor that failed or panicked amid one is not used again.
        let mut deflater = slot.take().unwrap_or_else(|| Deflater::for_many(window_bits, self.level));
        deflater.deflate(payload, true, out)?;
        *slot = Some(deflater);
        Ok(())
    }
}

impl fmt::Debug for SharedDeflater {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let windows = self.by_window.iter().flatten().map(Deflater::window_bits);
        f.debug_struct("SharedDeflater")
            .field("level", &self.level)
            .field("windows", &windows.collect::<Vec<_>>())
            .finish()
    }
}
