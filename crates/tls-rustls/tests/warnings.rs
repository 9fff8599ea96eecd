//! Certificates that every peer will refuse are reported when they are configured, not by the first user.

use tautline_testkit::certificate::{Authority, Leaf, Usage, Validity};
use tautline_testkit::warnings;
use tautline_tls::{Certificate, ClientConfig, Roots, ServerConfig};
use tautline_tls_rustls::Engine;

#[test]
fn unusable_certificates_are_reported() {
    let authority = Authority::new("Test").unwrap();
    let leaf = Leaf { names: &["localhost"], ..Leaf::default() };
    let issue = |leaf: Leaf<'_>| authority.issue(&leaf).unwrap();
    let itself = Certificate::new(authority.certificate(), authority.key());
    for (certificate, words) in [
        (issue(leaf), ""),
        (issue(Leaf { usage: Usage::Both, ..leaf }), ""),
        (issue(Leaf { validity: Validity::Expired, ..leaf }), "expired on 20"),
        (issue(Leaf { validity: Validity::NotYet, ..leaf }), "not valid before 20"),
        (issue(Leaf { usage: Usage::Client, ..leaf }), "another use"),
        (itself, "belongs to an authority"),
    ] {
        let usable = issue(leaf);
        let config = ServerConfig { certificates: vec![usable, certificate], ..ServerConfig::default() };
        let said = warnings(|| drop(Engine::server(&config).unwrap()));
        match words {
            "" => assert!(said.is_empty(), "{said:?}"),
            words => assert!(said.len() == 1 && said[0].contains(words), "{said:?} should say {words:?}"),
        }
        assert!(said.iter().all(|line| line.starts_with("server certificate 2 of 2 ")), "{said:?}");
    }
    let roots = Roots::Pem(authority.certificate().into());
    let expired = issue(Leaf { validity: Validity::Expired, usage: Usage::Client, ..leaf });
    let config = ClientConfig { roots, certificate: Some(expired), ..ClientConfig::default() };
    let said = warnings(|| drop(Engine::client(&config).unwrap()));
    assert!(said.len() == 1 && said[0].starts_with("client certificate expired"), "{said:?}");
}
