//! Converts PEM to rustls' types, with errors that name the certificate and the remedy.

use crate::error;
use crate::strictness::Strictness;
use rustls::crypto::CryptoProvider;
use rustls::pki_types::pem::{self, PemObject};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, UnixTime};
use rustls::sign::CertifiedKey;
use rustls::{InconsistentKeys, RootCertStore};
use tautline_tls::{Certificate, Error};
use webpki::{EndEntityCert, KeyUsage};

/// Parses `certificate` and checks that its key belongs to it. `what` is its name in errors and in the log.
pub(crate) fn load(
    certificate: &Certificate,
    what: &str,
    usage: KeyUsage,
    provider: &CryptoProvider,
    strictness: Strictness,
) -> Result<CertifiedKey, Error> {
    let chain = chain(&certificate.chain, what)?;
    for (index, certificate) in chain.iter().enumerate() {
        // Only malformed DER is an error here. Peers judge all else about an issuer's certificate.
        if let Err(error @ (webpki::Error::BadDer | webpki::Error::TrailingData(_))) =
            EndEntityCert::try_from(certificate)
        {
            let (number, count) = (index + 1, chain.len());
            return Err(Error::Config(format!("{what}: certificate {number} of {count} in it is malformed ({error})")));
        }
    }
    let key = PrivateKeyDer::from_pem_slice(&certificate.key).map_err(|error| match error {
        pem::Error::NoItemsFound => Error::Config(format!(
            "{what}: no private key found: expected PEM with BEGIN PRIVATE KEY (unencrypted; \
             `openssl pkey` removes a passphrase)"
        )),
        other => Error::Config(format!("{what}: its private key is not valid PEM: {other}")),
    })?;
    let key = provider.key_provider.load_private_key(key).map_err(|error| {
        Error::Config(format!("{what}: its private key cannot be used ({error}): make an ECDSA, RSA or Ed25519 key"))
    })?;
    let certified = CertifiedKey::new(chain, key);
    match certified.keys_match() {
        Ok(()) | Err(rustls::Error::InconsistentKeys(InconsistentKeys::Unknown)) => {}
        Err(rustls::Error::InconsistentKeys(_)) => {
            return Err(Error::Config(format!(
                "{what}: the private key does not belong to the certificate: give the key that the certificate was \
                 requested with, and put the end entity's certificate first in its chain"
            )));
        }
        Err(other) => return Err(Error::Config(format!("{what}: {other}"))),
    }
    match flaw(&certified.cert, usage) {
        None => {}
        Some(Flaw::Fatal(why)) if strictness == Strictness::Reload => {
            return Err(Error::Config(format!("{what} {why}")));
        }
        Some(Flaw::Fatal(why) | Flaw::Doubtful(why)) => log::warn!("{what} {why}"),
    }
    Ok(certified)
}

/// Every certificate in `pem`.
fn chain(pem: &[u8], what: &str) -> Result<Vec<CertificateDer<'static>>, Error> {
    let chain: Vec<_> = CertificateDer::pem_slice_iter(pem)
        .collect::<Result<_, _>>()
        .map_err(|error| Error::Config(format!("{what}: not valid PEM: {error}")))?;
    if chain.is_empty() {
        return Err(Error::Config(format!("{what}: no certificate found: expected PEM with BEGIN CERTIFICATE")));
    }
    Ok(chain)
}

/// Parses the trusted authorities in `pem`.
pub(crate) fn roots(pem: &[u8], what: &str) -> Result<RootCertStore, Error> {
    let mut store = RootCertStore::empty();
    for certificate in chain(pem, what)? {
        store
            .add(certificate)
            .map_err(|error| Error::Config(format!("{what}: certificate {}: {error}", store.len() + 1)))?;
    }
    Ok(store)
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
fn flaw(chain: &[CertificateDer<'_>], usage: KeyUsage) -> Option<Flaw> {
    let (first, rest) = chain.split_first()?;
    // The leaf may be issued by any other certificate of the chain: peers build the path from there.
    let issuers: Vec<_> = rest.iter().filter_map(|issuer| webpki::anchor_from_trusted_cert(issuer).ok()).collect();
    let verify = |certificate, issuers: &[_]| {
        let algorithms = webpki::ALL_VERIFICATION_ALGS;
        let parsed = EndEntityCert::try_from(certificate).ok()?;
        parsed.verify_for_usage(algorithms, issuers, &[], UnixTime::now(), usage, None, None).err()
    };
    // Without issuers the verification always fails, but it checks validity and usage first.
    match verify(first, &issuers) {
        Some(webpki::Error::CertExpired { not_after, .. }) => {
            return Some(Flaw::Fatal(format!("expired on {}: peers will reject it; renew it", error::date(not_after))));
        }
        Some(webpki::Error::CertNotValidYet { not_before, .. }) => {
            let date = error::date(not_before);
            return Some(Flaw::Fatal(format!("is not valid before {date}: peers will reject it until then")));
        }
        Some(webpki::Error::RequiredEkuNotFoundContext(_)) => {
            let why = "is meant for another use (extended key usage): peers will reject it";
            return Some(Flaw::Doubtful(why.to_owned()));
        }
        Some(webpki::Error::CaUsedAsEndEntity) => {
            let why = "belongs to an authority: peers will reject it; let it issue one for this host";
            return Some(Flaw::Doubtful(why.to_owned()));
        }
        Some(webpki::Error::UnknownIssuer | webpki::Error::InvalidSignatureForPublicKey) if !rest.is_empty() => {
            let why = "was not issued by any other certificate in its chain: put its issuer's there";
            return Some(Flaw::Fatal(why.to_owned()));
        }
        _ => {}
    }
    rest.iter().zip(2..).find_map(|(issuer, number)| match verify(issuer, &[]) {
        Some(webpki::Error::CertExpired { not_after, .. }) => {
            let date = error::date(not_after);
            Some(Flaw::Doubtful(format!("has a chain whose certificate {number} expired on {date}: replace that")))
        }
        _ => None,
    })
}
