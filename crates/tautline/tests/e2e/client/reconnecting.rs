//! Reconnecting after a loss.

use super::start;
use crate::common::server::config;
use crate::common::{App, Event, Over, both, eventually, serve, serve_at};
use std::num::NonZeroU32;
use std::time::{Duration, Instant};
use tautline::{Cause, CloseCode, Outgoing, Reconnect, Restart, Target};
use tautline_testkit::ClosedPort;

const fn quick(attempts: Option<u32>) -> Reconnect {
    let mut quick = Reconnect::new(Duration::from_millis(20), Duration::from_millis(80));
    quick.attempts = attempts;
    quick
}

#[test]
fn a_client_reconnects_after_a_restart() {
    both(|over| {
        let server = serve(over, config(), App::default());
        let address = server.address.to_string();
        let mut target = server.target();
        target.reconnect = Some(quick(None));
        let app = App::default().greets("hello").on_message(|events, _, message| events.note(message.text().unwrap()));
        let (client, events) = start(target, app);
        assert_eq!(events.noted(0), "hello");
        server.handle.drain(CloseCode::SERVICE_RESTART, "back soon", Duration::from_secs(5));
        server.handle.join().unwrap();
        let closed = events.close(events.open(0).0);
        assert_eq!((closed.code, &*closed.reason), (CloseCode::SERVICE_RESTART, "back soon"));
        // While no server listens, each attempt is reported with the wait before the next one.
        let (error, retry) = events.failure(0);
        assert!(error.contains("refused"), "{error}");
        assert!(retry.is_some_and(|retry| retry <= Duration::from_millis(80)), "{retry:?}");
        events.failure(2);
        let server = serve_at(&address, over, 1, config(), App::default());
        assert_eq!(events.noted(1), "hello");
        // The same dial, another connection.
        let (first, second) = (events.open(0).0, events.open(1).0);
        assert_ne!(first, second);
        // After our own close the client does not reconnect.
        client.shards()[0].close(second, CloseCode::NORMAL, "enough").unwrap();
        client.join().unwrap();
        assert_eq!(events.closes(second), 1);
        server.forgets();
        server.stop();
    });
}

#[test]
fn a_broken_connection_is_a_loss_too() {
    let server = serve(Over::Fused, config(), App::default());
    let mut target = server.target();
    target.reconnect = Some(quick(None));
    let app = App::default().greets("hello");
    let (client, events) = start(target, app);
    for n in 0..3 {
        let (ours, _) = events.open(n);
        let (theirs, _) = server.events.open(n);
        server.handle.send(theirs, Outgoing::text("soon gone")).unwrap();
        // 4999 is an arbitrary code.
        server.handle.shards()[0].close(theirs, CloseCode::new(4999), "").unwrap();
        assert!(matches!(events.close(ours).cause, Cause::Peer));
    }
    events.open(3);
    client.drain(CloseCode::GOING_AWAY, "", Duration::from_secs(5));
    client.join().unwrap();
    server.forgets();
    assert_eq!(server.counters().opened, 4);
    server.stop();
}

#[test]
fn a_client_comes_back_when_its_server_says() {
    both(|over| {
        let server = serve(over, config(), App::default());
        let mut target = server.target();
        // Without the hint the next attempt would come after half a minute at the earliest.
        target.reconnect = Some(Reconnect::new(Duration::from_secs(60), Duration::from_secs(600)));
        let (client, events) = start(target, App::default());
        let closed = Instant::now();
        let (theirs, _) = server.events.open(0);
        server.handle.shards()[0].close(theirs, CloseCode::SERVICE_RESTART, "retry-after=0.2s soon").unwrap();
        assert_eq!(events.close(events.open(0).0).retry_after(), Some(Duration::from_millis(200)));
        events.open(1);
        assert!(closed.elapsed() >= Duration::from_millis(200), "{:?}", closed.elapsed());
        client.drain(CloseCode::GOING_AWAY, "", Duration::from_secs(5));
        client.join().unwrap();
        server.stop();
    });
}

