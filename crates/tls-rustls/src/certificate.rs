//! Converts PEM to rustls' types, with errors that name the certificate and the remedy.

use crate::anchors::{self, Anchors};
use rustls::InconsistentKeys;
use rustls::crypto::CryptoProvider;
use rustls::crypto::aws_lc_rs::default_provider;
use rustls::pki_types::{
    CertificateDer, PrivateKeyDer, PrivatePkcs1KeyDer, PrivatePkcs8KeyDer, PrivateSec1KeyDer, UnixTime,
};
use rustls::sign::CertifiedKey;
use tautline_tls::chain::{Strictness, missing_issuer};
use tautline_tls::der::date;
use tautline_tls::fields::Role;
use tautline_tls::{Certificate, Error, pem};
use webpki::{EndEntityCert, KeyUsage};

/// Parses `certificate` and checks that its key belongs to it. `what` is its name in errors and in the log.
pub(crate) fn load(
    certificate: &Certificate,
    what: &str,
    role: Role,
    provider: &CryptoProvider,
    strictness: Strictness,
) -> Result<CertifiedKey, Error> {
    let chain = chain(certificate, what)?;
    let key = private_key(&pem::private_key(&certificate.key, what)?);
    let key = provider.key_provider.load_private_key(key).map_err(|error| {
        Error::Config(format!("{what}: its private key cannot be used ({error}): make an ECDSA, RSA or Ed25519 key"))
    })?;
    let certified = CertifiedKey::new(chain, key);
    check_pair(&certified, what)?;
    match flaw(&certified.cert, role, strictness) {
        None => {}
        Some(Flaw::Fatal(why)) if strictness == Strictness::Reload => {
            return Err(Error::Config(format!("{what} {why}")));
        }
        Some(Flaw::Fatal(why) | Flaw::Doubtful(why)) => log::warn!("{what} {why}"),
    }
    Ok(certified)
}

/// Checks that `certificate` can be read, and that its key belongs to it. `what` is its name in the error. Nothing is logged.
///
/// A kind of key that only other libraries know is no error.
///
/// # Errors
/// [`Error::Config`] says which part is wrong.
pub fn check(certificate: &Certificate, what: &str) -> Result<(), Error> {
    let chain = chain(certificate, what)?;
    let key = private_key(&pem::private_key(&certificate.key, what)?);
    let key = default_provider().key_provider.load_private_key(key);
    key.map_or(Ok(()), |key| check_pair(&CertifiedKey::new(chain, key), what))
}

/// The certificates of a chain, which can be read.
fn chain(certificate: &Certificate, what: &str) -> Result<Vec<CertificateDer<'static>>, Error> {
    let sections = pem::certificates(&certificate.chain, what)?;
    let count = sections.len();
    let mut chain = Vec::with_capacity(count);
    for (section, number) in sections.into_iter().zip(1..) {
        let line = section.line;
        let der = CertificateDer::from(section.der.to_vec());
        // Only malformed DER is an error here. Peers judge all else about an issuer's certificate.
        if let Err(error @ (webpki::Error::BadDer | webpki::Error::TrailingData(_))) = EndEntityCert::try_from(&der) {
            return Err(Error::Config(format!(
                "{what}: certificate {number} of {count} in it is malformed (line {line}, {error})"
            )));
        }
        chain.push(der);
    }
    Ok(chain)
}

fn check_pair(certified: &CertifiedKey, what: &str) -> Result<(), Error> {
    match certified.keys_match() {
        Ok(()) | Err(rustls::Error::InconsistentKeys(InconsistentKeys::Unknown)) => Ok(()),
        Err(rustls::Error::InconsistentKeys(_)) => Err(Error::Config(format!(
            "{what}: the private key does not belong to the certificate: give the key that the certificate was requested \
             with, and put the end entity's certificate first in its chain"
        ))),
        Err(other) => Err(Error::Config(format!("{what}: {other}"))),
    }
}

/// Parses `certificate` for peers that look at its extensions alone: one that must not be understood by others is no flaw.
pub(crate) fn load_unchecked(
    certificate: &Certificate,
    what: &str,
    provider: &CryptoProvider,
) -> Result<CertifiedKey, Error> {
    let sections = pem::certificates(&certificate.chain, what)?;
    let chain = sections.iter().map(|section| CertificateDer::from(section.der.to_vec())).collect();
    let key = private_key(&pem::private_key(&certificate.key, what)?);
    let key = provider.key_provider.load_private_key(key);
    let key = key.map_err(|error| Error::Config(format!("{what}: its private key cannot be used ({error})")))?;
    Ok(CertifiedKey::new(chain, key))
}

