//! Record headers that no peer may send are refused before their bodies arrive, with the right alert.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use tautline_testkit::certificate::{Authority, Leaf};
use tautline_testkit::pair::End;
use tautline_testkit::raw_peer::{RawPeer, kind};
use tautline_tls::{ClientConfig, Engine, Error, Roots, ServerConfig, Session};
use tautline_tls_rustls::{Engine as Library, fused};

const UNEXPECTED_MESSAGE: u8 = 10;
const RECORD_OVERFLOW: u8 = 22;
const DECODE_ERROR: u8 = 50;
const PROTOCOL_VERSION: u8 = 70;

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
const AFTER: [([u8; 5], u8); 10] = [
    ([20, 3, 3, 0, 1], UNEXPECTED_MESSAGE),
    ([21, 3, 3, 0, 2], UNEXPECTED_MESSAGE),
    ([22, 3, 3, 0, 4], UNEXPECTED_MESSAGE),
    ([24, 3, 3, 0, 4], UNEXPECTED_MESSAGE),
    ([25, 3, 3, 0, 4], UNEXPECTED_MESSAGE),
    ([23, 2, 3, 0, 40], UNEXPECTED_MESSAGE),
    ([23, 3, 1, 0, 40], PROTOCOL_VERSION),
    ([23, 3, 4, 0, 40], PROTOCOL_VERSION),
    ([23, 3, 3, 0x41, 1], RECORD_OVERFLOW),
    ([23, 3, 3, 0xff, 0xff], RECORD_OVERFLOW),
];

/// The alerts that an open session sends for each of [`AFTER`], as server and as client.
fn check_open<E: Engine>(engine: &E, configs: &Configs, expected: impl Fn(u8) -> u8) {
    for (header, alert) in AFTER {
        let alert = expected(alert);
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
        ([22, 3, 0, 0, 40], PROTOCOL_VERSION),
        ([22, 3, 2, 0, 40], PROTOCOL_VERSION),
        ([22, 3, 4, 0, 40], PROTOCOL_VERSION),
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
    for header in [[22, 3, 1, 0, 40], [22, 3, 3, 0x40, 1], [24, 3, 3, 0, 2], [23, 3, 3, 0x41, 1]] {
        let mut client = End::new(engine.connect("localhost").unwrap());
        client.work().unwrap();
        client.take_outbox();
        assert!(matches!(client.deliver(&header), Err(Error::Peer(_))), "{header:?}");
        let alert = client.take_outbox();
        assert!(matches!(alert[..], [21, 3, _, 0, 2, 2, _]), "{header:?}: {alert:?}");
    }
}

#[test]
fn our_own_records_have_the_exact_alerts() {
    let configs = configs();
    let engine = fused::Engine::new(Some(&configs.server), Some(&configs.client)).unwrap();
    check_open(&engine, &configs, |alert| alert);
    check_hello(&engine);
    check_answer(&engine);
}

#[test]
fn headers_in_front_of_rustls_are_checked_too() {
    let configs = configs();
    let engine = Library::new(Some(&configs.server), Some(&configs.client)).unwrap();
    // Only rustls can seal an alert, and it has no other for the header alone. If the record is whole, it is
    // record_overflow: `impossible_inner_plaintexts` of the conformance suite.
    check_open(&engine, &configs, |alert| if alert == UNEXPECTED_MESSAGE { alert } else { DECODE_ERROR });
    check_hello(&engine);
    check_answer(&engine);
}
