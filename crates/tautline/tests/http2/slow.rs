//! Clients that say nothing, read late, or share what they take among streams.

use crate::client::{Client, Plain};
use crate::{HUGE, serve};
use std::time::{Duration, Instant};
use tautline::{Config, Roots, ServerHandle, http2};

/// SETTINGS of a server, and the update of the connection's window behind them.
const WINDOW_UPDATE: &[u8] = &[0, 0, 4, 8, 0, 0, 0, 0, 0];

/// Waits until a count has a value.
fn wait_for(handle: &ServerHandle, what: &str, count: impl Fn(&tautline::Counters) -> bool) {
    let begun = Instant::now();
    while !count(&handle.shards()[0].counters()) {
        assert!(begun.elapsed() < Duration::from_secs(20), "{what}: {:?}", handle.shards()[0].counters());
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Bytes that wait for their client are an event of the connection, which has no streams.
#[test]
fn a_client_of_http1_that_reads_late_gets_the_whole_answer() {
    let (handle, authority) = serve(Config::default());
    let mut plain = Plain::silent(&handle.addresses()[0], &authority, b"http/1.1");
    plain.send(b"GET /huge HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
    std::thread::sleep(Duration::from_millis(200));
    let huge = usize::try_from(HUGE).unwrap();
    let got = plain.read_until(|got| got.len() > huge);
    assert!(got.starts_with(b"HTTP/1.1 200 OK\r\n"));
    drop(plain);
    wait_for(&handle, "the connection has ended", |counters| counters.connections == 0);
}

/// A client with HTTP/2 that says nothing gets SETTINGS all the same, and waits as one between two requests.
#[test]
fn connections_without_streams_give_way_to_others() {
    let mut config = Config::default();
    config.limits.max_http = 2;
    let (handle, authority) = serve(config);
    let address = &handle.addresses()[0];
    let silent: Vec<_> = (0..2).map(|_| Plain::silent(address, &authority, b"h2")).collect();
    let mut last = silent.into_iter().map(|mut plain| {
        plain.read_until(|got| got.windows(WINDOW_UPDATE.len()).any(|window| window == WINDOW_UPDATE));
        plain
    });
    let (first, _second) = (last.next().unwrap(), last.next().unwrap());
    // A stream keeps its connection.
    let mut client = Client::new(address, &authority);
    wait_for(&handle, "the oldest gives way", |counters| counters.http_evicted == 1);
    drop(first);
    let socket = client.websocket("/chat");
    assert_eq!(client.opened(socket), 200);
    let _third = Plain::silent(address, &authority, b"h2");
    let _fourth = Plain::silent(address, &authority, b"h2");
    wait_for(&handle, "another gives way", |counters| counters.http_evicted == 2);
    client.text(socket, "still");
    assert_eq!(client.message(socket), b"still");
    client.close(socket);
    assert_eq!(client.close_code(socket), Some(1000));
    // Without its stream it is the latest of those that wait.
    let _fifth = Plain::silent(address, &authority, b"h2");
    wait_for(&handle, "a third one gives way", |counters| counters.http_evicted == 4);
}

/// The window of the connection goes round, instead of going to the first stream each time.
#[test]
fn streams_share_a_small_window_of_their_connection() {
    let (handle, authority) = serve(Config::default());
    let mut limits = http2::Limits::default();
    limits.connection_window = 65_535;
    let roots = Roots::Pem(authority.certificate().into());
    let mut client = Client::within(&handle.addresses()[0], roots, limits);
    let streams: Vec<u32> = (0..4).map(|_| client.get("/huge")).collect();
    let bodies = client.bodies(&streams, 2 << 20);
    assert!(bodies.iter().all(|body| *body > 256 << 10), "{bodies:?}");
}

/// A head of which frames are missing is memory of the server.
#[test]
fn heads_that_are_not_whole_count_as_memory() {
    let (handle, authority) = serve(Config::default());
    let mut plain = Plain::silent(&handle.addresses()[0], &authority, b"h2");
    let mut bytes = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0".to_vec();
    // HEADERS of 16,384 bytes without END_HEADERS, and half of a CONTINUATION of as many.
    bytes.extend(
        [&[0, 0x40, 0, 1, 0, 0, 0, 0, 1][..], &[0; 16_384], &[0, 0x40, 0, 9, 0, 0, 0, 0, 1], &[0; 8_192]].concat(),
    );
    plain.send(&bytes);
    wait_for(&handle, "its memory", |counters| (24_000..64_000).contains(&counters.memory_partial));
    drop(plain);
    wait_for(&handle, "no memory", |counters| counters.memory_partial == 0);
}

/// Downloads that rest hold memory up to the budget. The heaviest give way, and others are served.
#[test]
fn downloads_that_rest_leave_others_their_memory() {
    const BUDGET: u64 = 16 << 20;
    let mut config = Config::default();
    config.limits.memory = usize::try_from(BUDGET).unwrap();
    let (handle, authority) = serve(config);
    let address = handle.addresses()[0].clone();
    let (mut plain, mut honest) = (Plain::new(&address, &authority), Client::new(&address, &authority));
    let socket = honest.websocket("/chat");
    assert_eq!(honest.opened(socket), 200);
    let mut resting = Vec::new();
    let mut most = 0;
    for _ in 0..12 {
        // Memory may be short: then the connection is refused, as each of its streams is.
        let roots = Roots::Pem(authority.certificate().into());
        let (address, limits) = (address.clone(), http2::Limits::default());
        let opened = std::thread::spawn(move || {
            let mut client = Client::within(&address, roots, limits);
            // It reads nothing of them.
            (0..50).for_each(|_| _ = client.get("/huge"));
            client
        });
        resting.extend(opened.join());
        honest.text(socket, "still");
        assert_eq!(honest.message(socket), b"still");
        plain.echo();
        most = most.max(handle.shards()[0].counters().memory());
    }
    let counters = handle.shards()[0].counters();
    assert!(counters.connections_refused > 0 && most > BUDGET / 2, "{most}: {counters:?}");
    // Streams that begin in one turn may pass it for a moment.
    assert!(most <= BUDGET + BUDGET / 8, "{most}: {counters:?}");
    // Later clients get in, too.
    let end = Instant::now() + Duration::from_secs(20);
    loop {
        let (address, authority) = (address.clone(), authority.certificate().to_owned());
        let later = std::thread::spawn(move || {
            let mut client = Client::with_roots(&address, Roots::Pem(authority.into()));
            let stream = client.get("/none");
            assert_eq!(client.opened(stream), 204);
        });
        if later.join().is_ok() {
            break;
        }
        assert!(Instant::now() < end, "{:?}", handle.shards()[0].counters());
        std::thread::sleep(Duration::from_millis(20));
    }
    drop(resting);
}
