//! Tests of the configuration that the conformance suite does not have.
#![cfg(any(feature = "openssl", feature = "aws-lc", feature = "boringssl", feature = "libressl"))]
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::sync::Arc;
use tautline_testkit::certificate::{Authority, Leaf};
use tautline_testkit::pair::{Pair, Split};
use tautline_tls::{
    Certificate, Challenges, ClientAuth, ClientConfig, ClientRule, Error, KeyExchange, NamedGroup, Roots, ServerConfig,
    Session as _, TlsInfo,
};
use tautline_tls_libssl::{Engine, Flavour};

fn leaf() -> Leaf<'static> {
    Leaf::new(&["localhost"])
}

fn server(certificate: Certificate) -> ServerConfig {
    ServerConfig::new([certificate])
}

/// Returns the negotiated parameters. A message each way carries late tickets.
fn negotiate(client: &Engine, server: &Engine) -> TlsInfo {
    let mut pair = Pair::new(client, server, "localhost").unwrap();
    pair.handshake(&mut Split::Whole).unwrap();
    pair.client.send(&[b"hello"]).unwrap();
    pair.server.send(&[b"hello"]).unwrap();
    pair.settle(&mut Split::Whole).unwrap();
    assert_eq!((pair.client.received, pair.server.received), (b"hello".to_vec(), b"hello".to_vec()));
    pair.client.session.tls_info()
}

#[test]
fn clients_choose_their_key_exchange() {
    let authority = Authority::new("Test").unwrap();
    let config = server(authority.issue(&leaf()).unwrap());
    for &flavour in Flavour::ALL {
        let accepting = Engine::new(flavour, Some(&config), None).unwrap();
        for (key_exchange, expected) in
            [(KeyExchange::All, NamedGroup::X25519MlKem768), (KeyExchange::Classical, NamedGroup::X25519)]
        {
            let roots = Roots::Pem(authority.certificate().into());
            let client = ClientConfig::default().with_roots(roots).with_key_exchange(key_exchange);
            let connecting = Engine::new(flavour, None, Some(&client)).unwrap();
            let group = negotiate(&connecting, &accepting).group.unwrap();
            // A system's OpenSSL or LibreSSL may be too old for X25519MLKEM768.
            assert!(
                group == expected || (group == NamedGroup::X25519 && !cfg!(feature = "engines")),
                "{flavour}: {group}"
            );
        }
    }
}

struct Nobody;

impl Challenges for Nobody {
    fn certificate(&self, _: &str) -> Option<Certificate> {
        None
    }
}

#[test]
fn a_refusal_names_an_engine_with_the_capability() {
    let authority = Authority::new("Test").unwrap();
    let certificate = authority.issue(&leaf()).unwrap();
    let mut challenged = server(certificate.clone());
    challenged.challenges = Some(Arc::new(Nobody));
    let roots = ClientAuth::Required(authority.certificate().into());
    let ruled = server(certificate.with_client_rule(ClientRule::new("staff", roots)));
    for &flavour in Flavour::ALL {
        for config in [&challenged, &ruled] {
            let refused = Engine::new(flavour, Some(config), None).err();
            assert!(
                matches!(&refused, Some(Error::Config(why)) if why.contains("take an engine that can")),
                "{flavour}: {refused:?}"
            );
        }
        assert!(!flavour.version().is_empty());
    }
}
