//! Handshakes, their facts, and resumption.

use super::differences::Difference;
use super::{Engines, Make, certificate, client_config, greet, server_config};
use crate::hello::without_key_shares;
use crate::pair::{Pair, Side, Split};
use tautline_tls::{
    Answer, Capabilities, ClientConfig, Engine, Error, Facts, ServerConfig, Session, TicketSecret, Tickets, Versions,
};

/// Every kind of key under every version, with facts that say so on both sides.
pub fn every_key_and_version<E: Engine>(make: impl Make<E>) {
    for key in Engines::new(&make, &server_config(), &client_config()).keys() {
        for (versions, name) in [(Versions::All, "TLSv1.3"), (Versions::Tls13, "TLSv1.3"), (Versions::Tls12, "TLSv1.2")]
        {
            let server =
                ServerConfig { certificates: vec![certificate(&["localhost"], key)], versions, ..server_config() };
            let engines = Engines::new(&make, &server, &ClientConfig { versions, ..client_config() });
            let mut pair = engines.open("localhost");
            greet(&mut pair);
            let (client, server) = (pair.client.session.facts(), pair.server.session.facts());
            for facts in [&client, &server] {
                assert_eq!(facts.version, name, "{key:?}");
                assert!(facts.suite.starts_with("TLS"), "{key:?}: suite {:?}", facts.suite);
                assert!(!facts.group.is_empty(), "{key:?}");
                assert_eq!(facts.alpn, None);
                assert_eq!(facts.server_name.as_deref(), Some("localhost"));
                assert!(!facts.resumed);
            }
            assert_eq!((&client.suite, &client.group), (&server.suite, &server.group));
            assert_eq!(client.peer_certificates.len(), 1, "{key:?}");
            assert!(server.peer_certificates.is_empty());
        }
    }
}

