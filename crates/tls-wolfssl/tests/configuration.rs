//! What the engine makes of a configuration beyond what the suite tests.
#![cfg(feature = "wolfssl")]
#![expect(clippy::panic, reason = "a test fails by panicking")]

use tautline_testkit::certificate::{Authority, KeyKind, Leaf};
use tautline_testkit::pair::{Pair, Split};
use tautline_tls::{Certificate, ClientConfig, Error, KeyExchange, Roots, ServerConfig, Session as _};
use tautline_tls_libssl::Engine;
use tautline_tls_wolfssl::FLAVOUR;

fn leaf() -> Leaf<'static> {
    Leaf { names: &["localhost"], ..Leaf::default() }
}

fn server(certificate: Certificate) -> ServerConfig {
    ServerConfig { certificates: vec![certificate], ..ServerConfig::default() }
}

fn refusal(config: &ServerConfig) -> String {
    match Engine::new(FLAVOUR, Some(config), None) {
        Err(Error::Config(why)) => why,
        other => panic!("{:?} is no refusal", other.err()),
    }
}

#[test]
fn what_it_cannot_do_names_an_engine_that_can() {
    let authority = Authority::new("Test").unwrap();
    let certificate = authority.issue(&leaf()).unwrap();
    let rsa = authority.issue(&Leaf { key: KeyKind::Rsa2048, ..leaf() }).unwrap();
    let ed25519 = authority.issue(&Leaf { key: KeyKind::Ed25519, ..leaf() }).unwrap();
    let stapled = Certificate { ocsp: vec![1], ..certificate.clone() };
    let both = ServerConfig { certificates: vec![rsa, certificate], ..ServerConfig::default() };
    assert!(refusal(&both).contains("keys of several kinds for one name; take fused or rustls or openssl"));
    assert!(refusal(&server(ed25519)).contains("use Ed25519 keys (server certificate); take fused or rustls"));
    assert!(refusal(&server(stapled)).contains("staple OCSP responses; take fused or rustls"));
    assert!(FLAVOUR.version().starts_with("wolfSSL 5."), "{}", FLAVOUR.version());
}

#[test]
fn clients_choose_their_key_exchange() {
    let authority = Authority::new("Test").unwrap();
    let accepting = Engine::new(FLAVOUR, Some(&server(authority.issue(&leaf()).unwrap())), None).unwrap();
    for (key_exchange, group) in [(KeyExchange::All, "X25519MLKEM768"), (KeyExchange::Classical, "X25519")] {
        let client = ClientConfig { roots: Roots::DangerNone, key_exchange, ..ClientConfig::default() };
        let connecting = Engine::new(FLAVOUR, None, Some(&client)).unwrap();
        let mut pair = Pair::new(&connecting, &accepting, "localhost").unwrap();
        pair.handshake(&mut Split::Whole).unwrap();
        assert_eq!(pair.client.session.facts().group, group);
    }
}
