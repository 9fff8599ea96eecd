use crate::client::ClientContext;
use crate::config::{self, Serving};
use crate::flavour::Flavour;
use crate::session::Session;
use crate::sessions::Sessions;
use crate::sys::Library;
use std::sync::Arc;
use tautline_tls::{ClientConfig, Error, KeyCost, ServerConfig, Signing};
use tautline_tls_tickets::LiveConfig;

/// One library with one configuration. Clones share it, its ticket keys, and the sessions that a client remembers.
#[derive(Clone)]
pub struct Engine {
    flavour: Flavour,
    server: LiveConfig<Serving>,
    client: Option<Arc<ClientContext>>,
}

impl Engine {
    /// Makes an engine of this library for each role that has a configuration.
    ///
    /// # Errors
    /// [`Error::Config`] if a certificate, key or root cannot be used. The text names it and the remedy. [`Error::Library`]
    /// if the library does not start.
    pub fn new(flavour: Flavour, server: Option<&ServerConfig>, client: Option<&ClientConfig>) -> Result<Self, Error> {
        Self::with_secrets(flavour, server, client, false)
    }

    pub(crate) fn with_secrets(
        flavour: Flavour,
        server: Option<&ServerConfig>,
        client: Option<&ClientConfig>,
        secrets: bool,
    ) -> Result<Self, Error> {
        let library =
            Library::get(flavour).ok_or_else(|| Error::Library(format!("{} does not start", flavour.title())))?;
        let server = LiveConfig::new(Serving { library, secrets }, server)?;
        let client = client
            .map(|client| {
                let context = Arc::new(config::client(library, client, secrets)?);
                Ok(Arc::new(ClientContext { context, sessions: Sessions::of(flavour, client) }))
            })
            .transpose()?;
        Ok(Self { flavour, server, client })
    }

    /// The library that this engine uses.
    #[must_use]
    pub const fn flavour(&self) -> Flavour {
        self.flavour
    }
}

impl tautline_tls::Engine for Engine {
    type Session = Session;

    fn capabilities(&self) -> &'static tautline_tls::Capabilities {
        self.flavour.capabilities()
    }

    fn accept(&self) -> Result<Session, Error> {
        Session::accept(&self.server.current()?.context)
    }

    fn signing(&self, hello: &[u8]) -> Option<Signing> {
        self.server.current().ok()?.signers.signing(hello)
    }

    fn key_costs(&self) -> Vec<KeyCost> {
        self.server.current().map_or_else(|_| Vec::new(), |now| now.signers.key_costs())
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
        let client =
            self.client.as_ref().ok_or(Error::ApiMisuse("connect on an engine without client configuration"))?;
        Session::connect(client, host)
    }
}
