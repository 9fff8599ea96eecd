//! Settings of a feed.

use std::time::Duration;

/// Settings of a [`Feed`](crate::Feed).
///
/// ```
/// use tautline_feed::FeedConfig;
///
/// let mut config = FeedConfig::default();
/// config.copies = 2; // each stream on two connections
/// ```
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct FeedConfig {
    /// Connections that carry each stream. Default: 1.
    pub copies: usize,
    /// Most streams of a connection, if less than the venue allows. Default: the venue's limit.
    pub streams: Option<usize>,
    /// The age at which a connection is replaced, if the venue's limit is not meant. A part of it is taken off at random.
    pub life: Option<Duration>,
    /// The time that a new connection has to deliver a stream, before it counts as delivering because none of its messages came.
    /// Default: 5 s.
    pub overlap: Duration,
    /// The time after which missing numbers count as lost. Default: 100 ms.
    pub gap_after: Duration,
    /// The time without a message after which a stream is subscribed again, at first; it doubles up to an hour. Default: 30 s.
    pub stale_after: Duration,
    /// The time in which the venue has to confirm a subscription. Default: 5 s.
    pub confirm_within: Duration,
    /// The first wait before a further attempt of any kind. It doubles up to `longest_wait`. Default: 250 ms.
    pub first_wait: Duration,
    /// The longest wait before a further attempt. Default: 30 s.
    pub longest_wait: Duration,
    /// The time that a fetch of a snapshot may take. Default: 10 s.
    pub fetch_within: Duration,
    /// The seed of waits and ages.
    pub seed: u64,
}

impl Default for FeedConfig {
    fn default() -> Self {
        Self {
            copies: 1,
            streams: None,
            life: None,
            overlap: Duration::from_secs(5),
            gap_after: Duration::from_millis(100),
            stale_after: Duration::from_secs(30),
            confirm_within: Duration::from_secs(5),
            first_wait: Duration::from_millis(250),
            longest_wait: Duration::from_secs(30),
            fetch_within: Duration::from_secs(10),
            seed: 0,
        }
    }
}

impl FeedConfig {
    /// The wait after `failures` failures, from 1 on: it doubles, minus up to half at random.
    pub(crate) fn wait(&self, failures: u32, random: &mut Random) -> Duration {
        let doubled = self.first_wait.saturating_mul(1 << failures.saturating_sub(1).min(20)).min(self.longest_wait);
        doubled - random.part(doubled / 2)
    }
}

/// Random numbers that follow from a seed (SplitMix64). Waits need no better ones.
#[derive(Clone, Debug)]
pub(crate) struct Random(pub(crate) u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ (mixed >> 31)
    }

    /// A part of a time, from nothing to all of it.
    pub(crate) fn part(&mut self, of: Duration) -> Duration {
        of / 1024 * u32::try_from(self.next() % 1025).unwrap_or(0)
    }
}
