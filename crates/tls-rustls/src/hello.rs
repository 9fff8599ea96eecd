use crate::record::{Front, front};
use crate::resolver::Resolver;
use rustls::{ServerConfig, SignatureScheme};
use std::sync::Arc;
use tautline_tls::hello::{Hello, begins};
use tautline_tls::{KeyCost, Signing};

/// A server's two configurations, alike but for who decides the cipher suite.
///
/// The server's order decides (AES-128-GCM first, the fastest here), for clients mostly list AES-256 first and none would
/// lose by AES-128. But a client that lists ChaCha20 first says that it has no AES instructions, and would pay for ours:
/// its order decides. rustls knows only one rule per configuration, so there are two, and the ClientHello chooses.
#[derive(Debug)]
pub(crate) struct Acceptor {
    our_order: Arc<ServerConfig>,
    their_order: Arc<ServerConfig>,
    resolver: Arc<Resolver>,
}

impl Acceptor {
    pub(crate) fn new(mut config: ServerConfig, resolver: Arc<Resolver>) -> Self {
        config.ignore_client_order = false;
        let their_order = Arc::new(config.clone());
        config.ignore_client_order = true;
        Self { our_order: Arc::new(config), their_order, resolver }
    }

    /// The configuration for the client whose first record this is.
    pub(crate) fn config(&self, record: &[u8]) -> &Arc<ServerConfig> {
        if Hello::read(record).is_some_and(|hello| hello.prefers_chacha()) {
            &self.their_order
        } else {
            &self.our_order
        }
    }

    /// What keys take to sign.
    pub(crate) fn key_costs(&self) -> Vec<KeyCost> {
        self.resolver.costs().kinds().to_vec()
    }

    /// What the signature for the client whose first bytes these are will cost; `None` as long as there is no whole record.
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
            // Cut into several records, which honest clients do not do with less than 16 KiB: as dear as it can get.
            None => (self.resolver.costs().longest(), false),
        };
        Some(Signing { time, may_resume })
    }
}
