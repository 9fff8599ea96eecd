//! Handshakes on threads beside the loops. Every signature counts as expensive here.

use crate::common::server::{client_config, config};
use crate::common::{App, Over, Peer, Started, eventually, logs, serve};
use std::io::{Read, Write};
use std::time::{Duration, Instant};
use tautline::layers::tls::Answer;
use tautline::layers::tls_rustls::Engine;
use tautline::{ClientConfig, Config, Versions};
use tautline_testkit::hello::without_key_shares;

fn offloading() -> Config {
    let mut config = config();
    config.offload.min_signature = Duration::ZERO;
    config.offload.threads = Some(1);
    // However little of this machine they get.
    config.offload.max_wait = Duration::from_secs(1_000);
    config
}

/// How long tickets are not believed after one that was no good; what takes this long was stopped in the middle.
const DISTRUST: Duration = Duration::from_millis(900);

/// So many full handshakes left the loop, but for those that met a thread which held the queue and was not let run: a loop
/// does not wait for that.
fn all_but_a_few(server: &Started, handshakes: usize) {
    let left = usize::try_from(server.counters().handshakes_offloaded).unwrap();
    assert!((handshakes - handshakes / 10..=handshakes).contains(&left), "{left} of {handshakes}");
}

fn start(config: Config) -> Started {
    serve(Over::Fused, config, App::default())
}

#[test]
fn full_handshakes_leave_the_loop_and_resumed_ones_do_not() {
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
fn tickets_that_are_no_good_keep_no_handshake_in_the_loop() {
    // Made by another server, so this one cannot read them.
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
    // The first was believed, and the next is again, where it came a second later.
    assert!(server.counters().handshakes_offloaded == 1 || begun.elapsed() > DISTRUST);
    server.survives();
    other.survives();
}

/// A client that remembers a session of another server, as good as a ticket that is made up.
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
fn who_makes_tickets_up_and_waits_keeps_no_handshake_in_the_loop() {
    let (server, other) = (start(offloading()), start(offloading()));
    let forgers: Vec<_> = (0..20).map(|_| forger(&other)).collect();
    let begin = |forger| {
        let mut peer = server.attack();
        peer.begin(forger);
        peer
    };
    let waiting: Vec<_> = forgers.iter().map(begin).collect();
    // Nobody goes on, and nobody leaves. One was believed, or several where the test took seconds.
    eventually("all are judged", || server.counters().handshakes_offloaded >= 15);
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
fn who_makes_tickets_up_and_leaves_keeps_no_handshake_in_the_loop() {
    let (server, other) = (start(offloading()), start(offloading()));
    let engine = forger(&other);
    let begun = Instant::now();
    // The first is believed, and leaves with the server's flight unanswered.
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
fn without_threads_or_below_the_threshold_nothing_leaves() {
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
fn a_hello_may_come_in_pieces() {
    let server = start(offloading());
    // Cut anywhere, and record by record: the second form is not told apart from an expensive one.
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
fn a_handshake_of_tls_1_2_leaves_the_loop_once() {
    let server = start(offloading());
    let config = ClientConfig { versions: Versions::Tls12, no_resumption: true, ..client_config() };
    let shake = |cut| {
        let before = server.counters().handshakes_offloaded;
        let mut peer = server.attack();
        let hello = peer.hello(&config);
        peer.send_wire(&hello);
        // ClientKeyExchange, change_cipher_spec, and Finished, which is encrypted, and a handshake record all the same.
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
    let len = shake(usize::MAX);
    for cut in 1..len {
        shake(cut);
    }
    all_but_a_few(&server, len);
    server.survives();
}

#[test]
fn what_comes_before_a_hello_does_not_keep_it_in_the_loop() {
    let server = start(offloading());
    // A warning (user_canceled), which is taken no notice of.
    let mut peer = server.attack();
    let hello = peer.hello(&client_config());
    peer.send_wire(&[&[21, 3, 1, 0, 2, 1, 90][..], &hello].concat());
    peer.answer();
    drop(peer);
    assert_eq!(server.counters().handshakes_offloaded, 1);
    // The change_cipher_spec that follows a HelloRetryRequest.
    let mut peer = server.attack();
    let hello = peer.hello(&client_config());
    peer.send_wire(&without_key_shares(&hello));
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
fn bytes_behind_the_hello_wait_for_the_session() {
    let server = start(offloading());
    // Nothing may come before the server's flight, so that is an alert, from the session that came back.
    let mut peer = server.attack();
    let mut wire = peer.hello(&client_config());
    wire.extend([23, 3, 3, 0, 20].into_iter().chain([0; 20]));
    peer.send_wire(&wire);
    peer.flight().unwrap();
    assert_eq!(peer.fill(), Err("TLS peer sent the alert bad_record_mac".to_owned()));
    assert_eq!(server.counters().handshakes_offloaded, 1);
    drop(peer);
    eventually("it is gone", || server.counters().connections == 0);
    // Whoever leaves meanwhile leaves nothing behind.
    for _ in 0..20 {
        let mut peer = server.attack();
        let hello = peer.hello(&client_config());
        peer.send_wire(&hello);
        peer.reset();
    }
    server.survives();
}

#[test]
fn who_would_wait_too_long_is_reset() {
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
fn a_storm_is_served_while_others_talk() {
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
