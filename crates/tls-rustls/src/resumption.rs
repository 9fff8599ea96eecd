//! The client state that engines of the same configuration share.

use crate::certificate;
use crate::trust;
use rustls::SignatureScheme;
use rustls::client::danger::ServerCertVerifier;
use rustls::client::{ClientSessionMemoryCache, ResolvesClientCert};
use rustls::crypto::CryptoProvider;
use rustls::sign::{CertifiedKey, SingleCertAndKey};
use std::sync::Arc;
use tautline_tls::chain::Strictness;
use tautline_tls::fields::Role;
use tautline_tls::{Certificate, ClientConfig, Error, Roots, Verify};

/// Most sessions that a client remembers for one host; the number is rustls'.
pub(crate) const TICKETS: u8 = 8;

/// A client's sessions, with the verifier and the own certificate under which they began.
///
/// rustls resumes a session only under the same verifier and the same certificate. So no session is trusted because
/// another verifier accepted it.
#[derive(Clone)]
pub(crate) struct ResumptionCache {
    roots: Roots,
    certificate: Option<Certificate>,
    verify: Option<Arc<dyn Verify>>,
    pub(crate) verifier: Arc<dyn ServerCertVerifier>,
    pub(crate) own: Arc<dyn ResolvesClientCert>,
    pub(crate) sessions: Arc<ClientSessionMemoryCache>,
}

impl ResumptionCache {
    /// The cache of a configuration.
    ///
    /// Configurations with the same [`Sessions`](tautline_tls::Sessions) share it if their roots and certificates are equal.
    pub(crate) fn of(config: &ClientConfig, provider: &Arc<CryptoProvider>) -> Result<Self, Error> {
        config.sessions.with(|known: &mut Option<Self>| match known {
            Some(known) if known.is_for(config) => Ok(known.clone()),
            _ => Ok(known.insert(Self::new(config, provider)?).clone()),
        })
    }

    /// Whether the sessions began under the same trust and the same certificate as those of `config` will.
    fn is_for(&self, config: &ClientConfig) -> bool {
        let decides_alike = match (&self.verify, &config.verify) {
            (Some(own), Some(other)) => Arc::ptr_eq(own, other),
            (own, other) => own.is_none() && other.is_none(),
        };
        decides_alike && self.roots == config.roots && self.certificate == config.certificate
    }

    fn new(config: &ClientConfig, provider: &Arc<CryptoProvider>) -> Result<Self, Error> {
        let own: Arc<dyn ResolvesClientCert> = match &config.certificate {
            None => Arc::new(NoClientCert),
            Some(own) => {
                let what = if own.name.is_empty() { "client certificate" } else { &own.name };
                let key = certificate::load(own, what, Role::Client, provider, Strictness::Start)?;
                Arc::new(SingleCertAndKey::from(key))
            }
        };
        Ok(Self {
            roots: config.roots.clone(),
            certificate: config.certificate.clone(),
            verify: config.verify.clone(),
            verifier: trust::server_verifier(&config.roots, config.verify.as_ref(), provider)?,
            own,
            sessions: Arc::new(ClientSessionMemoryCache::new(
                config.sessions.hosts().saturating_mul(usize::from(TICKETS)),
            )),
        })
    }
}

/// A client without a certificate.
#[derive(Debug)]
struct NoClientCert;

impl ResolvesClientCert for NoClientCert {
    fn resolve(&self, _roots: &[&[u8]], _schemes: &[SignatureScheme]) -> Option<Arc<CertifiedKey>> {
        None
    }

    fn has_certs(&self) -> bool {
        false
    }
}
