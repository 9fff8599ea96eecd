//! From PEM to rustls' types, with errors that say which certificate is wrong and what to do about it.

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
) -> Result<CertifiedKey, Error> {
    let chain = chain(&certificate.chain, what)?;
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
    warn_if_unusable(&certified, what, usage);
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

/// Logs what every peer will refuse. Not an error: the clock may be wrong, and a peer may not check.
fn warn_if_unusable(certificate: &CertifiedKey, what: &str, usage: KeyUsage) {
    let Some(Ok(parsed)) = certificate.cert.first().map(EndEntityCert::try_from) else { return };
    // Without trust anchors this never succeeds, but validity and usage are what it looks at first.
    match parsed.verify_for_usage(&[], &[], &[], UnixTime::now(), usage, None, None).err() {
        Some(webpki::Error::CertExpired { not_after, .. }) => {
            log::warn!("{what} expired on {}: peers will refuse it; renew it", error::date(not_after));
        }
        Some(webpki::Error::CertNotValidYet { not_before, .. }) => {
            log::warn!("{what} is not valid before {}: peers will refuse it until then", error::date(not_before));
        }
        Some(webpki::Error::RequiredEkuNotFoundContext(_)) => {
            log::warn!("{what} is meant for another use (extended key usage): peers will refuse it");
        }
        Some(webpki::Error::CaUsedAsEndEntity) => {
            log::warn!("{what} belongs to an authority: peers will refuse it; let it issue one for this host");
        }
        _ => {}
    }
}
