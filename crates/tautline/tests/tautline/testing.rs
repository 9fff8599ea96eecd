//! Handlers under test without sockets: the example `chat`, and what `tautline::testing` promises.

use crate::example as chat;
use std::time::Duration;
use tautline::http;
use tautline::testing::{App, Client, Event};
use tautline::{CloseCode, Closed, Config, Conn, Handler, Message, OnPanic, Opening, Outgoing};
use tautline::{Reply, Request, ShardContext, SlowConsumer, Target};

fn enter<H: Handler>(app: &App<H>, room: &str, user: &str) -> (Client, Event) {
    let mut target = Target::new(&format!("ws://localhost/{room}")).unwrap();
    target.headers.insert("cookie", format!("user={user}").parse().unwrap());
    let client = app.connect_to(target);
    // The database answers from another thread.
    let first = client.wait();
    (client, first)
}

fn get(path: &str) -> http::Request<Vec<u8>> {
    http::Request::get(path).body(Vec::new()).unwrap()
}

#[test]
fn the_chat_runs_without_sockets() {
    let database = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_time().build().unwrap();
    let app = App::new(chat::chat(database.handle())).unwrap();
    let (ada, first) = enter(&app, "lobby", "ada");
    assert_eq!(first, Event::Open(None));
    assert_eq!(ada.texts(), ["ada joins"]);
    assert_eq!(enter(&app, "lobby", "mallory").1, Event::Refused(http::StatusCode::FORBIDDEN));
    let (bob, _) = enter(&app, "lobby", "bob");
    let (eve, _) = enter(&app, "elsewhere", "eve");
    ada.text("/typing");
    ada.text("hello");
    assert_eq!(ada.texts(), ["bob joins", "ada says: hello"]);
    assert_eq!(bob.texts(), ["bob joins", "ada is typing", "ada says: hello"]);
    assert_eq!(eve.texts(), ["eve joins"]);
    bob.disconnect();
    assert_eq!(ada.texts(), ["bob leaves"]);
    assert_eq!(app.fetch(&get("/health")).body(), b"fine\n");
    app.drain(CloseCode::GOING_AWAY, "the chat closes", Duration::from_secs(5));
    assert_eq!(ada.next(), Some(Event::Closed(CloseCode::GOING_AWAY, "the chat closes".into())));
}

/// Notes what it is told, with the virtual time of timers.
#[derive(Default)]
struct Notes {
    lines: Vec<String>,
}

impl Handler for Notes {
    type State = ();

    fn on_start(&mut self, shard: &mut ShardContext<'_>) {
        shard.set_timer(Duration::from_secs(60), 1);
    }

    fn on_request(&mut self, request: &Request<'_>) -> Reply {
        if request.is_upgrade { Reply::upgrade() } else { Reply::status(http::StatusCode::NOT_FOUND) }
    }

    fn on_open(&mut self, conn: &mut Conn<'_, ()>, _: &Opening<'_>) {
        conn.subscribe("all");
        conn.set_timer(Duration::from_secs(10), 2);
    }

    fn on_message(&mut self, conn: &mut Conn<'_, ()>, message: Message<'_>) {
        assert_ne!(message.text(), Some("panic"), "the test asks for it");
        conn.send(Outgoing::from(&message));
    }

    fn on_timer(&mut self, _: &mut Conn<'_, ()>, id: u64) {
        self.lines.push(format!("timer {id}"));
    }

    fn on_shard_timer(&mut self, _: &mut ShardContext<'_>, id: u64) {
        self.lines.push(format!("shard timer {id}"));
    }

    fn on_close(&mut self, _: &mut Conn<'_, ()>, closed: &Closed) {
        self.lines.push(format!("closed {}", closed.code.get()));
    }
}

#[test]
fn timers_and_deadlines_follow_virtual_time() {
    let app = App::new(Notes::default()).unwrap();
    let client = app.connect("/");
    assert_eq!(client.next(), Some(Event::Open(None)));
    app.advance(Duration::from_secs(9));
    assert!(app.with_handler(|notes| notes.lines.is_empty()));
    app.advance(Duration::from_secs(2));
    assert_eq!(app.with_handler(|notes| notes.lines.clone()), ["timer 2"]);
    // Pings and pongs keep the connection for an hour.
    app.advance(Duration::from_secs(3600));
    assert_eq!(app.with_handler(|notes| notes.lines.clone()), ["timer 2", "shard timer 1"]);
    client.ping(b"are you there");
    assert_eq!(client.next(), Some(Event::Pong(b"are you there".to_vec())));
    client.close(CloseCode::NORMAL, "bye");
    assert_eq!(client.next(), Some(Event::Closed(CloseCode::NORMAL, String::new())));
    assert_eq!(app.with_handler(|notes| notes.lines.pop()).unwrap(), "closed 1000");
    assert_eq!(app.now(), Duration::from_secs(3611));
}

#[test]
fn messages_are_echoed_and_published() {
    let app = App::new(Notes::default()).unwrap();
    let client = app.connect("/");
    assert_eq!(client.next(), Some(Event::Open(None)));
    client.binary(&[7; 100_000]);
    assert_eq!(client.next(), Some(Event::Binary(vec![7; 100_000])));
    app.publish("all", Outgoing::text("news"));
    assert_eq!(client.texts(), ["news"]);
    assert_eq!(app.fetch(&get("/missing")).status(), http::StatusCode::NOT_FOUND);
}

#[test]
fn a_client_that_does_not_read_is_a_slow_consumer() {
    let mut config = Config::default();
    config.slow_consumer = SlowConsumer::DropNewest(1 << 20);
    let app = App::with_config(config, Notes::default()).unwrap();
    let client = app.connect("/");
    assert_eq!(client.next(), Some(Event::Open(None)));
    client.read(false);
    for _ in 0..40 {
        app.publish("all", Outgoing::binary(&[1; 64 << 10]));
    }
    client.read(true);
    let arrived = std::iter::from_fn(|| client.next()).count();
    assert!((10..40).contains(&arrived), "{arrived}");
    assert!(app.handle().counters().messages_dropped > 0);
}

#[test]
#[should_panic(expected = "the test asks for it")]
fn a_panic_of_the_handler_ends_the_test() {
    let app = App::new(Notes::default()).unwrap();
    app.connect("/").text("panic");
}

#[test]
fn a_panic_closes_its_connection_if_the_configuration_says_so() {
    let mut config = Config::default();
    config.on_panic = OnPanic::CloseConnection;
    let app = App::with_config(config, Notes::default()).unwrap();
    let client = app.connect("/");
    assert_eq!(client.next(), Some(Event::Open(None)));
    client.text("panic");
    assert_eq!(client.next(), Some(Event::Closed(CloseCode::INTERNAL_ERROR, String::new())));
}
