//! Trusted certificates: as authorities, and as themselves.
//!
//! [`Anchors`] is public, but hidden, for `taut probe`, which verifies chains after the handshake.

use crate::error::Refused;
use aws_lc_rs::digest::{SHA256, digest};
use rustls::client::{verify_server_cert_signed_by_trust_anchor, verify_server_name};
use rustls::pki_types::{CertificateDer, ServerName, SignatureVerificationAlgorithm, UnixTime};
use rustls::server::ParsedCertificate;
use rustls::{CertificateError, OtherError, RootCertStore};
use std::collections::HashSet;
use std::sync::Arc;
use tautline_tls::fields::{Fields, Role};

/// The certificates that a verifier trusts.
pub struct Anchors {
    /// Authorities, whose certificates rustls verifies.
    pub store: Arc<RootCertStore>,
    /// SHA-256 of each trusted certificate.
    exact: HashSet<[u8; 32]>,
}

/// Anchors in the making.
pub(crate) struct Builder {
    store: RootCertStore,
    exact: HashSet<[u8; 32]>,
}

impl Builder {
    pub(crate) fn new() -> Self {
        Self { store: RootCertStore::empty(), exact: HashSet::new() }
    }

    /// Trusts a certificate. An error says why it cannot be an authority's.
    pub(crate) fn add(&mut self, certificate: &[u8]) -> Result<(), rustls::Error> {
        self.store.add(CertificateDer::from(certificate))?;
        self.exact.extend(sha256(certificate));
        Ok(())
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.store.is_empty()
    }

    pub(crate) fn build(self) -> Anchors {
        Anchors { store: Arc::new(self.store), exact: self.exact }
    }
}

impl Default for Anchors {
    /// Trusts nobody.
    fn default() -> Self {
        Builder::new().build()
    }
}

impl Anchors {
    /// Verifies the chain that a server showed, as a client's handshake does. The caller compares the name.
    ///
    /// # Errors
    /// The first reason to refuse the chain.
    pub fn verify_server(
        &self,
        (leaf, intermediates): (&CertificateDer<'_>, &[CertificateDer<'_>]),
        at: UnixTime,
        algorithms: &[&dyn SignatureVerificationAlgorithm],
    ) -> Result<(), rustls::Error> {
        let parsed = ParsedCertificate::try_from(leaf)?;
        let verified = verify_server_cert_signed_by_trust_anchor(&parsed, &self.store, intermediates, at, algorithms);
        self.judge(leaf, (Role::Server, None), at, (verified, ()))
    }

    /// Judges again what rustls said of a certificate that a peer showed.
    ///
    /// `openssl req -x509` makes certificates that sign themselves and call themselves authorities. rustls accepts no
    /// authority's certificate as a peer's. One that is trusted itself, byte for byte, needs no issuer, so only this
    /// objection is dropped. Time, use and (for a server) name are still checked here, and rustls verifies the handshake's
    /// signature with the certificate's key.
    pub(crate) fn judge<T>(
        &self,
        certificate: &CertificateDer<'_>,
        (role, name): (Role, Option<&ServerName<'_>>),
        now: UnixTime,
        (verified, accepted): (Result<T, rustls::Error>, T),
    ) -> Result<T, rustls::Error> {
        match verified {
            Err(error) if is_authority(&error) && self.is_trusted_itself(certificate) => {
                check(certificate, role, name, now).map(|()| accepted)
            }
            verified => verified,
        }
    }

    fn is_trusted_itself(&self, certificate: &[u8]) -> bool {
        sha256(certificate).is_some_and(|hash| self.exact.contains(&hash))
    }
}

/// Whether rustls objects to nothing but that the certificate is an authority's.
fn is_authority(error: &rustls::Error) -> bool {
    let rustls::Error::InvalidCertificate(CertificateError::Other(OtherError(why))) = error else { return false };
    matches!(why.downcast_ref(), Some(webpki::Error::CaUsedAsEndEntity))
}

fn check(
    certificate: &CertificateDer<'_>,
    role: Role,
    name: Option<&ServerName<'_>>,
    now: UnixTime,
) -> Result<(), rustls::Error> {
    let fields = Fields::of(certificate).ok_or(CertificateError::BadEncoding)?;
    if !fields.is_valid_at(now.as_secs()) {
        // rustls looks at the time before it asks whose certificate it is.
        return Err(CertificateError::Expired.into());
    }
    if !fields.is_for(role) {
        return Err(CertificateError::InvalidPurpose.into());
    }
    if !fields.key_is_for(role) {
        let why = "its key is meant for another use (key usage): servers and clients need digitalSignature";
        return Err(CertificateError::Other(OtherError(Arc::new(Refused(why.to_owned())))).into());
    }
    // This also refuses critical extensions that nobody here knows.
    let parsed = ParsedCertificate::try_from(certificate)?;
    name.map_or(Ok(()), |name| verify_server_name(&parsed, name))
}

fn sha256(certificate: &[u8]) -> Option<[u8; 32]> {
    digest(&SHA256, certificate).as_ref().try_into().ok()
}
