//! The loop's clock, as instants.

use std::cell::OnceCell;
use std::time::{Duration, Instant};

/// The instants of a loop's turns, by which the deadlines of requests go. In a simulation the loop's time is virtual.
///
/// Figures have the real time, which is finer.
#[derive(Debug, Default)]
pub(super) struct Clock(OnceCell<Instant>);

impl Clock {
    /// The instant of the turn that began this number of milliseconds after the loop.
    pub(super) fn at(&self, turn_millis: u64) -> Instant {
        let passed = Duration::from_millis(turn_millis);
        let begun = self.0.get_or_init(|| {
            let now = Instant::now();
            now.checked_sub(passed).unwrap_or(now)
        });
        *begun + passed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_passes_as_the_loop_says() {
        let clock = Clock::default();
        let first = clock.at(1_000);
        assert!(first <= Instant::now() && first.elapsed() < Duration::from_secs(60), "it begins with the real time");
        assert_eq!(clock.at(1_000), first);
        assert_eq!(clock.at(3_601_000) - first, Duration::from_secs(3_600));
    }
}
