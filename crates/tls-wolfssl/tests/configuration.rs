//! Tests of the configuration that the conformance suite does not have.
#![cfg(feature = "wolfssl")]
#![expect(clippy::panic, reason = "a test fails by panicking")]

use tautline_testkit::certificate::{Authority, KeyKind, Leaf};
use tautline_testkit::pair::{Pair, Split};
use tautline_tls::{Certificate, ClientConfig, Error, KeyExchange, NamedGroup, Roots, ServerConfig, Session as _};
use tautline_tls_libssl::Engine;
use tautline_tls_wolfssl::FLAVOUR;

fn leaf() -> Leaf<'static> {
    Leaf::new(&["localhost"])
}

fn server(certificate: Certificate) -> ServerConfig {
    ServerConfig::new([certificate])
}

fn refusal(config: &ServerConfig) -> String {
    match Engine::new(FLAVOUR, Some(config), None) {
        Err(Error::Config(why)) => why,
        other => panic!("{:?} is no refusal", other.err()),
    }
}

#[test]
fn a_refusal_names_an_engine_with_the_capability() {
    let authority = Authority::new("Test").unwrap();
    let certificate = authority.issue(&leaf()).unwrap();
    let rsa = authority.issue(&leaf().with_key(KeyKind::Rsa2048)).unwrap();
    let ed25519 = authority.issue(&leaf().with_key(KeyKind::Ed25519)).unwrap();
    let stapled = certificate.clone().with_ocsp(vec![1]);
    let both = ServerConfig::new([rsa, certificate]);
    assert!(refusal(&both).contains("keys of several kinds for one name; take an engine that can"));
    assert!(refusal(&server(ed25519)).contains("use Ed25519 keys (server certificate); take an engine that can"));
    assert!(refusal(&server(stapled)).contains("staple OCSP responses; take an engine that can"));
    assert!(FLAVOUR.version().starts_with("wolfSSL 5."), "{}", FLAVOUR.version());
}

#[test]
fn clients_choose_their_key_exchange() {
    let authority = Authority::new("Test").unwrap();
    let accepting = Engine::new(FLAVOUR, Some(&server(authority.issue(&leaf()).unwrap())), None).unwrap();
    for (key_exchange, group) in
        [(KeyExchange::All, NamedGroup::X25519MlKem768), (KeyExchange::Classical, NamedGroup::X25519)]
    {
        let client = ClientConfig::default().with_roots(Roots::DangerNone).with_key_exchange(key_exchange);
        let connecting = Engine::new(FLAVOUR, None, Some(&client)).unwrap();
        let mut pair = Pair::new(&connecting, &accepting, "localhost").unwrap();
        pair.handshake(&mut Split::Whole).unwrap();
        assert_eq!(pair.client.session.tls_info().group, Some(group));
    }
}
