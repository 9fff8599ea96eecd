use crate::challenge::Challenged;
use crate::resolver::Resolver;
use rustls::{ServerConfig, SignatureScheme};
use std::borrow::Cow;
use std::sync::Arc;
use tautline_tls::hello::{Hello, first_record, joined};
use tautline_tls::{KeyCost, Signing};

/// A server's rustls configurations: pairs that differ only in whose order of cipher suites decides, and those for authorities.
///
/// The server's order is the rule. It begins with AES-128-GCM, the fastest suite here, while most clients list AES-256
/// first and lose nothing by AES-128. The client's order decides if it lists ChaCha20 first: such a client has no AES
/// instructions, and AES would cost it more. rustls has one rule per configuration, so the ClientHello selects one of two.
///
/// There are two for each demand on clients.
#[derive(Debug)]
pub(crate) struct ServerConfigs {
    /// By the indices that the resolver has for demands.
    demands: Vec<OfDemand>,
    resolver: Arc<Resolver>,
    challenged: Option<Challenged>,
}

/// The configurations of one demand on clients.
#[derive(Debug)]
struct OfDemand {
    our_order: Arc<ServerConfig>,
    their_order: Arc<ServerConfig>,
    rule: Option<Arc<str>>,
}

/// The configuration for a client, and the name of the rule about clients in it.
pub(crate) struct Chosen {
    pub(crate) config: Arc<ServerConfig>,
    pub(crate) rule: Option<Arc<str>>,
}

impl ServerConfigs {
    /// Takes the configuration of each demand, with the name of its rule.
    pub(crate) fn new(
        demands: impl IntoIterator<Item = (ServerConfig, Option<Arc<str>>)>,
        resolver: Arc<Resolver>,
        challenged: Option<Challenged>,
    ) -> Self {
        let both_orders = |(mut config, rule): (ServerConfig, _)| {
            config.ignore_client_order = false;
            let their_order = Arc::new(config.clone());
            config.ignore_client_order = true;
            OfDemand { our_order: Arc::new(config), their_order, rule }
        };
        Self { demands: demands.into_iter().map(both_orders).collect(), resolver, challenged }
    }

    /// The configuration for a client, selected by its first records. `None` if the rest of the ClientHello has to come first:
    /// the host name decides which demand holds, and can stand in any of its records.
    pub(crate) fn choose(&self, records: &[u8]) -> Option<Chosen> {
        let hello = if self.demands.len() > 1 { joined(records)? } else { Cow::Borrowed(records) };
        let hello = Hello::read(&hello);
        let challenged = hello.and_then(|hello| self.challenged.as_ref()?.config(&hello));
        if let Some(config) = challenged {
            return Some(Chosen { config, rule: None });
        }
        let demand = self.demands.get(self.resolver.demand(hello.and_then(|hello| hello.server_name())))?;
        let theirs = hello.is_some_and(|hello| hello.prefers_chacha());
        let config = Arc::clone(if theirs { &demand.their_order } else { &demand.our_order });
        Some(Chosen { config, rule: demand.rule.clone() })
    }

    /// The times that the server's keys take to sign.
    pub(crate) fn key_costs(&self) -> Vec<KeyCost> {
        self.resolver.costs().kinds().to_vec()
    }

    /// The cost of the signature for a client, from its first bytes; `None` unless they hold a whole record of a ClientHello.
    pub(crate) fn signing(&self, wire: &[u8]) -> Option<Signing> {
        let record = first_record(wire)?;
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
