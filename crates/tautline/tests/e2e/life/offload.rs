//! Handshakes in the pool. Every signature counts as expensive here.

use crate::common::server::{client_config, config};
use crate::common::{App, Over, Peer, Started, eventually, logs, serve};
use std::io::{Read, Write};
use std::time::{Duration, Instant};
use tautline::layers::tls::Answer;
use tautline::layers::tls_rustls::Engine;
use tautline::{Config, Versions};
use tautline_testkit::hello::without_key_shares;

fn offloading() -> Config {
    let mut config = config();
    config.offload.min_signature = Duration::ZERO;
    config.offload.threads = Some(1);
    // Long enough for threads of idle priority on a busy machine.
    config.offload.max_wait = Duration::from_secs(1_000);
    config
}

/// A little less than the time for which the engine distrusts tickets after an invalid one. A test that takes longer was
/// interrupted by the scheduler.
const DISTRUST: Duration = Duration::from_millis(900);

/// Asserts that nearly all of this number of handshakes were offloaded. A few stay in the loop, if a descheduled thread holds the
/// queue's lock.
fn all_but_a_few(server: &Started, handshakes: usize) {
    let offloaded = usize::try_from(server.counters().handshakes_offloaded).unwrap();
    assert!((handshakes - handshakes / 10..=handshakes).contains(&offloaded), "{offloaded} of {handshakes}");
}

fn start(config: Config) -> Started {
    serve(Over::Fused, config, App::default())
}

#[test]
fn full_handshakes_are_offloaded_and_resumed_ones_are_not() {
    for over in [Over::Fused, Over::Rustls, Over::Uring] {
        let server = serve(over, offloading(), App::default());
        let engine = Engine::client(&client_config()).unwrap();
        for round in 0..3 {
            let mut peer = server.attack();
            peer.begin(&engine);
            let flight = peer.flight().unwrap();
            peer.send_wire(&flight);
            let mut peer = peer.upgrade();
            peer.echoes("well");
            peer.close();
            assert_eq!(server.events.open(round).1.tls.resumed, round > 0, "{over:?}");
            assert_eq!(server.counters().handshakes_offloaded, 1);
        }
        server.forgets();
        server.stop();
    }
}

#[test]
fn invalid_tickets_do_not_keep_handshakes_in_the_loop() {
    // Tickets of another server are invalid for this one.
    let (server, other) = (start(offloading()), start(offloading()));
    let engine = Engine::client(&client_config()).unwrap();
    let begun = Instant::now();
    for (round, server) in [&other, &server, &other, &server].into_iter().enumerate() {
        let mut peer = server.attack();
        peer.begin(&engine);
        let flight = peer.flight().unwrap();
        peer.send_wire(&flight);
        let mut peer = peer.upgrade();
        peer.echoes("well");
        peer.close();
        assert!(!server.events.open(round / 2).1.tls.resumed);
    }
    // The first handshake stays in the loop, and so does the second if it begins a second later.
    assert!(server.counters().handshakes_offloaded == 1 || begun.elapsed() > DISTRUST);
    server.survives();
    other.survives();
}

/// A client with tickets of another server, which are as invalid as forged ones.
fn forger(other: &Started) -> Engine {
    let engine = Engine::client(&client_config()).unwrap();
    let mut peer = other.attack();
    peer.begin(&engine);
    let flight = peer.flight().unwrap();
    peer.send_wire(&flight);
    let mut peer = peer.upgrade();
    peer.echoes("two tickets");
    peer.close();
    engine
}

#[test]
fn forged_tickets_of_waiting_clients_do_not_keep_handshakes_in_the_loop() {
    let (server, other) = (start(offloading()), start(offloading()));
    let forgers: Vec<_> = (0..20).map(|_| forger(&other)).collect();
    let begin = |forger| {
        let mut peer = server.attack();
        peer.begin(forger);
        peer
    };
    let waiting: Vec<_> = forgers.iter().map(begin).collect();
    // No client continues or leaves. One handshake stays in the loop, or several if the test takes seconds.
    eventually("the handshakes are offloaded", || server.counters().handshakes_offloaded >= 15);
    assert_eq!(server.counters().handshakes_failed, 0);
    for mut peer in waiting {
        let flight = peer.flight().unwrap();
        peer.send_wire(&flight);
        let mut peer = peer.upgrade();
        peer.echoes("well");
        peer.close();
    }
    assert!((15..20).contains(&server.counters().handshakes_offloaded));
    server.survives();
    other.survives();
}

#[test]
fn forged_tickets_of_leaving_clients_do_not_keep_handshakes_in_the_loop() {
    let (server, other) = (start(offloading()), start(offloading()));
    let engine = forger(&other);
    let begun = Instant::now();
    // The first handshake stays in the loop. The client leaves without answering the server's flight.
    let mut peer = server.attack();
    peer.begin(&engine);
    peer.flight().unwrap();
    peer.reset();
    assert_eq!(server.counters().handshakes_offloaded, 0);
    let mut peer = server.attack();
    peer.begin(&engine);
    peer.flight().unwrap();
    assert!(server.counters().handshakes_offloaded == 1 || begun.elapsed() > DISTRUST);
    drop(peer);
    server.survives();
    other.survives();
}

#[test]
fn without_threads_or_below_the_threshold_nothing_is_offloaded() {
    let mut inline = offloading();
    inline.offload.threads = Some(0);
    let mut cheap = offloading();
    cheap.offload.min_signature = Duration::from_secs(1);
    for config in [inline, cheap] {
        let server = start(config);
        server.serves();
        assert_eq!(server.counters().handshakes_offloaded, 0);
        server.survives();
    }
    logs::expect(&["INFO ECDSA-256: a signature takes ", "so full handshakes leave the loop"]);
}

