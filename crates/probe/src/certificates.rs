//! Certificates as people read them, and what a chain lacks.

use super::facts::{Certificate, Chain, Trust};
use rustls::client::verify_server_name;
use rustls::crypto::CryptoProvider;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::server::ParsedCertificate;
use rustls::{CertificateError, DistinguishedName, Error, RootCertStore};
use std::net::IpAddr;
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use tautline::layers::tls_rustls::Anchors;
use x509_parser::prelude::{FromDer, GeneralName, ParsedExtension, X509Certificate};
use x509_parser::public_key::PublicKey;

/// TLS feature (RFC 7633): its usual value demands a stapled OCSP response.
const TLS_FEATURE: &str = "1.3.6.1.5.5.7.1.24";

/// Methods of authority information access (RFC 5280, section 4.2.2.1).
const CA_ISSUERS: &str = "1.3.6.1.5.5.7.48.2";
const OCSP: &str = "1.3.6.1.5.5.7.48.1";

const DAY: i64 = 24 * 3600;

/// Seconds since 1970.
pub fn now() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_secs());
    i64::try_from(since).unwrap_or(i64::MAX)
}

/// Reads one certificate. `now` is in seconds since 1970.
pub fn describe(der: &[u8], now: i64) -> Certificate {
    let Ok((_, certificate)) = X509Certificate::from_der(der) else {
        return Certificate { malformed: true, ..Certificate::default() };
    };
    let validity = certificate.validity();
    let (not_before, not_after) = (validity.not_before.timestamp(), validity.not_after.timestamp());
    let (key, weak_key) = key(&certificate);
    let (signature, weak_signature) = signature(&certificate.signature_algorithm.algorithm.to_id_string());
    let mut description = Certificate {
        subject: certificate.subject().to_string(),
        issuer: certificate.issuer().to_string(),
        not_before,
        not_after,
        valid: format!("{} to {}", validity.not_before, validity.not_after).replace(" +00:00", ""),
        days_left: (not_after - now).div_euclid(DAY),
        days_until_valid: if not_before > now { (not_before - now) / DAY + 1 } else { 0 },
        key,
        weak_key,
        signature,
        weak_signature,
        is_ca: certificate.is_ca(),
        self_issued: certificate.subject().as_raw() == certificate.issuer().as_raw(),
        ..Certificate::default()
    };
    for extension in certificate.extensions() {
        match extension.parsed_extension() {
            ParsedExtension::SubjectAlternativeName(names) => {
                description.names = names.general_names.iter().filter_map(name).collect();
            }
            ParsedExtension::AuthorityInfoAccess(access) => {
                for one in &access.accessdescs {
                    let GeneralName::URI(url) = one.access_location else { continue };
                    match one.access_method.to_id_string().as_str() {
                        CA_ISSUERS => description.issuer_url = Some(url.to_owned()),
                        OCSP => description.ocsp_url = Some(url.to_owned()),
                        _ => {}
                    }
                }
            }
            _ => description.must_staple |= extension.oid.to_id_string() == TLS_FEATURE,
        }
    }
    description
}

fn name(name: &GeneralName<'_>) -> Option<String> {
    match name {
        GeneralName::DNSName(name) => Some((*name).to_owned()),
        GeneralName::IPAddress(bytes) => {
            let v4 = <[u8; 4]>::try_from(*bytes).map(IpAddr::from);
            v4.or_else(|_| <[u8; 16]>::try_from(*bytes).map(IpAddr::from)).ok().map(|ip| ip.to_string())
        }
        _ => None,
    }
}

/// The kind of key, and whether it is weaker than clients accept today.
fn key(certificate: &X509Certificate<'_>) -> (String, bool) {
    let info = certificate.public_key();
    match info.parsed() {
        Ok(PublicKey::RSA(key)) => (format!("RSA {}", key.key_size()), key.key_size() < 2048),
        Ok(PublicKey::EC(_)) => {
            let curve = info.algorithm.parameters.as_ref().and_then(|any| any.as_oid().ok());
            match curve.map(|oid| oid.to_id_string()).as_deref() {
                Some("1.2.840.10045.3.1.7") => ("EC P-256".to_owned(), false),
                Some("1.3.132.0.34") => ("EC P-384".to_owned(), false),
                Some("1.3.132.0.35") => ("EC P-521".to_owned(), false),
                Some("1.2.840.10045.3.1.1" | "1.3.132.0.33") => ("EC below 256 bits".to_owned(), true),
                Some(other) => (format!("EC {other}"), false),
                None => ("EC".to_owned(), false),
            }
        }
        Ok(PublicKey::DSA(_)) => ("DSA".to_owned(), true),
        _ => match info.algorithm.algorithm.to_id_string().as_str() {
            "1.3.101.112" => ("Ed25519".to_owned(), false),
            "1.3.101.113" => ("Ed448".to_owned(), false),
            other => (other.to_owned(), false),
        },
    }
}

