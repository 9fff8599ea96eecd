//! From PEM to rustls' types, with errors that say which certificate is wrong and what to do about it.

use crate::config::Demands;
use crate::error;
use rustls::crypto::CryptoProvider;
use rustls::pki_types::pem::{self, PemObject};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, UnixTime};
use rustls::sign::CertifiedKey;
use rustls::{InconsistentKeys, RootCertStore};
use tautline_tls::{Certificate, Error};
use webpki::{EndEntityCert, KeyUsage};

/// Parses `certificate` and checks that its key belongs to it. `what` names it in errors and in the log.
pub(crate) fn load(
    certificate: &Certificate,
    what: &str,
    usage: KeyUsage,
    provider: &CryptoProvider,
    demands: Demands,
) -> Result<CertifiedKey, Error> {
    let chain = chain(&certificate.chain, what)?;
    for (index, certificate) in chain.iter().enumerate() {
        // What else may be wrong with an issuer's is for the peer to judge.
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
        Some(Flaw::Fatal(why)) if demands == Demands::Reload => return Err(Error::Config(format!("{what} {why}"))),
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

/// Trusted authorities from `pem`.
pub(crate) fn roots(pem: &[u8], what: &str) -> Result<RootCertStore, Error> {
    let mut store = RootCertStore::empty();
    for certificate in chain(pem, what)? {
        store
            .add(certificate)
            .map_err(|error| Error::Config(format!("{what}: certificate {}: {error}", store.len() + 1)))?;
    }
    Ok(store)
}

/// DNS names that a certificate is valid for, lower case, wildcards as `*.example.com`.
pub(crate) fn names(certificate: &CertifiedKey) -> Vec<String> {
    let Some(Ok(parsed)) = certificate.cert.first().map(EndEntityCert::try_from) else { return Vec::new() };
    let mut names: Vec<_> = parsed.valid_dns_names().map(str::to_ascii_lowercase).collect();
    names.sort_unstable();
    names.dedup();
    names
}

/// Why peers will refuse a certificate.
enum Flaw {
    /// As it is now no peer that checks can take it.
    Fatal(String),
    /// Some peers take it.
    Doubtful(String),
}

/// What peers will refuse a chain for. When a server starts that is no error: the clock may be wrong, and a peer may not
/// check.
fn flaw(chain: &[CertificateDer<'_>], usage: KeyUsage) -> Option<Flaw> {
    let (first, rest) = chain.split_first()?;
    // Any other certificate of the chain that the first leads to will do: the peer knows how to go on from there.
    let issuers: Vec<_> = rest.iter().filter_map(|issuer| webpki::anchor_from_trusted_cert(issuer).ok()).collect();
    let verify = |certificate, issuers: &[_]| {
        let algorithms = webpki::ALL_VERIFICATION_ALGS;
        let parsed = EndEntityCert::try_from(certificate).ok()?;
        parsed.verify_for_usage(algorithms, issuers, &[], UnixTime::now(), usage, None, None).err()
    };
    // Without issuers this never succeeds, but validity and usage are what it looks at first.
    match verify(first, &issuers) {
        Some(webpki::Error::CertExpired { not_after, .. }) => {
            return Some(Flaw::Fatal(format!("expired on {}: peers will refuse it; renew it", error::date(not_after))));
        }
        Some(webpki::Error::CertNotValidYet { not_before, .. }) => {
            let date = error::date(not_before);
            return Some(Flaw::Fatal(format!("is not valid before {date}: peers will refuse it until then")));
        }
        Some(webpki::Error::RequiredEkuNotFoundContext(_)) => {
            let why = "is meant for another use (extended key usage): peers will refuse it";
            return Some(Flaw::Doubtful(why.to_owned()));
        }
        Some(webpki::Error::CaUsedAsEndEntity) => {
            let why = "belongs to an authority: peers will refuse it; let it issue one for this host";
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
