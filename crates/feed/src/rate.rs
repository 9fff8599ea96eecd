//! Limits on how often something may be done.

use crate::Time;
use std::collections::VecDeque;
use std::time::Duration;

/// A venue's limit: at most `count` of something in any `per`.
///
/// ```
/// use std::time::Duration;
/// use tautline_feed::Rate;
///
/// assert_eq!(Rate::new(5, Duration::from_secs(1)).count, 5);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rate {
    /// How many; at least one.
    pub count: u32,
    /// In what time.
    pub per: Duration,
}

impl Rate {
    /// A limit of `count` in any `per`.
    #[must_use]
    pub const fn new(count: u32, per: Duration) -> Self {
        Self { count: if count == 0 { 1 } else { count }, per }
    }
}

/// Tokens of a [`Rate`]. Each token returns when `per` has passed since its use, so no window of that time has more than `count`.
///
/// A bucket that refills steadily would let twice the limit through in the window after a pause.
///
/// ```
/// use std::time::Duration;
/// use tautline_feed::{Bucket, Rate};
///
/// let mut bucket = Bucket::new(Rate::new(2, Duration::from_secs(1)));
/// let at = Duration::from_millis;
/// assert!(bucket.take(at(0)) && bucket.take(at(900)) && !bucket.take(at(999)));
/// assert_eq!(bucket.due(at(999)), at(1000));
/// assert!(bucket.take(at(1000)) && !bucket.take(at(1001)));
/// assert_eq!((bucket.left(at(1001)), bucket.left(at(1900)), bucket.left(at(2000))), (0, 1, 2));
/// ```
#[derive(Clone, Debug)]
pub struct Bucket {
    rate: Rate,
    /// When each token that was used returns, the earliest first. At most `count`.
    returns: VecDeque<Time>,
}

impl Bucket {
    /// A full bucket.
    #[must_use]
    pub const fn new(rate: Rate) -> Self {
        Self { rate, returns: VecDeque::new() }
    }

    /// Uses a token. False if there is none.
    pub fn take(&mut self, now: Time) -> bool {
        if self.due(now) > now {
            return false;
        }
        if self.returns.len() >= self.rate.count as usize {
            self.returns.pop_front();
        }
        self.returns.push_back(now + self.rate.per);
        true
    }

    /// The number of tokens that are left.
    #[must_use]
    pub fn left(&self, now: Time) -> u32 {
        let used = self.returns.iter().rev().take_while(|returns| **returns > now).count();
        self.rate.count.saturating_sub(u32::try_from(used).unwrap_or(u32::MAX))
    }

    /// When there is a token: `now` if there is one already.
    #[must_use]
    pub fn due(&self, now: Time) -> Time {
        if self.returns.len() < self.rate.count as usize {
            return now;
        }
        self.returns.front().map_or(now, |first| (*first).max(now))
    }
}

#[cfg(test)]
mod tests {
    use super::{Bucket, Rate};
    use std::time::Duration;

    #[test]
    fn no_window_has_more_than_the_rate() {
        let rate = Rate::new(5, Duration::from_millis(1000));
        let mut bucket = Bucket::new(rate);
        let mut random = 9_u64;
        let mut taken = Vec::new();
        let mut now = 0;
        for _ in 0..50_000 {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            now += random >> 60;
            if bucket.take(Duration::from_millis(now)) {
                taken.push(now);
            }
        }
        assert!(taken.windows(6).all(|six| six[5] - six[0] >= 1000));
        // It is no tighter than the limit either.
        assert!(taken.len() as u64 >= now / 1000 * 5 * 95 / 100, "{}", taken.len());
    }
}
