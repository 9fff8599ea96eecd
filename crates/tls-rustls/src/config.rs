//! Converts Tautline's configuration to rustls'.

use crate::challenge::{Challenged, Nobody};
use crate::client_rules::{Demands, OfDemand};
use crate::compression;
use crate::provider::provider;
use crate::resolver::Resolver;
use crate::resumption::{self, ResumptionCache};
use crate::secret_log;
use crate::server_configs::ServerConfigs;
use crate::staple::Stapled;
use crate::ticket::{self, Key, Sealer};
use crate::{certificate, key_log, trust};
use rustls::SupportedProtocolVersion;
use rustls::client::{Resumption, TicketRequest};
use rustls::server::NoServerSessionStorage;
use rustls::version::{TLS12, TLS13};
use std::sync::Arc;
use tautline_tls::chain::Strictness;
use tautline_tls::fields::Role;
use tautline_tls::{ClientAuth, ClientConfig, Error, KeyExchange, ServerConfig, Tickets, Versions};
use tautline_tls_records::{TICKETS, TICKETS_RESUMED};
use tautline_tls_tickets::{Builder, Renewal, Ticketer};

/// Makes a server's configurations and its ticket keys.
pub(crate) struct Serving {
    /// Whether sessions may export their keys.
    pub(crate) secrets: bool,
    pub(crate) renewal: Renewal,
}

impl Builder for Serving {
    type Config = ServerConfigs;
    type Key = Key;

    fn ticketer(&self, tickets: &Tickets) -> Result<Option<Ticketer<Key>>, Error> {
        ticket::ticketer(tickets, self.renewal)
    }

    fn config(
        &self,
        config: &ServerConfig,
        ticketer: Option<Arc<Ticketer<Key>>>,
        strictness: Strictness,
    ) -> Result<ServerConfigs, Error> {
        server(config, self.secrets, ticketer, strictness)
    }
}

/// Builds a server's configurations. `secrets` lets sessions export their keys.
fn server(
    config: &ServerConfig,
    secrets: bool,
    ticketer: Option<Arc<Ticketer<Key>>>,
    strictness: Strictness,
) -> Result<ServerConfigs, Error> {
    let provider = provider(KeyExchange::All);
    let count = config.certificates.len();
    if count == 0 {
        return Err(Error::Config("a server needs a certificate and its key; `taut cert` makes some".to_owned()));
    }
    let mut keys = Vec::with_capacity(count);
    for (index, certificate) in config.certificates.iter().enumerate() {
        let what = match count {
            _ if !certificate.name.is_empty() => certificate.name.clone(),
            1 => "server certificate".to_owned(),
            _ => format!("server certificate {} of {count}", index + 1),
        };
        let key = certificate::load(certificate, &what, Role::Server, &provider, strictness)?;
        keys.push(Stapled::new(key, &certificate.ocsp, &what, strictness)?);
    }
    let demands = Demands::of(config)?;
    let resolver = Arc::new(Resolver::new(keys, demands.of_certificates)?);
    let tickets = match config.tickets_per_handshake {
        count @ 1..=ServerConfig::MOST_TICKETS => usize::from(count),
        count => {
            let most = ServerConfig::MOST_TICKETS;
            return Err(Error::Config(format!("{count} tickets per handshake: give 1 to {most}, or turn tickets off")));
        }
    };
    let builder = || {
        let builder = rustls::ServerConfig::builder_with_provider(provider.clone());
        builder.with_protocol_versions(versions(config.versions)?).map_err(library)
    };
    let asks_any = demands.all.iter().any(|(_, auth)| **auth != ClientAuth::None);
    let mut configs = Vec::with_capacity(demands.all.len());
    for (demand, (rule, auth)) in demands.all.into_iter().enumerate() {
        let asks = *auth != ClientAuth::None;
        // A decision of the program is about clients that show a certificate.
        let verify = config.verify.as_ref().filter(|_| asks || !asks_any);
        let verifier = trust::client_verifier(auth, rule, verify, &provider)?;
        let of_demand = OfDemand { resolver: resolver.clone(), demand };
        let mut rustls = builder()?.with_client_cert_verifier(verifier).with_cert_resolver(Arc::new(of_demand));
        rustls.alpn_protocols.clone_from(&config.alpn);
        compression::compress(&mut rustls, !config.no_certificate_compression, resolver.chains());
        finish(&mut rustls, config, secrets);
        // A ticket would stand for a certificate that nobody shows again, and that may be revoked since.
        match ticketer.as_ref().filter(|_| !asks) {
            Some(ticketer) => {
                rustls.send_tls13_tickets = tickets;
                rustls.max_tls13_tickets = tickets;
                rustls.ticketer = Arc::new(Sealer(Arc::clone(ticketer)));
            }
            None => rustls.send_tls13_tickets = 0,
        }
        configs.push((rustls, rule.map(Arc::from)));
    }
    let challenged = match &config.challenges {
        Some(challenges) => {
            let mut base = builder()?.with_no_client_auth().with_cert_resolver(Arc::new(Nobody));
            finish(&mut base, config, secrets);
            Some(Challenged::new(challenges.clone(), base))
        }
        None => None,
    };
    Ok(ServerConfigs::new(configs, resolver, challenged))
}

/// Sets what all connections of a server share, whatever they are for.
fn finish(rustls: &mut rustls::ServerConfig, config: &ServerConfig, secrets: bool) {
    rustls.enable_secret_extraction = secrets;
    // A ticket holds the whole session. So nothing is stored here, and every shard can resume it.
    rustls.session_storage = Arc::new(NoServerSessionStorage {});
    if config.key_log {
        rustls.key_log = key_log::open();
    }
    secret_log::install(&mut rustls.key_log, secrets, config.exporter);
}

/// Builds a client's configuration. `secrets` lets sessions export their keys.
pub(crate) fn client(config: &ClientConfig, secrets: bool) -> Result<rustls::ClientConfig, Error> {
    let provider = provider(config.key_exchange);
    let resumption = ResumptionCache::of(config, &provider)?;
    let mut rustls = rustls::ClientConfig::builder_with_provider(provider)
        .with_protocol_versions(versions(config.versions)?)
        .map_err(library)?
        .dangerous()
        .with_custom_certificate_verifier(resumption.verifier)
        .with_client_cert_resolver(resumption.own);
    rustls.alpn_protocols.clone_from(&config.alpn);
    rustls.enable_secret_extraction = secrets;
    compression::decompress(&mut rustls, !config.no_certificate_compression);
    if config.no_resumption {
        rustls.resumption = Resumption::disabled();
    } else {
        rustls.resumption = Resumption::store(resumption.sessions);
        // RFC 9149: the client asks for as many tickets as it keeps, since each costs the server a few microseconds.
        let new_session_count = if secrets { TICKETS } else { resumption::TICKETS };
        rustls.send_ticket_request = Some(TicketRequest { new_session_count, resumption_count: TICKETS_RESUMED });
    }
    if config.key_log {
        rustls.key_log = key_log::open();
    }
    secret_log::install(&mut rustls.key_log, secrets, config.exporter);
    Ok(rustls)
}

fn versions(versions: Versions) -> Result<&'static [&'static SupportedProtocolVersion], Error> {
    static BOTH: [&SupportedProtocolVersion; 2] = [&TLS13, &TLS12];
    match versions {
        Versions::All => Ok(&BOTH),
        Versions::Tls13 => Ok(&BOTH[..1]),
        Versions::Tls12 => Ok(&BOTH[1..]),
        _ => Err(Error::unknown("versions of TLS")),
    }
}

fn library(error: rustls::Error) -> Error {
    Error::Library(error.to_string())
}
