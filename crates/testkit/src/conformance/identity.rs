//! Who is whom: certificates of both sides, names, protocols.

use super::differences::Difference;
use super::{Engines, LOCALHOST, Make, certificate, client_config, greet, issue, server_config, trusted};
use crate::certificate::{Authority, KeyKind, Leaf, Usage, Validity};
use crate::pair::{Failure, Side, Split};
use rustls::CipherSuite;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use std::sync::Arc;
use tautline_tls::{
    Capabilities, Certificate, ClientAuth, ClientConfig, Engine, Error, Roots, ServerConfig, Session, Versions,
};
use tautline_window::Buf;

/// The DER form of a certificate's end entity.
fn der(certificate: &Certificate) -> Vec<u8> {
    CertificateDer::from_pem_slice(&certificate.chain).unwrap().to_vec()
}

/// SNI chooses the certificate: exact names, then wildcards, then the first.
pub fn names_choose_certificates<E: Engine>(make: impl Make<E>) {
    let first = certificate(&["first.example"], KeyKind::P256);
    let exact = certificate(&["Deep.Second.example", "second.example"], KeyKind::P256);
    let wildcard = certificate(&["*.second.example"], KeyKind::P256);
    let numeric = certificate(&["127.0.0.1", "::1"], KeyKind::P256);
    let server = ServerConfig {
        certificates: vec![first.clone(), exact.clone(), wildcard.clone(), numeric],
        ..ServerConfig::default()
    };
    // Unverified, since the point is what a server shows to those who ask for a name that it does not have.
    let client = ClientConfig { roots: Roots::DangerNone, ..client_config() };
    let engines = Engines::new(&make, &server, &client);
    for (host, expected) in [
        ("first.example", &first),
        ("FIRST.example", &first),
        ("second.example", &exact),
        ("deep.second.example", &exact),
        ("other.second.example", &wildcard),
        ("too.deep.second.example", &first),
        ("unknown.example", &first),
        ("127.0.0.1", &first),
    ] {
        let pair = engines.open(host);
        let facts = pair.client.session.facts();
        assert_eq!(facts.peer_certificates, [der(expected)], "{host}");
        let asked = (!host.starts_with(char::is_numeric)).then(|| host.to_ascii_lowercase());
        let seen = pair.server.session.facts().server_name.map(|name| name.to_ascii_lowercase());
        assert_eq!(seen, asked, "{host}");
    }
    let verifying = Engines::new(&make, &server, &client_config());
    greet(&mut verifying.open("other.second.example"));
    let only_numeric =
        ServerConfig { certificates: vec![certificate(&["127.0.0.1", "::1"], KeyKind::P256)], ..server_config() };
    let verifying = Engines::new(&make, &only_numeric, &client_config());
    for host in ["127.0.0.1", "::1", "[::1]"] {
        greet(&mut verifying.open(host));
    }
}

/// What a server's signature will cost is known from the first bytes of a client.
pub fn signatures_are_weighed<E: Engine>(make: impl Make<E>) {
    let rsa = certificate(&["localhost", "*.dear.example"], KeyKind::Rsa2048);
    let certificates = vec![rsa, certificate(&["cheap.example"], KeyKind::P256)];
    let has_tickets =
        Capabilities::of(make(Some(&server_config()), None).unwrap().name()).is_none_or(|one| one.resumes_tls13);
    let versions = if has_tickets { Versions::All } else { Versions::Tls12 };
    let client = ClientConfig { versions, ..client_config() };
    let engines = Engines::new(&make, &ServerConfig { certificates, ..server_config() }, &client);
    let hello = |host: &str| {
        let mut out = Buf::new();
        let _ = engines.client.connect(host).unwrap().handshake(&mut [], &mut out).unwrap();
        out.filled().to_vec()
    };
    let first = hello("localhost");
    let [dear, cheap, wild] =
        ["localhost", "cheap.example", "a.dear.example"].map(|host| engines.server.signing(&hello(host)).unwrap());
    assert!(!cheap.time.is_zero() && dear.time > cheap.time && wild.time > cheap.time, "{dear:?}, {cheap:?}");
    assert!(!dear.may_resume);
    assert_eq!(engines.server.signing(&first[..first.len() - 1]), None);
    assert_eq!(engines.client.signing(&first), None);
    greet(&mut engines.open("localhost"));
    assert!(engines.server.signing(&hello("localhost")).unwrap().may_resume);
}

