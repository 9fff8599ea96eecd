use crate::serving::Serving;
use crate::{Session, config};
use rustls::pki_types::ServerName;
use std::sync::Arc;
use tautline_tls::{ClientConfig, Error, KeyCost, ServerConfig, Signing};

/// rustls with one configuration; clones share it, its tickets' keys, and the sessions a client remembers.
#[derive(Clone)]
pub struct Engine {
    server: Option<Arc<Serving>>,
    client: Option<Arc<rustls::ClientConfig>>,
}

impl Engine {
    /// An engine for the roles that have a configuration.
    ///
    /// # Errors
    /// [`Error::Config`] where a certificate, key or root cannot be used; it says which, and what to do.
    pub fn new(server: Option<&ServerConfig>, client: Option<&ClientConfig>) -> Result<Self, Error> {
        Self::with_secrets(server, client, false)
    }

    /// An engine that accepts connections.
    ///
    /// # Errors
    /// As [`new`](Self::new).
    pub fn server(config: &ServerConfig) -> Result<Self, Error> {
        Self::new(Some(config), None)
    }

    /// An engine that opens connections.
    ///
    /// # Errors
    /// As [`new`](Self::new).
    pub fn client(config: &ClientConfig) -> Result<Self, Error> {
        Self::new(None, Some(config))
    }

    pub(crate) fn with_secrets(
        server: Option<&ServerConfig>,
        client: Option<&ClientConfig>,
        secrets: bool,
    ) -> Result<Self, Error> {
        let server = server.map(|server| Serving::new(server, secrets)).transpose()?;
        let client = client.map(|client| config::client(client, secrets)).transpose()?;
        Ok(Self { server: server.map(Arc::new), client: client.map(Arc::new) })
    }
}

impl tautline_tls::Engine for Engine {
    type Session = Session;

    fn name(&self) -> &'static str {
        "rustls"
    }

    fn accept(&self) -> Result<Session, Error> {
        let serving =
            self.server.as_ref().ok_or(Error::ApiMisuse("accept on an engine without server configuration"))?;
        Ok(Session::accept(Arc::clone(serving)))
    }

    fn signing(&self, hello: &[u8]) -> Option<Signing> {
        self.server.as_ref().and_then(|serving| serving.acceptor().signing(hello))
    }

    fn key_costs(&self) -> Vec<KeyCost> {
        self.server.as_ref().map_or_else(Vec::new, |serving| serving.acceptor().key_costs())
    }

    fn reload(&self, config: &ServerConfig) -> Result<(), Error> {
        let serving =
            self.server.as_ref().ok_or(Error::ApiMisuse("reload on an engine without server configuration"))?;
        serving.reload(config)
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
