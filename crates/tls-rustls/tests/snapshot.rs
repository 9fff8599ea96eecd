//! A connection that moves from session to session, with rustls itself at the other end.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{CipherSuite, Connection};
use std::io::{Read, Write};
use std::sync::Arc;
use tautline_testkit::Random;
use tautline_testkit::certificate::{Authority, Leaf};
use tautline_testkit::pair::End;
use tautline_tls::{Certificate, ClientConfig, Engine as _, Error, Roots, ServerConfig, Session as _, Versions};
use tautline_tls_rustls::fused::{Engine, Role, Session, Snapshot};

const SUITES: [CipherSuite; 3] = [
    CipherSuite::TLS13_AES_128_GCM_SHA256,
    CipherSuite::TLS13_AES_256_GCM_SHA384,
    CipherSuite::TLS13_CHACHA20_POLY1305_SHA256,
];

struct Fixture {
    roots: String,
    certificate: Certificate,
    engine: Engine,
}

fn fixture(versions: Versions) -> Fixture {
    let authority = Authority::new("Test").unwrap();
    let certificate = authority.issue(&Leaf { names: &["localhost"], ..Leaf::default() }).unwrap();
    let roots: String = authority.certificate().into();
    let server = ServerConfig { certificates: vec![certificate.clone()], versions, ..ServerConfig::default() };
    let client = ClientConfig { roots: Roots::Pem(roots.clone().into()), versions, ..ClientConfig::default() };
    Fixture { roots, certificate, engine: Engine::new(Some(&server), Some(&client)).unwrap() }
}

/// rustls at the other end, with no suite but this one.
fn peer(fixture: &Fixture, role: Role, suite: CipherSuite) -> Connection {
    let mut provider = rustls::crypto::aws_lc_rs::default_provider();
    provider.cipher_suites.retain(|known| known.suite() == suite);
    let provider = Arc::new(provider);
    match role {
        Role::Client => {
            let mut roots = rustls::RootCertStore::empty();
            roots.add(CertificateDer::from_pem_slice(fixture.roots.as_bytes()).unwrap()).unwrap();
            let config = rustls::ClientConfig::builder_with_provider(provider)
                .with_protocol_versions(&[&rustls::version::TLS13])
                .unwrap()
                .with_root_certificates(roots)
                .with_no_client_auth();
            let name = ServerName::try_from("localhost").unwrap();
            rustls::ClientConnection::new(Arc::new(config), name).unwrap().into()
        }
        Role::Server => {
            let chain = CertificateDer::pem_slice_iter(&fixture.certificate.chain).map(Result::unwrap).collect();
            let key = PrivateKeyDer::from_pem_slice(&fixture.certificate.key).unwrap();
            let config = rustls::ServerConfig::builder_with_provider(provider)
                .with_protocol_versions(&[&rustls::version::TLS13])
                .unwrap()
                .with_no_client_auth()
                .with_single_cert(chain, key)
                .unwrap();
            rustls::ServerConnection::new(Arc::new(config)).unwrap().into()
        }
    }
}

/// Carries bytes both ways until none are left; `cut` bytes at a time to our end.
fn settle(end: &mut End<Session>, peer: &mut Connection, cut: usize) {
    loop {
        let mut wire = Vec::new();
        while peer.wants_write() {
            peer.write_tls(&mut wire).unwrap();
        }
        let ours = end.take_outbox();
        if wire.is_empty() && ours.is_empty() {
            return;
        }
        for piece in wire.chunks(cut) {
            end.deliver(piece).unwrap();
        }
        let mut ours = &ours[..];
        while !ours.is_empty() {
            peer.read_tls(&mut ours).unwrap();
            peer.process_new_packets().unwrap();
        }
    }
}

