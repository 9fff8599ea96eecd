//! Limits of uses in a time.

use std::collections::VecDeque;
use std::time::Duration;

/// The uses of the last time. It holds as many as are allowed, at most.
#[derive(Clone, Debug)]
pub(crate) struct Window {
    most: u32,
    span: Duration,
    used: u32,
    uses: VecDeque<(Duration, u32)>,
}

impl Window {
    pub(crate) const fn new(most: u32, span: Duration) -> Self {
        Self { most, span, used: 0, uses: VecDeque::new() }
    }

    /// Notes a use. False if it exceeds the limit.
    pub(crate) fn take(&mut self, weight: u32, now: Duration) -> bool {
        while let Some((at, old)) = self.uses.front().copied().filter(|(at, _)| now.saturating_sub(*at) >= self.span) {
            debug_assert!(at <= now);
            self.used -= old;
            self.uses.pop_front();
        }
        if self.used + weight > self.most {
            return false;
        }
        self.used += weight;
        self.uses.push_back((now, weight));
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn uses_are_free_again_when_their_time_has_passed() {
        let second = Duration::from_secs(1);
        let mut window = Window::new(3, second);
        assert!(window.take(2, second) && window.take(1, second + second / 2) && !window.take(1, second + second / 2));
        assert!(window.take(2, second * 2) && !window.take(1, second * 2) && window.take(1, second * 2 + second / 2));
    }
}
