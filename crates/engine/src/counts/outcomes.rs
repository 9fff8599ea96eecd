//! How handshakes and connections went: counted at their ends, and never for a message.

use crate::counts::counters::Counter;
use crate::counts::totals::Totals;
use crate::turn::timer::Tick;
use std::time::Duration;
use tautline_conn::closed::Cause;
use tautline_ws::CloseCode;

/// Upper ends of the ranges of times, in milliseconds. Longer times have a range of their own.
const BOUNDS: [u64; 14] = [1, 2, 5, 10, 20, 50, 100, 200, 500, 1_000, 2_000, 5_000, 10_000, 30_000];

/// The close codes 1000 to 1015, and one entry for all others.
const CODES: usize = 17;

/// How a shard's handshakes and connections went since it began.
///
/// ```
/// # mod tautline { pub use tautline_engine::Outcomes; }
/// use tautline::Outcomes;
///
/// fn report(outcomes: &Outcomes) {
///     println!("{} full handshakes, {} resumed", outcomes.full.count(), outcomes.resumed.count());
///     for (cause, ended) in outcomes.causes().filter(|(_, ended)| *ended > 0) {
///         println!("{ended} connections ended: {cause}");
///     }
/// }
/// # report(&Outcomes::default());
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Outcomes {
    /// Full TLS handshakes with clients: the times from the connection to the end of the handshake, network included.
    pub full: Durations,
    /// Resumed TLS handshakes with clients, likewise.
    pub resumed: Durations,
    /// Steps of handshakes on other threads ([`Offload`](crate::Offload)): the times that they waited and took.
    pub offloaded: Durations,
    codes: [u64; CODES],
    causes: [u64; Cause::NAMES.len()],
}

impl Outcomes {
    /// The number of ended WebSockets by the [code](crate::Closed::code) that the peer sent; `None` stands for all codes but
    /// 1000 to 1015. Without a close frame the code is 1006.
    pub fn codes(&self) -> impl Iterator<Item = (Option<CloseCode>, u64)> {
        let codes = (1000..=1015).map(|code| Some(CloseCode::new(code))).chain([None]);
        codes.zip(self.codes)
    }

    /// The number of ended WebSockets by [cause](Cause), with the cause's name.
    pub fn causes(&self) -> impl Iterator<Item = (&'static str, u64)> {
        Cause::NAMES.into_iter().zip(self.causes)
    }

    pub(crate) fn put_totals(&self, totals: &mut Totals) {
        for (name, times) in [("full", &self.full), ("resumed", &self.resumed), ("offloaded", &self.offloaded)] {
            times.put_totals(name, totals);
        }
        for (place, ended) in self.codes.iter().enumerate() {
            totals.put(format!("code/{}", 1000 + place), *ended);
        }
        for (cause, ended) in self.causes() {
            totals.put(format!("cause/{cause}"), ended);
        }
    }

    /// Adds a number that [`put_totals`](Self::put_totals) has put.
    pub(crate) fn add_total(&mut self, name: &str, value: u64) {
        match name.split_once('/') {
            Some(("full", what)) => self.full.add_total(what, value),
            Some(("resumed", what)) => self.resumed.add_total(what, value),
            Some(("offloaded", what)) => self.offloaded.add_total(what, value),
            Some(("code", code)) => {
                let place = code.parse().ok().and_then(|code: usize| code.checked_sub(1000));
                let count = &mut self.codes[place.unwrap_or(CODES - 1).min(CODES - 1)];
                *count = count.saturating_add(value);
            }
            Some(("cause", cause)) => {
                if let Some(place) = Cause::NAMES.iter().position(|known| *known == cause) {
                    self.causes[place] = self.causes[place].saturating_add(value);
                }
            }
            _ => {}
        }
    }

    /// Adds the numbers of another shard.
    pub fn merge(&mut self, other: &Self) {
        for (mine, other) in [
            (&mut self.full, &other.full),
            (&mut self.resumed, &other.resumed),
            (&mut self.offloaded, &other.offloaded),
        ] {
            mine.merge(other);
        }
        add_each(&mut self.codes, &other.codes);
        add_each(&mut self.causes, &other.causes);
    }
}