/// In TLS 1.2 the suites that a client lists decide too, whatever signatures it can verify.
pub fn suites_are_weighed<E: Engine>(make: impl Make<E>) {
    let server = make(Some(&server_config()), None).unwrap();
    if !Capabilities::of(server.name()).is_none_or(|one| one.several_keys) {
        return;
    }
    let certificates = [KeyKind::P256, KeyKind::Rsa2048].map(|key| certificate(&["localhost"], key)).to_vec();
    server.reload(&ServerConfig { certificates, ..server_config() }).unwrap();
    let cost = |kind: &str| server.key_costs().into_iter().find(|cost| cost.kind == kind).unwrap().time;
    let hello = |is_wanted: fn(CipherSuite) -> bool| {
        let mut provider = rustls::crypto::aws_lc_rs::default_provider();
        provider.cipher_suites.retain(|suite| is_wanted(suite.suite()));
        let config = rustls::ClientConfig::builder_with_provider(Arc::new(provider))
            .with_protocol_versions(&[&rustls::version::TLS12])
            .unwrap()
            .with_root_certificates(rustls::RootCertStore::empty())
            .with_no_client_auth();
        let mut client = rustls::ClientConnection::new(Arc::new(config), "localhost".try_into().unwrap()).unwrap();
        let mut out = Vec::new();
        client.write_tls(&mut out).unwrap();
        out
    };
    let rsa = hello(|suite| suite == CipherSuite::TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256);
    assert_eq!(server.signing(&rsa).unwrap().time, cost("RSA-2048"));
    let ecdsa = hello(|suite| suite == CipherSuite::TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256);
    assert_eq!(server.signing(&ecdsa).unwrap().time, cost("ECDSA-256"));
}

/// What keys take to sign is measured when they are loaded, once for each kind.
pub fn keys_are_measured_when_loaded<E: Engine>(make: impl Make<E>) {
    let names = ["a.example", "b.example", "c.example"];
    let kinds = [KeyKind::Rsa2048, KeyKind::P256, KeyKind::Rsa2048];
    let certificates = names.into_iter().zip(kinds).map(|(name, kind)| certificate(&[name], kind)).collect();
    let server = make(Some(&ServerConfig { certificates, ..server_config() }), None).unwrap();
    let told = |server: &E| -> Vec<_> {
        let costs = server.key_costs();
        assert!(costs.iter().all(|cost| !cost.time.is_zero()), "{costs:?}");
        costs.into_iter().map(|cost| (cost.kind, cost.certificates)).collect()
    };
    assert_eq!(told(&server), [("RSA-2048".to_owned(), 2), ("ECDSA-256".to_owned(), 1)]);
    server.reload(&server_config()).unwrap();
    assert_eq!(told(&server), [("ECDSA-256".to_owned(), 1)]);
    assert_eq!(make(None, Some(&client_config())).unwrap().key_costs(), []);
}

/// RSA, ECDSA and Ed25519 for one name: clients that verify everything get ECDSA, whatever the order of configuration, where
/// both ends say what they prefer.
pub fn key_types_stand_side_by_side<E: Engine>(make: impl Make<E>) {
    let server = make(Some(&server_config()), None).unwrap();
    let knows_several = Capabilities::of(server.name()).is_none_or(|one| one.several_keys);
    let [p256, rsa, ed25519] =
        [KeyKind::P256, KeyKind::Rsa2048, KeyKind::Ed25519].map(|key| certificate(&["localhost"], key));
    let knows_ed25519 =
        Engines::new(&make, &server_config(), &client_config()).keys().any(|key| key == KeyKind::Ed25519);
    let mut all = vec![rsa.clone(), ed25519, p256.clone()];
    if !knows_ed25519 {
        all.remove(1);
    }
    for versions in [Versions::Tls13, Versions::Tls12] {
        for certificates in [all.clone(), vec![p256.clone(), rsa.clone()]] {
            let server = ServerConfig { certificates, versions, ..server_config() };
            if !knows_several {
                let refused = make(Some(&server), None).err();
                assert!(matches!(&refused, Some(Error::Config(why)) if why.contains("fused")), "{refused:?}");
                continue;
            }
            for host in ["localhost", "127.0.0.1"] {
                let client = ClientConfig { roots: Roots::DangerNone, ..client_config() };
                let engines = Engines::new(&make, &server, &client);
                let shown = engines.open(host).client.session.facts().peer_certificates;
                let may_differ = engines.any_differs(Difference::TakesAnySignature) && shown == [der(&rsa)];
                let is_fine = shown == [der(&p256)] || may_differ;
                assert!(is_fine, "{host}, {versions:?}: {shown:?}");
            }
        }
    }
}

