//! What engines make of a configuration beyond what the suite tests.
#![cfg(any(feature = "openssl", feature = "aws-lc", feature = "boringssl", feature = "libressl"))]
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use tautline_testkit::certificate::{Authority, Leaf, Validity};
use tautline_testkit::pair::{Pair, Split};
use tautline_tls::{
    Capabilities, Certificate, ClientConfig, Engine as _, Error, Facts, KeyExchange, Roots, ServerConfig, Session as _,
    Tickets, Versions,
};
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

/// A client's configuration with which this library's servers resume.
fn resuming(flavour: Flavour, authority: &Authority) -> ClientConfig {
    let versions = if Capabilities::of(flavour.name()).unwrap().tickets { Versions::All } else { Versions::Tls12 };
    ClientConfig { roots: Roots::Pem(authority.certificate().into()), versions, ..ClientConfig::default() }
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
fn a_reload_changes_certificates_and_keeps_ticket_keys() {
    let authority = Authority::new("Test").unwrap();
    for &flavour in Flavour::ALL {
        let config = server(authority.issue(&leaf()).unwrap());
        let accepting = Engine::new(flavour, Some(&config), None).unwrap();
        let client = resuming(flavour, &authority);
        let connecting = Engine::new(flavour, None, Some(&client)).unwrap();
        let first = shake(&connecting, &accepting);
        assert!(!first.resumed);
        let clone = accepting.clone();
        clone.reload(&server(authority.issue(&leaf()).unwrap())).unwrap();
        assert!(shake(&connecting, &accepting).resumed, "{flavour}: tickets outlive a reload");
        let stranger = ClientConfig { no_resumption: true, ..client.clone() };
        let stranger = Engine::new(flavour, None, Some(&stranger)).unwrap();
        assert_ne!(shake(&stranger, &accepting).peer_certificates, first.peer_certificates, "{flavour}");

        let expired = authority.issue(&Leaf { validity: Validity::Expired, ..leaf() }).unwrap();
        let mut unlinked = authority.issue(&leaf()).unwrap();
        unlinked.chain.extend(Authority::new("Other").unwrap().certificate().as_bytes());
        for (bad, words) in [(expired, "expired on"), (unlinked, "chain is broken")] {
            let refused = accepting.reload(&server(bad));
            assert!(matches!(&refused, Err(Error::Config(why)) if why.contains(words)), "{flavour}: {refused:?}");
        }
        assert!(shake(&connecting, &accepting).resumed, "{flavour}: what is refused changes nothing");
        // Other ticket keys: what they did not seal they do not open.
        let tickets = Tickets::Own { rotate: core::time::Duration::from_secs(60) };
        accepting.reload(&ServerConfig { tickets, ..server(authority.issue(&leaf()).unwrap()) }).unwrap();
        assert!(!shake(&connecting, &accepting).resumed, "{flavour}");
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
