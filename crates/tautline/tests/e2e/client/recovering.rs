//! Which failures are followed by a further attempt, when, and at which address.

use super::start;
use crate::common::server::{client_config, config};
use crate::common::{App, Event, Over, PATIENCE, both, serve};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener};
use std::time::{Duration, SystemTime};
use tautline::{Client, Lookup, Reconnect, Resolver, Target};
use tautline_testkit::ClosedPort;

/// Waits that no test outlives.
const LONG: Reconnect = Reconnect::new(Duration::from_secs(600), Duration::from_secs(1200));

#[test]
fn a_permanent_error_ends_the_client_although_no_server_runs() {
    let closed = ClosedPort::new().unwrap();
    let target = || Target::new(&format!("ws://{}/", closed.address())).unwrap().with_reconnect(LONG);
    let mut reserved = target();
    reserved.headers.insert("sec-websocket-key", "mine".parse().unwrap());
    let mut subprotocol = target();
    subprotocol.subprotocols = vec!["a b".into()];
    let mut login = target();
    login.proxy = Some(format!("http://a%3Ab:c@{}", closed.address()).parse().unwrap());
    for (target, word) in [(reserved, "sec-websocket-key"), (subprotocol, "subprotocol"), (login, "user name")] {
        let (client, events) = start(target, App::default());
        client.join().unwrap();
        let (error, retry) = events.failure(0);
        assert!(error.contains(word) && retry.is_none(), "{error} {retry:?}");
        let ends = events.all().iter().filter(|event| matches!(event, Event::DialEnd(_))).count();
        assert_eq!((ends, events.all().len()), (1, 2), "{word}");
    }
}

#[test]
fn a_server_name_that_cannot_be_used_is_permanent() {
    let server = serve(Over::Fused, config(), App::default());
    let closed = ClosedPort::new().unwrap();
    let quick = Reconnect::new(Duration::from_millis(10), Duration::from_secs(10));
    for is_running in [true, false] {
        let mut target = server.target().with_reconnect(quick);
        target.server_name = Some("no name".into());
        if !is_running {
            target.address = Some(closed.address().into());
        }
        let (client, events) = start(target, App::default());
        client.join().unwrap();
        // The first failure is that of the network, if there is one.
        let (error, retry) = events.failure(usize::from(!is_running));
        assert!(error.contains("neither a DNS name") && retry.is_none(), "{error} {retry:?}");
    }
    server.survives();
}

#[test]
fn refusals_and_certificates_that_are_not_trusted_are_retried() {
    for status in [401, 403, 404] {
        let refuse =
            move |_: &tautline::Request<'_>| tautline::Reply::status(http::StatusCode::from_u16(status).unwrap());
        let server = serve(Over::Plain, config(), App::default().on_request(refuse));
        let (client, events) = start(server.target().with_reconnect(LONG), App::default());
        let (error, retry) = events.failure(0);
        assert!(error.contains(&status.to_string()) && retry.is_some(), "{error}");
        client.drain(tautline::CloseCode::NORMAL, "", Duration::ZERO);
        client.join().unwrap();
        server.stop();
    }
    let server = serve(Over::Fused, config(), App::default());
    let (app, target) = (App::default(), server.target().with_reconnect(LONG));
    let events = app.events.clone();
    let unknown = client_config()
        .with_roots(tautline::Roots::Pem(tautline_dev_cert::Authority::new("another").unwrap().certificate().into()));
    let client = Client::new(unknown).target(target).start(move |_| app).unwrap();
    let (error, retry) = events.failure(0);
    assert!(error.contains("certificate") && retry.is_some(), "{error}");
    client.drain(tautline::CloseCode::NORMAL, "", Duration::ZERO);
    client.join().unwrap();
    server.stop();
}

/// The wait before the second attempt, if the answer to the first has this status and this header.
fn wait_after(status: &str, header: &str, reconnect: Reconnect) -> Duration {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let uri = format!("ws://{}/", listener.local_addr().unwrap());
    let answer = format!("HTTP/1.1 {status}\r\n{header}Content-Length: 0\r\n\r\n");
    let thread = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        let mut request = Vec::new();
        while !request.ends_with(b"\r\n\r\n") {
            let mut byte = [0];
            stream.read_exact(&mut byte).unwrap();
            request.push(byte[0]);
        }
        stream.write_all(answer.as_bytes()).unwrap();
        let _ = stream.read_to_end(&mut Vec::new());
    });
    let (client, events) = start(Target::new(&uri).unwrap().with_reconnect(reconnect), App::default());
    let (error, retry) = events.failure(0);
    assert!(error.contains(&status[..3]), "{error}");
    client.drain(tautline::CloseCode::NORMAL, "", Duration::ZERO);
    client.join().unwrap();
    thread.join().unwrap();
    retry.unwrap()
}

