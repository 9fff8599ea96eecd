//! Times in which the loop did not run: under SIGSTOP, in a paused virtual machine, or behind a handler that blocked.
//!
//! Bytes of peers wait in the kernel meanwhile, and a turn takes a bounded number of them. Deadlines of peers therefore wait
//! for a turn that brings none: no peer is closed for a silence that was the loop's.

use crate::turn::timer::Tick;
use std::time::Duration;

/// Least milliseconds that count.
const LEAST: Tick = 1_000;

/// Most milliseconds for which deadlines wait: peers that send without a pause cannot put off those of others for longer.
const MOST: Tick = 2_000;

/// The last stall, until its backlog is read.
#[derive(Default)]
pub(crate) struct Stall {
    /// When deadlines hold again in any case; 0 without a stall.
    end: Tick,
}

impl Stall {
    /// Looks at a turn that began at `began` and woke at `now`, after the one that woke at `before`. It was to wait for `wait`.
    #[inline]
    pub(crate) fn look(&mut self, before: Tick, began: Tick, wait: Option<Duration>, now: Tick) {
        let wait = wait.map_or(Tick::MAX, crate::turn::clock::tick);
        if began.saturating_sub(before) >= LEAST || now.saturating_sub(began) >= wait.saturating_add(LEAST) {
            self.end = now + MOST;
        }
    }

    /// Whether deadlines of peers wait, after a turn that brought bytes or did not.
    #[inline]
    pub(crate) const fn goes_on(&mut self, brought: bool, now: Tick) -> bool {
        if !brought || now >= self.end {
            self.end = 0;
        }
        self.end > 0
    }
}

#[cfg(test)]
mod tests {
    use super::Stall;
    use std::time::Duration;

    #[test]
    fn a_stall_lasts_until_a_turn_brings_nothing_and_two_seconds_at_most() {
        let (mut stall, soon) = (Stall::default(), Some(Duration::from_millis(500)));
        // On time, and without a timer.
        stall.look(100, 150, soon, 700);
        stall.look(700, 710, None, 90_000);
        assert!(!stall.goes_on(true, 90_000));
        // Between two turns, and within the wait of one.
        for (began, now) in [(91_000, 91_400), (90_000, 91_500)] {
            stall.look(90_000, began, soon, now);
            assert!(stall.goes_on(true, now) && stall.goes_on(true, now + 1_999));
            assert!(!stall.goes_on(false, now + 1_999) && !stall.goes_on(true, now + 1_999));
            stall.look(90_000, began, soon, now);
            assert!(!stall.goes_on(true, now + 2_000));
        }
    }
}
