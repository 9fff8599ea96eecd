//! The moment when our own records take over from a library, with rustls as the peer.
#![cfg(any(feature = "openssl", feature = "aws-lc", feature = "boringssl"))]
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use rustls::{CipherSuite, Connection};
use tautline_testkit::pair::{End, Pair, Side, Split};
use tautline_testkit::raw_peer::{RawPeer, kind};
use tautline_testkit::rustls_peer::{Fixture, SUITES, converse, settle};
use tautline_tls::{Engine as _, NamedGroup, ProtocolVersion, Session as _, Versions};
use tautline_tls_libssl::fused::{Engine, Session};
use tautline_tls_libssl::{Engine as Library, Flavour};

fn engine(fixture: &Fixture, flavour: Flavour) -> Engine {
    let (server, client) = (fixture.server(Versions::All), fixture.client(Versions::All));
    Engine::new(flavour, Some(&server), Some(&client)).unwrap()
}

fn flavours() -> impl Iterator<Item = Flavour> {
    Flavour::ALL.iter().copied().filter(|flavour| flavour.fused_name().is_some())
}

/// Sends a message both ways, and checks that it arrives.
fn chat(end: &mut End<Session>, peer: &mut Connection) {
    converse(end, peer, b"question", &[b"ans", b"wer"], usize::MAX);
}

/// Connects an end of ours to rustls.
fn connected(fixture: &Fixture, flavour: Flavour, is_client: bool, suite: CipherSuite) -> (End<Session>, Connection) {
    let engine = engine(fixture, flavour);
    let session = if is_client { engine.connect("localhost") } else { engine.accept() }.unwrap();
    let (mut end, mut peer) =
        (End::new(session), fixture.rustls(if is_client { Side::Server } else { Side::Client }, suite));
    end.deliver(&[]).unwrap();
    settle(&mut end, &mut peer, usize::MAX);
    assert!(!peer.is_handshaking());
    (end, peer)
}

#[test]
fn our_records_take_over_with_every_suite() {
    let fixture = Fixture::default();
    for flavour in flavours() {
        for suite in SUITES {
            for is_client in [false, true] {
                let (mut end, mut peer) = connected(&fixture, flavour, is_client, suite);
                for _ in 0..3 {
                    chat(&mut end, &mut peer);
                    peer.refresh_traffic_keys().unwrap();
                }
                let info = end.session.tls_info();
                let snapshot = end.session.export().unwrap();
                assert_eq!(Some(snapshot.suite.cipher_suite()), info.suite, "{flavour}");
                assert!(snapshot.rx.sequence < 3, "{flavour}: keys changed with each message");
                let suite = u16::from(suite).into();
                assert_eq!((info.suite, info.version), (Some(suite), Some(ProtocolVersion::Tls13)));
                assert!(info.group.and_then(NamedGroup::name).is_some(), "{flavour}: {:?}", info.group);
                assert_eq!(info.server_name.as_deref(), Some("localhost"));
            }
        }
    }
}

#[test]
fn our_records_take_over_at_once_in_a_server_and_after_tickets_in_a_client() {
    let fixture = Fixture::default();
    for flavour in flavours() {
        let engine = engine(&fixture, flavour);
        let mut pair = Pair::new(&engine, &engine, "localhost").unwrap();
        pair.handshake(&mut Split::Whole).unwrap();
        assert!(pair.client.session.export().is_err(), "{flavour}: tickets come before the first data");
        pair.client.send(&[b"GET"]).unwrap();
        pair.server.send(&[b"200"]).unwrap();
        pair.settle(&mut Split::Whole).unwrap();
        assert_eq!((pair.client.received.as_slice(), pair.server.received.as_slice()), (&b"200"[..], &b"GET"[..]));
        let (client, server) = (pair.client.session.export().unwrap(), pair.server.session.export().unwrap());
        assert!(client.rx.secret == server.tx.secret && client.tx.secret == server.rx.secret);
        assert_eq!((client.rx.sequence, client.tx.sequence), (server.tx.sequence, server.rx.sequence), "{flavour}");
        assert_eq!(client.tx.sequence, 1);

        let mut again = Pair::new(&engine, &engine, "localhost").unwrap();
        again.handshake(&mut Split::Whole).unwrap();
        assert!(again.client.session.tls_info().resumed, "{flavour}");
        // A client that resumes nothing does not wait for tickets.
        let config = fixture.client(Versions::All).without_resumption();
        let mut pair = Pair::new(&Engine::new(flavour, None, Some(&config)).unwrap(), &engine, "localhost").unwrap();
        pair.handshake(&mut Split::Whole).unwrap();
        assert!(pair.client.session.export().is_ok(), "{flavour}");
    }
}

#[test]
fn a_saved_session_goes_on_in_another_engine() {
    let fixture = Fixture::default();
    for flavour in flavours() {
        let (mut end, mut peer) = connected(&fixture, flavour, false, SUITES[0]);
        for _ in 0..3 {
            chat(&mut end, &mut peer);
            let mut saved = Vec::new();
            end.session.save(&mut saved).unwrap();
            assert!(engine(&fixture, flavour).restore(&saved[1..]).is_err());
            let mut new = End::new(engine(&fixture, flavour).restore(&saved).unwrap());
            (new.open, new.inbox) = (true, end.inbox);
            end = new;
            peer.refresh_traffic_keys().unwrap();
        }
    }
}

