//! From Tautline's configuration to rustls'.

use crate::hello::Acceptor;
use crate::memory::{self, Memory};
use crate::provider::provider;
use crate::resolver::Resolver;
use crate::staple::Stapled;
use crate::ticket::Sealer;
use crate::{certificate, fused, trust};
use rustls::SupportedProtocolVersion;
use rustls::client::{Resumption, TicketRequest};
use rustls::server::NoServerSessionStorage;
use rustls::version::{TLS12, TLS13};
use std::sync::Arc;
use tautline_tls::{ClientConfig, Error, KeyExchange, ServerConfig, Versions};
use tautline_tls_records::{TICKETS, TICKETS_RESUMED};
use webpki::KeyUsage;

/// How much is asked of certificates.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Demands {
    /// What peers will refuse is a warning, because the clock may be what is wrong.
    Start,
    /// It is an error, because there are certificates to stay with.
    Reload,
}

/// A server's configuration; `secrets` says whether sessions may hand out their keys.
pub(crate) fn server(
    config: &ServerConfig,
    secrets: bool,
    ticketer: Option<Arc<Sealer>>,
    demands: Demands,
) -> Result<Acceptor, Error> {
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
        let key = certificate::load(certificate, &what, KeyUsage::server_auth(), &provider, demands)?;
        keys.push(Stapled::new(key, &certificate.ocsp, &what, demands)?);
    }
    let verifier = trust::of_clients(&config.client_auth, &provider)?;
    let resolver = Arc::new(Resolver::new(keys));
    let mut rustls = rustls::ServerConfig::builder_with_provider(provider)
        .with_protocol_versions(versions(config.versions))
        .map_err(library)?
        .with_client_cert_verifier(verifier)
        .with_cert_resolver(resolver.clone());
    rustls.alpn_protocols.clone_from(&config.alpn);
    rustls.enable_secret_extraction = secrets;
    // Tickets hold all there is to a session, so nothing is stored here and all shards can resume it.
    rustls.session_storage = Arc::new(NoServerSessionStorage {});
    let tickets = match config.tickets_per_handshake {
        count @ 1..=ServerConfig::MOST_TICKETS => usize::from(count),
        count => {
            let most = ServerConfig::MOST_TICKETS;
            return Err(Error::Config(format!("{count} tickets per handshake: give 1 to {most}, or turn tickets off")));
        }
    };
    match ticketer {
        Some(ticketer) => {
            rustls.send_tls13_tickets = tickets;
            rustls.max_tls13_tickets = tickets;
            rustls.ticketer = ticketer;
        }
        None => rustls.send_tls13_tickets = 0,
    }
    if config.key_log {
        rustls.key_log = Arc::new(rustls::KeyLogFile::new());
    }
    if secrets {
        fused::tap_keys(&mut rustls.key_log);
    }
    Ok(Acceptor::new(rustls, resolver))
}

/// A client's configuration; `secrets` says whether sessions may hand out their keys.
pub(crate) fn client(config: &ClientConfig, secrets: bool) -> Result<rustls::ClientConfig, Error> {
    let provider = provider(config.key_exchange);
    let memory = Memory::of(config, &provider)?;
    let mut rustls = rustls::ClientConfig::builder_with_provider(provider)
        .with_protocol_versions(versions(config.versions))
        .map_err(library)?
        .dangerous()
        .with_custom_certificate_verifier(memory.verifier)
        .with_client_cert_resolver(memory.own);
    rustls.alpn_protocols.clone_from(&config.alpn);
    rustls.enable_secret_extraction = secrets;
    if config.no_resumption {
        rustls.resumption = Resumption::disabled();
    } else {
        rustls.resumption = Resumption::store(memory.sessions);
        // RFC 9149: as many as are taken, since each costs the server a few microseconds.
        let new_session_count = if secrets { TICKETS } else { memory::TICKETS };
        rustls.send_ticket_request = Some(TicketRequest { new_session_count, resumption_count: TICKETS_RESUMED });
    }
    if config.key_log {
        rustls.key_log = Arc::new(rustls::KeyLogFile::new());
    }
    if secrets {
        fused::tap_keys(&mut rustls.key_log);
    }
    Ok(rustls)
}

fn versions(versions: Versions) -> &'static [&'static SupportedProtocolVersion] {
    static BOTH: [&SupportedProtocolVersion; 2] = [&TLS13, &TLS12];
    match versions {
        Versions::All => &BOTH,
        Versions::Tls13 => &BOTH[..1],
        Versions::Tls12 => &BOTH[1..],
    }
}

fn library(error: rustls::Error) -> Error {
    Error::Library(error.to_string())
}
