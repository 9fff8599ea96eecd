//! Handshakes, the information that they yield, and resumption.

use super::differences::Difference;
use super::{Engines, Make, certificate, client_config, greet, server_config};
use crate::hello::without_key_shares;
use crate::pair::{Pair, Side, Split};
use tautline_tls::{
    Answer, CipherSuite, Engine, Error, NamedGroup, ProtocolVersion, Session, TicketSecret, Tickets, TlsInfo, Versions,
};

/// Every kind of key works under every version, and both ends report the negotiated parameters.
pub fn every_key_and_version<E: Engine>(make: impl Make<E>) {
    for key in Engines::new(&make, &server_config(), &client_config()).keys() {
        for (versions, version) in [
            (Versions::All, ProtocolVersion::Tls13),
            (Versions::Tls13, ProtocolVersion::Tls13),
            (Versions::Tls12, ProtocolVersion::Tls12),
        ] {
            let server = server_config().with_certificates([certificate(&["localhost"], key)]).with_versions(versions);
            let engines = Engines::new(&make, &server, &client_config().with_versions(versions));
            let mut pair = engines.open("localhost");
            greet(&mut pair);
            let (client, server) = (pair.client.session.tls_info(), pair.server.session.tls_info());
            for info in [&client, &server] {
                assert_eq!(info.version, Some(version), "{key:?}");
                assert!(info.suite.and_then(CipherSuite::name).is_some(), "{key:?}: suite {:?}", info.suite);
                assert!(info.group.and_then(NamedGroup::name).is_some(), "{key:?}");
                assert_eq!(info.alpn, None);
                assert_eq!(info.server_name.as_deref(), Some("localhost"));
                assert!(!info.resumed);
            }
            assert_eq!((client.suite, client.group), (server.suite, server.group));
            assert_eq!(client.peer_certificates.len(), 1, "{key:?}");
            assert!(server.peer_certificates.is_empty());
        }
    }
}

/// Without a common version both ends fail; neither downgrades.
pub fn versions_without_common_ground<E: Engine>(make: impl Make<E>) {
    for (server, client) in [(Versions::Tls12, Versions::Tls13), (Versions::Tls13, Versions::Tls12)] {
        let engines =
            Engines::new(&make, &server_config().with_versions(server), &client_config().with_versions(client));
        let (failure, mut pair) = engines.refused("localhost");
        assert!(matches!(failure.error, Error::Peer(_)), "{:?}", failure.error);
        let is_blind = server == Versions::Tls12 && engines.differs(Difference::IgnoresOfferedVersions);
        assert!(failure.side == Side::Server || is_blind);
        let alerts = if is_blind { &["protocol_version", "handshake_failure"][..] } else { &["protocol_version"] };
        let words = pair.deliver_alert(failure.side);
        assert!(
            matches!(&words, Some(Error::Alert(alert)) if alert.name().is_some_and(|name| alerts.contains(&name))),
            "{words:?}"
        );
    }
}

/// The byte stream may be cut anywhere.
pub fn splits<E: Engine>(make: impl Make<E>) {
    let splits = [Split::Every(1), Split::Every(5), Split::Every(333)];
    for versions in [Versions::Tls13, Versions::Tls12] {
        let engines = Engines::with_versions(&make, versions);
        for mut split in splits.iter().cloned().chain((0..12).map(Split::random)) {
            let mut pair = engines.pair("localhost");
            pair.handshake(&mut split).unwrap();
            assert!(pair.client.open && pair.server.open, "{split:?}");
            pair.client.send(&[&[1; 3000]]).unwrap();
            pair.server.send(&[&[2; 40_000]]).unwrap();
            pair.settle(&mut split).unwrap();
            assert_eq!(pair.server.received, [1; 3000], "{split:?}");
            assert_eq!(pair.client.received, [2; 40_000], "{split:?}");
            pair.client.close();
            pair.settle(&mut split).unwrap();
            assert!(pair.server.closed, "{split:?}");
        }
    }
}

/// A session can be asked for its `TlsInfo` before the handshake.
pub fn facts_before_the_handshake<E: Engine>(make: impl Make<E>) {
    let engines = Engines::new(&make, &server_config(), &client_config());
    let pair = engines.pair("localhost");
    assert_eq!(pair.server.session.tls_info(), TlsInfo::default());
    assert!(!pair.client.session.tls_info().resumed);
}

/// Without `SSLKEYLOGFILE`, an enabled key log changes nothing, except that an engine without key logs rejects it.
pub fn key_logs_stay_off<E: Engine>(make: impl Make<E>) {
    // The suite runs without SSLKEYLOGFILE, so it cannot test that a log is written.
    let server = server_config().with_key_log(true);
    let client = client_config().with_key_log(true);
    match make(Some(&server), None) {
        Err(Error::Config(why)) => {
            assert!(why.contains("cannot write a key log; take an engine that can"), "{why}");
        }
        _ => greet(&mut Engines::new(&make, &server, &client).open("localhost")),
    }
}

/// Application data directly behind a Finished arrives, even in one piece with it.
pub fn data_behind_finished<E: Engine>(make: impl Make<E>) {
    for versions in [Versions::Tls13, Versions::Tls12] {
        let engines = Engines::with_versions(&make, versions);
        // Later connections resume if the engine can, which changes the order of the flights.
        for round in 0..3 {
            for seed in 0..4 {
                let mut split = if seed == 0 { Split::Whole } else { Split::random(seed) };
                let mut pair = engines.pair("localhost");
                send_when_open(&mut pair, &mut split);
                assert_eq!(pair.server.received, b"client first", "{versions:?}, round {round}, {split:?}");
                assert_eq!(pair.client.received, b"server first", "{versions:?}, round {round}, {split:?}");
            }
        }
    }
}

