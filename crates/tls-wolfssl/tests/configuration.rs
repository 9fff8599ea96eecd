//! What the engine makes of a configuration beyond what the suite tests.
#![cfg(feature = "wolfssl")]
#![expect(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

use tautline_testkit::certificate::{Authority, KeyKind, Leaf, Validity};
use tautline_testkit::pair::{Pair, Split};
use tautline_tls::{
    Certificate, ClientAuth, ClientConfig, Engine as _, Error, Facts, Roots, ServerConfig, Session as _, Versions,
};
use tautline_tls_libssl::Engine;
use tautline_tls_wolfssl::FLAVOUR;

fn leaf() -> Leaf<'static> {
    Leaf { names: &["localhost"], ..Leaf::default() }
}

fn server(certificate: Certificate) -> ServerConfig {
    ServerConfig { certificates: vec![certificate], ..ServerConfig::default() }
}

/// What client and server agree on.
fn shake(client: &Engine, server: &Engine) -> Facts {
    let mut pair = Pair::new(client, server, "localhost").unwrap();
    pair.handshake(&mut Split::Whole).unwrap();
    assert!(pair.client.open && pair.server.open);
    pair.client.session.facts()
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
fn a_reload_changes_certificates_and_keeps_ticket_keys() {
    let authority = Authority::new("Test").unwrap();
    let accepting = Engine::new(FLAVOUR, Some(&server(authority.issue(&leaf()).unwrap())), None).unwrap();
    let client = ClientConfig { roots: Roots::Pem(authority.certificate().into()), ..ClientConfig::default() };
    let connecting = Engine::new(FLAVOUR, None, Some(&client)).unwrap();
    let first = shake(&connecting, &accepting);
    assert!(!first.resumed);
    assert_eq!(first.group, "X25519MLKEM768");
    accepting.reload(&server(authority.issue(&leaf()).unwrap())).unwrap();
    assert!(shake(&connecting, &accepting).resumed, "tickets outlive a reload");
    let stranger = ClientConfig { no_resumption: true, ..client };
    let stranger = Engine::new(FLAVOUR, None, Some(&stranger)).unwrap();
    assert_ne!(shake(&stranger, &accepting).peer_certificates, first.peer_certificates);

    let expired = authority.issue(&Leaf { validity: Validity::Expired, ..leaf() }).unwrap();
    let mut unlinked = authority.issue(&leaf()).unwrap();
    unlinked.chain.extend(Authority::new("Other").unwrap().certificate().as_bytes());
    for (bad, words) in [(expired, "expired on"), (unlinked, "chain is broken")] {
        let refused = accepting.reload(&server(bad));
        assert!(matches!(&refused, Err(Error::Config(why)) if why.contains(words)), "{refused:?}");
    }
    let mut linked = authority.issue(&leaf()).unwrap();
    linked.chain.extend(authority.certificate().as_bytes());
    accepting.reload(&server(linked)).unwrap();
}

#[test]
fn an_optional_certificate_is_verified() {
    let authority = Authority::new("Test").unwrap();
    let stranger = Authority::new("Somebody else").unwrap();
    let client_auth = ClientAuth::Optional(authority.certificate().into());
    let config = ServerConfig { client_auth, ..server(authority.issue(&leaf()).unwrap()) };
    let accepting = Engine::new(FLAVOUR, Some(&config), None).unwrap();
    let client = ClientConfig {
        roots: Roots::Pem(authority.certificate().into()),
        certificate: Some(stranger.issue(&leaf()).unwrap()),
        ..ClientConfig::default()
    };
    let connecting = Engine::new(FLAVOUR, None, Some(&client)).unwrap();
    let mut pair = Pair::new(&connecting, &accepting, "localhost").unwrap();
    let failure = pair.handshake(&mut Split::Whole).unwrap_err();
    assert!(matches!(&failure.error, Error::Certificate(_)), "{failure:?}");
}

/// Connections of one engine on several threads share keys, randomness, tickets and sessions, and are told of their own errors.
#[test]
fn threads_share_an_engine() {
    let authority = Authority::new("Test").unwrap();
    for (key, versions) in [(KeyKind::P256, Versions::All), (KeyKind::Rsa2048, Versions::Tls12)] {
        let certificate = authority.issue(&Leaf { key, ..leaf() }).unwrap();
        let accepting = Engine::new(FLAVOUR, Some(&server(certificate.clone())), None).unwrap();
        let roots = Roots::Pem(authority.certificate().into());
        let client = ClientConfig { roots, versions, ..ClientConfig::default() };
        let connecting = Engine::new(FLAVOUR, None, Some(&client)).unwrap();
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..40 {
                        shake(&connecting, &accepting);
                        accepting.reload(&server(certificate.clone())).unwrap();
                    }
                });
            }
        });
    }
}
