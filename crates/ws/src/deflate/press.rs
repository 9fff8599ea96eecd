use super::Deflater;
use crate::Error;
use core::fmt;
use tautline_window::Buf;

/// Compresses messages for many connections at once; one for each thread that sends them.
///
/// Each message is compressed by itself, so every connection that allows its window can read it, whatever it was sent
/// before. Holds the memory of one compressor for each size of window that was asked for (see the
/// [module](crate::deflate)), from the first message on.
pub struct Press {
    level: u32,
    by_window: [Option<Deflater>; Self::WINDOWS],
    runs: u64,
}

impl Press {
    /// How many sizes of window there are, from [`MIN_WINDOW`](Self::MIN_WINDOW) up.
    pub(crate) const WINDOWS: usize = 7;
    /// The smallest window that zlib compresses with.
    pub(crate) const MIN_WINDOW: u8 = 9;

    /// With effort `level`, 0 to 9 (more counts as 9).
    #[must_use]
    pub fn new(level: u32) -> Self {
        Self { level: level.min(9), by_window: Default::default(), runs: 0 }
    }

    /// How many messages it compressed, each counted once for each size of window.
    #[must_use]
    pub const fn runs(&self) -> u64 {
        self.runs
    }

    /// The place of results for `window_bits`; `None` where zlib has no such window.
    pub(crate) fn place(window_bits: u8) -> Option<usize> {
        window_bits.checked_sub(Self::MIN_WINDOW).map(usize::from).filter(|&place| place < Self::WINDOWS)
    }

    /// Compresses a whole message for `window_bits`.
    pub(crate) fn press(&mut self, window_bits: u8, payload: &[u8], out: &mut Buf) -> Result<(), Error> {
        let slot = Self::place(window_bits).and_then(|place| self.by_window.get_mut(place)).ok_or(Error::Compressor)?;
        self.runs += 1;
        slot.get_or_insert_with(|| Deflater::for_many(window_bits, self.level)).deflate(payload, true, out)
    }
}

impl fmt::Debug for Press {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let windows = self.by_window.iter().flatten().map(Deflater::window_bits);
        f.debug_struct("Press").field("level", &self.level).field("windows", &windows.collect::<Vec<_>>()).finish()
    }
}
