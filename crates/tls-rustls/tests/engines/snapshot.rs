//! Moves a connection from session to session, with rustls at the other end.

use std::io::Read;
use tautline_testkit::Random;
use tautline_testkit::pair::{End, Pair, Side, Split};
use tautline_testkit::rustls_peer::{Fixture, SUITES, converse, settle};
use tautline_tls::{Engine as _, Error, Session as _, Versions};
use tautline_tls_rustls::fused::{Engine, Session, Snapshot};

fn engine(fixture: &Fixture, versions: Versions) -> Engine {
    Engine::new(Some(&fixture.server(versions)), Some(&fixture.client(versions))).unwrap()
}

/// Sends random messages both ways.
fn chat(end: &mut End<Session>, peer: &mut rustls::Connection, random: &mut Random) {
    let (question, answer) = (random.bytes(20 + random.clone().below(2000)), random.bytes(100));
    converse(end, peer, &question, &[&answer], 1 + random.below(3000));
}

/// Moves the connection to another session through encoded bytes.
fn export_and_import(mut end: End<Session>) -> End<Session> {
    let info = end.session.tls_info();
    let snapshot = end.session.export().unwrap();
    assert!(end.send(&[b"after the export"]).is_err(), "only the new session can use the keys");
    let mut bytes = Vec::new();
    snapshot.encode(&mut bytes);
    let session = Session::import(&Snapshot::decode(&bytes).unwrap()).unwrap();
    assert_eq!(session.tls_info(), info);
    let mut new = End::new(session);
    new.open = true;
    new.inbox = end.inbox;
    new
}

#[test]
fn a_saved_session_goes_on_until_another_takes_its_place() {
    let fixture = Fixture::default();
    let engine = engine(&fixture, Versions::All);
    let mut random = Random::new(5);
    let mut end = End::new(engine.accept().unwrap());
    let mut peer = fixture.rustls(Side::Client, SUITES[0]);
    assert!(end.session.save(&mut Vec::new()).is_err(), "before the handshake");
    settle(&mut end, &mut peer, usize::MAX);
    for round in 0..4 {
        let mut saved = Vec::new();
        end.session.save(&mut saved).unwrap();
        chat(&mut end, &mut peer, &mut random);
        assert!(engine.restore(&saved[1..]).is_err());
        if round % 2 == 0 {
            saved.clear();
            end.session.save(&mut saved).unwrap();
            let mut new = End::new(engine.restore(&saved).unwrap());
            (new.open, new.inbox) = (true, end.inbox);
            end = new;
            chat(&mut end, &mut peer, &mut random);
        }
    }
}

#[test]
fn an_imported_session_continues_before_and_after_key_updates() {
    let fixture = Fixture::default();
    let engine = engine(&fixture, Versions::All);
    let mut random = Random::new(11);
    for theirs in [Side::Client, Side::Server] {
        for suite in SUITES {
            let session = match theirs {
                Side::Client => engine.accept().unwrap(),
                Side::Server => engine.connect("localhost").unwrap(),
            };
            let mut end = End::new(session);
            assert!(matches!(end.session.export(), Err(Error::ApiMisuse(_))), "before the handshake");
            let mut peer = fixture.rustls(theirs, suite);
            end.work().unwrap();
            settle(&mut end, &mut peer, usize::MAX);
            assert!(end.open && !peer.is_handshaking());
            assert_eq!(end.session.tls_info().suite, Some(u16::from(suite).into()));
            end = export_and_import(end);
            for _ in 0..3 {
                chat(&mut end, &mut peer, &mut random);
                end = export_and_import(end);
                // The peer asks for our KeyUpdate too, so both directions change keys. The owed KeyUpdate survives a move.
                peer.refresh_traffic_keys().unwrap();
                let mut wire = Vec::new();
                peer.write_tls(&mut wire).unwrap();
                end.deliver(&wire).unwrap();
                end = export_and_import(end);
                chat(&mut end, &mut peer, &mut random);
                chat(&mut end, &mut peer, &mut random);
            }
            peer.send_close_notify();
            settle(&mut end, &mut peer, usize::MAX);
            assert!(end.closed);
            end = export_and_import(end);
            end.send(&[b"the last word"]).unwrap();
            end.close();
            settle(&mut end, &mut peer, usize::MAX);
            let mut heard = Vec::new();
            peer.reader().read_to_end(&mut heard).unwrap();
            assert_eq!(heard, b"the last word");
            end = export_and_import(end);
            assert!(end.send(&[b"one more"]).is_err());
        }
    }
}

#[test]
fn tls_1_2_sessions_cannot_be_exported() {
    let engine = engine(&Fixture::default(), Versions::Tls12);
    let mut pair = Pair::new(&engine, &engine, "localhost").unwrap();
    pair.handshake(&mut Split::Whole).unwrap();
    assert!(matches!(pair.server.session.export(), Err(Error::ApiMisuse(_))));
    pair.server.send(&[b"still here"]).unwrap();
    pair.settle(&mut Split::Whole).unwrap();
    assert_eq!(pair.client.received, b"still here");
}

#[test]
fn import_rejects_a_secret_of_the_wrong_length() {
    let fixture = Fixture::default();
    let mut end = End::new(engine(&fixture, Versions::All).accept().unwrap());
    let mut peer = fixture.rustls(Side::Client, SUITES[0]);
    settle(&mut end, &mut peer, usize::MAX);
    let mut snapshot = end.session.export().unwrap();
    snapshot.rx.secret.push(0);
    assert!(matches!(Session::import(&snapshot), Err(Error::ApiMisuse(_))));
}
