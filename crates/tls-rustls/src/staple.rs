use rustls::pki_types::UnixTime;
use rustls::sign::CertifiedKey;
use std::sync::Arc;
use tautline_tls::Error;
use tautline_tls::chain::Strictness;
use tautline_tls::ocsp::{Stapling, stapling};
use webpki::EndEntityCert;

/// A certificate, with and without its stapled OCSP response.
#[derive(Debug)]
pub(crate) struct Stapled {
    bare: Arc<CertifiedKey>,
    /// The certificate with its response, and the second since 1970 at which the response expires.
    stapled: Option<(Arc<CertifiedKey>, u64)>,
}

impl Stapled {
    /// Pairs a certificate with its OCSP response; `ocsp` is empty if there is none.
    ///
    /// An unusable response is left out with a warning. [`stapling`] says what is an error.
    pub(crate) fn new(key: CertifiedKey, ocsp: &[u8], what: &str, strictness: Strictness) -> Result<Self, Error> {
        if ocsp.is_empty() {
            return Ok(Self { bare: Arc::new(key), stapled: None });
        }
        let parsed = key.cert.first().map(EndEntityCert::try_from);
        let serial = match &parsed {
            Some(Ok(certificate)) => certificate.serial(),
            _ => &[],
        };
        let until = match stapling(ocsp, serial, what, strictness, UnixTime::now().as_secs())? {
            Stapling::Until(until) => until,
            Stapling::Not(why) => {
                log::warn!("{what}: no OCSP response is sent: {why}");
                return Ok(Self { bare: Arc::new(key), stapled: None });
            }
        };
        let stapled = CertifiedKey { ocsp: Some(ocsp.to_vec()), ..key.clone() };
        Ok(Self { bare: Arc::new(key), stapled: Some((Arc::new(stapled), until)) })
    }

    /// The certificate alone.
    pub(crate) fn key(&self) -> &CertifiedKey {
        &self.bare
    }

    /// The certificate, with its response until that expires.
    ///
    /// Clients reject an expired response, but accept a certificate without a response.
    pub(crate) fn current(&self) -> &Arc<CertifiedKey> {
        match &self.stapled {
            Some((stapled, until)) if UnixTime::now().as_secs() < *until => stapled,
            _ => &self.bare,
        }
    }
}