#[test]
fn clients_resume_with_the_ticket_keys_of_another_process() {
    let fixture = Fixture::default();
    for flavour in flavours() {
        let resumes = |client: &Engine, server: &Engine| {
            let mut pair = Pair::new(client, server, "localhost").unwrap();
            pair.handshake(&mut Split::Whole).unwrap();
            pair.client.send(&[b"hello"]).unwrap();
            pair.server.send(&[b"hello"]).unwrap();
            pair.settle(&mut Split::Whole).unwrap();
            pair.client.session.tls_info().resumed
        };
        let (client, before, after) = (engine(&fixture, flavour), engine(&fixture, flavour), engine(&fixture, flavour));
        assert!(!resumes(&client, &before));
        assert!(resumes(&client, &before));
        let mut saved = Vec::new();
        before.save_tickets(&mut saved);
        assert!(after.restore_tickets(&saved[1..]).is_err());
        after.restore_tickets(&saved).unwrap();
        assert!(resumes(&client, &after), "{flavour}");
        // A third server has keys of its own.
        assert!(!resumes(&client, &engine(&fixture, flavour)), "{flavour}");
    }
}

#[test]
fn records_stay_with_the_library_after_an_early_key_update_and_in_tls_1_2() {
    let fixture = Fixture::default();
    for flavour in flavours() {
        let (mut end, mut peer) = connected(&fixture, flavour, true, CipherSuite::TLS13_AES_128_GCM_SHA256);
        peer.refresh_traffic_keys().unwrap();
        for _ in 0..2 {
            chat(&mut end, &mut peer);
        }
        assert!(end.session.export().is_err(), "{flavour}");

        let old = Library::new(flavour, Some(&fixture.server(Versions::Tls12)), None).unwrap();
        let mut pair = Pair::new(&engine(&fixture, flavour), &old, "localhost").unwrap();
        pair.handshake(&mut Split::Whole).unwrap();
        pair.server.send(&[b"old"]).unwrap();
        pair.settle(&mut Split::Whole).unwrap();
        assert_eq!(pair.client.received, b"old");
        assert!(pair.client.session.export().is_err(), "{flavour}");
        assert_eq!(pair.client.session.tls_info().version, Some(ProtocolVersion::Tls12));
    }
}

#[test]
fn a_ticket_and_new_keys_may_come_in_one_record() {
    let fixture = Fixture::default();
    for flavour in flavours() {
        let mut client = End::new(engine(&fixture, flavour).connect("localhost").unwrap());
        let mut raw_peer = RawPeer::server(&mut client, &fixture.certificate, None);
        let ticket = [&[4, 0, 0, 46, 0, 0, 14, 16, 1, 2, 3, 4, 1, 1, 0, 32][..], &[1; 32], &[0, 0]].concat();
        let key_update = [24, 0, 0, 1, 0];
        client.deliver(&raw_peer.seal(kind::HANDSHAKE, &[&ticket[..], &key_update].concat(), 0)).unwrap();
        raw_peer.tx.update();
        for round in 0..3 {
            client.deliver(&raw_peer.seal(kind::DATA, &[round; 9], 0)).unwrap();
            client.send(&[&[round]]).unwrap();
            assert_eq!(raw_peer.open(&client.take_outbox()), [(kind::DATA, vec![round])], "{flavour}");
        }
        assert_eq!(client.received, [[0; 9], [1; 9], [2; 9]].concat(), "{flavour}");
        assert!(client.session.export().is_err(), "{flavour}: its first keys are not in use any more");

        // A record without data does not make the client wait, unless it changes keys.
        let mut client = End::new(engine(&fixture, flavour).connect("localhost").unwrap());
        let mut raw_peer = RawPeer::server(&mut client, &fixture.certificate, None);
        client.deliver(&raw_peer.seal(kind::DATA, &[], 5)).unwrap();
        client.deliver(&raw_peer.seal(kind::DATA, b"data", 0)).unwrap();
        assert!(client.session.export().is_ok(), "{flavour}");
    }
}

#[test]
fn a_reload_takes_effect() {
    let fixture = Fixture::default();
    for flavour in flavours() {
        let engine = engine(&fixture, flavour);
        let other = Fixture::default();
        engine.reload(&other.server(Versions::All)).unwrap();
        let client = Library::new(flavour, None, Some(&other.client(Versions::All))).unwrap();
        let mut pair = Pair::new(&client, &engine, "localhost").unwrap();
        pair.handshake(&mut Split::Whole).unwrap();
        pair.server.send(&[b"new"]).unwrap();
        pair.settle(&mut Split::Whole).unwrap();
        assert!(pair.client.received == b"new" && pair.server.session.export().is_ok(), "{flavour}");
    }
}