#[test]
fn a_client_hello_can_arrive_in_pieces() {
    let server = start(offloading());
    // Cut within a record, and split into several records, which always counts as expensive.
    for records in [false, true] {
        let mut peer = server.attack();
        let hello = peer.hello(&client_config());
        let wire: Vec<u8> = if records {
            let len = |part: &[u8]| u8::try_from(part.len()).unwrap();
            hello[5..].chunks(100).flat_map(|part| [&[22, 3, 1, 0, len(part)][..], part].concat()).collect()
        } else {
            hello
        };
        for piece in wire.chunks(77) {
            peer.send_wire(piece);
            std::thread::sleep(Duration::from_millis(1));
        }
        let finished = peer.flight().unwrap();
        peer.send_wire(&finished);
        let mut peer = peer.upgrade();
        peer.echoes("in one piece");
        peer.close();
    }
    assert!(server.counters().handshakes_offloaded >= 2);
    server.survives();
}

#[test]
fn a_tls_1_2_handshake_is_offloaded_once() {
    let server = start(offloading());
    let config = client_config().with_versions(Versions::Tls12).without_resumption();
    let handshake = |cut| {
        let before = server.counters().handshakes_offloaded;
        let mut peer = server.attack();
        let hello = peer.hello(&config);
        peer.send_wire(&hello);
        // ClientKeyExchange, change_cipher_spec and Finished. The last one is encrypted, but its record has the same type.
        let flight = peer.answer();
        let (front, behind) = flight.split_at(flight.len().min(cut));
        peer.send_wire(front);
        std::thread::sleep(Duration::from_millis(2));
        peer.send_wire(behind);
        assert!(peer.flight().unwrap().is_empty());
        let mut peer = peer.upgrade();
        peer.echoes("well");
        peer.close();
        assert!(server.counters().handshakes_offloaded - before <= 1, "cut at {cut}");
        flight.len()
    };
    let len = handshake(usize::MAX);
    for cut in 1..len {
        handshake(cut);
    }
    all_but_a_few(&server, len);
    server.survives();
}

#[test]
fn records_before_a_client_hello_do_not_keep_it_in_the_loop() {
    let server = start(offloading());
    // A warning (user_canceled), which is ignored.
    let mut peer = server.attack();
    let hello = peer.hello(&client_config());
    peer.send_wire(&[&[21, 3, 1, 0, 2, 1, 90][..], &hello].concat());
    peer.answer();
    drop(peer);
    assert_eq!(server.counters().handshakes_offloaded, 1);
    // The change_cipher_spec that follows a HelloRetryRequest.
    let mut peer = server.attack();
    let mut hello = peer.hello(&client_config());
    peer.send_wire(&without_key_shares(&hello));
    // Only the record of a first ClientHello may have the version 0x0301 (RFC 8446, section 5.1).
    hello[2] = 3;
    let mut socket = &peer.socket;
    let answer = || {
        let mut bytes = [0; 64 << 10];
        let len = (&peer.socket).read(&mut bytes).unwrap();
        Answer::read(&bytes[..len])
    };
    assert_eq!((answer(), server.counters().handshakes_offloaded), (Some(Answer::Retry), 2));
    socket.write_all(&[&[20, 3, 3, 0, 1, 1][..], &hello].concat()).unwrap();
    assert_eq!((answer(), server.counters().handshakes_offloaded), (Some(Answer::Full), 3));
    drop(peer);
    server.survives();
}

#[test]
fn bytes_behind_the_client_hello_wait_for_the_session() {
    let server = start(offloading());
    // A record before the server's flight is an error, so the session sends an alert when it is back.
    let mut peer = server.attack();
    let mut wire = peer.hello(&client_config());
    wire.extend([23, 3, 3, 0, 20].into_iter().chain([0; 20]));
    peer.send_wire(&wire);
    peer.flight().unwrap();
    assert_eq!(peer.fill(), Err("TLS peer sent the alert bad_record_mac".to_owned()));
    assert_eq!(server.counters().handshakes_offloaded, 1);
    drop(peer);
    eventually("no connection left", || server.counters().connections == 0);
    // Clients that leave during the handshake leave nothing behind.
    for _ in 0..20 {
        let mut peer = server.attack();
        let hello = peer.hello(&client_config());
        peer.send_wire(&hello);
        peer.reset();
    }
    server.survives();
}

#[test]
fn clients_that_would_wait_too_long_are_reset() {
    let mut config = offloading();
    config.offload.max_wait = Duration::ZERO;
    let server = start(config);
    let mut peer = server.attack();
    let hello = peer.hello(&client_config());
    peer.send_wire(&hello);
    let error = peer.socket.read(&mut [0; 100]).unwrap_err();
    assert_eq!(error.kind(), std::io::ErrorKind::ConnectionReset);
    let counters = server.counters();
    assert_eq!((counters.handshakes_refused, counters.handshakes_failed), (1, 1));
    server.forgets();
    server.stop();
}

#[test]
fn a_storm_of_handshakes_does_not_stop_messages() {
    let server = start(offloading());
    let mut talks = server.peer();
    let address = server.tcp();
    let storm: Vec<_> = (0..4)
        .map(|_| {
            std::thread::spawn(move || {
                for _ in 0..25 {
                    let mut peer = Peer::connect(address).secure().upgrade();
                    peer.echoes("in the storm");
                    peer.close();
                }
            })
        })
        .collect();
    for _ in 0..200 {
        talks.echoes("undisturbed");
    }
    storm.into_iter().for_each(|thread| thread.join().unwrap());
    all_but_a_few(&server, 101);
    assert_eq!(server.counters().handshakes_refused, 0);
    drop(talks);
    server.survives();
}
