//! Listens to a feed and prints its rate and latency once a second; reconnects after every loss.
//!
//! ```text
//! taut serve --app feed --feed-rate 10000
//! cargo run -p tautline --example feed_client -- wss://localhost:8443/ [CA.pem [SUBSCRIPTION]]
//! ```
//! The feed's messages are `{"sequence":N,"time_ns":T}`. Gaps in the sequence are messages that the server's
//! slow-consumer policy left out: `KeepLatest` sends a slow reader the newest value instead of all old ones. T is the
//! time when the message was made. The latency is right if both programs share a clock.

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use tautline::{
    Client, ClientConfig, Closed, Config, Conn, ConnectError, DialId, Handler, Message, Opening, Reconnect,
};
use tautline::{Roots, Target};

struct Feed {
    /// The first message to send. Most exchanges expect one that names the instruments.
    subscription: Option<String>,
    next: Option<u64>,
    missed: u64,
    latencies: Vec<Duration>,
    since: Instant,
}

impl Handler for Feed {
    type State = ();

    /// Subscribes; called again after each reconnection.
    fn on_open(&mut self, conn: &mut Conn<'_, ()>, _opening: &Opening<'_>) {
        println!("connected to {}", conn.peer());
        if let Some(text) = &self.subscription {
            conn.text(text);
        }
        self.latencies.clear();
        (self.next, self.since) = (None, Instant::now());
    }

    fn on_message(&mut self, _conn: &mut Conn<'_, ()>, message: Message<'_>) {
        let Some(text) = message.text() else { return };
        if let (Some(sequence), Some(nanos)) = (number(text, "sequence"), number(text, "time_ns")) {
            self.missed += sequence.saturating_sub(self.next.unwrap_or(sequence));
            self.next = Some(sequence + 1);
            let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
            self.latencies.push(now.saturating_sub(Duration::from_nanos(nanos)));
        }
        if self.since.elapsed() >= Duration::from_secs(1) && !self.latencies.is_empty() {
            self.report();
        }
    }

    fn on_close(&mut self, _conn: &mut Conn<'_, ()>, closed: &Closed) {
        println!("lost: {:#} ({})", closed.cause, closed.code);
    }

    fn on_connect_failed(&mut self, _dial: DialId, error: &ConnectError, retry: Option<Duration>) {
        let then = retry.map(|wait| format!("; next attempt in {wait:?}"));
        println!("{error:#}{}", then.unwrap_or_default());
    }
}

impl Feed {
    fn report(&mut self) {
        self.latencies.sort_unstable();
        let at = |percent: usize| self.latencies[(self.latencies.len() - 1) * percent / 100];
        let rate = self.latencies.len() as f64 / self.since.elapsed().as_secs_f64();
        println!("{rate:.0} msg/s, {} missed; latency p50 {:?}, p99 {:?}", self.missed, at(50), at(99));
        self.latencies.clear();
        (self.missed, self.since) = (0, Instant::now());
    }
}

/// The number behind `"name":`. A program with more than two fields uses a JSON parser.
fn number(text: &str, name: &str) -> Option<u64> {
    let (_, rest) = text.split_once(&format!("\"{name}\":"))?;
    rest.split(|c: char| !c.is_ascii_digit()).next()?.parse().ok()
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut args = std::env::args().skip(1);
    let url = args.next().ok_or("usage: feed_client URL [CA.pem [SUBSCRIPTION]]")?;
    let mut tls = ClientConfig::default();
    if let Some(file) = args.next() {
        tls.roots = Roots::Pem(std::fs::read(file)?);
    }
    let mut target = Target::new(&url)?;
    target.reconnect = Some(Reconnect::default().with_attempts(10));
    let feed = Feed { subscription: args.next(), next: None, missed: 0, latencies: Vec::new(), since: Instant::now() };
    // Runs on this thread until the client gives up: ten attempts in a row without success.
    Client::new(tls).config(Config::low_latency()).target(target).run(feed)?;
    Err("the feed does not come back".into())
}
