use super::{Handshaking, Role, Session};
use tautline_tls::{ClientConfig, Error, KeyCost, ServerConfig, Signing};

/// rustls with one configuration, records our own; clones share it, its tickets' keys, and the sessions a client
/// remembers.
#[derive(Clone)]
pub struct Engine(crate::Engine);

impl Engine {
    /// An engine for the roles that have a configuration.
    ///
    /// # Errors
    /// [`Error::Config`] where a certificate, key or root cannot be used; it says which, and what to do.
    pub fn new(server: Option<&ServerConfig>, client: Option<&ClientConfig>) -> Result<Self, Error> {
        Ok(Self(crate::Engine::with_secrets(server, client, true)?))
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
}

impl tautline_tls::Engine for Engine {
    type Session = Session;

    fn name(&self) -> &'static str {
        "fused"
    }

    fn accept(&self) -> Result<Session, Error> {
        Ok(Session::new(Handshaking::new(Role::Server, tautline_tls::Engine::accept(&self.0)?)))
    }

    fn connect(&self, host: &str) -> Result<Session, Error> {
        Ok(Session::new(Handshaking::new(Role::Client, tautline_tls::Engine::connect(&self.0, host)?)))
    }

    fn signing(&self, hello: &[u8]) -> Option<Signing> {
        tautline_tls::Engine::signing(&self.0, hello)
    }

    fn key_costs(&self) -> Vec<KeyCost> {
        tautline_tls::Engine::key_costs(&self.0)
    }

    fn reload(&self, config: &ServerConfig) -> Result<(), Error> {
        tautline_tls::Engine::reload(&self.0, config)
    }
}
