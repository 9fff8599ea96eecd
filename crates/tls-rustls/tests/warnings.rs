//! Certificates that every peer rejects are reported when they are configured.

use tautline_testkit::certificate::{Authority, Leaf, Usage, Validity};
use tautline_testkit::warnings;
use tautline_tls::{Certificate, ClientConfig, Roots, ServerConfig};
use tautline_tls_rustls::Engine;

#[test]
fn unusable_certificates_are_reported() {
    let authority = Authority::new("Test").unwrap();
    let leaf = Leaf::new(&["localhost"]);
    let issue = |leaf: Leaf<'_>| authority.issue(&leaf).unwrap();
    let itself = Certificate::new(authority.certificate(), authority.key());
    for (certificate, words) in [
        (issue(leaf), ""),
        (issue(leaf.with_usage(Usage::Both)), ""),
        (issue(leaf.with_validity(Validity::Expired)), "expired on 20"),
        (issue(leaf.with_validity(Validity::NotYet)), "not valid before 20"),
        (issue(leaf.with_usage(Usage::Client)), "another use"),
        (itself, "belongs to an authority"),
    ] {
        let usable = issue(leaf);
        let config = ServerConfig::new([usable, certificate]);
        let said = warnings(|| drop(Engine::server(&config).unwrap()));
        match words {
            "" => assert!(said.is_empty(), "{said:?}"),
            words => assert!(said.len() == 1 && said[0].contains(words), "{said:?} should say {words:?}"),
        }
        assert!(said.iter().all(|line| line.starts_with("server certificate 2 of 2 ")), "{said:?}");
    }
    let roots = Roots::Pem(authority.certificate().into());
    let expired = issue(leaf.with_validity(Validity::Expired).with_usage(Usage::Client));
    let config = ClientConfig::default().with_roots(roots).with_certificate(expired);
    let said = warnings(|| drop(Engine::client(&config).unwrap()));
    assert!(said.len() == 1 && said[0].starts_with("client certificate expired"), "{said:?}");
}
