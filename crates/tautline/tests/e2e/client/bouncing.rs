//! Clients that bounce a connection, and change the target before the next one.

use crate::common::server::{client_config, config};
use crate::common::{App, Event, Over, serve};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use tautline::{
    Cause, Client, CloseCode, Closed, Config, Conn, Deadline, DialId, Handler, Message, Opening, Outgoing, Reconnect,
    Reply, Target,
};

/// A feed that is bounced three times, each time with a fresh token.
#[derive(Default)]
struct Feed {
    tokens: u32,
    causes: Vec<Cause>,
    /// When connections ended, and when further attempts began.
    lost: Vec<Instant>,
    redials: Vec<Instant>,
    /// Whether silence bounces the feed, and not the application.
    waits: bool,
}

impl Handler for Feed {
    type State = ();

    fn on_open(&mut self, conn: &mut Conn<'_, ()>, _opening: &Opening<'_>) {
        match (self.tokens, self.waits) {
            (3, _) => conn.close(CloseCode::NORMAL, ""),
            (_, false) => conn.reconnect(),
            (_, true) => {}
        }
    }

    fn on_message(&mut self, _conn: &mut Conn<'_, ()>, _message: Message<'_>) {}

    fn on_close(&mut self, _conn: &mut Conn<'_, ()>, closed: &Closed) {
        self.causes.push(closed.cause.clone());
        self.lost.push(Instant::now());
    }

    fn on_redial(&mut self, dial: DialId, target: &mut Target) {
        assert_eq!(dial.index(), 0);
        self.tokens += 1;
        self.redials.push(Instant::now());
        target.headers.insert("x-token", self.tokens.into());
    }
}

/// Runs a feed that waits for `first` before it connects again, and returns it with the tokens that the server saw.
fn run(feed: Feed, config: Config, first: Duration) -> (Feed, Vec<String>) {
    let seen = Arc::new(Mutex::new(Vec::new()));
    let sees = seen.clone();
    let app = App::default().on_request(move |request| {
        let token = request.http.headers().get("x-token").map_or("none", |token| token.to_str().unwrap());
        sees.lock().unwrap().push(token.to_owned());
        Reply::upgrade()
    });
    let server = serve(Over::Fused, self::config(), app);
    let mut target = server.target();
    target.reconnect = Some(Reconnect::new(first, 4 * first));
    let feed = Client::new(client_config()).config(config).target(target).run(feed).unwrap();
    server.stop();
    let seen = seen.lock().unwrap().clone();
    (feed, seen)
}

#[test]
fn a_bounced_feed_connects_again_with_a_fresh_token() {
    let begin = Instant::now();
    let (feed, seen) = run(Feed::default(), config(), Duration::from_millis(10));
    assert_eq!(seen, ["none", "1", "2", "3"]);
    assert_eq!(feed.causes.len(), 4);
    // A bounce does not wait for the peer until the close deadline.
    assert!(begin.elapsed() < Duration::from_secs(9), "{:?}", begin.elapsed());
}

#[test]
fn a_silent_feed_is_bounced() {
    let mut config = config();
    config.deadlines.silence = Some(Duration::from_millis(100));
    let (feed, seen) = run(Feed { waits: true, ..Feed::default() }, config, Duration::from_millis(200));
    assert_eq!(seen, ["none", "1", "2", "3"]);
    assert!(matches!(feed.causes[0], Cause::Timeout(Deadline::Silence)), "{:?}", feed.causes);
    // Each bounce waits longer than the one before: at least half of 200, 400 and 800 ms, after 100 ms of silence. The loop
    // counts from the beginning of the turn in which the feed was lost, and a busy machine can interrupt that turn.
    let waits: Vec<_> = feed.lost.iter().zip(&feed.redials).map(|(lost, redial)| *redial - *lost).collect();
    for (wait, least) in waits.iter().zip([50, 100, 200]) {
        assert!(*wait >= Duration::from_millis(least), "{waits:?}");
    }
    assert_eq!(waits.len(), 3);
}

#[test]
fn a_target_has_a_silence_of_its_own() {
    let server = serve(Over::Fused, config(), App::default());
    // That of all is far longer than the test.
    let mut config = config();
    config.deadlines.silence = Some(Duration::from_secs(3_600));
    let quick = server.target().with_silence(Duration::from_millis(100));
    let (app, slow) = (App::default(), server.target());
    let events = app.events.clone();
    let client = Client::new(client_config()).config(config).target(quick).target(slow).start(move |_| app).unwrap();
    let (closed, how) = events.nth("an end", 0, |event| match event {
        Event::Close(conn, how) => Some((*conn, how.clone())),
        _ => None,
    });
    assert!(matches!(how.cause, Cause::Timeout(Deadline::Silence)), "{how:?}");
    let opened = [events.open(0).0, events.open(1).0];
    assert!(opened.contains(&closed));
    let other = opened.into_iter().find(|conn| *conn != closed).unwrap();
    assert_eq!((events.closes(closed), events.closes(other)), (1, 0));
    client.drain(CloseCode::NORMAL, "", Duration::from_secs(9));
    client.join().unwrap();
    server.stop();
}

#[test]
fn a_handle_of_a_client_bounces_it_too() {
    let server = serve(Over::Fused, config(), App::default());
    let mut target = server.target();
    target.reconnect = Some(Reconnect::new(Duration::from_millis(10), Duration::from_millis(40)));
    let app = App::default().on_open(|events, conn| {
        let handle = conn.handle();
        if events.all().len() < 5 {
            std::thread::spawn(move || handle.reconnect().unwrap());
        } else {
            conn.send(Outgoing::text("enough"));
            conn.close(CloseCode::NORMAL, "");
        }
    });
    let (client, events) = super::start(target, app);
    client.clone().join().unwrap();
    client.join().unwrap();
    assert_eq!(events.closes(events.open(2).0), 1);
    server.stop();
}
