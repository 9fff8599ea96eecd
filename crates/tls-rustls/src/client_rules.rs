//! The different demands on clients in one configuration, and the certificates for which each holds.

use crate::resolver::{self, Resolver};
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;
use std::sync::Arc;
use tautline_tls::{ClientAuth, ClientRule, Error, ServerConfig};

/// The demands of a configuration. rustls has one verifier per configuration, so each demand has a configuration of its own.
pub(crate) struct Demands<'c> {
    /// Each with the name of its rule, if certificates have it as a rule of their own.
    pub(crate) all: Vec<(Option<&'c str>, &'c ClientAuth)>,
    /// For each certificate the index of its demand.
    pub(crate) of_certificates: Vec<usize>,
}

impl<'c> Demands<'c> {
    /// Gathers them.
    ///
    /// # Errors
    /// [`Error::Config`] if two rules have one name.
    pub(crate) fn of(config: &'c ServerConfig) -> Result<Self, Error> {
        let mut demands = Self { all: Vec::new(), of_certificates: Vec::with_capacity(config.certificates.len()) };
        for certificate in &config.certificates {
            let name = certificate.client_rule.as_ref().map(|rule: &ClientRule| rule.name.as_str());
            let auth = config.client_auth_of(certificate);
            let at = match demands.all.iter().position(|(known, _)| *known == name) {
                Some(at) if demands.all[at].1 == auth => at,
                Some(_) => {
                    let name = name.unwrap_or_default();
                    return Err(Error::Config(format!(
                        "two rules about clients have the name {name:?} and differ: give each a name of its own"
                    )));
                }
                None => {
                    demands.all.push((name, auth));
                    demands.all.len() - 1
                }
            };
            demands.of_certificates.push(at);
        }
        Ok(demands)
    }
}

/// The certificates of one demand. Clients that ask for another host get none.
///
/// [`ServerConfigs`](crate::server_configs::ServerConfigs) chooses the demand by its own reading of the ClientHello. rustls'
/// reading decides: if the two differ, the handshake fails, so no client gets by with another host's demand.
#[derive(Debug)]
pub(crate) struct OfDemand {
    pub(crate) resolver: Arc<Resolver>,
    pub(crate) demand: usize,
}

impl ResolvesServerCert for OfDemand {
    fn resolve(&self, hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        if self.resolver.demand(hello.server_name()) != self.demand {
            resolver::forget_sni();
            log::debug!("a ClientHello is refused, since its server name cannot be read for sure");
            return None;
        }
        self.resolver.resolve(hello)
    }
}
