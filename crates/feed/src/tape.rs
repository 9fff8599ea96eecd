//! The trades of one symbol, from one connection or several.

use crate::Time;
use crate::arbiter::{Arbiter, Copies, Copy};
use crate::ids::LinkId;
use crate::race::Race;
use std::collections::VecDeque;
use std::ops::RangeInclusive;
use std::time::Duration;

/// Numbers of which duplicates are recognised.
const WINDOW: usize = 4096;
/// Old numbers in a row after which the venue has begun its numbers anew, or has sent one far ahead.
const MOST_OLD: u32 = 64;
/// Most gaps that wait to be declared.
const MOST_GAPS: usize = 64;

/// Drops further copies of trades, says which connection was first, and which numbers are missing.
#[derive(Debug)]
pub(crate) struct Tape {
    arbiter: Arbiter,
    race: Race,
    /// Old numbers in a row.
    old: u32,
    gaps: VecDeque<Gap>,
}

#[derive(Debug)]
struct Gap {
    numbers: RangeInclusive<u64>,
    since: Time,
}

/// The place of a trade among its copies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Offered {
    First,
    /// Another connection was first.
    Second {
        first: LinkId,
        behind: Duration,
    },
    Ignored,
}

impl Tape {
    pub(crate) fn new() -> Self {
        Self { arbiter: Arbiter::new(WINDOW), race: Race::new(), old: 0, gaps: VecDeque::new() }
    }

    /// `contiguous` says that numbers that are left out are missing.
    #[inline]
    pub(crate) fn offer(&mut self, number: u64, link: LinkId, contiguous: bool, now: Time) -> Offered {
        let mut copy = self.arbiter.offer(number);
        if copy == Copy::Old {
            self.old += 1;
            if self.old == MOST_OLD {
                self.arbiter.restart();
                copy = self.arbiter.offer(number);
            }
        }
        match copy {
            Copy::Duplicate => {
                let second = self.race.second(number, link, now);
                return second.map_or(Offered::Ignored, |(first, behind)| Offered::Second { first, behind });
            }
            Copy::Old => return Offered::Ignored,
            Copy::Ahead { missing } if contiguous && self.gaps.len() < MOST_GAPS => {
                self.gaps.push_back(Gap { numbers: missing, since: now });
            }
            _ => {}
        }
        self.old = 0;
        self.race.first(number, link, now);
        Offered::First
    }

    /// The next numbers that have been missing for `time`.
    pub(crate) fn missing(&mut self, now: Time, time: Duration) -> Option<RangeInclusive<u64>> {
        while self.gaps.front().is_some_and(|gap| now.saturating_sub(gap.since) >= time) {
            let Gap { numbers, since } = self.gaps.pop_front()?;
            let (mut first, last) = numbers.into_inner();
            while first <= last && self.arbiter.has_seen(first) {
                first += 1;
            }
            if first > last {
                continue;
            }
            // Numbers below the window are not known: they count as missing, as nobody has sent them in time.
            let mut end = first;
            while end < last && !self.arbiter.has_seen(end + 1) {
                // A far jump is one gap.
                end = if last - end > WINDOW as u64 { last - WINDOW as u64 } else { end + 1 };
            }
            if end < last {
                self.gaps.push_front(Gap { numbers: end + 1..=last, since });
            }
            return Some(first..=end);
        }
        None
    }

    pub(crate) const fn copies(&self) -> Copies {
        self.arbiter.copies()
    }
}

#[cfg(test)]
mod tests {
    use super::{Offered, Tape};
    use crate::Time;
    use crate::ids::LinkId;

    const NOW: Time = Time::from_secs(1);
    const A: LinkId = LinkId(1);
    const B: LinkId = LinkId(2);

    #[test]
    fn the_first_copy_counts_and_the_second_is_told_how_late_it_was() {
        let mut tape = Tape::new();
        let ms = Time::from_millis;
        assert_eq!(tape.offer(7, A, true, ms(10)), Offered::First);
        assert_eq!(tape.offer(7, B, true, ms(13)), Offered::Second { first: A, behind: ms(3) });
        assert_eq!(tape.offer(7, A, true, ms(14)), Offered::Ignored);
        assert_eq!(tape.offer(8, B, true, ms(15)), Offered::First);
        assert_eq!(tape.offer(8, A, true, ms(15)), Offered::Second { first: B, behind: ms(0) });
        assert_eq!((tape.copies().first, tape.copies().duplicates), (2, 3));
    }

    #[test]
    fn a_venue_that_begins_its_numbers_anew_is_followed() {
        let mut tape = Tape::new();
        tape.offer(1_000_000, A, true, NOW);
        let ignored = (1..10_000).take_while(|number| tape.offer(*number, A, true, NOW) == Offered::Ignored).count();
        assert_eq!(ignored, 63);
        assert_eq!(tape.offer(65, A, true, NOW), Offered::First);
        assert_eq!(tape.missing(NOW * 2, NOW), None);
    }

    #[test]
    fn a_gap_is_declared_after_a_time_without_what_has_come() {
        let mut tape = Tape::new();
        let ms = Time::from_millis;
        for number in [1, 10, 20] {
            tape.offer(number, A, true, ms(number));
        }
        for number in [2, 3, 6, 9, 19] {
            assert_eq!(tape.offer(number, B, true, ms(30)), Offered::First);
        }
        assert_eq!(tape.missing(ms(59), ms(50)), None);
        assert_eq!(tape.missing(ms(60), ms(50)), Some(4..=5));
        assert_eq!(tape.missing(ms(60), ms(50)), Some(7..=8));
        assert_eq!(tape.missing(ms(60), ms(50)), None);
        assert_eq!(tape.missing(ms(70), ms(50)), Some(11..=18));
        assert_eq!(tape.missing(ms(170), ms(50)), None);
        tape.offer(5_000_000_000, A, true, ms(200));
        assert_eq!(tape.missing(ms(250), ms(50)), Some(21..=4_999_999_999));
        tape.offer(6_000_000_000, A, false, ms(300));
        assert_eq!(tape.missing(ms(900), ms(50)), None, "numbers that are only unique may be left out");
    }
}
