//! Streams and venues by their names.

use tautline_feed::{Binance, Channel, Coinbase, Feed, FeedConfig, Kraken, Venue};

/// A venue that feeds know.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(super) enum VenueName {
    /// Binance spot; symbols as btcusdt.
    Binance,
    /// Coinbase Advanced Trade; symbols as BTC-USD.
    Coinbase,
    /// Kraken; symbols as BTC/USD.
    Kraken,
}

impl VenueName {
    /// Where the venue is.
    pub(super) fn url(self) -> String {
        match self {
            Self::Binance => Binance::new().url(),
            Self::Coinbase => Coinbase::new().url(),
            Self::Kraken => Kraken::new().url(),
        }
    }

    /// A feed of the venue, at other places if they are given.
    pub(super) fn feed(self, url: Option<&str>, rest: Option<&str>, config: FeedConfig) -> Feed {
        let own = self.url();
        let url = url.unwrap_or(&own);
        match self {
            Self::Binance => Feed::new(Binance::new().at(url, rest.unwrap_or("https://api.binance.com")), config),
            Self::Coinbase => Feed::new(Coinbase::new().at(url), config),
            Self::Kraken => Feed::new(Kraken::new().at(url), config),
        }
    }
}

/// A stream of an argument.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Stream {
    /// The venue's name.
    pub(super) symbol: String,
    pub(super) channel: Channel,
}

pub(super) fn stream(text: &str) -> Result<Stream, String> {
    let (symbol, channel) = text.split_once('@').ok_or("write SYMBOL@trade or SYMBOL@depth")?;
    let channel = match channel {
        "trade" | "trades" => Channel::Trades,
        "depth" | "depth@100ms" | "book" => Channel::Book,
        _ => return Err(format!("{channel:?} is no channel: write trade or depth")),
    };
    let is_name = |c: char| c.is_ascii_alphanumeric() || ['-', '/'].contains(&c);
    if symbol.is_empty() || symbol.len() > 32 || !symbol.chars().all(is_name) {
        return Err(format!("{symbol:?} is no symbol"));
    }
    Ok(Stream { symbol: symbol.to_ascii_uppercase(), channel })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn streams_are_a_symbol_and_a_channel() {
        let parsed = stream("btcusdt@depth@100ms").unwrap();
        assert_eq!((&*parsed.symbol, parsed.channel), ("BTCUSDT", Channel::Book));
        assert_eq!(stream("BTC/USD@trade").unwrap().channel, Channel::Trades);
        for bad in ["btcusdt", "@trade", "btcusdt@ticker", "btc\"usdt@trade"] {
            assert!(stream(bad).is_err(), "{bad}");
        }
    }
}
