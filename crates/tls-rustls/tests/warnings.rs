//! Certificates that every peer will refuse are reported when they are configured, not by the first user.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::sync::Mutex;
use tautline_testkit::certificate::{Authority, Leaf, Usage, Validity};
use tautline_tls::{Certificate, ClientConfig, Roots, ServerConfig};
use tautline_tls_rustls::Engine;

struct Collected(Mutex<Vec<String>>);

static LOG: Collected = Collected(Mutex::new(Vec::new()));

impl log::Log for Collected {
    fn enabled(&self, metadata: &log::Metadata<'_>) -> bool {
        metadata.level() <= log::Level::Warn
    }

    fn log(&self, record: &log::Record<'_>) {
        if self.enabled(record.metadata()) {
            self.0.lock().unwrap().push(record.args().to_string());
        }
    }

    fn flush(&self) {}
}

#[test]
fn unusable_certificates_are_reported() {
    log::set_logger(&LOG).unwrap();
    log::set_max_level(log::LevelFilter::Warn);
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
        Engine::server(&ServerConfig { certificates: vec![usable, certificate], ..ServerConfig::default() }).unwrap();
        let said = std::mem::take(&mut *LOG.0.lock().unwrap());
        match words {
            "" => assert!(said.is_empty(), "{said:?}"),
            words => assert!(said.len() == 1 && said[0].contains(words), "{said:?} should say {words:?}"),
        }
        assert!(said.iter().all(|line| line.starts_with("server certificate 2 of 2 ")), "{said:?}");
    }
    let roots = Roots::Pem(authority.certificate().into());
    let expired = issue(Leaf { validity: Validity::Expired, usage: Usage::Client, ..leaf });
    Engine::client(&ClientConfig { roots, certificate: Some(expired), ..ClientConfig::default() }).unwrap();
    let said = std::mem::take(&mut *LOG.0.lock().unwrap());
    assert!(said.len() == 1 && said[0].starts_with("client certificate expired"), "{said:?}");
}
