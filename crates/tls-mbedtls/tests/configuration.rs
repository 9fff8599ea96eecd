//! What the engine makes of a configuration beyond what the suite tests.
#![cfg(feature = "mbedtls")]
#![expect(clippy::panic, reason = "a test fails by panicking")]

use tautline_testkit::certificate::{Authority, KeyKind, Leaf};
use tautline_tls::{Certificate, Error, ServerConfig};
use tautline_tls_libssl::Engine;
use tautline_tls_mbedtls::FLAVOUR;

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
    let ed25519 = authority.issue(&Leaf { key: KeyKind::Ed25519, ..leaf() }).unwrap();
    let stapled = Certificate { ocsp: vec![1], ..certificate };
    assert!(refusal(&server(ed25519)).contains("use Ed25519 keys (server certificate); take fused or rustls"));
    assert!(refusal(&server(stapled)).contains("staple OCSP responses; take fused or rustls"));
    assert!(FLAVOUR.version().starts_with("Mbed TLS 3.6"));
}