#[test]
fn a_restart_gives_each_client_a_time_of_its_own() {
    both(|over| {
        const CLIENTS: usize = 4;
        let server = serve(over, config(), App::default());
        let address = server.address.to_string();
        // Without a word of the server the next attempt would come after half a minute at the earliest.
        let target = server.target().with_reconnect(Reconnect::new(Duration::from_secs(60), Duration::from_secs(600)));
        let (client, events) = start(target.clone(), App::default());
        for _ in 1..CLIENTS {
            client.shards()[0].connect(target.clone()).unwrap();
        }
        let opened: Vec<_> = (0..CLIENTS).map(|n| events.open(n).0).collect();
        (0..CLIENTS).for_each(|n| drop(server.events.open(n)));
        let begun = Instant::now();
        let restart = Restart::default()
            .with_pause(Duration::from_millis(300))
            .with_pace(NonZeroU32::new(10).unwrap())
            .with_reason("a new version");
        server.handle.drain_for_restart(&restart, Duration::from_secs(10));
        server.handle.join().unwrap();
        let closed: Vec<_> = opened.iter().map(|conn| events.close(*conn)).collect();
        for closed in &closed {
            assert_eq!(closed.code, CloseCode::SERVICE_RESTART);
            assert!(closed.reason.ends_with("s a new version"), "{}", closed.reason);
        }
        let mut told: Vec<_> = closed.iter().map(|closed| closed.retry_after().unwrap()).collect();
        told.sort();
        // All are closed in one turn, and ten return per second.
        assert_eq!(told, [300, 400, 500, 600].map(Duration::from_millis));
        let server = serve_at(&address, over, 1, config(), App::default());
        (CLIENTS..2 * CLIENTS).for_each(|n| drop(events.open(n)));
        // The timers of the loops have a clock of milliseconds.
        assert!(begun.elapsed() >= Duration::from_millis(598), "{:?}", begun.elapsed());
        client.drain(CloseCode::GOING_AWAY, "", Duration::from_secs(5));
        client.join().unwrap();
        server.stop();
    });
}

#[test]
fn clients_move_one_by_one_to_a_server_that_runs_already() {
    const CLIENTS: usize = 5;
    let server = serve(Over::Fused, config(), App::default());
    let (client, events) = start(server.target(), App::default());
    for _ in 1..CLIENTS {
        client.shards()[0].connect(server.target()).unwrap();
    }
    let opened: Vec<_> = (0..CLIENTS).map(|n| events.open(n).0).collect();
    (0..CLIENTS).for_each(|n| drop(server.events.open(n)));
    let begun = Instant::now();
    let restart = Restart::default().with_pace(NonZeroU32::new(10).unwrap());
    server.handle.drain_for_restart(&restart, Duration::from_secs(20));
    // The last one is closed 400 ms after the first, by a clock of milliseconds, and all may come back at once.
    let closed: Vec<_> = opened.iter().map(|conn| events.close(*conn)).collect();
    assert!(begun.elapsed() >= Duration::from_millis(398), "{:?}", begun.elapsed());
    for closed in &closed {
        assert_eq!(closed.retry_after(), Some(Duration::ZERO), "{}", closed.reason);
    }
    server.handle.join().unwrap();
    client.join().unwrap();
}

#[test]
fn gives_up_after_the_configured_attempts() {
    let closed = ClosedPort::new().unwrap();
    let uri = format!("ws://{}/", closed.address());
    for attempts in [0, 1, 3] {
        let mut target = Target::new(&uri).unwrap();
        target.reconnect = Some(quick(Some(attempts)));
        let (client, events) = start(target, App::default());
        client.join().unwrap();
        let retries: Vec<_> = events
            .all()
            .iter()
            .filter_map(|event| match event {
                Event::Failed(_, error, retry) => {
                    assert!(error.contains("refused"), "{error}");
                    Some(retry.is_some())
                }
                _ => None,
            })
            .collect();
        // The first attempt, and the configured further ones.
        let mut expected = vec![true; attempts as usize];
        expected.push(false);
        assert_eq!(retries, expected);
    }
}

#[test]
fn without_reconnect_the_client_ends_with_its_connection() {
    let server = serve(Over::Plain, config(), App::default());
    let (client, events) = start(server.target(), App::default());
    events.open(0);
    server.handle.drain(CloseCode::GOING_AWAY, "", Duration::from_secs(5));
    server.handle.join().unwrap();
    client.join().unwrap();
    assert!(!events.all().iter().any(|event| matches!(event, Event::Failed(..))));
}

#[test]
fn a_refused_upgrade_is_retried() {
    let app = App::default().on_request(|_| tautline::Reply::status(http::StatusCode::SERVICE_UNAVAILABLE));
    let server = serve(Over::Plain, config(), app);
    let mut target = server.target();
    target.reconnect = Some(quick(Some(2)));
    let (client, events) = start(target, App::default());
    client.join().unwrap();
    let (error, retry) = events.failure(2);
    assert!(error.contains("503"), "{error}");
    assert_eq!(retry, None);
    eventually("all gone", || server.counters().connections == 0);
    assert_eq!(server.counters().accepted, 3);
    server.stop();
}