fn send_when_open<A: Session, B: Session>(pair: &mut Pair<A, B>, split: &mut Split) {
    let (mut client_spoke, mut server_spoke) = (false, false);
    pair.client.work().unwrap();
    for _ in 0..10 {
        if pair.client.open && !client_spoke {
            client_spoke = true;
            pair.client.send(&[b"client ", b"first"]).unwrap();
        }
        let wire = pair.client.take_outbox();
        deliver_split(&wire, split, |piece| pair.server.deliver(piece).unwrap());
        if pair.server.open && !server_spoke {
            server_spoke = true;
            pair.server.send(&[b"server first"]).unwrap();
        }
        let wire = pair.server.take_outbox();
        deliver_split(&wire, split, |piece| pair.client.deliver(piece).unwrap());
    }
    assert!(client_spoke && server_spoke, "both ends complete");
}

fn deliver_split(mut wire: &[u8], split: &mut Split, mut deliver: impl FnMut(&[u8])) {
    while !wire.is_empty() {
        let (piece, rest) = wire.split_at(split.next(wire.len()));
        deliver(piece);
        wire = rest;
    }
}

/// Later connections resume the first one's session, also in a clone of the engine.
///
/// TLS 1.3 sessions are resumed only if the engines' capabilities say so.
pub fn resumption<E: Engine>(make: impl Make<E>) {
    for versions in [Versions::All, Versions::Tls13, Versions::Tls12] {
        let engines = Engines::with_versions(&make, versions);
        greet(&mut engines.open("localhost"));
        let clones = Engines { server: engines.server.clone(), client: engines.client.clone() };
        for _ in 0..3 {
            let mut pair = clones.open("localhost");
            greet(&mut pair);
            let (client, server) = (pair.client.session.tls_info(), pair.server.session.tls_info());
            let can_resume = client.version != Some(ProtocolVersion::Tls13) || engines.resume_tls13();
            assert_eq!((client.resumed, server.resumed), (can_resume, can_resume), "{versions:?}");
            assert_eq!(server.server_name.as_deref(), Some("localhost"));
            assert_eq!(client.peer_certificates.len(), 1, "the certificate of the first connection still counts");
        }
    }
}

/// Either side can switch resumption off.
pub fn resumption_is_off_where_told<E: Engine>(make: impl Make<E>) {
    for versions in [Versions::Tls13, Versions::Tls12] {
        for (at_server, at_client) in [(true, false), (false, true), (true, true)] {
            let tickets = if at_server { Tickets::Off } else { Tickets::default() };
            let server = server_config().with_versions(versions).with_tickets(tickets);
            let mut client = client_config().with_versions(versions);
            client.no_resumption = at_client;
            let engines = Engines::new(&make, &server, &client);
            for _ in 0..2 {
                let mut pair = engines.open("localhost");
                greet(&mut pair);
                assert!(!pair.client.session.tls_info().resumed && !pair.server.session.tls_info().resumed);
            }
        }
    }
}

/// Servers with one ticket secret resume each other's sessions; a server with another secret does not.
pub fn fleets_share_their_tickets<E: Engine>(make: impl Make<E>) {
    let host = |secret, versions| {
        let tickets = Tickets::fleet(TicketSecret::new(&[secret; 32]).unwrap());
        make(Some(&server_config().with_versions(versions).with_tickets(tickets)), None).unwrap()
    };
    for versions in [Versions::Tls13, Versions::Tls12] {
        let [one, other, stranger] = [1, 1, 2].map(|secret| host(secret, versions));
        let client = make(None, Some(&client_config().with_versions(versions))).unwrap();
        let ends = Engines { server: one.clone(), client: client.clone() };
        let has_tickets = ends.resume_tls13() || versions == Versions::Tls12;
        for (server, resumes) in [(&one, false), (&other, has_tickets), (&one, has_tickets), (&stranger, false)] {
            let mut pair = Pair::new(&client, server, "localhost").unwrap();
            pair.handshake(&mut Split::Whole).unwrap();
            greet(&mut pair);
            assert_eq!(pair.client.session.tls_info().resumed, resumes, "{versions:?}");
            assert_eq!(pair.server.session.tls_info().resumed, resumes, "{versions:?}");
        }
    }
}

/// The kind of a server's flight can be read from its bytes: full, resumed, or a request for another ClientHello.
pub fn answers_tell_what_was_done<E: Engine>(make: impl Make<E>) {
    let begin = |engines: &Engines<E>| {
        let mut pair = engines.pair("localhost");
        pair.client.work().unwrap();
        let hello = pair.client.take_outbox();
        (pair, hello)
    };
    for versions in [Versions::Tls13, Versions::Tls12] {
        let engines = Engines::with_versions(&make, versions);
        for _ in 0..2 {
            let (mut pair, hello) = begin(&engines);
            pair.server.deliver(&hello).unwrap();
            let answer = Answer::read(pair.server.outbox.filled());
            pair.settle(&mut Split::Whole).unwrap();
            greet(&mut pair);
            let resumed = pair.server.session.tls_info().resumed;
            assert_eq!(answer, Some(if resumed { Answer::Resumed } else { Answer::Full }), "{versions:?}");
        }
    }
    let (mut pair, hello) = begin(&Engines::with_versions(&make, Versions::Tls13));
    pair.server.deliver(&without_key_shares(&hello)).unwrap();
    assert_eq!(Answer::read(pair.server.outbox.filled()), Some(Answer::Retry));
}