/// A client's certificate is asked for, checked and shown in the server's facts.
pub fn client_certificates<E: Engine>(make: impl Make<E>) {
    for key in Engines::new(&make, &server_config(), &client_config()).keys() {
        for versions in [Versions::Tls13, Versions::Tls12] {
            let own = issue(&Leaf { names: &["client"], key, usage: Usage::Client, ..Leaf::default() });
            for client_auth in [ClientAuth::Required(trusted()), ClientAuth::Optional(trusted())] {
                let server = ServerConfig { client_auth, versions, ..server_config() };
                let client = ClientConfig { certificate: Some(own.clone()), ..client_config() };
                let engines = Engines::new(&make, &server, &client);
                for _ in 0..2 {
                    let mut pair = engines.open("localhost");
                    greet(&mut pair);
                    let facts = pair.server.session.facts();
                    assert_eq!(facts.peer_certificates, [der(&own)], "{key:?}, {versions:?}");
                    assert!(!facts.resumed, "clients show their certificate every time");
                }
            }
        }
    }
    let server = ServerConfig { client_auth: ClientAuth::Optional(trusted()), ..server_config() };
    let mut pair = Engines::new(&make, &server, &client_config()).open("localhost");
    greet(&mut pair);
    assert!(pair.server.session.facts().peer_certificates.is_empty());
}

/// Clients without a certificate, or with a bad one, are refused with a reason, and learn so by an alert.
pub fn client_certificates_that_are_refused<E: Engine>(make: impl Make<E>) {
    let usage = Usage::Client;
    let names = &["client"][..];
    let stranger = Authority::new("Somebody else").unwrap();
    let cases = [
        (None, "required", &["certificate_required", "handshake_failure", "bad_certificate"][..]),
        (stranger.issue(&Leaf { names, usage, ..Leaf::default() }).ok(), "issuer", &["unknown_ca"][..]),
        (
            Some(issue(&Leaf { names, usage, validity: Validity::Expired, ..Leaf::default() })),
            "expired",
            &["certificate_expired"][..],
        ),
        (
            Some(issue(&Leaf { names, usage, validity: Validity::NotYet, ..Leaf::default() })),
            "not valid before",
            &["certificate_expired", "bad_certificate"][..],
        ),
        (
            Some(issue(&Leaf { names, usage: Usage::Server, ..Leaf::default() })),
            "another use",
            &["unsupported_certificate", "bad_certificate"][..],
        ),
    ];
    for versions in [Versions::Tls13, Versions::Tls12] {
        for (own, reason, alerts) in &cases {
            let server = ServerConfig { client_auth: ClientAuth::Required(trusted()), versions, ..server_config() };
            let client = ClientConfig { certificate: own.clone(), ..client_config() };
            let engines = Engines::new(&make, &server, &client);
            let (failure, mut pair) = engines.refused("localhost");
            expect_refusal(&failure, Side::Server, reason);
            let is_vague = engines.differs(Difference::VagueAlerts);
            let fits = |name: &str| alerts.contains(&name) || (is_vague && name == "certificate_unknown");
            let heard = pair.last_words(Side::Server);
            assert!(matches!(&heard, Some(Error::Alert(name)) if fits(name)), "{heard:?}");
        }
    }
}

fn expect_refusal(failure: &Failure, side: Side, reason: &str) {
    assert_eq!(failure.side, side);
    assert!(
        matches!(&failure.error, Error::Certificate(why) if why.contains(reason)),
        "{:?} should say {reason:?}",
        failure.error
    );
}