fn add_each<const N: usize>(mine: &mut [u64; N], others: &[u64; N]) {
    mine.iter_mut().zip(others).for_each(|(mine, other)| *mine += other);
}

/// Numbers of times, by their length, exact to a millisecond.
///
/// ```
/// # mod tautline { pub use tautline_engine::Durations; }
/// use std::time::Duration;
/// use tautline::Durations;
///
/// fn share_within_a_second(times: &Durations) -> f64 {
///     let within = times.ranges().take_while(|(end, _)| end.is_some_and(|end| end <= Duration::from_secs(1)));
///     within.map(|(_, count)| count).sum::<u64>() as f64 / times.count() as f64
/// }
/// # let _ = share_within_a_second(&Durations::default());
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Durations {
    counts: [u64; BOUNDS.len() + 1],
    millis: u64,
}

impl Durations {
    /// The upper end of each range, and the number of times in it. The last range has no end.
    pub fn ranges(&self) -> impl Iterator<Item = (Option<Duration>, u64)> {
        let ends = BOUNDS.into_iter().map(|end| Some(Duration::from_millis(end))).chain([None]);
        ends.zip(self.counts)
    }

    /// The number of times.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.counts.iter().sum()
    }

    /// The sum of all times.
    #[must_use]
    pub const fn sum(&self) -> Duration {
        Duration::from_millis(self.millis)
    }

    /// Counts a time.
    pub fn add(&mut self, time: Duration) {
        let millis = u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
        self.counts[place_of(millis)] += 1;
        self.millis += millis;
    }

    /// Adds all numbers, below this name.
    pub fn put_totals(&self, name: &str, totals: &mut Totals) {
        for (place, count) in self.counts.iter().enumerate() {
            // Builds with other ranges sort it by the end of this one.
            let millis = BOUNDS.get(place).map_or(u64::MAX, |end| *end);
            totals.put(format!("{name}/{millis}"), *count);
        }
        totals.put(format!("{name}/sum"), self.millis);
    }

    /// Adds a number that [`put_totals`](Self::put_totals) has put. `what` is its name behind that of the times.
    pub fn add_total(&mut self, what: &str, value: u64) {
        match (what, what.parse()) {
            ("sum", _) => self.millis = self.millis.saturating_add(value),
            (_, Ok(millis)) => {
                let count = &mut self.counts[place_of(millis)];
                *count = count.saturating_add(value);
            }
            _ => {}
        }
    }

    fn merge(&mut self, other: &Self) {
        add_each(&mut self.counts, &other.counts);
        self.millis += other.millis;
    }
}

/// The range of a time in milliseconds.
fn place_of(millis: u64) -> usize {
    BOUNDS.partition_point(|end| *end < millis)
}

/// The outcomes of a shard that runs. Its loop writes them, and any thread reads them without waiting.
#[derive(Default)]
pub(crate) struct LiveOutcomes {
    pub(crate) full: LiveDurations,
    pub(crate) resumed: LiveDurations,
    pub(crate) offloaded: LiveDurations,
    codes: [Counter; CODES],
    causes: [Counter; Cause::NAMES.len()],
}

impl LiveOutcomes {
    /// An open connection has ended.
    pub(crate) fn count_end(&self, code: CloseCode, cause: &Cause) {
        let place = usize::from(code.get()).checked_sub(1000).filter(|place| *place < CODES - 1);
        self.codes[place.unwrap_or(CODES - 1)].add(1);
        self.causes[cause.number()].add(1);
    }

    /// Adds the numbers of a shard that this one takes over.
    pub(crate) fn add(&self, more: &Outcomes) {
        for (mine, more) in
            [(&self.full, &more.full), (&self.resumed, &more.resumed), (&self.offloaded, &more.offloaded)]
        {
            mine.counts.iter().zip(more.counts).for_each(|(mine, more)| mine.add(more));
            mine.millis.add(more.millis);
        }
        self.codes.iter().zip(more.codes).for_each(|(mine, more)| mine.add(more));
        self.causes.iter().zip(more.causes).for_each(|(mine, more)| mine.add(more));
    }

