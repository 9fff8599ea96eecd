use crate::config::{self, Serving};
use crate::session::Session;
use core::time::Duration;
use rustls::pki_types::ServerName;
use std::sync::Arc;
use tautline_tls::{ClientConfig, Error, KeyCost, ServerConfig, Signing};
use tautline_tls_tickets::{LiveConfig, Renewal};

/// rustls with one configuration. Clones share it, its ticket keys, and the sessions that a client remembers.
#[derive(Clone)]
pub struct Engine {
    server: LiveConfig<Serving>,
    client: Option<Arc<rustls::ClientConfig>>,
}

impl Engine {
    /// Makes an engine for each role that has a configuration.
    ///
    /// # Errors
    /// [`Error::Config`] if a certificate, key or root cannot be used. The text names it and the remedy.
    pub fn new(server: Option<&ServerConfig>, client: Option<&ClientConfig>) -> Result<Self, Error> {
        Self::with_secrets(server, client, false, Renewal::Thread)
    }

    /// Makes an engine that accepts connections.
    ///
    /// # Errors
    /// The errors of [`new`](Self::new).
    pub fn server(config: &ServerConfig) -> Result<Self, Error> {
        Self::new(Some(config), None)
    }

    /// Makes an engine that opens connections.
    ///
    /// # Errors
    /// The errors of [`new`](Self::new).
    pub fn client(config: &ClientConfig) -> Result<Self, Error> {
        Self::new(None, Some(config))
    }

    pub(crate) fn with_secrets(
        server: Option<&ServerConfig>,
        client: Option<&ClientConfig>,
        secrets: bool,
        renewal: Renewal,
    ) -> Result<Self, Error> {
        let server = LiveConfig::new(Serving { secrets, renewal }, server)?;
        let client = client.map(|client| config::client(client, secrets)).transpose()?;
        Ok(Self { server, client: client.map(Arc::new) })
    }

    /// Erases ticket keys whose time is over. Returns the time until the next call; `None` if none is due.
    pub(crate) fn renew_tickets(&self) -> Option<Duration> {
        self.server.renew_tickets()
    }
}

impl tautline_tls::Engine for Engine {
    type Session = Session;

    fn capabilities(&self) -> &'static tautline_tls::Capabilities {
        &crate::capabilities::RUSTLS
    }

    fn accept(&self) -> Result<Session, Error> {
        self.server.current()?;
        Ok(Session::accept(self.server.clone()))
    }

    fn signing(&self, hello: &[u8]) -> Option<Signing> {
        self.server.current().ok()?.signing(hello)
    }

    fn key_costs(&self) -> Vec<KeyCost> {
        self.server.current().map_or_else(|_| Vec::new(), |now| now.key_costs())
    }

    fn reload(&self, config: &ServerConfig) -> Result<(), Error> {
        self.server.reload(config)
    }

    fn save_tickets(&self, out: &mut Vec<u8>) {
        self.server.save_tickets(out);
    }

    fn restore_tickets(&self, saved: &[u8]) -> Result<(), Error> {
        self.server.restore_tickets(saved)
    }

    fn connect(&self, host: &str) -> Result<Session, Error> {
        let config =
            self.client.as_ref().ok_or(Error::ApiMisuse("connect on an engine without client configuration"))?;
        // URLs put IPv6 addresses in brackets.
        let bare = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
        let name = ServerName::try_from(bare.to_owned())
            .map_err(|_| Error::Config(format!("{host:?} is neither a DNS name nor an IP address")))?;
        Session::connect(config, name)
    }
}
