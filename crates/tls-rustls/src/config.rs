//! From Tautline's configuration to rustls'.

use crate::provider::provider;
use crate::resolver::Resolver;
use crate::{certificate, trust};
use rustls::SupportedProtocolVersion;
use rustls::client::Resumption;
use rustls::server::NoServerSessionStorage;
use rustls::sign::SingleCertAndKey;
use rustls::version::{TLS12, TLS13};
use std::sync::Arc;
use tautline_tls::{ClientAuth, ClientConfig, Error, ServerConfig, Versions};
use webpki::KeyUsage;

/// Sessions that a client remembers, over all hosts.
const CLIENT_SESSIONS: usize = 1024;

/// A server's configuration; `secrets` says whether sessions may hand out their keys.
pub(crate) fn server(config: &ServerConfig, secrets: bool) -> Result<rustls::ServerConfig, Error> {
    let provider = provider();
    let count = config.certificates.len();
    if count == 0 {
        return Err(Error::Config("a server needs a certificate and its key; `taut cert` makes some".to_owned()));
    }
    let mut keys = Vec::with_capacity(count);
    for (index, certificate) in config.certificates.iter().enumerate() {
        let what = match count {
            1 => "server certificate".to_owned(),
            _ => format!("server certificate {} of {count}", index + 1),
        };
        keys.push(certificate::load(certificate, &what, KeyUsage::server_auth(), &provider)?);
    }
    let verifier = trust::of_clients(&config.client_auth, &provider)?;
    let mut rustls = rustls::ServerConfig::builder_with_provider(provider)
        .with_protocol_versions(versions(config.versions))
        .map_err(library)?
        .with_client_cert_verifier(verifier)
        .with_cert_resolver(Arc::new(Resolver::new(keys)));
    rustls.alpn_protocols.clone_from(&config.alpn);
    rustls.enable_secret_extraction = secrets;
    // Tickets hold all there is to a session, so nothing is stored here and all shards can resume it.
    rustls.session_storage = Arc::new(NoServerSessionStorage {});
    // A resumed session does not show a client's certificate again, so a revoked one would live on in tickets.
    if config.no_resumption || !matches!(config.client_auth, ClientAuth::None) {
        rustls.send_tls13_tickets = 0;
    } else {
        rustls.ticketer = rustls::crypto::aws_lc_rs::Ticketer::new().map_err(library)?;
    }
    if config.key_log {
        rustls.key_log = Arc::new(rustls::KeyLogFile::new());
    }
    Ok(rustls)
}

/// A client's configuration; `secrets` says whether sessions may hand out their keys.
pub(crate) fn client(config: &ClientConfig, secrets: bool) -> Result<rustls::ClientConfig, Error> {
    let provider = provider();
    let verifier = trust::of_servers(&config.roots, &provider)?;
    let own = config
        .certificate
        .as_ref()
        .map(|own| certificate::load(own, "client certificate", KeyUsage::client_auth(), &provider))
        .transpose()?;
    let builder = rustls::ClientConfig::builder_with_provider(provider)
        .with_protocol_versions(versions(config.versions))
        .map_err(library)?
        .dangerous()
        .with_custom_certificate_verifier(verifier);
    let mut rustls = match own {
        None => builder.with_no_client_auth(),
        Some(own) => builder.with_client_cert_resolver(Arc::new(SingleCertAndKey::from(own))),
    };
    rustls.alpn_protocols.clone_from(&config.alpn);
    rustls.enable_secret_extraction = secrets;
    rustls.resumption =
        if config.no_resumption { Resumption::disabled() } else { Resumption::in_memory_sessions(CLIENT_SESSIONS) };
    if config.key_log {
        rustls.key_log = Arc::new(rustls::KeyLogFile::new());
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
