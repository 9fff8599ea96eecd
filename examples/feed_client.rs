//! Follows several feeds of the same numbered prices: `feed_client CA.pem|- URL...`; `taut serve --app feed` is one.
//! The first copy of a price counts, a silent feed is bounced, and a slow consumer meets the latest price of each symbol.

use std::time::{Duration, Instant, SystemTime};
use tautline::http::HeaderValue;
use tautline::{Client, ClientConfig, Closed, Config, Conn, DialId, Handler, Message, Reconnect, Roots, Stage, Target};
use tautline_feed::{Arbiter, Latest, latest};

const SECOND: Duration = Duration::from_secs(1);
struct Feeds {
    arbiter: Arbiter,
    prices: Latest<String, u64>,
}

impl Handler for Feeds {
    type State = ();
    fn on_message(&mut self, _conn: &mut Conn<'_, ()>, message: Message<'_>) {
        let Some(text) = message.text() else { return };
        let Some(number) = field(text, "sequence").and_then(|number| number.parse().ok()) else { return };
        if self.arbiter.offer(number).is_first() {
            self.prices.put(field(text, "symbol").unwrap_or_default().to_owned(), number);
        }
    }
    fn on_redial(&mut self, _dial: DialId, target: &mut Target) {
        target.headers.insert("authorization", token());
    }
    fn on_close(&mut self, conn: &mut Conn<'_, ()>, closed: &Closed) {
        println!("{:?} is lost: {:#}; {:?}", conn.dial(), closed.cause, self.arbiter.copies());
    }
}

/// The text behind `"name":`. A program with more fields uses a JSON parser.
fn field<'a>(text: &'a str, name: &str) -> Option<&'a str> {
    let (_, rest) = text.split_once(&format!("\"{name}\":"))?;
    rest.split([',', '}']).next().map(|value| value.trim_matches([' ', '"']))
}

/// A token that expires soon: here the time in nanoseconds.
fn token() -> HeaderValue {
    let now = SystemTime::UNIX_EPOCH.elapsed().unwrap_or_default();
    HeaderValue::from(now.as_secs() * 1_000_000_000 + u64::from(now.subsec_nanos()))
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut args = std::env::args().skip(1);
    let ca = args.next().ok_or("usage: feed_client CA.pem|- URL...")?;
    let roots = if ca == "-" { Roots::Platform } else { Roots::Pem(std::fs::read(ca)?) };
    let (mut config, waits) = (Config::low_latency(), Reconnect::new(SECOND / 20, SECOND).with_attempts(5));
    config.deadlines.silence = Some(SECOND / 2);
    let mut client = Client::new(ClientConfig::default().with_roots(roots)).config(config);
    for url in args {
        let mut target = Target::new(&url)?.with_reconnect(waits);
        target.headers.insert("authorization", token());
        client = client.target(target);
    }
    let (prices, mut consumer) = latest(10_000);
    let client = client.start_with_stages(|_| Feeds { arbiter: Arbiter::new(4096), prices })?;
    let (mut before, mut reported) = (client.stages().ok_or("no stages")?, Instant::now());
    while let Some(batch) = consumer.next_within(SECOND) {
        let symbols = batch.count();
        std::thread::sleep(Duration::from_millis(10)); // a strategy that takes its time
        if let (1.., Some(now)) = (reported.elapsed().as_secs(), client.stages()) {
            let tail = now.since(&before).spread(Stage::App);
            println!("{} messages, p99.9 {:.1} us; {symbols} symbols at last", tail.count, tail.p999);
            (before, reported) = (now, Instant::now());
        }
    }
    println!("{:?}", consumer.conflation());
    Ok(client.join()?)
}