fn private_key(section: &pem::Section) -> PrivateKeyDer<'static> {
    let der = section.der.to_vec();
    match section.label.as_str() {
        "RSA PRIVATE KEY" => PrivatePkcs1KeyDer::from(der).into(),
        "EC PRIVATE KEY" => PrivateSec1KeyDer::from(der).into(),
        _ => PrivatePkcs8KeyDer::from(der).into(),
    }
}

/// Parses the trusted authorities in `pem`.
pub(crate) fn anchors(pem: &[u8], what: &str) -> Result<Anchors, Error> {
    let mut anchors = anchors::Builder::new();
    for (section, number) in pem::certificates(pem, what)?.into_iter().zip(1..) {
        let line = section.line;
        let added = anchors.add(&section.der);
        added.map_err(|error| Error::Config(format!("{what}: certificate {number} (line {line}): {error}")))?;
    }
    Ok(anchors.build())
}

/// The DNS names that a certificate is valid for, in lower case, wildcards as `*.example.com`.
pub(crate) fn names(certificate: &CertifiedKey) -> Vec<String> {
    let Some(Ok(parsed)) = certificate.cert.first().map(EndEntityCert::try_from) else { return Vec::new() };
    let mut names: Vec<_> = parsed.valid_dns_names().map(str::to_ascii_lowercase).collect();
    names.sort_unstable();
    names.dedup();
    names
}

/// A reason for peers to reject a certificate.
enum Flaw {
    /// Every peer that verifies certificates rejects it now.
    Fatal(String),
    /// Some peers accept it.
    Doubtful(String),
}

/// Finds a reason for peers to reject a chain.
///
/// This is no error when a server starts, because the clock may be wrong and a peer may not verify certificates.
fn flaw(chain: &[CertificateDer<'_>], role: Role, strictness: Strictness) -> Option<Flaw> {
    let (first, rest) = chain.split_first()?;
    // The leaf may be issued by any other certificate of the chain: peers build the path from there.
    let issuers: Vec<_> = rest.iter().filter_map(|issuer| webpki::anchor_from_trusted_cert(issuer).ok()).collect();
    let usage = match role {
        Role::Server => KeyUsage::server_auth,
        Role::Client => KeyUsage::client_auth,
    };
    let verify = |certificate, issuers: &[_]| {
        let algorithms = webpki::ALL_VERIFICATION_ALGS;
        let parsed = EndEntityCert::try_from(certificate).ok()?;
        parsed.verify_for_usage(algorithms, issuers, &[], UnixTime::now(), usage(), None, None).err()
    };
    // Without issuers the verification always fails, but it checks validity and usage first.
    match verify(first, &issuers) {
        Some(webpki::Error::CertExpired { not_after, .. }) => {
            return Some(Flaw::Fatal(format!(
                "expired on {}: peers will reject it; renew it",
                date(not_after.as_secs())
            )));
        }
        Some(webpki::Error::CertNotValidYet { not_before, .. }) => {
            let date = date(not_before.as_secs());
            return Some(Flaw::Fatal(format!("is not valid before {date}: peers will reject it until then")));
        }
        Some(webpki::Error::RequiredEkuNotFoundContext(_)) => {
            let why = "is meant for another use (extended key usage): peers will reject it";
            return Some(Flaw::Doubtful(why.to_owned()));
        }
        Some(webpki::Error::CaUsedAsEndEntity) => {
            let why = "belongs to an authority: peers that do not trust this very certificate will reject it; let it \
                       issue one for this host";
            return Some(Flaw::Doubtful(why.to_owned()));
        }
        Some(webpki::Error::UnknownIssuer | webpki::Error::InvalidSignatureForPublicKey) if !rest.is_empty() => {
            let why = "was not issued by any other certificate in its chain: put its issuer's there";
            return Some(Flaw::Fatal(why.to_owned()));
        }
        _ if rest.is_empty() && role == Role::Server => {
            let platform = || rustls_native_certs::load_native_certs().certs;
            return missing_issuer(chain, strictness, platform).map(Flaw::Doubtful);
        }
        _ => {}
    }
    rest.iter().zip(2..).find_map(|(issuer, number)| match verify(issuer, &[]) {
        Some(webpki::Error::CertExpired { not_after, .. }) => {
            let date = date(not_after.as_secs());
            Some(Flaw::Doubtful(format!("has a chain whose certificate {number} expired on {date}: replace that")))
        }
        _ => None,
    })
}