    pub(crate) fn snapshot(&self) -> Outcomes {
        Outcomes {
            full: self.full.snapshot(),
            resumed: self.resumed.snapshot(),
            offloaded: self.offloaded.snapshot(),
            codes: self.codes.each_ref().map(Counter::get),
            causes: self.causes.each_ref().map(Counter::get),
        }
    }
}

#[derive(Default)]
pub(crate) struct LiveDurations {
    counts: [Counter; BOUNDS.len() + 1],
    millis: Counter,
}

impl LiveDurations {
    pub(crate) fn add(&self, millis: Tick) {
        self.counts[place_of(millis)].add(1);
        self.millis.add(millis);
    }

    fn snapshot(&self) -> Durations {
        Durations { counts: self.counts.each_ref().map(Counter::get), millis: self.millis.get() }
    }
}

#[cfg(test)]
mod tests {
    use super::{LiveOutcomes, Outcomes};
    use crate::counts::totals::Totals;
    use std::time::Duration;
    use tautline_conn::closed::{Cause, Deadline};
    use tautline_ws::CloseCode;

    #[test]
    fn times_fall_into_the_range_that_they_do_not_exceed() {
        let live = LiveOutcomes::default();
        [0, 1, 2, 3, 30_000, 30_001, 90_000].into_iter().for_each(|millis| live.full.add(millis));
        let full = live.snapshot().full;
        let counts: Vec<_> = full.ranges().filter(|(_, count)| *count > 0).collect();
        let millis = |millis| Some(Duration::from_millis(millis));
        assert_eq!(counts, [(millis(1), 2), (millis(2), 1), (millis(5), 1), (millis(30_000), 1), (None, 2)]);
        assert_eq!((full.count(), full.sum()), (7, Duration::from_millis(150_007)));
    }

    #[test]
    fn totals_come_back_by_their_names() {
        let live = LiveOutcomes::default();
        [0, 3, 90_000].into_iter().for_each(|millis| live.full.add(millis));
        live.resumed.add(1);
        live.offloaded.add(40);
        live.count_end(CloseCode::new(1012), &Cause::Local);
        live.count_end(CloseCode::new(4000), &Cause::Stopped);
        let (before, mut totals, mut read) = (live.snapshot(), Totals::default(), Outcomes::default());
        before.put_totals(&mut totals);
        totals.iter().for_each(|(name, value)| read.add_total(name, value));
        assert_eq!(read, before);
        live.add(&read);
        let mut twice = before.clone();
        twice.merge(&before);
        assert_eq!(live.snapshot(), twice);
        // Names of other builds are no numbers here, and their ranges fall into these.
        for name in ["cause/boredom", "full", "full/never", "other/1"] {
            read.add_total(name, 7);
        }
        assert_eq!(read, before);
        read.add_total("full/4", 7);
        assert_eq!(read.full.ranges().nth(2).unwrap(), (Some(Duration::from_millis(5)), 8));
    }

    #[test]
    fn ends_are_counted_by_code_and_by_cause_and_add_up_over_shards() {
        let live = LiveOutcomes::default();
        for (code, cause) in [
            (1000, Cause::Peer),
            (1015, Cause::Local),
            (1016, Cause::Stopped),
            (999, Cause::Stopped),
            (4000, Cause::Timeout(Deadline::Idle)),
        ] {
            live.count_end(CloseCode::new(code), &cause);
        }
        let mut both = live.snapshot();
        both.merge(&live.snapshot());
        let codes: Vec<_> =
            both.codes().filter(|(_, count)| *count > 0).map(|(code, n)| (code.map(CloseCode::get), n)).collect();
        assert_eq!(codes, [(Some(1000), 2), (Some(1015), 2), (None, 6)]);
        let causes: Vec<_> = both.causes().filter(|(_, count)| *count > 0).collect();
        assert_eq!(causes, [("peer", 2), ("local", 2), ("timeout", 2), ("stopped", 4)]);
        assert_ne!(both, Outcomes::default());
    }
}
