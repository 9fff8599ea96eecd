//! Targets that are given to a loop that runs, and taken from it.

use crate::common::server::{client_config, config, driver_under_test};
use crate::common::{App, Event, Events, Over, both, serve};
use std::time::Duration;
use tautline::{
    Cause, Client, CloseCode, Conn, ConnectError, DialId, Handler, Message, Opening, Reconnect, ServerHandle,
    ShardHandleError, Target,
};
use tautline_testkit::ClosedPort;

/// A client without targets, which stays.
fn staying(over: Over, app: App) -> (ServerHandle, Events) {
    let events = app.events.clone();
    let client = if over.is_secure() {
        Client::new(client_config()).stay().driver(driver_under_test()).start(move |_| app)
    } else {
        Client::plain().stay().driver(driver_under_test()).start(move |_| app)
    };
    (client.unwrap(), events)
}

/// Waits that no test outlives.
fn long() -> Reconnect {
    Reconnect::new(Duration::from_secs(600), Duration::from_secs(600))
}

#[test]
fn targets_come_and_go_while_the_loop_runs() {
    both(|over| {
        let server = serve(over, config(), App::default());
        let (client, events) = staying(over, App::default());
        let shard = &client.shards()[0];
        let first = shard.connect(server.target().with_reconnect(long())).unwrap();
        let second = shard.connect(server.target()).unwrap();
        assert_ne!(first, second);
        let (one, other) = (events.open(0).0, events.open(1).0);
        shard.disconnect(first, CloseCode::NORMAL, "enough").unwrap();
        assert_eq!(events.dial_end(first), 0, "it was open and does not reconnect");
        let closed = [one, other].into_iter().find(|conn| events.closes(*conn) == 1).unwrap();
        assert!(matches!(events.close(closed).cause, Cause::Local));
        assert_eq!(shard.disconnect(first, CloseCode::NORMAL, ""), Err(ShardHandleError::Ended));
        assert!(shard.is_running(), "the loop stays");
        // A lost connection without `reconnect` ends its dial too.
        server.handle.drain(CloseCode::GOING_AWAY, "", Duration::from_secs(9));
        assert_eq!(events.dial_end(second), 0);
        let third = shard.connect(Target::new("wss://localhost:1/").unwrap()).unwrap();
        assert!(third > second, "numbers are not used again");
        client.drain(CloseCode::NORMAL, "", Duration::from_secs(9));
        client.clone().join().unwrap();
        let late = client.shards()[0].connect(Target::new("wss://localhost/").unwrap());
        assert_eq!(late, Err(ShardHandleError::Stopped));
        assert_eq!(client.shards()[0].disconnect(second, CloseCode::NORMAL, ""), Err(ShardHandleError::Stopped));
        server.handle.join().unwrap();
    });
}

#[test]
fn a_target_that_is_given_up_is_reported_once() {
    let closed = ClosedPort::new().unwrap();
    let uri = format!("ws://{}/", closed.address());
    let target = Target::new(&uri).unwrap();
    let (client, events) = staying(Over::Plain, App::default());
    let shard = &client.shards()[0];
    let once = shard.connect(target.clone()).unwrap();
    assert_eq!(events.dial_end(once), 1);
    let quick = Reconnect::new(Duration::from_millis(1), Duration::from_millis(2)).with_attempts(3);
    let thrice = shard.connect(target.clone().with_reconnect(quick)).unwrap();
    assert_eq!(events.dial_end(thrice), 4);
    // A dial that waits for its next attempt ends at once.
    let waiting = shard.connect(target.with_reconnect(long())).unwrap();
    let failed = |event: &Event| matches!(event, Event::Failed(dial, ..) if *dial == waiting).then_some(());
    events.nth("the first attempt", 0, failed);
    shard.disconnect(waiting, CloseCode::NORMAL, "").unwrap();
    assert_eq!(events.dial_end(waiting), 2, "its end is a failure without a further attempt");
    // The loop has no TLS engine.
    let wrong = shard.connect(Target::new("wss://localhost/").unwrap().with_reconnect(long())).unwrap();
    let error = events.nth("the wrong scheme", 0, |event| match event {
        Event::Failed(dial, error, None) if *dial == wrong => Some(error.clone()),
        _ => None,
    });
    assert!(error.contains("wss://"), "{error}");
    assert_eq!(events.dial_end(wrong), 1, "no further attempt can help");
    let drained = shard.connect(Target::new(&uri).unwrap().with_reconnect(long())).unwrap();
    let failed = |event: &Event| matches!(event, Event::Failed(dial, ..) if *dial == drained).then_some(());
    events.nth("the first attempt", 0, failed);
    let ends = events.all().iter().filter(|event| matches!(event, Event::DialEnd(_))).count();
    assert_eq!(ends, 4);
    client.drain(CloseCode::NORMAL, "", Duration::ZERO);
    client.join().unwrap();
    assert_eq!(events.dial_end(drained), 2, "a drain gives it up");
}

/// A handler that can be made once.
struct Once {
    opened: std::sync::mpsc::Sender<DialId>,
}

impl Handler for Once {
    type State = ();
    fn on_open(&mut self, conn: &mut Conn<'_, ()>, _opening: &Opening<'_>) {
        self.opened.send(conn.dial().unwrap()).unwrap();
        conn.close(CloseCode::NORMAL, "");
    }
    fn on_message(&mut self, _conn: &mut Conn<'_, ()>, _message: Message<'_>) {}
    fn on_connect_failed(&mut self, _dial: DialId, error: &ConnectError, _retry: Option<Duration>) {
        panic!("{error:#}");
    }
}

#[test]
fn the_handler_may_be_moved_into_the_loop() {
    let server = serve(Over::Fused, config(), App::default());
    let (opened, opens) = std::sync::mpsc::channel();
    let handler = Once { opened };
    let client = Client::new(client_config()).target(server.target()).start(move |_| handler).unwrap();
    client.join().unwrap();
    assert_eq!(opens.iter().map(DialId::index).collect::<Vec<_>>(), [0]);
    server.stop();
}
