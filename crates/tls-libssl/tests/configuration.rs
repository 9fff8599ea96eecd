//! What engines make of a configuration beyond what the suite tests.
#![cfg(any(feature = "openssl", feature = "aws-lc", feature = "boringssl", feature = "libressl"))]
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use tautline_testkit::certificate::{Authority, Leaf};
use tautline_testkit::pair::{Pair, Split};
use tautline_tls::{Certificate, ClientConfig, Error, Facts, KeyExchange, Roots, ServerConfig, Session as _};
use tautline_tls_libssl::{Engine, Flavour};

fn leaf() -> Leaf<'static> {
    Leaf { names: &["localhost"], ..Leaf::default() }
}

fn server(certificate: Certificate) -> ServerConfig {
    ServerConfig { certificates: vec![certificate], ..ServerConfig::default() }
}

/// What client and server agree on; a message each way carries late tickets.
fn shake(client: &Engine, server: &Engine) -> Facts {
    let mut pair = Pair::new(client, server, "localhost").unwrap();
    pair.handshake(&mut Split::Whole).unwrap();
    pair.client.send(&[b"hello"]).unwrap();
    pair.server.send(&[b"hello"]).unwrap();
    pair.settle(&mut Split::Whole).unwrap();
    assert_eq!((pair.client.received, pair.server.received), (b"hello".to_vec(), b"hello".to_vec()));
    pair.client.session.facts()
}

#[test]
fn clients_choose_their_key_exchange() {
    let authority = Authority::new("Test").unwrap();
    let config = server(authority.issue(&leaf()).unwrap());
    for &flavour in Flavour::ALL {
        let accepting = Engine::new(flavour, Some(&config), None).unwrap();
        for (key_exchange, expected) in [(KeyExchange::All, "X25519MLKEM768"), (KeyExchange::Classical, "X25519")] {
            let roots = Roots::Pem(authority.certificate().into());
            let client = ClientConfig { roots, key_exchange, ..ClientConfig::default() };
            let connecting = Engine::new(flavour, None, Some(&client)).unwrap();
            let group = shake(&connecting, &accepting).group;
            // A system's OpenSSL or LibreSSL may be older than the hybrid.
            assert!(group == expected || (group == "X25519" && !cfg!(feature = "engines")), "{flavour}: {group}");
        }
    }
}

#[test]
fn what_an_engine_cannot_do_names_one_that_can() {
    let authority = Authority::new("Test").unwrap();
    let certificate = authority.issue(&leaf()).unwrap();
    let stapled = Certificate { ocsp: vec![1], ..certificate };
    for &flavour in Flavour::ALL {
        let refused = Engine::new(flavour, Some(&server(stapled.clone())), None).err();
        assert!(
            matches!(&refused, Some(Error::Config(why)) if why.contains("take fused or rustls")),
            "{flavour}: {refused:?}"
        );
        assert!(!flavour.version().is_empty());
    }
}
