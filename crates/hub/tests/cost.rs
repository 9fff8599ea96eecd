//! The CPU time of a delivery with history, beside that of a plain topic of the same hub.
#![expect(clippy::unwrap_used, reason = "all of this runs inside tests")]

#[expect(dead_code, reason = "other tests use the rest")]
mod helpers;

use helpers::{client, publish, stop, target};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};
use tautline::{Client, ClientConfig, Conn, Handler, Message, Opening, Server};
use tautline_hub::Hub;

/// Subscribers of both topics, messages of a round, and rounds of each topic.
const SUBSCRIBERS: u64 = 1_000;
const MESSAGES: u64 = 20;
const ROUNDS: usize = 9;

/// Most CPU time of a delivery with history, over that of a plain topic.
const MOST: f64 = 1.1;

const PLAIN: &str = "all";
const HISTORY: &str = "log:all";

/// Subscribes each connection to both topics, and counts the messages.
struct Crowd(Arc<AtomicU64>, Arc<AtomicU64>);

impl Handler for Crowd {
    type State = ();

    fn on_open(&mut self, conn: &mut Conn<'_, ()>, _: &Opening<'_>) {
        for topic in [PLAIN, HISTORY] {
            conn.text(&format!(r#"{{"type":"subscribe","topic":"{topic}"}}"#));
        }
    }

    fn on_message(&mut self, _: &mut Conn<'_, ()>, message: Message<'_>) {
        let text = message.text().unwrap_or_default();
        let counter = if text.starts_with(r#"{"type":"message""#) { &self.1 } else { &self.0 };
        counter.fetch_add(1, Ordering::Relaxed);
    }
}

/// The CPU time of the server's loops so far.
fn loops() -> Duration {
    let tasks = std::fs::read_dir("/proc/self/task").unwrap().map(|task| task.unwrap().path());
    let is_loop = |task: &std::path::PathBuf| {
        std::fs::read_to_string(task.join("comm")).is_ok_and(|name| ["tautline-0\n", "tautline-1\n"].contains(&&*name))
    };
    let time = |task: std::path::PathBuf| {
        let text = std::fs::read_to_string(task.join("schedstat")).unwrap();
        text.split(' ').next().unwrap().parse::<u64>().unwrap()
    };
    Duration::from_nanos(tasks.filter(is_loop).map(time).sum())
}

fn until(counter: &AtomicU64, count: u64) {
    let end = Instant::now() + helpers::PATIENCE;
    while counter.load(Ordering::Relaxed) < count {
        assert!(Instant::now() < end, "{} of {count} came", counter.load(Ordering::Relaxed));
        std::thread::sleep(Duration::from_micros(200));
    }
}

#[test]
#[ignore = "a measurement: cargo test --profile dist -p tautline-hub --test cost -- --ignored --nocapture"]
fn a_delivery_with_history_costs_as_much_as_one_of_a_plain_topic() {
    let server = Server::plain().listen("127.0.0.1:0".parse().unwrap()).shards(2).start(Hub::default().handlers());
    let server = server.unwrap();
    let (subscribed, received) = (Arc::<AtomicU64>::default(), Arc::<AtomicU64>::default());
    let mut crowd = Client::new(ClientConfig::default());
    for _ in 0..SUBSCRIBERS {
        crowd = crowd.target(target(&server));
    }
    let counters = Crowd(subscribed.clone(), received.clone());
    let crowd = crowd.start(|_| counters).unwrap();
    until(&subscribed, 2 * SUBSCRIBERS);
    let publisher = client(&server);
    let data = format!("\"{}\"", "x".repeat(100));
    let mut expected = 0;
    let mut round = |topic: &str| {
        let begun = loops();
        for _ in 0..MESSAGES {
            publish(&publisher, topic, None, &data);
            expected += SUBSCRIBERS;
            until(&received, expected);
        }
        (loops() - begun).as_secs_f64() * 1e6 / (MESSAGES * SUBSCRIBERS) as f64
    };
    let mut ratios = Vec::new();
    for number in 0..=ROUNDS {
        let (plain, history) = (round(PLAIN), round(HISTORY));
        // The first round warms up.
        if number > 0 {
            println!("a delivery: plain {plain:.2} us, with history {history:.2} us of CPU time");
            ratios.push(history / plain);
        }
    }
    ratios.sort_unstable_by(f64::total_cmp);
    let ratio = ratios[ROUNDS / 2];
    println!("with history over plain: {ratio:.3}, from {:.3} to {:.3}", ratios[0], ratios[ROUNDS - 1]);
    assert!(ratio <= MOST, "with history over plain: {ratio:.3}");
    stop(crowd);
    stop(server);
}
