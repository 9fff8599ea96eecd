//! Record headers that no peer may send are refused before their bodies arrive, with the right alert.

use rustls::RootCertStore;
use rustls::crypto::CryptoProvider;
use rustls::crypto::aws_lc_rs::{default_provider, kx_group};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use std::sync::Arc;
use tautline_testkit::certificate::{Authority, Leaf};
use tautline_testkit::pair::End;
use tautline_testkit::raw_peer::{RawPeer, kind};
use tautline_tls::{ClientConfig, Engine, Error, Roots, ServerConfig, Session};
use tautline_tls_rustls::{Engine as Library, fused};

const UNEXPECTED_MESSAGE: u8 = 10;
const RECORD_OVERFLOW: u8 = 22;

struct Configs {
    server: ServerConfig,
    client: ClientConfig,
    roots: String,
    certificate: tautline_tls::Certificate,
}

fn configs() -> Configs {
    let authority = Authority::new("Headers").unwrap();
    let certificate = authority.issue(&Leaf::new(&["localhost"])).unwrap();
    Configs {
        server: ServerConfig::new([certificate.clone()]),
        client: ClientConfig::default().with_roots(Roots::Pem(authority.certificate().into())),
        roots: authority.certificate().into(),
        certificate,
    }
}

/// Headers, and the alerts for them after a handshake of TLS 1.3.
const AFTER: [([u8; 5], u8); 8] = [
    ([20, 3, 3, 0, 1], UNEXPECTED_MESSAGE),
    ([21, 3, 3, 0, 2], UNEXPECTED_MESSAGE),
    ([22, 3, 3, 0, 4], UNEXPECTED_MESSAGE),
    ([24, 3, 3, 0, 4], UNEXPECTED_MESSAGE),
    ([25, 3, 3, 0, 4], UNEXPECTED_MESSAGE),
    ([23, 2, 3, 0, 40], UNEXPECTED_MESSAGE),
    ([23, 3, 3, 0x41, 1], RECORD_OVERFLOW),
    ([23, 3, 3, 0xff, 0xff], RECORD_OVERFLOW),
];

/// The alerts that an open session sends for each of [`AFTER`], as server and as client.
fn check_open<E: Engine>(engine: &E, configs: &Configs) {
    for (header, alert) in AFTER {
        let mut server = End::new(engine.accept().unwrap());
        let raw_peer = RawPeer::client(&mut server, &configs.roots, None);
        refuses(server, raw_peer, header, alert);
        let mut client = End::new(engine.connect("localhost").unwrap());
        let raw_peer = RawPeer::server(&mut client, &configs.certificate, None);
        refuses(client, raw_peer, header, alert);
    }
}

fn refuses<S: Session>(mut end: End<S>, mut raw_peer: RawPeer, header: [u8; 5], alert: u8) {
    end.send(&[b"tickets are before this"]).unwrap();
    raw_peer.open(&end.take_outbox());
    let error = end.deliver(&header).unwrap_err();
    assert!(matches!(error, Error::Peer(_)), "{header:?}: {error:?}");
    assert_eq!(raw_peer.open(&end.take_outbox()), [(kind::ALERT, vec![2, alert])], "{header:?}: {error}");
}

/// The alerts that a server sends in clear for the header of a client's first record.
fn check_hello<E: Engine>(engine: &E) {
    for (header, alert) in [
        ([22, 2, 0, 0, 40], UNEXPECTED_MESSAGE),
        ([22, 3, 1, 0x40, 1], RECORD_OVERFLOW),
        ([22, 3, 3, 0x40, 1], RECORD_OVERFLOW),
        ([22, 3, 3, 0, 0], UNEXPECTED_MESSAGE),
        ([20, 3, 3, 0, 1], UNEXPECTED_MESSAGE),
        ([23, 3, 3, 0, 40], UNEXPECTED_MESSAGE),
        ([24, 3, 3, 0, 40], UNEXPECTED_MESSAGE),
    ] {
        let mut server = End::new(engine.accept().unwrap());
        let error = server.deliver(&header).unwrap_err();
        assert!(matches!(error, Error::Peer(_)), "{header:?}: {error:?}");
        assert_eq!(server.take_outbox(), [21, 3, 3, 0, 2, 2, alert], "{header:?}: {error}");
    }
    for header in [[22, 3, 1, 0x40, 0], [22, 3, 3, 0x40, 0]] {
        let mut server = End::new(engine.accept().unwrap());
        server.deliver(&header).unwrap();
    }
}

