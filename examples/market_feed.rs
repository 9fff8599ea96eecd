//! Prints the best bid and offer of symbols: `market_feed binance BTCUSDT ETHUSDT`, `market_feed coinbase BTC-USD` or
//! `market_feed kraken BTC/USD`. Snapshots of Binance are fetched with the program `curl`.

use std::process::Command;
use std::time::Duration;
use tautline::{Client, ClientConfig, Config};
use tautline_feed::{
    Binance, Book, Channel, Coinbase, Connector, Feed, FeedConfig, Kraken, Listener, Notice, Side, SymbolId, Time,
};

struct Print {
    names: Vec<String>,
}

impl Listener for Print {
    fn on_book(&mut self, symbol: SymbolId, book: &Book, now: Time) {
        let unit = 10_f64.powi(i32::from(book.scale().price));
        let [bid, ask] =
            [Side::Bid, Side::Ask].map(|side| book.best(side).map_or(0.0, |best| best.price as f64 / unit));
        println!("{now:9.3?} {} {bid} {ask}", self.names[symbol.index()]);
    }
    fn on_notice(&mut self, notice: Notice<'_>, now: Time) {
        eprintln!("{now:9.3?} {notice:?}");
    }
}

fn get(url: &str) -> Result<Vec<u8>, String> {
    let output = Command::new("curl").args(["-sSf", "-m", "8", url]).output().map_err(|error| error.to_string())?;
    if output.status.success() { Ok(output.stdout) } else { Err(String::from_utf8_lossy(&output.stderr).into_owned()) }
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut args = std::env::args().skip(1);
    let config = FeedConfig::default();
    let mut feed = match args.next().as_deref() {
        Some("binance") => Feed::new(Binance::new(), config),
        Some("coinbase") => Feed::new(Coinbase::new(), config),
        Some("kraken") => Feed::new(Kraken::new(), config),
        _ => return Err("usage: market_feed binance|coinbase|kraken SYMBOL...".into()),
    };
    let names: Vec<String> = args.collect();
    for name in &names {
        let symbol = feed.declare(name, None);
        feed.subscribe(symbol, Channel::Book, Time::ZERO);
    }
    let mut config = Config::low_latency();
    config.deadlines.silence = Some(Duration::from_secs(90));
    let connector = Connector::new(feed, Print { names }).with_fetch(get);
    Client::new(ClientConfig::default()).config(config).stay().run(connector)?;
    Ok(())
}
