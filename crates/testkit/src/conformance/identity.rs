//! Certificates of both sides, server names, the cost of signatures, and ALPN.

use super::differences::Difference;
use super::{Engines, LOCALHOST, Make, certificate, client_config, greet, issue, server_config, transfer, trusted};
use crate::certificate::{Authority, KeyKind, Leaf, Usage, Validity};
use crate::pair::{Failure, Side, Split};
use rustls::CipherSuite;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use std::sync::Arc;
use tautline_buf::Buf;
use tautline_tls::alert::Alert;
use tautline_tls::{Certificate, ClientAuth, Engine, Error, Roots, ServerConfig, Session, Versions};

/// The first certificate of the chain, as DER.
fn der(certificate: &Certificate) -> Vec<u8> {
    CertificateDer::from_pem_slice(&certificate.chain).unwrap().to_vec()
}

/// SNI chooses the certificate: exact names, then wildcards, then the first.
pub fn names_choose_certificates<E: Engine>(make: impl Make<E>) {
    let first = certificate(&["first.example"], KeyKind::P256);
    let exact = certificate(&["Deep.Second.example", "second.example"], KeyKind::P256);
    let wildcard = certificate(&["*.second.example"], KeyKind::P256);
    let numeric = certificate(&["127.0.0.1", "::1"], KeyKind::P256);
    let server = ServerConfig::new([first.clone(), exact.clone(), wildcard.clone(), numeric]);
    // The client does not verify, because some of the requested names are in no certificate of the server.
    let client = client_config().with_roots(Roots::DangerNone);
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
        let info = pair.client.session.tls_info();
        assert_eq!(info.peer_certificates, [der(expected)], "{host}");
        let asked = (!host.starts_with(char::is_numeric)).then(|| host.to_ascii_lowercase());
        let seen = pair.server.session.tls_info().server_name.map(|name| name.to_ascii_lowercase());
        assert_eq!(seen, asked, "{host}");
    }
    let verifying = Engines::new(&make, &server, &client_config());
    greet(&mut verifying.open("other.second.example"));
    let only_numeric = server_config().with_certificates([certificate(&["127.0.0.1", "::1"], KeyKind::P256)]);
    let verifying = Engines::new(&make, &only_numeric, &client_config());
    for host in ["127.0.0.1", "::1", "[::1]"] {
        greet(&mut verifying.open(host));
    }
}

/// A server estimates the cost of its signature from a whole ClientHello.
pub fn signatures_are_weighed<E: Engine>(make: impl Make<E>) {
    let rsa = certificate(&["localhost", "*.dear.example"], KeyKind::Rsa2048);
    let certificates = vec![rsa, certificate(&["cheap.example"], KeyKind::P256)];
    let has_tickets = make(Some(&server_config()), None).unwrap().capabilities().resumes_tls13;
    let versions = if has_tickets { Versions::All } else { Versions::Tls12 };
    let client = client_config().with_versions(versions);
    let engines = Engines::new(&make, &server_config().with_certificates(certificates), &client);
    let hello = |host: &str| {
        let mut out = Buf::new();
        let _ = engines.client.connect(host).unwrap().handshake(&mut [], &mut out).unwrap();
        out.filled().to_vec()
    };
    let first = hello("localhost");
    let [dear, cheap, wildcard] =
        ["localhost", "cheap.example", "a.dear.example"].map(|host| engines.server.signing(&hello(host)).unwrap());
    assert!(!cheap.time.is_zero() && dear.time > cheap.time && wildcard.time > cheap.time, "{dear:?}, {cheap:?}");
    assert!(!dear.may_resume);
    assert_eq!(engines.server.signing(&first[..first.len() - 1]), None);
    assert_eq!(engines.client.signing(&first), None);
    greet(&mut engines.open("localhost"));
    assert!(engines.server.signing(&hello("localhost")).unwrap().may_resume);
}

