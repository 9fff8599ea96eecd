//! The selection of cipher suite and certificate.

use rustls::CipherSuite;
use std::sync::Arc;
use tautline_testkit::certificate::{Authority, KeyKind, Leaf};
use tautline_testkit::pair::End;
use tautline_tls::{Engine as _, ServerConfig, Session as _, Versions};
use tautline_tls_rustls::Engine;

/// The suite that the server negotiates with a client that lists these suites in this order.
fn negotiated(server: &Engine, suites: &[CipherSuite]) -> CipherSuite {
    let mut provider = rustls::crypto::aws_lc_rs::default_provider();
    let all = std::mem::take(&mut provider.cipher_suites);
    let find = |wanted| all.iter().find(|suite| suite.suite() == wanted).copied();
    provider.cipher_suites = suites.iter().filter_map(|suite| find(*suite)).collect();
    let versions: Vec<_> = rustls::ALL_VERSIONS
        .iter()
        .copied()
        .filter(|version| provider.cipher_suites.iter().any(|suite| suite.version().version == version.version))
        .collect();
    let config = rustls::ClientConfig::builder_with_provider(Arc::new(provider))
        .with_protocol_versions(&versions)
        .unwrap()
        .with_root_certificates(rustls::RootCertStore::empty())
        .with_no_client_auth();
    let name = rustls::pki_types::ServerName::try_from("localhost").unwrap();
    let mut client = rustls::ClientConnection::new(Arc::new(config), name).unwrap();
    let mut hello = Vec::new();
    client.write_tls(&mut hello).unwrap();
    let mut end = End::new(server.accept().unwrap());
    end.deliver(&hello).unwrap();
    end.session.tls_info().suite.unwrap().number().into()
}

/// Whether the processor has AES instructions.
fn has_aes() -> bool {
    #[cfg(target_arch = "x86_64")]
    return std::arch::is_x86_feature_detected!("aes");
    #[cfg(target_arch = "aarch64")]
    return std::arch::is_aarch64_feature_detected!("aes");
    #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
    return false;
}

#[test]
fn the_order_of_the_server_decides_unless_the_client_prefers_chacha20() {
    use CipherSuite as S;
    let authority = Authority::new("Test").unwrap();
    let certificate = authority.issue(&Leaf::new(&["localhost"])).unwrap();
    for versions in [Versions::All, Versions::Tls12] {
        let config = ServerConfig::new([certificate.clone()]).with_versions(versions);
        let server = Engine::server(&config).unwrap();
        let [aes_128, aes_256, chacha] = if versions == Versions::All {
            [S::TLS13_AES_128_GCM_SHA256, S::TLS13_AES_256_GCM_SHA384, S::TLS13_CHACHA20_POLY1305_SHA256]
        } else {
            [
                S::TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256,
                S::TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384,
                S::TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256,
            ]
        };
        if has_aes() {
            assert_eq!(negotiated(&server, &[aes_256, aes_128, chacha]), aes_128);
            assert_eq!(negotiated(&server, &[aes_256, chacha, aes_128]), aes_128);
        } else {
            assert_eq!(negotiated(&server, &[aes_256, aes_128, chacha]), chacha);
        }
        assert_eq!(negotiated(&server, &[aes_256]), aes_256);
        assert_eq!(negotiated(&server, &[chacha, aes_128, aes_256]), chacha);
        assert_eq!(negotiated(&server, &[chacha, aes_256]), chacha);
    }
}

#[test]
fn selects_a_certificate_that_the_client_can_verify() {
    use CipherSuite as S;
    let authority = Authority::new("Test").unwrap();
    let issue = |key| authority.issue(&Leaf::new(&["localhost"]).with_key(key)).unwrap();
    for keys in [[KeyKind::P256, KeyKind::Rsa2048], [KeyKind::Rsa2048, KeyKind::P256]] {
        let server = ServerConfig::new(keys.map(issue));
        let server = Engine::server(&server).unwrap();
        let (rsa, ecdsa) = (S::TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384, S::TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384);
        assert_eq!(negotiated(&server, &[rsa]), rsa);
        assert_eq!(negotiated(&server, &[ecdsa]), ecdsa);
        assert_eq!(negotiated(&server, &[rsa, ecdsa]), ecdsa, "ECDSA signs faster");
    }
}
