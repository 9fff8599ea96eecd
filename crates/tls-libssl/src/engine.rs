use crate::serving::Serving;
use crate::sessions::Sessions;
use crate::sys::{Context, Library};
use crate::{Flavour, Session, config};
use std::sync::Arc;
use tautline_tls::{ClientConfig, Error, KeyCost, ServerConfig, Signing};

/// One library with one configuration; clones share it, its tickets' keys, and the sessions a client remembers.
#[derive(Clone)]
pub struct Engine {
    flavour: Flavour,
    server: Option<Arc<Serving>>,
    client: Option<Arc<Client>>,
}

/// What all clients' connections share.
pub(crate) struct Client {
    pub(crate) context: Arc<Context>,
    /// None where nothing is to be resumed.
    pub(crate) sessions: Option<Arc<Sessions>>,
}

impl Engine {
    /// An engine of this library for the roles that have a configuration.
    ///
    /// # Errors
    /// [`Error::Config`] where a certificate, key or root cannot be used; it says which, and what to do. [`Error::Library`]
    /// where the library does not start.
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
        let server = server.map(|server| Serving::new(library, server, secrets)).transpose()?;
        let client = client
            .map(|client| {
                let context = Arc::new(config::client(library, client, secrets)?);
                Ok(Arc::new(Client { context, sessions: Sessions::of(flavour, client) }))
            })
            .transpose()?;
        Ok(Self { flavour, server: server.map(Arc::new), client })
    }

    /// Which library this is.
    #[must_use]
    pub const fn flavour(&self) -> Flavour {
        self.flavour
    }
}

impl tautline_tls::Engine for Engine {
    type Session = Session;

    fn name(&self) -> &'static str {
        self.flavour.name()
    }

    fn accept(&self) -> Result<Session, Error> {
        let serving =
            self.server.as_ref().ok_or(Error::ApiMisuse("accept on an engine without server configuration"))?;
        Session::accept(&serving.context())
    }

    fn signing(&self, hello: &[u8]) -> Option<Signing> {
        self.server.as_ref().and_then(|serving| serving.signing(hello))
    }

    fn key_costs(&self) -> Vec<KeyCost> {
        self.server.as_ref().map_or_else(Vec::new, |serving| serving.key_costs())
    }

    fn reload(&self, config: &ServerConfig) -> Result<(), Error> {
        let serving =
            self.server.as_ref().ok_or(Error::ApiMisuse("reload on an engine without server configuration"))?;
        serving.reload(config)
    }

    fn connect(&self, host: &str) -> Result<Session, Error> {
        let client =
            self.client.as_ref().ok_or(Error::ApiMisuse("connect on an engine without client configuration"))?;
        Session::connect(client, host)
    }
}