/// No version in common is an error for both, not a downgrade.
pub fn versions_without_common_ground<E: Engine>(make: impl Make<E>) {
    for (server, client) in [(Versions::Tls12, Versions::Tls13), (Versions::Tls13, Versions::Tls12)] {
        let engines = Engines::new(
            &make,
            &ServerConfig { versions: server, ..server_config() },
            &ClientConfig { versions: client, ..client_config() },
        );
        let (failure, mut pair) = engines.refused("localhost");
        assert!(matches!(failure.error, Error::Peer(_)), "{:?}", failure.error);
        let is_blind = server == Versions::Tls12 && engines.differs(Difference::BlindToVersions);
        assert!(failure.side == Side::Server || is_blind);
        let alerts = if is_blind { &["protocol_version", "handshake_failure"][..] } else { &["protocol_version"] };
        let words = pair.last_words(failure.side);
        assert!(matches!(&words, Some(Error::Alert(name)) if alerts.contains(&name.as_str())), "{words:?}");
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

/// Asking for facts early is no error.
pub fn facts_before_the_handshake<E: Engine>(make: impl Make<E>) {
    let engines = Engines::new(&make, &server_config(), &client_config());
    let pair = engines.pair("localhost");
    assert_eq!(pair.server.session.facts(), Facts::default());
    assert!(!pair.client.session.facts().resumed);
}

/// Without `key_log` no secret is written, whatever the environment says; with it, none without the environment.
pub fn key_logs_stay_off<E: Engine>(make: impl Make<E>) {
    // The suite's process has no SSLKEYLOGFILE, so all that can be seen here is that asking for one changes nothing.
    let server = ServerConfig { key_log: true, ..server_config() };
    let client = ClientConfig { key_log: true, ..client_config() };
    match make(Some(&server), None) {
        Err(Error::Config(why)) => {
            let knows = Capabilities::ALL.iter().any(|one| one.key_log && why.contains(one.engine));
            assert!(knows && why.contains("key log"), "who has none names one that has: {why}");
        }
        _ => greet(&mut Engines::new(&make, &server, &client).open("localhost")),
    }
}

/// Application data right behind an end's Finished arrives, even in one piece with it.
pub fn data_behind_finished<E: Engine>(make: impl Make<E>) {
    for versions in [Versions::Tls13, Versions::Tls12] {
        let engines = Engines::with_versions(&make, versions);
        // The second and third are resumed, where the order of the flights differs.
        for round in 0..3 {
            for seed in 0..4 {
                let mut split = if seed == 0 { Split::Whole } else { Split::random(seed) };
                let mut pair = engines.pair("localhost");
                talk_at_once(&mut pair, &mut split);
                assert_eq!(pair.server.received, b"client first", "{versions:?}, round {round}, {split:?}");
                assert_eq!(pair.client.received, b"server first", "{versions:?}, round {round}, {split:?}");
            }
        }
    }
}

fn talk_at_once<A: Session, B: Session>(pair: &mut Pair<A, B>, split: &mut Split) {
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

/// A second connection resumes the first's session, also on another shard's clone of the engine, unless the engine says that
/// it cannot.
pub fn resumption<E: Engine>(make: impl Make<E>) {
    for versions in [Versions::All, Versions::Tls13, Versions::Tls12] {
        let engines = Engines::with_versions(&make, versions);
        greet(&mut engines.open("localhost"));
        let clones = Engines { server: engines.server.clone(), client: engines.client.clone() };
        for _ in 0..3 {
            let mut pair = clones.open("localhost");
            greet(&mut pair);
            let (client, server) = (pair.client.session.facts(), pair.server.session.facts());
            let can_resume = client.version != "TLSv1.3" || engines.resume_tls13();
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
            let server = ServerConfig { versions, tickets, ..server_config() };
            let client = ClientConfig { versions, no_resumption: at_client, ..client_config() };
            let engines = Engines::new(&make, &server, &client);
            for _ in 0..2 {
                let mut pair = engines.open("localhost");
                greet(&mut pair);
                assert!(!pair.client.session.facts().resumed && !pair.server.session.facts().resumed);
            }
        }
    }
}

/// Hosts with one secret resume each other's sessions, and nobody else's.
pub fn fleets_share_their_tickets<E: Engine>(make: impl Make<E>) {
    let host = |secret, versions| {
        let tickets = Tickets::fleet(TicketSecret::new(&[secret; 32]).unwrap());
        make(Some(&ServerConfig { versions, tickets, ..server_config() }), None).unwrap()
    };
    for versions in [Versions::Tls13, Versions::Tls12] {
        let [one, other, stranger] = [1, 1, 2].map(|secret| host(secret, versions));
        let client = make(None, Some(&ClientConfig { versions, ..client_config() })).unwrap();
        let ends = Engines { server: one.clone(), client: client.clone() };
        let has_tickets = ends.resume_tls13() || versions == Versions::Tls12;
        for (server, resumes) in [(&one, false), (&other, has_tickets), (&one, has_tickets), (&stranger, false)] {
            let mut pair = Pair::new(&client, server, "localhost").unwrap();
            pair.handshake(&mut Split::Whole).unwrap();
            greet(&mut pair);
            assert_eq!(pair.client.session.facts().resumed, resumes, "{versions:?}");
            assert_eq!(pair.server.session.facts().resumed, resumes, "{versions:?}");
        }
    }
}

/// What a server's flight says of itself is true: of full handshakes, of resumed ones, and where it wants another ClientHello.
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
            let resumed = pair.server.session.facts().resumed;
            assert_eq!(answer, Some(if resumed { Answer::Resumed } else { Answer::Full }), "{versions:?}");
        }
    }
    let (mut pair, hello) = begin(&Engines::with_versions(&make, Versions::Tls13));
    pair.server.deliver(&without_key_shares(&hello)).unwrap();
    assert_eq!(Answer::read(pair.server.outbox.filled()), Some(Answer::Retry));
}