/// A client refuses headers before the server's first record.
fn check_answer<E: Engine>(engine: &E) {
    for (header, alert) in [
        ([22, 3, 3, 0x40, 1], RECORD_OVERFLOW),
        ([23, 3, 3, 0x41, 1], RECORD_OVERFLOW),
        ([24, 3, 3, 0, 2], UNEXPECTED_MESSAGE),
        ([99, 3, 3, 0, 2], UNEXPECTED_MESSAGE),
    ] {
        let mut client = End::new(engine.connect("localhost").unwrap());
        client.work().unwrap();
        client.take_outbox();
        assert!(matches!(client.deliver(&header), Err(Error::Peer(_))), "{header:?}");
        let said = client.take_outbox();
        assert!(matches!(said[..], [21, 3, _, 0, 2, 2, code] if code == alert), "{header:?}: {said:?}");
    }
}

#[test]
fn our_own_records_have_the_exact_alerts() {
    let configs = configs();
    let engine = fused::Engine::new(Some(&configs.server), Some(&configs.client)).unwrap();
    check_open(&engine, &configs);
    check_hello(&engine);
    check_answer(&engine);
}

#[test]
fn headers_in_front_of_rustls_are_checked_too() {
    let configs = configs();
    let engine = Library::new(Some(&configs.server), Some(&configs.client)).unwrap();
    check_open(&engine, &configs);
    check_hello(&engine);
    check_answer(&engine);
}

/// Delivers a record to a session, and returns the result with the bytes that the session sends.
type Delivery<'a> = dyn FnMut(&[u8]) -> (Result<(), Error>, Vec<u8>) + 'a;

/// Records whose content no peer may send end an open session with an alert.
fn check_contents<E: Engine>(engine: &E, configs: &Configs) {
    let update = [24, 0, 0, 1, 0];
    let whole = |kind: u8, content: &[u8], padding| (kind, content.to_vec(), padding);
    for (records, alert) in [
        (vec![whole(0, b"", 100)], UNEXPECTED_MESSAGE),
        (vec![whole(99, b"x", 0)], UNEXPECTED_MESSAGE),
        (vec![whole(kind::HANDSHAKE, b"", 0)], UNEXPECTED_MESSAGE),
        (vec![whole(kind::HANDSHAKE, &update[..2], 0), whole(kind::DATA, b"data", 0)], UNEXPECTED_MESSAGE),
        (vec![whole(kind::HANDSHAKE, &update[..4], 0), whole(kind::DATA, b"", 9)], UNEXPECTED_MESSAGE),
        (vec![whole(kind::HANDSHAKE, &update[..1], 0), whole(kind::ALERT, &[1, 90], 0)], UNEXPECTED_MESSAGE),
        (vec![whole(kind::DATA, b"", 1000); 1000], UNEXPECTED_MESSAGE),
        (vec![whole(kind::DATA, b"x", 1 << 14)], RECORD_OVERFLOW),
    ] {
        let name = format!("{:?}", records[0]);
        let refuses = |end: &mut Delivery<'_>, raw_peer: &mut RawPeer| {
            let failed = records.iter().find_map(|(kind, content, padding)| {
                let (result, said) = end(&raw_peer.seal(*kind, content, *padding));
                result.err().map(|error| (error, said))
            });
            let (error, said) = failed.unwrap_or_else(|| panic!("{name} is accepted"));
            assert!(matches!(error, Error::Peer(_)), "{name}: {error:?}");
            assert_eq!(raw_peer.open(&said), [(kind::ALERT, vec![2, alert])], "{name}: {error}");
        };
        let mut server = End::new(engine.accept().unwrap());
        let mut raw_peer = RawPeer::client(&mut server, &configs.roots, None);
        raw_peer.open(&server.take_outbox());
        refuses(&mut |wire| (server.deliver(wire), server.take_outbox()), &mut raw_peer);
        let mut client = End::new(engine.connect("localhost").unwrap());
        let mut raw_peer = RawPeer::server(&mut client, &configs.certificate, None);
        raw_peer.open(&client.take_outbox());
        refuses(&mut |wire| (client.deliver(wire), client.take_outbox()), &mut raw_peer);
    }
}

