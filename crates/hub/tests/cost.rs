//! The CPU time of a delivery: with history beside that of a plain topic of the same hub, and of bursts to clients that take one
//! message in a frame or several.
#![expect(clippy::unwrap_used, reason = "all of this runs inside tests")]

#[expect(dead_code, reason = "other tests use the rest")]
mod helpers;

use helpers::{client, publish, stop, target};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};
use tautline::{Client, ClientConfig, Conn, Handler, Message, Opening, Server, ServerHandle, Socket};
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
struct Crowd {
    version: u32,
    subscribed: Arc<AtomicU64>,
    received: Arc<AtomicU64>,
}

impl Handler for Crowd {
    type State = ();

    fn on_open(&mut self, conn: &mut Conn<'_, ()>, _: &Opening<'_>) {
        if self.version > 1 {
            conn.text(&format!(r#"{{"type":"hello","version":{}}}"#, self.version));
        }
        for topic in [PLAIN, HISTORY] {
            conn.text(&format!(r#"{{"type":"subscribe","topic":"{topic}"}}"#));
        }
    }

    fn on_message(&mut self, _: &mut Conn<'_, ()>, message: Message<'_>) {
        let text = message.text().unwrap_or_default();
        let messages = text.matches(r#"{"type":"message""#).count() as u64;
        self.received.fetch_add(messages, Ordering::Relaxed);
        self.subscribed.fetch_add(text.contains(r#""type":"subscribed""#).into(), Ordering::Relaxed);
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

/// Connects subscribers that speak this version of the protocol, and returns the number of their messages.
fn crowd(server: &ServerHandle, version: u32) -> (ServerHandle, Arc<AtomicU64>) {
    let (subscribed, received) = (Arc::<AtomicU64>::default(), Arc::<AtomicU64>::default());
    let mut crowd = Client::new(ClientConfig::default());
    for _ in 0..SUBSCRIBERS {
        crowd = crowd.target(target(server));
    }
    let handler = Crowd { version, subscribed: subscribed.clone(), received: received.clone() };
    let crowd = crowd.start(|_| handler).unwrap();
    until(&subscribed, 2 * SUBSCRIBERS);
    (crowd, received)
}

#[test]
#[ignore = "a measurement: cargo test --profile dist -p tautline-hub --test cost -- --ignored --nocapture"]
fn a_delivery_of_a_burst_costs_less_in_frames_of_several_messages() {
    let servers = [1, 2].map(|version| {
        let server = Server::plain().listen("127.0.0.1:0".parse().unwrap()).shards(2).start(Hub::default().handlers());
        let server = server.unwrap();
        let (crowd, received) = crowd(&server, version);
        let publisher = Socket::connect(target(&server), ClientConfig::default(), tautline::Config::default());
        (server, crowd, received, publisher.unwrap())
    });
    let mut servers = servers;
    let data = "x".repeat(100);
    let mut ratios = Vec::new();
    let mut expected = 0;
    for number in 0..=ROUNDS {
        expected += MESSAGES * SUBSCRIBERS;
        let [one, many] = servers.each_mut().map(|(_, _, received, publisher)| {
            let begun = loops();
            for n in 0..MESSAGES {
                publisher.text(&format!(r#"{{"type":"publish","topic":"{PLAIN}","data":[{n},"{data}"]}}"#)).unwrap();
            }
            until(received, expected);
            (loops() - begun).as_secs_f64() * 1e6 / (MESSAGES * SUBSCRIBERS) as f64
        });
        // The first round warms up.
        if number > 0 {
            println!("a delivery of a burst of {MESSAGES}: {one:.3} us of CPU time alone, {many:.3} us in arrays");
            ratios.push(many / one);
        }
    }
    ratios.sort_unstable_by(f64::total_cmp);
    let ratio = ratios[ROUNDS / 2];
    println!("in arrays over alone: {ratio:.3}, from {:.3} to {:.3}", ratios[0], ratios[ROUNDS - 1]);
    assert!(ratio < 1.0, "in arrays over alone: {ratio:.3}");
    for (server, crowd, _, publisher) in servers {
        drop(publisher);
        stop(crowd);
        stop(server);
    }
}

#[test]
#[ignore = "a measurement: cargo test --profile dist -p tautline-hub --test cost -- --ignored --nocapture"]
fn a_delivery_with_history_costs_as_much_as_one_of_a_plain_topic() {
    let server = Server::plain().listen("127.0.0.1:0".parse().unwrap()).shards(2).start(Hub::default().handlers());
    let server = server.unwrap();
    let (crowd, received) = crowd(&server, 1);
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