#[test]
fn a_refusal_says_when_to_come_back_within_bounds() {
    let seconds = Duration::from_secs;
    // Up to a quarter is random.
    let told = wait_after("503 Busy", "Retry-After: 7\r\n", LONG);
    assert!(seconds(7) <= told && told <= seconds(7) * 5 / 4, "{told:?}");
    let told = [(), ()].map(|()| wait_after("429 Slow Down", "Retry-After: 700\r\n", LONG));
    assert!(told.iter().all(|told| (seconds(700)..=seconds(875)).contains(told)), "{told:?}");
    assert_ne!(told[0], told[1], "clients do not come back together");
    let date = httpdate::fmt_http_date(SystemTime::now() + seconds(400));
    let told = wait_after("503 Busy", &format!("Retry-After: {date}\r\n"), LONG);
    // As much earlier as the first attempt took, and at most a second for the fraction that a date has not.
    assert!(seconds(400) - PATIENCE <= told && told <= seconds(500), "{told:?}");
    // The caller has the last word.
    let told = wait_after("503 Busy", "Retry-After: 99999999999\r\n", Reconnect::new(seconds(1), seconds(60)));
    assert!(seconds(60) <= told && told <= seconds(75), "{told:?}");
    // Without a last word it may never come back.
    let told =
        wait_after("503 Busy", "Retry-After: 99999999999999999999\r\n", Reconnect::new(seconds(1), Duration::MAX));
    assert!(told >= seconds(1 << 40), "{told:?}");
    for (status, header) in
        [("500 Broken", "Retry-After: 7\r\n"), ("503 Busy", "Retry-After: soon\r\n"), ("503 Busy", "")]
    {
        let own = wait_after(status, header, LONG);
        assert!(seconds(300) <= own && own <= seconds(600), "{status} {header}: {own:?}");
    }
}

/// Knows the addresses of each host.
#[derive(Debug)]
struct Known(Vec<SocketAddr>);

impl Resolver for Known {
    fn resolve(&self, lookup: Lookup) {
        lookup.answer(Ok::<_, &str>(self.0.clone()));
    }
}

#[test]
fn the_next_address_follows_one_that_accepts_and_says_nothing() {
    both(|over| {
        let server = serve(over, config(), App::default());
        // The kernel accepts for it, and nobody answers.
        let dead = TcpListener::bind("127.0.0.1:0").unwrap();
        let app = App::default();
        let (events, mut limits) = (app.events.clone(), config());
        limits.deadlines.handshake = Duration::from_millis(500);
        let target = |quick| {
            let mut target = server.target().with_reconnect(quick);
            target.address = None;
            target.with_resolver(Known(vec![dead.local_addr().unwrap(), server.tcp()]))
        };
        let quick = Reconnect::new(Duration::from_millis(10), Duration::from_millis(20)).with_attempts(1);
        let client = Client::new(client_config()).target(target(quick)).config(limits).start(move |_| app).unwrap();
        let (error, _) = events.failure(0);
        assert!(error.contains("handshake deadline"), "{error}");
        events.open(0);
        // Others of the same loop begin with the address that works.
        client.shards()[0].connect(target(quick)).unwrap();
        events.open(1);
        let failures = events.all().iter().filter(|event| matches!(event, Event::Failed(..))).count();
        assert_eq!(failures, 1);
        client.drain(tautline::CloseCode::NORMAL, "", Duration::from_secs(5));
        client.join().unwrap();
        server.stop();
    });
}

#[test]
fn all_addresses_of_a_target_are_tried_and_all_failures_named() {
    both(|over| {
        let server = serve(over, config(), App::default());
        let closed = [(); 2].map(|()| ClosedPort::new().unwrap());
        let [one, other] = closed.each_ref().map(ClosedPort::address);
        // No literal and no resolver comes before them.
        let mut target = server.target().with_resolver(Known(Vec::new()));
        (target.address, target.addresses) = (None, vec![one, other, server.tcp()]);
        let (client, events) = start(target.clone(), App::default());
        events.open(0);
        client.drain(tautline::CloseCode::NORMAL, "", Duration::from_secs(5));
        client.join().unwrap();
        (target.uri, target.addresses) = ("ws://127.0.0.1:9/".parse().unwrap(), vec![one, other]);
        let app = App::default();
        let events = app.events.clone();
        Client::plain().target(target).start(move |_| app).unwrap().join().unwrap();
        let (error, _) = events.failure(0);
        assert!([one, other].iter().all(|address| error.contains(&address.to_string())), "{error}");
        server.stop();
    });
}
