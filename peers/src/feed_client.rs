//! A client of market data on tokio-tungstenite with serde_json, as a worker of the suite `feed`: `peers feed-client URL`.
//!
//! It does what `peers/python/feed.py` does.

use crate::common::Failure;
use futures_util::{SinkExt, StreamExt};
use rustix::time::{ClockId, clock_gettime};
use serde::Deserialize;
use std::collections::HashMap;
use std::io::BufRead;
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use tokio::net::TcpStream;
use tokio::runtime::Builder;
use tokio::time::{Instant, sleep, timeout_at};
use tokio_tungstenite::client_async;
use tokio_tungstenite::tungstenite::Message;

/// Streams of a request.
const BATCH: usize = 100;

const WARM_UP: Duration = Duration::from_secs(2);

/// A message of the venue. Others, such as confirmations, are none.
#[derive(Deserialize)]
#[serde(tag = "e")]
enum Event<'a> {
    #[serde(rename = "trade")]
    Trade {
        s: &'a str,
        p: &'a str,
        q: &'a str,
        #[serde(rename = "E")]
        stamp: u64,
    },
    #[serde(rename = "depthUpdate")]
    Depth { s: &'a str, b: Vec<[&'a str; 2]>, a: Vec<[&'a str; 2]> },
}

/// The last prices of each symbol, and the times of decisions in microseconds.
#[derive(Default)]
struct Decide {
    messages: u64,
    latencies: Vec<u64>,
    trades: HashMap<String, (f64, f64)>,
    books: HashMap<String, [Vec<(f64, f64)>; 2]>,
}

impl Decide {
    fn on_message(&mut self, text: &str) -> Result<(), Failure> {
        match serde_json::from_str(text) {
            Ok(Event::Trade { s, p, q, stamp }) => {
                put(&mut self.trades, s, (p.parse()?, q.parse()?));
                let now = SystemTime::now().duration_since(UNIX_EPOCH)?;
                self.latencies.push(u64::try_from(now.as_micros())?.saturating_sub(stamp));
            }
            Ok(Event::Depth { s, b, a }) => {
                let side = |side: Vec<[&str; 2]>| -> Result<Vec<(f64, f64)>, Failure> {
                    side.iter().map(|[price, quantity]| Ok((price.parse()?, quantity.parse()?))).collect()
                };
                put(&mut self.books, s, [side(b)?, side(a)?]);
            }
            Err(_) => {}
        }
        self.messages += 1;
        Ok(())
    }
}

/// Replaces a value without a new key.
fn put<T>(map: &mut HashMap<String, T>, key: &str, value: T) {
    match map.get_mut(key) {
        Some(old) => *old = value,
        None => _ = map.insert(key.to_owned(), value),
    }
}

/// Measures a round for each line of the input: `SYMBOLS ENGINE MILLISECONDS`.
pub(crate) fn run(url: &str) -> Result<(), Failure> {
    let runtime = Builder::new_current_thread().enable_io().enable_time().build()?;
    for line in std::io::stdin().lock().lines() {
        let line = line?;
        let words: Vec<&str> = line.split_whitespace().collect();
        let [symbols, _, millis] = words[..] else { return Err("a line is no round".into()) };
        let time = Duration::from_millis(millis.parse()?);
        match runtime.block_on(round(url, symbols.parse()?, time)) {
            Ok(figures) => println!("{figures}"),
            Err(error) => println!("failed {error}"),
        }
    }
    Ok(())
}

async fn round(url: &str, symbols: usize, time: Duration) -> Result<String, Failure> {
    let host = url.strip_prefix("ws://").ok_or("the venue has a URL with ws://")?;
    let stream = TcpStream::connect(host).await?;
    stream.set_nodelay(true)?;
    let (mut socket, _) = client_async(format!("{url}/ws?timeUnit=MICROSECOND"), stream).await?;
    let streams: Vec<String> =
        (0..symbols).flat_map(|at| ["trade", "depth"].map(|channel| format!("\"s{at}usdt@{channel}\""))).collect();
    for (id, batch) in streams.chunks(BATCH).enumerate() {
        let text = format!(r#"{{"method":"SUBSCRIBE","params":[{}],"id":{id}}}"#, batch.join(","));
        socket.send(Message::text(text)).await?;
        sleep(Duration::from_millis(250)).await;
    }
    let mut decide = Decide::default();
    let (mut begin, mut used) = (Instant::now(), used());
    let mut is_warm = false;
    loop {
        let end = begin + if is_warm { time } else { WARM_UP };
        match timeout_at(end, socket.next()).await {
            Ok(Some(Ok(Message::Text(text)))) => decide.on_message(&text)?,
            Ok(Some(Ok(_))) => {}
            Ok(Some(Err(error))) => return Err(error.into()),
            Ok(None) => return Err("the venue has closed the connection".into()),
            Err(_) if is_warm => break,
            Err(_) => {
                (decide.messages, is_warm) = (0, true);
                decide.latencies.clear();
                (begin, used) = (Instant::now(), crate::feed_client::used());
            }
        }
        // A timeout looks at the socket first, which is never empty for long.
        if is_warm && Instant::now() >= begin + time {
            break;
        }
    }
    let (used, time) = (crate::feed_client::used().saturating_sub(used), begin.elapsed());
    decide.latencies.sort_unstable();
    let count = decide.latencies.len();
    if count == 0 {
        return Err("no trades came".into());
    }
    let at = |thousandths: usize| decide.latencies[(count * thousandths / 1000).min(count - 1)];
    Ok(format!(
        "rate {} cpu_us {} p50 {} p99 {} p999 {}",
        decide.messages as f64 / time.as_secs_f64(),
        used.as_secs_f64() * 1e6 / decide.messages as f64,
        at(500),
        at(990),
        at(999)
    ))
}

/// CPU time of this process.
fn used() -> Duration {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    Duration::new(time.tv_sec.unsigned_abs(), u32::try_from(time.tv_nsec).unwrap_or(0))
}
