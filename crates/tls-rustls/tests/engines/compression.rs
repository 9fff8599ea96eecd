//! Compressed certificates (RFC 8879).

use tautline_testkit::certificate::{Authority, KeyKind, Leaf};
use tautline_testkit::pair::{Pair, Split};
use tautline_tls::{Certificate, ClientConfig, Engine, Roots, ServerConfig, Session, Versions};
use tautline_tls_rustls::fused;

/// The certificate of a root, and a chain of two below it, whose first one has `names` beside `localhost`. Its key is an RSA key.
fn chain(names: usize) -> (Roots, Certificate) {
    let root = Authority::new("Example Root Authority").unwrap();
    let authority = root.intermediate("Example Intermediate Authority").unwrap();
    let others: Vec<String> = (0..names).map(|number| format!("node-{number}.example.com")).collect();
    let names: Vec<&str> = ["localhost"].into_iter().chain(others.iter().map(String::as_str)).collect();
    let mut certificate = authority.issue(&Leaf::new(&names).with_key(KeyKind::Rsa2048)).unwrap();
    certificate.chain.extend_from_slice(authority.certificate().as_bytes());
    (Roots::Pem(root.certificate().into()), certificate)
}

/// The bytes of the server's first flight in a handshake that succeeds.
fn flight<E: Engine>(server: &E, client: &E) -> usize {
    let mut pair = Pair::new(client, server, "localhost").unwrap();
    pair.client.work().unwrap();
    let hello = pair.client.take_outbox();
    pair.server.deliver(&hello).unwrap();
    let flight = pair.server.outbox.len();
    pair.handshake(&mut Split::Whole).unwrap();
    assert_eq!(pair.client.session.tls_info().peer_certificates.len(), 2);
    flight
}

fn check<E: Engine>(make: impl Fn(Option<&ServerConfig>, Option<&ClientConfig>) -> E) {
    for (names, shrinks) in [(50, true), (0, false)] {
        let (roots, certificate) = chain(names);
        let server = ServerConfig::new([certificate]);
        let client = ClientConfig::default().with_roots(roots).without_resumption();
        let serve = |config: ServerConfig| make(Some(&config), None);
        let connect = |config: ClientConfig| make(None, Some(&config));
        let compressing = serve(server.clone());
        let compressed = flight(&compressing, &connect(client.clone()));
        let whole = flight(&compressing, &connect(client.clone().without_certificate_compression()));
        // Signatures of ECDSA differ by a few bytes, and RSA signs here.
        assert_eq!(compressed + 512 <= whole, shrinks, "{names}: {compressed} of {whole}");
        let plain = serve(server.clone().without_certificate_compression());
        assert_eq!(flight(&plain, &connect(client.clone())), whole);
        // The form that is kept serves others too.
        assert_eq!(flight(&compressing, &connect(client.clone())), compressed);
        let old = client.with_versions(Versions::Tls12);
        flight(&compressing, &connect(old));
    }
}

#[test]
fn chains_that_shrink_are_sent_compressed_to_clients_that_take_them() {
    check(|server, client| tautline_tls_rustls::Engine::new(server, client).unwrap());
    check(|server, client| fused::Engine::new(server, client).unwrap());
}
