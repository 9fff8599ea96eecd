//! Notices that repeat: the first ones of each kind are told, and the others are counted.

use std::collections::BTreeMap;
use tautline_feed::{SymbolId, Time};

/// Notices of a kind and a symbol that are told in a window.
const MOST: u64 = 10;

/// The length of a window.
const WINDOW: Time = Time::from_secs(10);

/// A kind of notices, and the symbol that they are about. Both are few, whatever a venue sends.
pub(super) type Key = (&'static str, Option<SymbolId>);

/// Counts of the notices of each kind.
#[derive(Debug, Default)]
pub(super) struct Repeats {
    windows: BTreeMap<Key, Window>,
    /// When the first window with notices that were not told is over.
    due: Option<Time>,
}

#[derive(Clone, Copy, Debug)]
struct Window {
    end: Time,
    count: u64,
}

impl Repeats {
    /// Counts a notice, and says whether it is told.
    pub(super) fn admits(&mut self, key: Key, now: Time) -> bool {
        let new = Window { end: now + WINDOW, count: 0 };
        let window = self.windows.entry(key).or_insert(new);
        // A window whose other notices are still to be summed up goes on until then.
        if window.end <= now && window.count <= MOST {
            *window = new;
        }
        window.count += 1;
        if window.count > MOST {
            self.due = Some(self.due.map_or(window.end, |due| due.min(window.end)));
        }
        window.count <= MOST
    }

    /// The numbers of notices that were not told, of windows that are over.
    pub(super) fn take_over(&mut self, now: Time) -> Vec<(Key, u64)> {
        if self.due.is_none_or(|due| due > now) { Vec::new() } else { self.take(now) }
    }

    /// The numbers of all notices that were not told.
    pub(super) fn take_all(&mut self) -> Vec<(Key, u64)> {
        self.take(Time::MAX)
    }

    fn take(&mut self, now: Time) -> Vec<(Key, u64)> {
        let mut sums = Vec::new();
        self.windows.retain(|key, window| {
            let is_over = window.end <= now;
            if is_over && window.count > MOST {
                sums.push((*key, window.count - MOST));
            }
            !is_over
        });
        self.due = self.windows.values().filter(|window| window.count > MOST).map(|window| window.end).min();
        sums
    }
}

#[cfg(test)]
mod tests {
    use super::{MOST, Repeats};
    use tautline_feed::Time;

    #[test]
    fn the_first_notices_of_a_kind_are_told_and_the_others_are_summed() {
        let (mut repeats, ms) = (Repeats::default(), Time::from_millis);
        let told = (0..1000).filter(|at| repeats.admits(("stale", None), ms(*at))).count();
        assert_eq!(told as u64, MOST);
        assert!(repeats.admits(("gap", None), ms(999)), "other kinds are told");
        assert_eq!(repeats.take_over(ms(9_999)), []);
        assert_eq!(repeats.take_over(ms(10_000)), [(("stale", None), 990)]);
        assert_eq!(repeats.take_over(ms(60_000)), []);
        assert!(repeats.admits(("stale", None), ms(60_000)), "a new window");
        assert_eq!(repeats.take_all(), [], "all of them were told");
    }

    #[test]
    fn what_was_withheld_is_summed_at_the_end_at_the_latest() {
        let mut repeats = Repeats::default();
        // Nobody asks for sums: a window goes on.
        for second in 0..100 {
            repeats.admits(("stale", None), Time::from_secs(second) / 10);
        }
        assert!(!repeats.admits(("stale", None), Time::from_secs(1000)));
        assert_eq!(repeats.take_all(), [(("stale", None), 101 - MOST)]);
        assert_eq!(repeats.take_all(), []);
    }
}
