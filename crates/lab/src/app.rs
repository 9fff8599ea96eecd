//! The applications of `taut serve`. Their loops are compiled here, see [`loops`](crate::loops).

mod venue;

pub use venue::VenueApp;

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use tautline::{Conn, Handler, Kind, Message, Opening, Outgoing, Reply, Request, ShardHandle, ShardHandleError, http};
use tautline_venue::Market;

/// The only topic of these applications.
const TOPIC: &str = "all";

/// A demonstration that keeps nothing about a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Demo {
    /// Sends each message back.
    Echo,
    /// Sends each message to all clients, its sender included.
    Broadcast,
    /// Sends each binary message back, and each text message to all clients.
    Crowd,
    /// Sends all clients the messages of [`publish`] or [`publish_market`], and ignores received ones.
    Feed,
}

impl Handler for Demo {
    type State = ();

    fn on_request(&mut self, request: &Request<'_>) -> Reply {
        let purpose = match self {
            Self::Echo => "echoes every message",
            Self::Broadcast => "sends every message to all clients",
            Self::Crowd => "echoes binary messages, and sends text messages to all clients",
            Self::Feed => "sends all clients the same messages",
        };
        answer(request, purpose)
    }

    fn on_open(&mut self, conn: &mut Conn<'_, ()>, _opening: &Opening<'_>) {
        if matches!(self, Self::Broadcast | Self::Feed) {
            conn.subscribe(TOPIC);
        }
    }

    fn on_message(&mut self, conn: &mut Conn<'_, ()>, message: Message<'_>) {
        match self {
            Self::Crowd if message.kind() == Kind::Text => {
                conn.broadcast(Outgoing::from(&message));
            }
            Self::Echo | Self::Crowd => {
                conn.send(Outgoing::from(&message));
            }
            Self::Broadcast => {
                conn.publish(TOPIC, Outgoing::from(&message));
            }
            Self::Feed => {}
        }
    }

    fn save_state(&mut self, _state: &mut (), _out: &mut Vec<u8>) -> bool {
        true
    }

    fn restore_state(&mut self, saved: &[u8]) -> Option<()> {
        saved.is_empty().then_some(())
    }
}

/// Publishes `{"sequence":N,"time_ns":T}` `rate` times a second, padded to `size` bytes, until the loops have stopped.
pub fn publish(shards: &[ShardHandle], rate: u32, size: usize) {
    let interval = Duration::from_secs(1) / rate;
    let mut due = Instant::now();
    for sequence in 0_u64.. {
        std::thread::sleep(due.saturating_duration_since(Instant::now()));
        due += interval;
        let time = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_nanos());
        let mut text = format!("{{\"sequence\":{sequence},\"time_ns\":{time}");
        text.extend(std::iter::repeat_n(' ', size.saturating_sub(text.len() + 1)));
        text.push('}');
        let results = shards.iter().map(|shard| shard.publish(TOPIC, Outgoing::text(&text).with_key(0)));
        if results.filter(|result| *result == Err(ShardHandleError::Stopped)).count() == shards.len() {
            return;
        }
    }
}

/// Time between two looks at the number of clients.
const POLL_INTERVAL: Duration = Duration::from_millis(20);

/// Publishes market data while there are clients, from the beginning each time, until the loops have stopped.
pub fn publish_market(shards: &[ShardHandle]) {
    let open = || {
        let mut running = shards.iter().filter(|shard| shard.is_running()).peekable();
        running.peek().is_some().then(|| running.map(|shard| shard.counters().open).sum::<u64>())
    };
    while let Some(listeners) = open() {
        if listeners == 0 {
            std::thread::sleep(POLL_INTERVAL);
            continue;
        }
        let mut due = Instant::now();
        let mut looked = due;
        for event in Market::new() {
            due += event.after;
            std::thread::sleep(due.saturating_duration_since(Instant::now()));
            for shard in shards {
                // A loop that does not keep up, or has stopped, misses the message.
                let _ = shard.publish(TOPIC, Outgoing::text(&event.text));
            }
            if due - looked > POLL_INTERVAL {
                looked = due;
                if open().is_none_or(|listeners| listeners == 0) {
                    break;
                }
            }
        }
    }
}

/// Upgrades WebSocket requests, and answers a browser with a short description.
fn answer(request: &Request<'_>, what: &str) -> Reply {
    if request.is_upgrade {
        return Reply::upgrade();
    }
    if request.http.method() != http::Method::GET || request.http.uri().path() != "/" {
        return Reply::status(http::StatusCode::NOT_FOUND);
    }
    let scheme = if request.tls.version.is_none() { "ws" } else { "wss" };
    let host =
        request.http.headers().get(http::header::HOST).and_then(|host| host.to_str().ok()).unwrap_or("HOST:PORT");
    let text = format!("A WebSocket server that {what}.\nTry: taut connect {scheme}://{host}/\n");
    let mut response = http::Response::new(text.into_bytes());
    let plain = http::HeaderValue::from_static("text/plain; charset=utf-8");
    response.headers_mut().insert(http::header::CONTENT_TYPE, plain);
    Reply::Respond(response)
}