/// Says something both ways, and checks that it arrives.
fn converse(end: &mut End<Session>, peer: &mut Connection, random: &mut Random) {
    let (question, answer) = (random.bytes(20 + random.clone().below(2000)), random.bytes(100));
    end.received.clear();
    peer.writer().write_all(&question).unwrap();
    end.send(&[&answer]).unwrap();
    settle(end, peer, 1 + random.below(3000));
    assert!(end.received == question);
    let mut heard = vec![0; answer.len()];
    peer.reader().read_exact(&mut heard).unwrap();
    assert!(heard == answer);
}

/// Moves the connection to another session, by way of bytes.
fn moved(mut end: End<Session>) -> End<Session> {
    let facts = end.session.facts();
    let snapshot = end.session.export().unwrap();
    assert!(end.send(&[b"from the grave"]).is_err(), "nobody but the new session can use the keys");
    let mut bytes = Vec::new();
    snapshot.encode(&mut bytes);
    let session = Session::import(&Snapshot::decode(&bytes).unwrap()).unwrap();
    assert_eq!(session.facts(), facts);
    let mut new = End::new(session);
    new.open = true;
    new.inbox = end.inbox;
    new
}

#[test]
fn lives_on_before_and_after_key_updates() {
    let fixture = fixture(Versions::All);
    let mut random = Random::new(11);
    for (ours, theirs) in [(Role::Server, Role::Client), (Role::Client, Role::Server)] {
        for suite in SUITES {
            let session = match ours {
                Role::Server => fixture.engine.accept().unwrap(),
                Role::Client => fixture.engine.connect("localhost").unwrap(),
            };
            let mut end = End::new(session);
            assert!(matches!(end.session.export(), Err(Error::ApiMisuse(_))), "before the handshake");
            let mut peer = peer(&fixture, theirs, suite);
            end.work().unwrap();
            settle(&mut end, &mut peer, usize::MAX);
            assert!(end.open && !peer.is_handshaking());
            assert_eq!(end.session.facts().suite, format!("{suite:?}"));
            end = moved(end);
            for _ in 0..3 {
                converse(&mut end, &mut peer, &mut random);
                end = moved(end);
                // It asks for ours in turn, so both directions get new keys. The debt outlives a move.
                peer.refresh_traffic_keys().unwrap();
                let mut wire = Vec::new();
                peer.write_tls(&mut wire).unwrap();
                end.deliver(&wire).unwrap();
                end = moved(end);
                converse(&mut end, &mut peer, &mut random);
                converse(&mut end, &mut peer, &mut random);
            }
            peer.send_close_notify();
            settle(&mut end, &mut peer, usize::MAX);
            assert!(end.closed);
            end = moved(end);
            end.send(&[b"the last word"]).unwrap();
            end.close();
            settle(&mut end, &mut peer, usize::MAX);
            let mut heard = Vec::new();
            peer.reader().read_to_end(&mut heard).unwrap();
            assert_eq!(heard, b"the last word");
            end = moved(end);
            assert!(end.send(&[b"one more"]).is_err());
        }
    }
}

#[test]
fn tls_1_2_stays_where_it_is() {
    let fixture = fixture(Versions::Tls12);
    let mut pair = tautline_testkit::pair::Pair::new(&fixture.engine, &fixture.engine, "localhost").unwrap();
    pair.handshake(&mut tautline_testkit::pair::Split::Whole).unwrap();
    assert!(matches!(pair.server.session.export(), Err(Error::ApiMisuse(_))));
    pair.server.send(&[b"still here"]).unwrap();
    pair.settle(&mut tautline_testkit::pair::Split::Whole).unwrap();
    assert_eq!(pair.client.received, b"still here");
}

#[test]
fn a_snapshot_with_the_wrong_secrets_is_refused() {
    let fixture = fixture(Versions::All);
    let mut end = End::new(fixture.engine.accept().unwrap());
    let mut peer = peer(&fixture, Role::Client, SUITES[0]);
    settle(&mut end, &mut peer, usize::MAX);
    let mut snapshot = end.session.export().unwrap();
    snapshot.rx.secret.push(0);
    assert!(matches!(Session::import(&snapshot), Err(Error::ApiMisuse(_))));
}
