//! Bounds on events that cost this end more than the peer.

use core::time::Duration;

/// A number that comes back with time.
#[derive(Debug)]
pub(crate) struct Pace {
    most: u32,
    refill: Duration,
    left: u32,
    /// Up to which time `left` is filled.
    filled: Duration,
}

impl Pace {
    pub(crate) const fn new(most: u32, refill: Duration) -> Self {
        Self { most, refill, left: most, filled: Duration::ZERO }
    }

    /// Takes one. False if none is left.
    pub(crate) fn take(&mut self, now: Duration) -> bool {
        if self.left < self.most {
            self.fill(now);
        } else {
            self.filled = now;
        }
        let has = self.left > 0;
        self.left -= u32::from(has);
        has
    }

    fn fill(&mut self, now: Duration) {
        let refill = self.refill.as_nanos().max(1);
        let passed = now.saturating_sub(self.filled).as_nanos();
        let back = passed * u128::from(self.most) / refill;
        if back > 0 {
            self.left = u32::try_from(u128::from(self.left) + back).unwrap_or(u32::MAX).min(self.most);
            self.filled = now;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Pace;
    use core::time::Duration;

    #[test]
    fn what_was_taken_comes_back_with_time() {
        let mut pace = Pace::new(10, Duration::from_secs(10));
        let at = Duration::from_millis;
        assert!((0..10).all(|_| pace.take(at(500))));
        assert!(!pace.take(at(600)));
        assert!(!pace.take(at(1_499)));
        assert!(pace.take(at(1_500)));
        assert!(!pace.take(at(1_600)));
        assert_eq!((0..100).filter(|_| pace.take(at(60_000))).count(), 10);
    }
}
