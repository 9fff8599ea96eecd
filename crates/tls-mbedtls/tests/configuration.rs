//! Tests of the configuration that the conformance suite does not have.
#![cfg(feature = "mbedtls")]
#![expect(clippy::panic, reason = "a test fails by panicking")]

use tautline_testkit::certificate::{Authority, KeyKind, Leaf};
use tautline_tls::{Certificate, Error, ServerConfig};
use tautline_tls_libssl::Engine;
use tautline_tls_mbedtls::FLAVOUR;

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
    let ed25519 = authority.issue(&leaf().with_key(KeyKind::Ed25519)).unwrap();
    let stapled = certificate.with_ocsp(vec![1]);
    assert!(refusal(&server(ed25519)).contains("use Ed25519 keys (server certificate); take an engine that can"));
    assert!(refusal(&server(stapled)).contains("staple OCSP responses; take an engine that can"));
    assert!(FLAVOUR.version().starts_with("Mbed TLS 3.6"));
}