#[test]
fn contents_that_no_peer_may_send_end_with_an_alert() {
    let configs = configs();
    check_contents(&Library::new(Some(&configs.server), Some(&configs.client)).unwrap(), &configs);
    check_contents(&fused::Engine::new(Some(&configs.server), Some(&configs.client)).unwrap(), &configs);
}

/// A handshake with a retry, in which all records of the client that are not protected have this version.
fn retries<E: Engine>(engine: &E, configs: &Configs, version: [u8; 2]) {
    // The server has no group of the first key share.
    let kx_groups = vec![kx_group::MLKEM768, kx_group::X25519];
    let provider = Arc::new(CryptoProvider { kx_groups, ..default_provider() });
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_slice(configs.roots.as_bytes()).unwrap()).unwrap();
    let client = rustls::ClientConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&rustls::version::TLS13])
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    let mut client = rustls::ClientConnection::new(Arc::new(client), "localhost".try_into().unwrap()).unwrap();
    let mut server = End::new(engine.accept().unwrap());
    let mut flights = 0;
    while client.is_handshaking() || !server.open {
        let mut flight = Vec::new();
        while client.wants_write() {
            client.write_tls(&mut flight).unwrap();
        }
        let mut at = 0;
        while at < flight.len() {
            if flight[at] != kind::DATA {
                flight[at + 1..at + 3].copy_from_slice(&version);
            }
            at += 5 + usize::from(u16::from_be_bytes([flight[at + 3], flight[at + 4]]));
        }
        server.deliver(&flight).unwrap_or_else(|error| panic!("{version:?}, flight {flights}: {error}"));
        let answer = server.take_outbox();
        let mut answer = &answer[..];
        while !answer.is_empty() {
            client.read_tls(&mut answer).unwrap();
            client.process_new_packets().unwrap();
        }
        flights += 1;
    }
    assert_eq!(client.handshake_kind(), Some(rustls::HandshakeKind::FullWithHelloRetryRequest));
}

#[test]
fn the_version_of_a_record_is_ignored() {
    let configs = configs();
    for version in [[3, 1], [3, 3], [3, 0], [3, 2], [3, 4], [3, 0xff]] {
        retries(&Library::server(&configs.server).unwrap(), &configs, version);
        retries(&fused::Engine::server(&configs.server).unwrap(), &configs, version);
    }
}

/// A protected record whose header has another version is opened: what is authenticated is the header that TLS 1.3 has.
#[test]
fn the_version_of_a_protected_record_is_ignored() {
    let configs = configs();
    fn check<E: Engine>(engine: &E, configs: &Configs) {
        let mut server = End::new(engine.accept().unwrap());
        let mut raw_peer = RawPeer::client(&mut server, &configs.roots, None);
        let mut wire = raw_peer.seal(kind::DATA, b"data", 0);
        wire[2] = 1;
        server.deliver(&wire).unwrap();
        assert_eq!(server.received, b"data");
    }
    check(&Library::server(&configs.server).unwrap(), &configs);
    check(&fused::Engine::server(&configs.server).unwrap(), &configs);
}