/// Clients refuse servers that they do not know, that are somebody else, or whose certificate is out of date, and say so.
pub fn server_certificates_that_are_refused<E: Engine>(make: impl Make<E>) {
    let names = &["localhost", "*.example.com"][..];
    let stranger = Authority::new(&"Tautline Test".to_uppercase()).unwrap();
    let impostor = Authority::new("Tautline Test").unwrap();
    let cases = [
        (
            "localhost",
            stranger.issue(&Leaf { names, ..Leaf::default() }).unwrap(),
            "issuer is not trusted",
            "unknown_ca",
        ),
        // Same name, other key.
        ("localhost", impostor.issue(&Leaf { names, ..Leaf::default() }).unwrap(), "", ""),
        (
            "localhost",
            issue(&Leaf { names, validity: Validity::Expired, ..Leaf::default() }),
            "expired on 20",
            "certificate_expired",
        ),
        ("localhost", issue(&Leaf { names, validity: Validity::NotYet, ..Leaf::default() }), "not valid before 20", ""),
        ("localhost", issue(&Leaf { names, usage: Usage::Client, ..Leaf::default() }), "another use", ""),
        ("elsewhere", LOCALHOST.clone(), "not valid for elsewhere, only for localhost", "bad_certificate"),
        ("a.b.example.com", issue(&Leaf { names, ..Leaf::default() }), "only for localhost, *.example.com", ""),
        ("127.0.0.1", LOCALHOST.clone(), "not valid for 127.0.0.1", ""),
    ];
    for versions in [Versions::Tls13, Versions::Tls12] {
        for (host, certificate, reason, alert) in &cases {
            let server = ServerConfig { certificates: vec![certificate.clone()], versions, ..server_config() };
            let engines = Engines::new(&make, &server, &client_config());
            let (failure, mut pair) = engines.refused(host);
            if *reason == "another use" && engines.differs(Difference::ShowsFitOnly) {
                assert_eq!(failure.side, Side::Server);
                continue;
            }
            expect_refusal(&failure, Side::Client, reason);
            let is_vague = Difference::VagueAlerts.is_known_of(engines.client.name());
            let fits = |name: &str| name.contains(alert) || (is_vague && name == "certificate_unknown");
            let heard = pair.last_words(Side::Client);
            let is_clear =
                versions == Versions::Tls13 && Difference::AlertsInTheClear.is_known_of(engines.client.name());
            if is_clear && engines.differs(Difference::DeafInTheClear) {
                assert!(heard.is_some(), "{host}: a server whose client is gone has a connection");
                continue;
            }
            assert!(matches!(&heard, Some(Error::Alert(name)) if fits(name)), "{host}: {heard:?}");
        }
    }
}

/// ALPN: the server's preference among what both know; no overlap is refused; a side without protocols does not care.
pub fn protocols<E: Engine>(make: impl Make<E>) {
    let list = |names: &[&str]| names.iter().map(|name| name.as_bytes().to_vec()).collect::<Vec<_>>();
    for versions in [Versions::Tls13, Versions::Tls12] {
        let engines = |ours: &[&str], theirs: &[&str]| {
            let server = ServerConfig { alpn: list(ours), versions, ..server_config() };
            Engines::new(&make, &server, &ClientConfig { alpn: list(theirs), ..client_config() })
        };
        for (ours, theirs, expected) in [
            (&["http/1.1"][..], &["http/1.1"][..], Some("http/1.1")),
            (&["http/1.1", "h2"], &["h2", "http/1.1"], Some("http/1.1")),
            (&[], &["http/1.1"], None),
            (&["http/1.1"], &[], None),
        ] {
            let pair = engines(ours, theirs).open("localhost");
            for facts in [pair.client.session.facts(), pair.server.session.facts()] {
                assert_eq!(facts.alpn.as_deref(), expected.map(str::as_bytes), "{ours:?}, {theirs:?}");
            }
        }
        let (failure, mut pair) = engines(&["http/1.1"], &["h2"]).refused("localhost");
        assert_eq!(failure.side, Side::Server);
        assert!(matches!(&failure.error, Error::Peer(why) if why.contains("ALPN")), "{:?}", failure.error);
        assert_eq!(pair.last_words(Side::Server), Some(Error::Alert("no_application_protocol".to_owned())));
    }
}

/// Without verification any certificate will do, but the server must still hold its key.
pub fn unverified_servers<E: Engine>(make: impl Make<E>) {
    let expired = issue(&Leaf { names: &["elsewhere"], validity: Validity::Expired, ..Leaf::default() });
    for versions in [Versions::Tls13, Versions::Tls12] {
        // One for each version: what is remembered of a server may bind a client to its version.
        let client = ClientConfig { roots: Roots::DangerNone, ..client_config() };
        let server = ServerConfig { certificates: vec![expired.clone()], versions, ..server_config() };
        let mut pair = Engines::new(&make, &server, &client).pair("localhost");
        pair.handshake(&mut Split::Whole).unwrap();
        greet(&mut pair);
    }
}
