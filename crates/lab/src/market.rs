//! Made-up market data: a feed as an exchange sends it, the same in every run.

use std::fmt::Write;
use std::time::Duration;

/// One seed for all: the same feed on every machine.
const SEED: u64 = 0x6d61_726b_6574_0001;

/// Mean time between bursts.
const GAP: Duration = Duration::from_micros(400);

/// Of 1000 bursts so many have at most so many messages, and at least one more than those of the line before.
const BURSTS: [(u64, u64); 4] = [(700, 1), (900, 4), (980, 12), (1000, 40)];

/// Of 1000 messages so many are at most so long in bytes, and at least as the second number says: best prices, trades,
/// changes of the book.
const SIZES: [(u64, u64, u64); 3] = [(150, 120, 160), (950, 180, 220), (1000, 600, 2400)];

/// Names of the kinds of [`SIZES`].
const KINDS: [&str; 3] = ["best", "trade", "book"];

/// A message, and when it is due.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Event {
    /// Since the message before; nothing within a burst.
    pub after: Duration,
    /// JSON: 80 % of the messages are trades of 180 to 220 bytes, 15 % best prices of 120 to 160, 5 % changes of the book
    /// of 600 to 2400.
    pub text: String,
}

/// An endless feed: bursts with exponential gaps of 400 us in the mean, 70 % of them of one message, 20 % of 2 to 4, 8 % of 5
/// to 12, 2 % of 13 to 40. That is about 6,000 messages and 1.5 MB a second.
#[derive(Clone, Debug)]
pub struct Market {
    state: u64,
    sequence: u64,
    left: u64,
}

impl Market {
    /// The feed from its beginning.
    #[must_use]
    pub const fn new() -> Self {
        Self { state: SEED, sequence: 0, left: 0 }
    }

    /// Splitmix64 (Steele, Lea and Flood, 2014): any bits of it will do.
    const fn random(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.state;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    const fn between(&mut self, least: u64, most: u64) -> u64 {
        least + self.random() % (most - least + 1)
    }

    fn gap(&mut self) -> Duration {
        // Within (0, 1], so that its logarithm is finite.
        let uniform = (self.random() >> 11) as f64 + 1.0;
        GAP.mul_f64(-(uniform / (1_u64 << 53) as f64).ln())
    }

    fn burst(&mut self) -> u64 {
        let draw = self.random() % 1000;
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
        let draw = self.random() % 1000;
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
            // Digits, as prices and amounts are; the last of them are cut off.
            let _ = write!(text, "{:020}", self.random());
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
    fn the_same_feed_comes_every_time() {
        let feed: Vec<Event> = Market::new().take(1000).collect();
        assert!(feed.iter().eq(&Market::new().take(1000).collect::<Vec<_>>()));
        assert!(feed.windows(2).all(|two| two[0].text != two[1].text));
    }

    #[test]
    fn sizes_and_bursts_are_as_they_are_said_to_be() {
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
