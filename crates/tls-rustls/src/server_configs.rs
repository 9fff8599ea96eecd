use crate::challenge::Challenged;
use crate::resolver::Resolver;
use rustls::{ServerConfig, SignatureScheme};
use std::sync::Arc;
use tautline_tls::hello::{Hello, begins};
use tautline_tls::record::{Front, front};
use tautline_tls::{KeyCost, Signing};

/// A server's two rustls configurations, which differ only in whose order of cipher suites decides, and those for authorities.
///
/// The server's order is the rule. It begins with AES-128-GCM, the fastest suite here, while most clients list AES-256
/// first and lose nothing by AES-128. The client's order decides if it lists ChaCha20 first: such a client has no AES
/// instructions, and AES would cost it more. rustls has one rule per configuration, so the ClientHello selects one of two.
#[derive(Debug)]
pub(crate) struct ServerConfigs {
    our_order: Arc<ServerConfig>,
    their_order: Arc<ServerConfig>,
    resolver: Arc<Resolver>,
    challenged: Option<Challenged>,
}

impl ServerConfigs {
    pub(crate) fn new(mut config: ServerConfig, resolver: Arc<Resolver>, challenged: Option<Challenged>) -> Self {
        config.ignore_client_order = false;
        let their_order = Arc::new(config.clone());
        config.ignore_client_order = true;
        Self { our_order: Arc::new(config), their_order, resolver, challenged }
    }

    /// The configuration for a client, selected by its first record.
    pub(crate) fn config(&self, record: &[u8]) -> Arc<ServerConfig> {
        let Some(hello) = Hello::read(record) else { return Arc::clone(&self.our_order) };
        let challenged = self.challenged.as_ref().and_then(|challenged| challenged.config(&hello));
        challenged
            .unwrap_or_else(|| Arc::clone(if hello.prefers_chacha() { &self.their_order } else { &self.our_order }))
    }

    /// The times that the server's keys take to sign.
    pub(crate) fn key_costs(&self) -> Vec<KeyCost> {
        self.resolver.costs().kinds().to_vec()
    }

    /// The cost of the signature for a client, from its first bytes; `None` unless they hold a whole record of a ClientHello.
    pub(crate) fn signing(&self, wire: &[u8]) -> Option<Signing> {
        let Front::Whole(len) = front(wire) else { return None };
        let record = &wire[..len];
        if !begins(record) {
            return None;
        }
        let (time, may_resume) = match Hello::read(record) {
            Some(hello) => {
                let schemes: Vec<_> = hello.schemes().into_iter().map(SignatureScheme::from).collect();
                (self.resolver.signing_time(hello.server_name(), &schemes), hello.offers_ticket())
            }
            // The ClientHello spans several records, which honest clients do only above 16 KiB: the slowest key is assumed.
            None => (self.resolver.costs().longest(), false),
        };
        Some(Signing::new(time, may_resume))
    }
}
