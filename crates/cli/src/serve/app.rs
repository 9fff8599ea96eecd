use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use tautline::{Conn, Handler, Message, Opening, Outgoing, Remote, RemoteError, Reply, Request};
use tautline_lab::market::Market;

/// The topic of the applications that have but one.
const TOPIC: &str = "all";

/// Answers each message with itself.
pub(super) struct Echo;

impl Handler for Echo {
    type State = ();

    fn on_request(&mut self, request: &Request<'_>) -> Reply {
        answer(request, "echoes every message")
    }

    fn on_message(&mut self, conn: &mut Conn<'_, ()>, message: Message<'_>) {
        conn.send(Outgoing::from(&message));
    }
}

/// Sends each message to everyone, its sender included.
pub(super) struct Broadcast;

impl Handler for Broadcast {
    type State = ();

    fn on_request(&mut self, request: &Request<'_>) -> Reply {
        answer(request, "sends every message to everyone")
    }

    fn on_open(&mut self, conn: &mut Conn<'_, ()>, _opening: &Opening<'_>) {
        conn.subscribe(TOPIC);
    }

    fn on_message(&mut self, conn: &mut Conn<'_, ()>, message: Message<'_>) {
        conn.publish(TOPIC, Outgoing::from(&message));
    }
}

/// Sends everyone what [`publish`] or [`publish_market`] makes, and ignores what comes in.
pub(super) struct Feed;

impl Handler for Feed {
    type State = ();

    fn on_request(&mut self, request: &Request<'_>) -> Reply {
        answer(request, "sends everyone the same messages")
    }

    fn on_open(&mut self, conn: &mut Conn<'_, ()>, _opening: &Opening<'_>) {
        conn.subscribe(TOPIC);
    }

    fn on_message(&mut self, _conn: &mut Conn<'_, ()>, _message: Message<'_>) {}
}

/// Publishes `{"sequence":N,"time_ns":T}` `rate` times a second, padded to `size` bytes, until the loops have stopped.
pub(super) fn publish(remotes: &[Remote], rate: u32, size: usize) {
    let interval = Duration::from_secs(1) / rate;
    let mut due = Instant::now();
    for sequence in 0_u64.. {
        std::thread::sleep(due.saturating_duration_since(Instant::now()));
        due += interval;
        let time = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_nanos());
        let mut text = format!("{{\"sequence\":{sequence},\"time_ns\":{time}");
        text.extend(std::iter::repeat_n(' ', size.saturating_sub(text.len() + 1)));
        text.push('}');
        let results = remotes.iter().map(|remote| remote.publish(TOPIC, Outgoing::text(&text).with_key(0)));
        if results.filter(|result| *result == Err(RemoteError::Stopped)).count() == remotes.len() {
            return;
        }
    }
}

/// How often is looked whether somebody listens.
const LOOK: Duration = Duration::from_millis(20);

/// Publishes market data from its beginning to whoever came, until all have gone, and again, until the loops have stopped.
pub(super) fn publish_market(remotes: &[Remote]) {
    let open = || {
        let counters: Vec<_> = remotes.iter().filter_map(|remote| remote.counters().ok()).collect();
        (!counters.is_empty()).then(|| counters.iter().map(|counters| counters.open).sum::<u64>())
    };
    while let Some(listeners) = open() {
        if listeners == 0 {
            std::thread::sleep(LOOK);
            continue;
        }
        let mut due = Instant::now();
        let mut looked = due;
        for event in Market::new() {
            due += event.after;
            std::thread::sleep(due.saturating_duration_since(Instant::now()));
            for remote in remotes {
                // A loop that does not keep up, or has stopped, misses it.
                let _ = remote.publish(TOPIC, Outgoing::text(&event.text));
            }
            if due - looked > LOOK {
                looked = due;
                if open().is_none_or(|listeners| listeners == 0) {
                    break;
                }
            }
        }
    }
}

/// Any of the applications, where their time is taken: that the others need not be compiled twice.
pub(super) enum Watched {
    Echo(Echo),
    Broadcast(Broadcast),
    Feed(Feed),
}

impl Handler for Watched {
    type State = ();

    fn on_request(&mut self, request: &Request<'_>) -> Reply {
        match self {
            Self::Echo(app) => app.on_request(request),
            Self::Broadcast(app) => app.on_request(request),
            Self::Feed(app) => app.on_request(request),
        }
    }

    fn on_open(&mut self, conn: &mut Conn<'_, ()>, opening: &Opening<'_>) {
        match self {
            Self::Echo(app) => app.on_open(conn, opening),
            Self::Broadcast(app) => app.on_open(conn, opening),
            Self::Feed(app) => app.on_open(conn, opening),
        }
    }

    fn on_message(&mut self, conn: &mut Conn<'_, ()>, message: Message<'_>) {
        match self {
            Self::Echo(app) => app.on_message(conn, message),
            Self::Broadcast(app) => app.on_message(conn, message),
            Self::Feed(app) => app.on_message(conn, message),
        }
    }
}

/// Upgrades what asks for it; a browser that opens the address sees what this is.
fn answer(request: &Request<'_>, what: &str) -> Reply {
    if request.is_upgrade {
        return Reply::upgrade();
    }
    if request.http.method() != http::Method::GET || request.http.uri().path() != "/" {
        return Reply::status(http::StatusCode::NOT_FOUND);
    }
    let scheme = if request.tls.version.is_empty() { "ws" } else { "wss" };
    let host =
        request.http.headers().get(http::header::HOST).and_then(|host| host.to_str().ok()).unwrap_or("HOST:PORT");
    let text = format!("A WebSocket server that {what}.\nTry: taut connect {scheme}://{host}/\n");
    let mut response = http::Response::new(text.into_bytes());
    let plain = http::HeaderValue::from_static("text/plain; charset=utf-8");
    response.headers_mut().insert(http::header::CONTENT_TYPE, plain);
    Reply::Respond(response)
}
