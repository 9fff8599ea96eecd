//! `--app venue`: a simulated venue.

use crate::failure::Failure;
use std::time::Duration;
use tautline_venue::{Kind, Setup};

/// The settings of the simulated venue.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Simulated venue (--app venue)")]
pub(super) struct VenueArguments {
    /// Venue that is imitated.
    #[arg(long, value_name = "VENUE", default_value = "binance")]
    like: Like,
    /// Symbols in the venue's form, with commas between them (BTCUSDT, BTC-USD or BTC/USD), or the number of made-up ones.
    #[arg(long, value_name = "NAMES", value_parser = symbols)]
    symbols: Option<Symbols>,
    /// Speed of the market: 1 is about 6,000 messages a second, of all symbols together.
    #[arg(long, value_name = "FACTOR", default_value_t = 1.0, value_parser = speed)]
    market_speed: f64,
    /// Age in seconds at which connections are ended, in place of 24 hours.
    #[arg(long, value_name = "SECONDS", default_value_t = 86_400.0, value_parser = age)]
    life: f64,
    /// Plant faults: lost and swapped changes of books, wrong checksums, forgotten subscriptions, connections that end, stall or
    /// are refused, snapshots that fail or are old. -v logs them.
    #[arg(long)]
    plant_faults: bool,
    /// Ban nobody: clients may connect, send and fetch as often as they like.
    #[arg(long)]
    no_limits: bool,
    /// Seed of the market and its faults.
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
}

/// A venue that can be imitated.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Like {
    /// Binance spot: paths /ws and /stream, snapshots at /api/v3/depth, binary messages at /sbe/ws.
    Binance,
    /// Coinbase Advanced Trade.
    Coinbase,
    /// Kraken, WebSocket v2.
    Kraken,
}

#[derive(Clone, Debug)]
enum Symbols {
    Named(Vec<String>),
    Made(usize),
}

/// Each symbol has a book, so there is a bound.
const MOST: usize = 1000;

fn symbols(text: &str) -> Result<Symbols, String> {
    if let Ok(count) = text.parse() {
        return if (1..=MOST).contains(&count) { Ok(Symbols::Made(count)) } else { Err(format!("1 to {MOST}")) };
    }
    let names: Vec<String> = text.split(',').map(str::to_owned).collect();
    let is_name = |name: &String| {
        (1..=32).contains(&name.len())
            && name.chars().all(|c| c.is_ascii_uppercase() || c.is_ascii_digit() || ['-', '/'].contains(&c))
    };
    if names.len() > MOST {
        return Err(format!("at most {MOST} symbols"));
    }
    match names.iter().find(|name| !is_name(name)) {
        Some(name) => Err(format!("{name:?} is no symbol: write capital letters, digits, - and /")),
        None => Ok(Symbols::Named(names)),
    }
}

fn within(text: &str, least: f64, most: f64) -> Result<f64, String> {
    let number = text.parse().ok().filter(|number| (least..=most).contains(number));
    number.ok_or_else(|| format!("write a number from {least} to {most}"))
}

fn speed(text: &str) -> Result<f64, String> {
    within(text, 0.001, 100.0)
}

fn age(text: &str) -> Result<f64, String> {
    within(text, 1.0, 86_400.0)
}

impl VenueArguments {
    /// Checks that there is one loop, since each would have a market of its own.
    pub(super) fn check(is_venue: bool, shards: usize) -> Result<(), Failure> {
        if is_venue && shards != 1 {
            return Err(Failure::usage("--app venue has one market, in one loop: leave --shards out"));
        }
        Ok(())
    }

    pub(super) fn setup(&self) -> Setup {
        let kind = match self.like {
            Like::Binance => Kind::Binance,
            Like::Coinbase => Kind::Coinbase,
            Like::Kraken => Kind::Kraken,
        };
        let symbols = match &self.symbols {
            Some(Symbols::Named(names)) => names.clone(),
            Some(Symbols::Made(count)) => kind.names(*count),
            None => kind.usual_names().map(str::to_owned).to_vec(),
        };
        let mut setup = Setup::new(kind, symbols);
        setup.speed = self.market_speed;
        setup.life = Some(Duration::from_secs_f64(self.life));
        setup.has_faults = self.plant_faults;
        setup.has_limits = !self.no_limits;
        setup.seed = self.seed;
        setup
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn symbols_are_a_number_or_names() {
        assert!(matches!(symbols("12"), Ok(Symbols::Made(12))));
        assert!(matches!(symbols("BTC/USD,ETH/USD"), Ok(Symbols::Named(names)) if names.len() == 2));
        for bad in ["", "0", "1001", "btcusdt", "BTC\"", "A,,B"] {
            assert!(symbols(bad).is_err(), "{bad}");
        }
    }
}