/// In TLS 1.2 the estimate depends on the client's cipher suites too, not on its signature algorithms alone.
pub fn suites_are_weighed<E: Engine>(make: impl Make<E>) {
    let server = make(Some(&server_config()), None).unwrap();
    if !server.capabilities().several_keys {
        return;
    }
    let certificates = [KeyKind::P256, KeyKind::Rsa2048].map(|key| certificate(&["localhost"], key)).to_vec();
    server.reload(&server_config().with_certificates(certificates)).unwrap();
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

/// The signing time of keys is measured when they are loaded, and reported once per kind.
pub fn keys_are_measured_when_loaded<E: Engine>(make: impl Make<E>) {
    let names = ["a.example", "b.example", "c.example"];
    let kinds = [KeyKind::Rsa2048, KeyKind::P256, KeyKind::Rsa2048];
    let certificates = names.into_iter().zip(kinds).map(|(name, kind)| certificate(&[name], kind));
    let certificates: Vec<_> = certificates.collect();
    let server = make(Some(&server_config().with_certificates(certificates)), None).unwrap();
    let kinds_and_counts = |server: &E| -> Vec<_> {
        let costs = server.key_costs();
        assert!(costs.iter().all(|cost| !cost.time.is_zero()), "{costs:?}");
        costs.into_iter().map(|cost| (cost.kind, cost.certificates)).collect()
    };
    assert_eq!(kinds_and_counts(&server), [("RSA-2048".to_owned(), 2), ("ECDSA-256".to_owned(), 1)]);
    server.reload(&server_config()).unwrap();
    assert_eq!(kinds_and_counts(&server), [("ECDSA-256".to_owned(), 1)]);
    assert_eq!(make(None, Some(&client_config())).unwrap().key_costs(), []);
}

/// One name can have certificates with RSA, ECDSA and Ed25519 keys.
///
/// Clients that verify all of them get ECDSA, in whatever order they are configured. An engine without
/// `several_keys` rejects the configuration.
pub fn key_types_stand_side_by_side<E: Engine>(make: impl Make<E>) {
    let server = make(Some(&server_config()), None).unwrap();
    let knows_several = server.capabilities().several_keys;
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
            let server = server_config().with_certificates(certificates).with_versions(versions);
            if !knows_several {
                let refused = make(Some(&server), None).err();
                assert!(
                    matches!(&refused, Some(Error::Config(why)) if why.contains("keys of several kinds")),
                    "{refused:?}"
                );
                continue;
            }
            for host in ["localhost", "127.0.0.1"] {
                let client = client_config().with_roots(Roots::DangerNone);
                let engines = Engines::new(&make, &server, &client);
                let shown = engines.open(host).client.session.tls_info().peer_certificates;
                let may_differ = engines.any_differs(Difference::NoSignaturePreference) && shown == [der(&rsa)];
                let is_fine = shown == [der(&p256)] || may_differ;
                assert!(is_fine, "{host}, {versions:?}: {shown:?}");
            }
        }
    }
}

/// A server requests the client's certificate, verifies it, and reports it in its `TlsInfo`.
pub fn client_certificates<E: Engine>(make: impl Make<E>) {
    for key in Engines::new(&make, &server_config(), &client_config()).keys() {
        for versions in [Versions::Tls13, Versions::Tls12] {
            let own = issue(&Leaf::new(&["client"]).with_key(key).with_usage(Usage::Client));
            for client_auth in [ClientAuth::Required(trusted()), ClientAuth::Optional(trusted())] {
                let server = server_config().with_client_auth(client_auth).with_versions(versions);
                let client = client_config().with_certificate(own.clone());
                let engines = Engines::new(&make, &server, &client);
                for _ in 0..2 {
                    let mut pair = engines.open("localhost");
                    greet(&mut pair);
                    let info = pair.server.session.tls_info();
                    assert_eq!(info.peer_certificates, [der(&own)], "{key:?}, {versions:?}");
                    assert!(!info.resumed, "clients show their certificate every time");
                }
            }
        }
    }
    let server = server_config().with_client_auth(ClientAuth::Optional(trusted()));
    let mut pair = Engines::new(&make, &server, &client_config()).open("localhost");
    greet(&mut pair);
    assert!(pair.server.session.tls_info().peer_certificates.is_empty());
}

