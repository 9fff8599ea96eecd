//! What a client keeps from one engine to the next of the same configuration.

use crate::certificate;
use crate::config::Demands;
use crate::trust;
use rustls::SignatureScheme;
use rustls::client::danger::ServerCertVerifier;
use rustls::client::{ClientSessionMemoryCache, ResolvesClientCert};
use rustls::crypto::CryptoProvider;
use rustls::sign::{CertifiedKey, SingleCertAndKey};
use std::sync::Arc;
use tautline_tls::{Certificate, ClientConfig, Error, Roots};
use webpki::KeyUsage;

/// Sessions that a client remembers of a host, which rustls sets.
pub(crate) const TICKETS: u8 = 8;

/// Sessions that a client remembers, of 128 hosts.
const SESSIONS: usize = 128 * TICKETS as usize;

/// Sessions, with those who vouched for them: rustls resumes one only under the very verifier and own certificate that it
/// began with, so that no session is trusted by the judgement of another.
#[derive(Clone)]
pub(crate) struct Memory {
    roots: Roots,
    certificate: Option<Certificate>,
    pub(crate) verifier: Arc<dyn ServerCertVerifier>,
    pub(crate) own: Arc<dyn ResolvesClientCert>,
    pub(crate) sessions: Arc<ClientSessionMemoryCache>,
}

impl Memory {
    /// That of configurations which share their [`Sessions`](tautline_tls::Sessions) with this one, where they trust and show
    /// the same.
    pub(crate) fn of(config: &ClientConfig, provider: &Arc<CryptoProvider>) -> Result<Self, Error> {
        config.sessions.with(|known: &mut Option<Self>| match known {
            Some(known) if known.roots == config.roots && known.certificate == config.certificate => Ok(known.clone()),
            _ => Ok(known.insert(Self::new(config, provider)?).clone()),
        })
    }

    fn new(config: &ClientConfig, provider: &Arc<CryptoProvider>) -> Result<Self, Error> {
        let own: Arc<dyn ResolvesClientCert> = match &config.certificate {
            None => Arc::new(Nobody),
            Some(own) => {
                let what = if own.name.is_empty() { "client certificate" } else { &own.name };
                let key = certificate::load(own, what, KeyUsage::client_auth(), provider, Demands::Start)?;
                Arc::new(SingleCertAndKey::from(key))
            }
        };
        Ok(Self {
            roots: config.roots.clone(),
            certificate: config.certificate.clone(),
            verifier: trust::of_servers(&config.roots, provider)?,
            own,
            sessions: Arc::new(ClientSessionMemoryCache::new(SESSIONS)),
        })
    }
}

/// A client without a certificate.
#[derive(Debug)]
struct Nobody;

impl ResolvesClientCert for Nobody {
    fn resolve(&self, _roots: &[&[u8]], _schemes: &[SignatureScheme]) -> Option<Arc<CertifiedKey>> {
        None
    }

    fn has_certs(&self) -> bool {
        false
    }
}