/// The name of a signature algorithm, and whether clients reject it today.
fn signature(oid: &str) -> (String, bool) {
    let (name, weak) = match oid {
        "1.2.840.113549.1.1.4" => ("RSA with MD5", true),
        "1.2.840.113549.1.1.5" => ("RSA with SHA-1", true),
        "1.2.840.113549.1.1.10" => ("RSA-PSS", false),
        "1.2.840.113549.1.1.11" => ("RSA with SHA-256", false),
        "1.2.840.113549.1.1.12" => ("RSA with SHA-384", false),
        "1.2.840.113549.1.1.13" => ("RSA with SHA-512", false),
        "1.2.840.10045.4.1" => ("ECDSA with SHA-1", true),
        "1.2.840.10045.4.3.2" => ("ECDSA with SHA-256", false),
        "1.2.840.10045.4.3.3" => ("ECDSA with SHA-384", false),
        "1.2.840.10045.4.3.4" => ("ECDSA with SHA-512", false),
        "1.3.101.112" => ("Ed25519", false),
        other => (other, false),
    };
    (name.to_owned(), weak)
}

/// Verifies a chain as a client does, and finds out what it lacks. Without roots, nothing is verified.
pub(crate) fn examine(
    chain: &[CertificateDer<'_>],
    name: &ServerName<'_>,
    anchors: Option<&Anchors>,
    provider: &CryptoProvider,
    now: i64,
) -> Chain {
    let certificates: Vec<Certificate> = chain.iter().map(|der| describe(der, now)).collect();
    let mut found = Chain { name: name.to_str().into_owned(), certificates, ..Chain::default() };
    let Some((leaf, intermediates)) = chain.split_first() else { return found };
    let parsed = match ParsedCertificate::try_from(leaf) {
        Ok(parsed) => parsed,
        Err(error) => {
            found.trust = Trust::Untrusted;
            found.error = Some(error.to_string());
            return found;
        }
    };
    found.name_fits = verify_server_name(&parsed, name).is_ok();
    let Some(anchors) = anchors else { return found };
    let verify = |at: i64| {
        let at = UnixTime::since_unix_epoch(Duration::from_secs(u64::try_from(at).unwrap_or(0)));
        let algorithms = provider.signature_verification_algorithms.all;
        anchors.verify_server((leaf, intermediates), at, algorithms)
    };
    let result = verify(now).and_then(|()| verify_server_name(&parsed, name));
    found.trust = if result.is_ok() { Trust::Trusted } else { Trust::Untrusted };
    found.error = result.err().map(|error| error.to_string());
    // A moment at which all certificates were valid, so that dates do not hide what else is wrong.
    let begin = found.certificates.iter().map(|one| one.not_before).max().unwrap_or(now);
    let end = found.certificates.iter().map(|one| one.not_after).min().unwrap_or(now);
    found.path_holds = match verify(if begin <= end { now.clamp(begin, end) } else { now }) {
        Ok(()) => true,
        // There is no such moment. The dates have verdicts of their own.
        Err(error) => is_about_dates(&error),
    };
    if !found.path_holds {
        found.missing = missing(chain, &anchors.store);
    }
    found
}

fn is_about_dates(error: &Error) -> bool {
    use CertificateError::{Expired, ExpiredContext, NotValidYet, NotValidYetContext};
    let Error::InvalidCertificate(error) = error else { return false };
    matches!(error, Expired | NotValidYet | ExpiredContext { .. } | NotValidYetContext { .. })
}

/// The issuer at the end of the path that was sent, if it is neither sent nor trusted.
fn missing(chain: &[CertificateDer<'_>], roots: &RootCertStore) -> Option<String> {
    let parsed: Vec<X509Certificate<'_>> = chain
        .iter()
        .filter_map(|der| X509Certificate::from_der(der).ok())
        .map(|(_, certificate)| certificate)
        .collect();
    let mut last = parsed.first()?;
    // Each certificate is a step once, so names in a circle end the walk.
    for _ in 0..parsed.len() {
        let issuer = last.issuer().as_raw();
        if issuer == last.subject().as_raw() {
            return None;
        }
        match parsed.iter().find(|one| one.subject().as_raw() == issuer) {
            Some(next) => last = next,
            None => break,
        }
    }
    let issuer = last.issuer().as_raw();
    let is_trusted = roots.subjects().iter().map(DistinguishedName::as_ref).any(|subject| subject == issuer);
    (!is_trusted).then(|| last.issuer().to_string())
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustls::crypto::aws_lc_rs::default_provider;
    use rustls::pki_types::pem::PemObject;
    use tautline::Roots;
    use tautline_dev_cert::{Authority, KeyKind, Leaf, Usage, Validity};

    fn chain(pem: &[u8]) -> Vec<CertificateDer<'static>> {
        CertificateDer::pem_slice_iter(pem).map(Result::unwrap).collect()
    }

    fn roots(pem: &[u8]) -> Anchors {
        Anchors::of(&Roots::Pem(pem.to_vec())).unwrap().unwrap()
    }

    fn looked_at(pem: &[u8], name: &str, roots: Option<&Anchors>, now: i64) -> Chain {
        examine(&chain(pem), &ServerName::try_from(name).unwrap(), roots, &default_provider(), now)
    }

    #[test]
    fn a_good_chain_is_trusted_and_described() {
        let authority = Authority::new("Test authority").unwrap();
        let leaf = authority.issue(&Leaf::new(&["chat.test", "127.0.0.1", "::1"]).with_key(KeyKind::P384)).unwrap();
        let roots = roots(authority.certificate().as_bytes());
        let found = looked_at(&leaf.chain, "chat.test", Some(&roots), now());
        assert_eq!((found.trust, found.name_fits, found.path_holds), (Trust::Trusted, true, true), "{found:?}");
        let first = &found.certificates[0];
        assert_eq!((first.key.as_str(), first.weak_key, first.weak_signature), ("EC P-384", false, false));
        assert_eq!(first.names, ["chat.test", "127.0.0.1", "::1"]);
        assert!(first.issuer.contains("Test authority") && first.days_left > 0, "{first:?}");
        assert!(!first.valid.contains("+00"), "{}", first.valid);
    }

    #[test]
    fn each_lack_is_found_beside_the_others() {
        let (authority, stranger) = (Authority::new("Mine").unwrap(), Authority::new("Other").unwrap());
        let leaf = authority.issue(&Leaf::new(&["chat.test"]).with_validity(Validity::Days(10))).unwrap();
        let (mine, other) = (authority.certificate(), stranger.certificate());
        let (mine, other) = (roots(mine.as_bytes()), roots(other.as_bytes()));
        let wrong_name = looked_at(&leaf.chain, "feed.test", Some(&mine), now());
        assert_eq!((wrong_name.trust, wrong_name.name_fits, wrong_name.path_holds), (Trust::Untrusted, false, true));
        let expired = looked_at(&leaf.chain, "feed.test", Some(&mine), now() + 20 * DAY);
        assert!(!expired.name_fits && expired.path_holds && expired.certificates[0].days_left < 0, "{expired:?}");
        let early = looked_at(&leaf.chain, "chat.test", Some(&mine), now() - 20 * DAY);
        assert!(early.certificates[0].days_until_valid > 0 && early.trust == Trust::Untrusted, "{early:?}");
        let unknown = looked_at(&leaf.chain[..], "chat.test", Some(&other), now());
        assert!(!unknown.path_holds, "{unknown:?}");
        let unverified = looked_at(&leaf.chain, "chat.test", None, now());
        assert_eq!((unverified.trust, unverified.name_fits), (Trust::NotVerified, true));
    }

    /// The engine accepts it too. Its dates, use and name still count.
    #[test]
    fn a_certificate_that_is_trusted_itself_needs_no_issuer() {
        let leaf = Leaf::new(&["chat.test"]).with_usage(Usage::Both).with_validity(Validity::Days(10));
        let own = leaf.signed_by_itself().unwrap().chain;
        let trusted = roots(&own);
        let found = looked_at(&own, "chat.test", Some(&trusted), now());
        assert_eq!((found.trust, found.path_holds, found.error.as_deref()), (Trust::Trusted, true, None), "{found:?}");
        let expired = looked_at(&own, "chat.test", Some(&trusted), now() + 20 * DAY);
        assert_eq!((expired.trust, expired.path_holds), (Trust::Untrusted, true), "{expired:?}");
        let wrong_name = looked_at(&own, "feed.test", Some(&trusted), now());
        assert_eq!((wrong_name.trust, wrong_name.path_holds), (Trust::Untrusted, true), "{wrong_name:?}");
        let for_clients = leaf.with_usage(Usage::Client).signed_by_itself().unwrap().chain;
        let found = looked_at(&for_clients, "chat.test", Some(&roots(&for_clients)), now());
        assert_eq!((found.trust, found.path_holds), (Trust::Untrusted, false), "{found:?}");
        let other = leaf.signed_by_itself().unwrap().chain;
        assert_eq!(looked_at(&own, "chat.test", Some(&roots(&other)), now()).trust, Trust::Untrusted);
    }

    #[test]
    fn the_missing_issuer_is_named() {
        let (authority, stranger) = (Authority::new("Mine").unwrap(), Authority::new("Other").unwrap());
        let leaf = authority.issue(&Leaf::new(&["chat.test"])).unwrap();
        let first = chain(&leaf.chain).swap_remove(0);
        let named = missing(&[first], &roots(stranger.certificate().as_bytes()).store);
        assert!(named.unwrap().contains("Mine"));
    }

    #[test]
    fn garbage_is_no_certificate() {
        for garbage in [&b""[..], b"\x30\x82", &[0xff; 100]] {
            assert!(describe(garbage, now()).malformed);
        }
        let found = looked_at(b"", "chat.test", None, now());
        assert!(found.certificates.is_empty());
    }

    #[test]
    fn old_hashes_are_weak() {
        for (oid, weak) in [("1.2.840.113549.1.1.5", true), ("1.2.840.113549.1.1.11", false), ("1.2.3", false)] {
            assert_eq!(signature(oid).1, weak, "{oid}");
        }
    }
}
