//! Our client of market data as a worker of the suite `feed`: it measures a round for each line of its input.

use crate::{Error, Latencies, cpu, loops};
use std::io::BufRead;
use std::process;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use tautline::{Client, ClientConfig, CloseCode, Config, MessageTimes, Tls, TlsEngine};
use tautline_feed::{
    Binance, Book, Channel, Connector, Feed, FeedConfig, Fetch, Listener, Notice, Side, SymbolId, Time, Trade,
};
use tautline_venue::Kind;

/// Time until all books are up to date, at most.
const PATIENCE: Duration = Duration::from_secs(20);

/// Messages of a round, and the times of decisions.
#[derive(Debug, Default)]
struct Counts {
    live: usize,
    messages: u64,
    latencies: Latencies,
}

/// The application: a decision is made when the best bid and offer, or a trade's price, is known.
struct Decide {
    counts: Arc<Mutex<Counts>>,
    /// Best prices, so that no decision is left out by the compiler.
    best: [i64; 2],
}

fn lock(counts: &Mutex<Counts>) -> MutexGuard<'_, Counts> {
    counts.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Listener for Decide {
    fn on_trade(&mut self, _: SymbolId, trade: &Trade<'_>, _: Time) {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        lock(&self.counts).latencies.record(now.saturating_sub(Duration::from_nanos(trade.time)));
    }

    fn on_book(&mut self, _: SymbolId, book: &Book, _: Time) {
        self.best = [Side::Bid, Side::Ask].map(|side| book.best(side).map_or(0, |best| best.price));
    }

    fn on_handled(&mut self, _: Option<&MessageTimes>) {
        lock(&self.counts).messages += 1;
    }

    fn on_notice(&mut self, notice: Notice<'_>, _: Time) {
        match notice {
            Notice::Live { .. } => lock(&self.counts).live += 1,
            Notice::Rebuilding { .. } => {
                let mut counts = lock(&self.counts);
                counts.live = counts.live.saturating_sub(1);
            }
            _ => {}
        }
    }
}

/// Measures one round for each line `SYMBOLS ENGINE MILLISECONDS` on standard input, against the venue at `url`. `fetch` gets
/// snapshots, and `print` the figures of each round. It returns false if nobody reads them.
///
/// # Errors
/// If the input cannot be read.
pub fn run(
    url: &str,
    fetch: impl Fn(&str) -> Result<Vec<u8>, String> + Clone + Send + 'static,
    print: &mut dyn FnMut(&str) -> bool,
) -> Result<(), Error> {
    for line in std::io::stdin().lock().lines() {
        let line = line.map_err(|error| Error::Failed(error.to_string()))?;
        let figures = round(url, &line, fetch.clone()).unwrap_or_else(|error| format!("failed {error}"));
        if !print(&figures) {
            break;
        }
    }
    Ok(())
}

fn round(url: &str, line: &str, fetch: impl Fetch) -> Result<String, Error> {
    let wrong = || Error::Usage(format!("{line:?} is no round"));
    let words: Vec<&str> = line.split_whitespace().collect();
    let [symbols, _, millis] = words[..] else { return Err(wrong()) };
    let (symbols, millis) = (symbols.parse().map_err(|_| wrong())?, millis.parse().map_err(|_| wrong())?);
    let rest = url.replacen("ws", "http", 1);
    let mut feed =
        Feed::new(Binance::new().at(&format!("{url}/ws?timeUnit=MICROSECOND"), &rest), FeedConfig::default());
    for name in Kind::Binance.names(symbols) {
        let symbol = feed.declare(&name, None);
        feed.subscribe(symbol, Channel::Trades, Time::ZERO);
        feed.subscribe(symbol, Channel::Book, Time::ZERO);
    }
    let counts = Arc::new(Mutex::new(Counts::default()));
    let connector = Connector::new(feed, Decide { counts: counts.clone(), best: [0; 2] }).with_fetch(fetch);
    let client = Client::new(Tls { engine: TlsEngine::Plain, config: ClientConfig::default() });
    let client = client.config(Config::low_latency()).stay();
    let handle = loops::start_client(client, false, Box::new(move |_| Box::new(connector)));
    let handle = handle.map_err(|error| Error::Failed(error.to_string()))?;
    let begin = Instant::now();
    // Snapshots of many symbols are limited: the rest come while the round is measured.
    let wanted = symbols.min(50);
    while lock(&counts).live < wanted && begin.elapsed() < PATIENCE {
        std::thread::sleep(Duration::from_millis(20));
    }
    let (before, start) = (used()?, Instant::now());
    {
        let mut counts = lock(&counts);
        (counts.messages, counts.latencies) = (0, Latencies::default());
    }
    std::thread::sleep(Duration::from_millis(millis));
    let Counts { messages, latencies, live } = std::mem::take(&mut *lock(&counts));
    let (used, time) = (used()?.saturating_sub(before), start.elapsed());
    handle.drain(CloseCode::NORMAL, "", Duration::from_secs(1));
    handle.join().map_err(|error| Error::Failed(error.to_string()))?;
    if live < wanted || messages == 0 {
        return Err(Error::Failed(format!("{live} of {symbols} books are up to date, {messages} messages came")));
    }
    let quantile = |share| latencies.quantile_us(share);
    Ok(format!(
        "rate {} cpu_us {} p50 {} p99 {} p999 {}",
        messages as f64 / time.as_secs_f64(),
        used.as_secs_f64() * 1e6 / messages as f64,
        quantile(0.5),
        quantile(0.99),
        quantile(0.999)
    ))
}

/// CPU time of this process.
fn used() -> Result<Duration, Error> {
    cpu::process_time(process::id()).map_err(|error| Error::Failed(error.to_string()))
}
