//! Settings of a simulated venue.

use crate::book::Shape;
use std::time::Duration;

/// The venue that is imitated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Binance spot.
    Binance,
    /// Coinbase Advanced Trade.
    Coinbase,
    /// Kraken, WebSocket v2.
    Kraken,
}

impl Kind {
    /// Made-up names of symbols, in the venue's form.
    #[must_use]
    pub fn names(self, count: usize) -> Vec<String> {
        let name = |at: usize| match self {
            Self::Binance => format!("S{at}USDT"),
            Self::Coinbase => format!("S{at}-USD"),
            Self::Kraken => format!("S{at}/USD"),
        };
        (0..count).map(name).collect()
    }

    /// Names of two well-known symbols.
    #[must_use]
    pub const fn usual_names(self) -> [&'static str; 2] {
        match self {
            Self::Binance => ["BTCUSDT", "ETHUSDT"],
            Self::Coinbase => ["BTC-USD", "ETH-USD"],
            Self::Kraken => ["BTC/USD", "ETH/USD"],
        }
    }

    /// Messages that a connection may send in a second.
    pub(crate) const fn sends(self) -> u32 {
        match self {
            Self::Binance => 5,
            Self::Coinbase => 8,
            Self::Kraken => 6,
        }
    }

    /// Connections that an address may open, and in which time.
    pub(crate) const fn connects(self) -> (u32, Duration) {
        match self {
            Self::Binance => (300, Duration::from_secs(300)),
            Self::Coinbase => (8, Duration::from_secs(1)),
            Self::Kraken => (150, Duration::from_secs(600)),
        }
    }
}

/// Settings of a [`Venue`](crate::Venue).
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Setup {
    /// The venue that is imitated.
    pub kind: Kind,
    /// Names of symbols, in the venue's form: `BTCUSDT`, `BTC-USD`, `BTC/USD`.
    pub symbols: Vec<String>,
    /// The seed of books, trades and faults.
    pub seed: u64,
    /// The age at which connections are ended, if they are.
    pub life: Option<Duration>,
    /// Whether messages are lost and swapped, checksums wrong, subscriptions forgotten, and connections ended or stalled.
    pub has_faults: bool,
    /// The speed of the market: with 1 it has about 6,000 messages a second, of all symbols together. At least 0.001.
    pub speed: f64,
    /// Whether clients that ask for more than the venue allows are banned.
    pub has_limits: bool,
    /// The time from which an address that has exceeded a limit is let in again.
    pub ban: Duration,
    /// The time since 1970 at which the venue's own time is 0.
    pub begin: Duration,
    /// Levels of each side of a book that change.
    pub width: u32,
    /// States of each book that can be asked for later.
    pub kept: usize,
}

impl Setup {
    /// A venue without faults, with books of 100 levels.
    #[must_use]
    pub const fn new(kind: Kind, symbols: Vec<String>) -> Self {
        let (life, ban) = (None, Duration::from_secs(120));
        let (speed, width, kept, begin) = (1.0, 100, 20, Duration::ZERO);
        Self { kind, symbols, seed: 1, life, has_faults: false, speed, has_limits: true, ban, begin, width, kept }
    }

    pub(crate) const fn shape(&self) -> Shape {
        let depth = if matches!(self.kind, Kind::Kraken) { 10 } else { 1000 };
        Shape { depth, width: self.width, kept: self.kept }
    }
}
