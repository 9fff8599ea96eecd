//! Made-up market data in the form of an exchange's feed, the same in every run.

use crate::random::SplitMix;
use std::fmt::Write;
use std::time::Duration;

/// Constant seed, for the same feed on every machine.
const SEED: u64 = 0x6d61_726b_6574_0001;

/// Mean time between bursts.
const GAP: Duration = Duration::from_micros(400);

/// Cumulative share of bursts in 1/1000, and their greatest length; the least is one above the greatest of the line before.
const BURSTS: [(u64, u64); 4] = [(700, 1), (900, 4), (980, 12), (1000, 40)];

/// Cumulative share of messages in 1/1000, and their least and greatest size: best prices, trades, changes of the book.
const SIZES: [(u64, u64, u64); 3] = [(150, 120, 160), (950, 180, 220), (1000, 600, 2400)];

/// Names of the kinds of [`SIZES`].
const KINDS: [&str; 3] = ["best", "trade", "book"];

/// A message and its time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Event {
    /// Time since the message before; zero within a burst.
    pub after: Duration,
    /// JSON. 80 % of the messages are trades of 180 to 220 bytes. 15 % are best prices of 120 to 160 bytes, and 5 % are
    /// changes of the book of 600 to 2400 bytes.
    pub text: String,
}

/// An endless feed of about 6,000 messages and 1.5 MB a second.
///
/// Its bursts have exponential gaps of 400 us in the mean. 70 % of them have one message and 20 % have 2 to 4. 8 % have 5
/// to 12, and 2 % have 13 to 40.
#[derive(Clone, Debug)]
pub struct Market {
    random: SplitMix,
    sequence: u64,
    left: u64,
}

impl Market {
    /// The feed from its beginning.
    #[must_use]
    pub const fn new() -> Self {
        Self { random: SplitMix(SEED), sequence: 0, left: 0 }
    }

    const fn between(&mut self, least: u64, most: u64) -> u64 {
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

    fn text(&mut self) -> String {
        let draw = self.random.next() % 1000;
        let kind = SIZES.iter().position(|(share, ..)| draw < *share).unwrap_or(0);
        let (_, least, most) = SIZES[kind];
        let size = usize::try_from(self.between(least, most)).unwrap_or(0);
        let (price, amount) = (self.between(6_000_000, 6_100_000), self.between(1, 999_999));
        let mut text = format!(
            "{{\"kind\":\"{}\",\"pair\":\"BTC-EUR\",\"sequence\":{},\"price\":\"{}.{:02}\",\"amount\":\"0.{amount:06}\",\"more\":\"",
            KINDS[kind],
            self.sequence,
            price / 100,
            price % 100
        );
        while text.len() + 2 < size {
            // Digits, like prices and amounts; excess ones are cut off.
            let _ = write!(text, "{:020}", self.random.next());
        }
        text.truncate(size.saturating_sub(2));
        text.push_str("\"}");
        self.sequence += 1;
        text
    }
}

impl Default for Market {
    fn default() -> Self {
        Self::new()
    }
}

impl Iterator for Market {
    type Item = Event;

    fn next(&mut self) -> Option<Event> {
        let mut after = Duration::ZERO;
        if self.left == 0 {
            after = self.gap();
            self.left = self.burst();
        }
        self.left -= 1;
        Some(Event { after, text: self.text() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_run_has_the_same_feed() {
        let feed: Vec<Event> = Market::new().take(1000).collect();
        assert!(feed.iter().eq(&Market::new().take(1000).collect::<Vec<_>>()));
        assert!(feed.windows(2).all(|two| two[0].text != two[1].text));
    }

    #[test]
    fn sizes_and_bursts_have_their_documented_shares() {
        const COUNT: usize = 50_000;
        let feed: Vec<Event> = Market::new().take(COUNT).collect();
        let mut sizes: Vec<usize> = feed.iter().map(|event| event.text.len()).collect();
        sizes.sort_unstable();
        assert!((180..=220).contains(&sizes[COUNT / 2]), "{}", sizes[COUNT / 2]);
        assert!(sizes[0] >= 120 && sizes[COUNT - 1] <= 2400);
        let share = |range: std::ops::RangeInclusive<usize>| {
            sizes.iter().filter(|size| range.contains(size)).count() as f64 / COUNT as f64
        };
        assert!((share(180..=220) - 0.8).abs() < 0.02 && (share(600..=2400) - 0.05).abs() < 0.01);
        let bursts = feed.iter().filter(|event| event.after > Duration::ZERO).count();
        assert!((COUNT as f64 / bursts as f64 - 2.5).abs() < 0.2, "{bursts} bursts");
        let time: Duration = feed.iter().map(|event| event.after).sum();
        let rate = COUNT as f64 / time.as_secs_f64();
        assert!((5_500.0..7_000.0).contains(&rate), "{rate} messages a second");
    }

    #[test]
    fn messages_are_json() {
        for event in Market::new().take(500) {
            let json: serde_json::Value = serde_json::from_str(&event.text).unwrap();
            assert_eq!(json["pair"], "BTC-EUR");
        }
    }
}
