//! The demands of an engine on a chain, by the same functions. A file that it refuses must not replace one that works.

use crate::plan::Time;
use rustls::client::verify_server_cert_signed_by_trust_anchor;
use rustls::pki_types::{CertificateDer, UnixTime};
use rustls::server::ParsedCertificate;
use rustls::{CertificateError, Error, RootCertStore};
use tautline_tls::pem::Section;

/// Fails if a certificate of this chain cannot be read.
pub(crate) fn check_encoding(chain: &[Section]) -> Result<(), String> {
    let count = chain.len();
    for (section, number) in chain.iter().zip(1..) {
        let der = CertificateDer::from(section.der.to_vec());
        // Peers judge all else about an issuer's certificate.
        if let Err(Error::InvalidCertificate(CertificateError::BadEncoding)) = ParsedCertificate::try_from(&der) {
            return Err(format!("certificate {number} of {count} is malformed (line {})", section.line));
        }
    }
    Ok(())
}

/// Why every peer rejects the first certificate of this chain now: its validity, or that no other one has issued it.
pub(crate) fn flaw(chain: &[Section], now: Time) -> Option<&'static str> {
    let (first, rest) = chain.split_first()?;
    let mut issuers = RootCertStore::empty();
    issuers.add_parsable_certificates(rest.iter().map(|section| CertificateDer::from(section.der.to_vec())));
    let algorithms = rustls::crypto::aws_lc_rs::default_provider().signature_verification_algorithms;
    let der = CertificateDer::from(first.der.to_vec());
    let verified = ParsedCertificate::try_from(&der).and_then(|leaf| {
        let at = UnixTime::since_unix_epoch(now);
        verify_server_cert_signed_by_trust_anchor(&leaf, &issuers, &[], at, algorithms.all)
    });
    let Err(Error::InvalidCertificate(error)) = verified else { return None };
    match error {
        CertificateError::Expired | CertificateError::ExpiredContext { .. } => {
            Some("has expired: is the clock of this machine right?")
        }
        CertificateError::NotValidYet | CertificateError::NotValidYetContext { .. } => {
            Some("is not valid yet: is the clock of this machine right?")
        }
        CertificateError::UnknownIssuer | CertificateError::BadSignature if !rest.is_empty() => {
            Some("was not issued by any other certificate in its chain")
        }
        _ => None,
    }
}
