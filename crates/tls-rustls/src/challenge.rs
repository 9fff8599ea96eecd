use crate::certificate;
use core::fmt;
use rustls::ServerConfig;
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;
use std::sync::Arc;
use tautline_tls::hello::Hello;
use tautline_tls::{ACME_TLS, Challenges};

/// Answers authorities that validate a name by TLS-ALPN-01 (RFC 8737).
pub(crate) struct Challenged {
    challenges: Arc<dyn Challenges>,
    /// The configuration of such a connection, without its certificate.
    base: ServerConfig,
}

impl Challenged {
    /// `base` requests no client certificate and makes no tickets.
    pub(crate) fn new(challenges: Arc<dyn Challenges>, mut base: ServerConfig) -> Self {
        base.alpn_protocols = vec![ACME_TLS.to_vec()];
        base.send_tls13_tickets = 0;
        Self { challenges, base }
    }

    /// The configuration for a client that validates one of the names under validation; `None` for all others.
    pub(crate) fn config(&self, hello: &Hello<'_>) -> Option<Arc<ServerConfig>> {
        if !hello.offers_only(ACME_TLS) {
            return None;
        }
        let name = hello.server_name()?.to_ascii_lowercase();
        let certificate = self.challenges.certificate(&name)?;
        // RFC 8737, section 3: it is self-signed, and has a critical extension that only authorities know.
        let loaded = certificate::load_unchecked(&certificate, "challenge certificate", self.base.crypto_provider());
        match loaded {
            Ok(key) => {
                let mut config = self.base.clone();
                config.cert_resolver = Arc::new(One(Arc::new(key)));
                Some(Arc::new(config))
            }
            Err(error) => {
                log::error!("the challenge for {name} is not answered: {error}");
                None
            }
        }
    }
}

impl fmt::Debug for Challenged {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Challenged")
    }
}

/// Presents one certificate to everyone.
#[derive(Debug)]
struct One(Arc<CertifiedKey>);

impl ResolvesServerCert for One {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(Arc::clone(&self.0))
    }
}

/// The resolver of a configuration that [`Challenged::config`] gives another one before its use.
#[derive(Debug)]
pub(crate) struct Nobody;

impl ResolvesServerCert for Nobody {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        None
    }
}
