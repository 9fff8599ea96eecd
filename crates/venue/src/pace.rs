//! The times, kinds and sizes of the market's messages.

use std::time::Duration;
use tautline_measure::SplitMix;

/// Mean time between bursts.
const GAP: Duration = Duration::from_micros(400);

/// Cumulative share of bursts in 1/1000, and their greatest length; the least is one above the greatest of the line before.
const BURSTS: [(u64, u64); 4] = [(700, 1), (900, 4), (980, 12), (1000, 40)];

/// Cumulative share of messages in 1/1000, and their least and greatest size, in the order of [`Beat::kind`].
const SIZES: [(u64, u64, u64); 3] = [(150, 120, 160), (950, 180, 220), (1000, 600, 2400)];

/// A message that is due.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Beat {
    /// Time since the message before; zero within a burst.
    pub(crate) after: Duration,
    pub(crate) kind: BeatKind,
    /// Bytes of the message.
    pub(crate) size: usize,
}

/// The content of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BeatKind {
    /// Best prices.
    Best,
    Trade,
    /// Changes of the book.
    Book,
}

/// Bursts with exponential gaps.
#[derive(Clone, Debug)]
pub(crate) struct Pace {
    pub(crate) random: SplitMix,
    left: u64,
}

impl Pace {
    pub(crate) const fn new(seed: u64) -> Self {
        Self { random: SplitMix(seed), left: 0 }
    }

    /// The next message.
    pub(crate) fn next(&mut self) -> Beat {
        let mut after = Duration::ZERO;
        if self.left == 0 {
            after = self.gap();
            self.left = self.burst();
        }
        self.left -= 1;
        let draw = self.random.next() % 1000;
        let at = SIZES.iter().position(|(share, ..)| draw < *share).unwrap_or(0);
        let (_, least, most) = SIZES[at];
        let kind = [BeatKind::Best, BeatKind::Trade, BeatKind::Book][at];
        let size = usize::try_from(self.between(least, most)).unwrap_or(0);
        Beat { after, kind, size }
    }

    pub(crate) const fn between(&mut self, least: u64, most: u64) -> u64 {
        least + self.random.next() % (most - least + 1)
    }

    fn gap(&mut self) -> Duration {
        // In (0, 1], so that its logarithm is finite.
        let uniform = (self.random.next() >> 11) as f64 + 1.0;
        GAP.mul_f64(-(uniform / (1_u64 << 53) as f64).ln())
    }

    fn burst(&mut self) -> u64 {
        let draw = self.random.next() % 1000;
        let mut least = 1;
        for (share, most) in BURSTS {
            if draw < share {
                return self.between(least, most);
            }
            least = most + 1;
        }
        1
    }
}