/// Clients without a certificate, or with a bad one, are rejected with a reason, and get an alert.
pub fn client_certificates_that_are_refused<E: Engine>(make: impl Make<E>) {
    let usage = Usage::Client;
    let names = &["client"][..];
    let stranger = Authority::new("Somebody else").unwrap();
    let cases = [
        (None, "required", &["certificate_required", "handshake_failure", "bad_certificate"][..]),
        (stranger.issue(&Leaf::new(names).with_usage(usage)).ok(), "issuer", &["unknown_ca"][..]),
        (
            Some(issue(&Leaf::new(names).with_usage(usage).with_validity(Validity::Expired))),
            "expired",
            &["certificate_expired"][..],
        ),
        (
            Some(issue(&Leaf::new(names).with_usage(usage).with_validity(Validity::NotYet))),
            "not valid before",
            &["certificate_expired", "bad_certificate"][..],
        ),
        (
            Some(issue(&Leaf::new(names).with_usage(Usage::Server))),
            "another use",
            &["unsupported_certificate", "bad_certificate"][..],
        ),
    ];
    for versions in [Versions::Tls13, Versions::Tls12] {
        for (own, reason, alerts) in &cases {
            let server = server_config().with_client_auth(ClientAuth::Required(trusted())).with_versions(versions);
            let mut client = client_config();
            client.certificate = own.clone();
            let engines = Engines::new(&make, &server, &client);
            let (failure, mut pair) = engines.refused("localhost");
            expect_refusal(&failure, Side::Server, reason);
            let is_vague = engines.differs(Difference::VagueAlerts);
            let fits = |name: &str| alerts.contains(&name) || (is_vague && name == "certificate_unknown");
            let heard = pair.deliver_alert(Side::Server);
            assert!(matches!(&heard, Some(Error::Alert(alert)) if alert.name().is_some_and(fits)), "{heard:?}");
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

/// Clients reject a server certificate of an unknown issuer, outside its validity, for another use or for another name.
/// They send an alert.
pub fn server_certificates_that_are_refused<E: Engine>(make: impl Make<E>) {
    let names = &["localhost", "*.example.com"][..];
    let stranger = Authority::new(&"Tautline Test".to_uppercase()).unwrap();
    let impostor = Authority::new("Tautline Test").unwrap();
    let cases = [
        ("localhost", stranger.issue(&Leaf::new(names)).unwrap(), "issuer is not trusted", "unknown_ca"),
        // Made with the name of the trusted authority, but with another key.
        ("localhost", impostor.issue(&Leaf::new(names)).unwrap(), "", ""),
        (
            "localhost",
            issue(&Leaf::new(names).with_validity(Validity::Expired)),
            "expired on 20",
            "certificate_expired",
        ),
        ("localhost", issue(&Leaf::new(names).with_validity(Validity::NotYet)), "not valid before 20", ""),
        ("localhost", issue(&Leaf::new(names).with_usage(Usage::Client)), "another use", ""),
        ("elsewhere", LOCALHOST.clone(), "not valid for elsewhere, only for localhost", "bad_certificate"),
        ("a.b.example.com", issue(&Leaf::new(names)), "only for localhost, *.example.com", ""),
        ("127.0.0.1", LOCALHOST.clone(), "not valid for 127.0.0.1", ""),
    ];
    for versions in [Versions::Tls13, Versions::Tls12] {
        for (host, certificate, reason, alert) in &cases {
            let server = server_config().with_certificates([certificate.clone()]).with_versions(versions);
            let engines = Engines::new(&make, &server, &client_config());
            let (failure, mut pair) = engines.refused(host);
            if *reason == "another use" && engines.differs(Difference::HidesUnfitCertificates) {
                assert_eq!(failure.side, Side::Server);
                continue;
            }
            expect_refusal(&failure, Side::Client, reason);
            let is_vague = Difference::VagueAlerts.applies_to(engines.client.name());
            let fits = |name: &str| name.contains(alert) || (is_vague && name == "certificate_unknown");
            let heard = pair.deliver_alert(Side::Client);
            let is_clear =
                versions == Versions::Tls13 && Difference::SendsUnprotectedAlerts.applies_to(engines.client.name());
            if is_clear && engines.differs(Difference::RejectsUnprotectedAlerts) {
                assert!(heard.is_some(), "{host}: the server does not notice the client's alert");
                continue;
            }
            assert!(matches!(&heard, Some(Error::Alert(alert)) if alert.name().is_some_and(fits)), "{host}: {heard:?}");
        }
    }
}

/// A certificate that signs itself and calls itself an authority, as `openssl req -x509` makes them, is accepted if it is
/// trusted itself. Its time, name and use still count, and so does every byte.
pub fn certificates_that_are_trusted_themselves<E: Engine>(make: impl Make<E>) {
    let leaf = Leaf::new(&["localhost"]).with_usage(Usage::Both);
    let itself = |leaf: Leaf<'_>| leaf.signed_by_itself().unwrap();
    let (server, client) = (itself(leaf), itself(leaf));
    let trusts = |certificate: &Certificate| client_config().with_roots(Roots::Pem(certificate.chain.clone()));
    for versions in [Versions::Tls13, Versions::Tls12] {
        let serves = |certificate: &Certificate| server_config().with_certificates([certificate.clone()]);
        let serves = |certificate: &Certificate| serves(certificate).with_versions(versions);
        let demanding = serves(&server).with_client_auth(ClientAuth::Required(client.chain.clone()));
        let shows = |own: &Certificate| trusts(&server).with_certificate(own.clone());
        let mut pair = Engines::new(&make, &demanding, &shows(&client)).open("localhost");
        transfer(&mut pair.client, &mut pair.server, b"trusted");
        transfer(&mut pair.server, &mut pair.client, b"both ways");
        let expired = itself(leaf.with_validity(Validity::Expired));
        let refused = |server: &Certificate, trusted: &Certificate, host: &str| {
            Engines::new(&make, &serves(server), &trusts(trusted)).refused(host).0
        };
        let forgets = Engines::new(&make, &serves(&server), &trusts(&server)).differs(Difference::ForgetsExpiredRoots);
        let why = if forgets { "its issuer is not trusted" } else { "expired on 20" };
        expect_refusal(&refused(&expired, &expired, "localhost"), Side::Client, why);
        expect_refusal(&refused(&server, &server, "elsewhere"), Side::Client, "not valid for elsewhere");
        expect_refusal(&refused(&server, &client, "localhost"), Side::Client, "");
        let other = Engines::new(&make, &demanding, &shows(&server));
        let mut other = other.pair("localhost");
        let failure = other.handshake(&mut Split::Whole).expect_err("only the trusted certificate is accepted");
        expect_refusal(&failure, Side::Server, "");
    }
}

/// ALPN selects the common protocol that the server prefers.
///
/// If both ends have protocols but none in common, the handshake fails. If one end has none, none is selected.
pub fn protocols<E: Engine>(make: impl Make<E>) {
    let list = |names: &[&str]| names.iter().map(|name| name.as_bytes().to_vec()).collect::<Vec<_>>();
    for versions in [Versions::Tls13, Versions::Tls12] {
        let engines = |ours: &[&str], theirs: &[&str]| {
            let server = server_config().with_alpn(list(ours)).with_versions(versions);
            Engines::new(&make, &server, &client_config().with_alpn(list(theirs)))
        };
        for (ours, theirs, expected) in [
            (&["http/1.1"][..], &["http/1.1"][..], Some("http/1.1")),
            (&["http/1.1", "h2"], &["h2", "http/1.1"], Some("http/1.1")),
            (&[], &["http/1.1"], None),
            (&["http/1.1"], &[], None),
        ] {
            let pair = engines(ours, theirs).open("localhost");
            for info in [pair.client.session.tls_info(), pair.server.session.tls_info()] {
                assert_eq!(info.alpn.as_deref(), expected.map(str::as_bytes), "{ours:?}, {theirs:?}");
            }
        }
        let (failure, mut pair) = engines(&["http/1.1"], &["h2"]).refused("localhost");
        assert_eq!(failure.side, Side::Server);
        assert!(matches!(&failure.error, Error::Peer(why) if why.contains("ALPN")), "{:?}", failure.error);
        assert_eq!(pair.deliver_alert(Side::Server), Some(Error::Alert(Alert::NO_APPLICATION_PROTOCOL)));
    }
}

/// A client without verification accepts a certificate that is expired and for another name.
pub fn unverified_servers<E: Engine>(make: impl Make<E>) {
    let expired = issue(&Leaf::new(&["elsewhere"]).with_validity(Validity::Expired));
    for versions in [Versions::Tls13, Versions::Tls12] {
        // One client for each version, because a remembered session can bind a client to its version.
        let client = client_config().with_roots(Roots::DangerNone);
        let server = server_config().with_certificates([expired.clone()]).with_versions(versions);
        let mut pair = Engines::new(&make, &server, &client).pair("localhost");
        pair.handshake(&mut Split::Whole).unwrap();
        greet(&mut pair);
    }
}
