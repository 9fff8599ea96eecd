use super::handshake::Handshaking;
use core::time::Duration;
use tautline_tls::{ClientConfig, Error, KeyCost, ServerConfig, Signing};
use tautline_tls_records::Role;
use tautline_tls_tickets::Renewal;

/// One connection: rustls' handshake, then our own records.
pub type Session = tautline_tls_records::Session<Handshaking>;

/// rustls' handshake with our own records, for one configuration. Clones share it, its ticket keys, and the sessions that
/// a client remembers.
#[derive(Clone)]
pub struct Engine(crate::engine::Engine);

impl Engine {
    /// Makes an engine for each role that has a configuration.
    ///
    /// # Errors
    /// [`Error::Config`] if a certificate, key or root cannot be used. The text names it and the remedy.
    pub fn new(server: Option<&ServerConfig>, client: Option<&ClientConfig>) -> Result<Self, Error> {
        tautline_tls_records::aead::settle();
        Ok(Self(crate::engine::Engine::with_secrets(server, client, true, Renewal::Thread)?))
    }

    /// Makes an engine that accepts connections.
    ///
    /// # Errors
    /// The errors of [`new`](Self::new).
    pub fn server(config: &ServerConfig) -> Result<Self, Error> {
        Self::new(Some(config), None)
    }

    /// Makes an engine that accepts connections, and has no thread: the caller calls [`renew_tickets`](Self::renew_tickets).
    ///
    /// Secrets of a fleet are polled by a thread nevertheless, since their source may block.
    ///
    /// # Errors
    /// The errors of [`new`](Self::new).
    pub fn server_without_thread(config: &ServerConfig) -> Result<Self, Error> {
        tautline_tls_records::aead::settle();
        Ok(Self(crate::engine::Engine::with_secrets(Some(config), None, true, Renewal::Caller)?))
    }

    /// Erases ticket keys whose time is over, for an engine [without a thread](Self::server_without_thread).
    ///
    /// Handshakes do so too. Without them, call this again after the time that is returned: what an attacker recorded then
    /// stays secret even if the memory of the process becomes known later. `None` says that no call is due: a thread erases
    /// the keys, or there are none. A reload can change that.
    #[must_use]
    pub fn renew_tickets(&self) -> Option<Duration> {
        self.0.renew_tickets()
    }

    /// Makes an engine that opens connections.
    ///
    /// # Errors
    /// The errors of [`new`](Self::new).
    pub fn client(config: &ClientConfig) -> Result<Self, Error> {
        Self::new(None, Some(config))
    }
}

impl tautline_tls::Engine for Engine {
    type Session = Session;

    fn capabilities(&self) -> &'static tautline_tls::Capabilities {
        &crate::capabilities::FUSED
    }

    fn accept(&self) -> Result<Session, Error> {
        Ok(Session::new(Handshaking::new(Role::Server, tautline_tls::Engine::accept(&self.0)?)))
    }

    fn connect(&self, host: &str) -> Result<Session, Error> {
        Ok(Session::new(Handshaking::new(Role::Client, tautline_tls::Engine::connect(&self.0, host)?)))
    }

    fn restore(&self, saved: &[u8]) -> Result<Session, Error> {
        Session::import(&tautline_tls_records::Snapshot::decode(saved)?)
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

    fn save_tickets(&self, out: &mut Vec<u8>) {
        tautline_tls::Engine::save_tickets(&self.0, out);
    }

    fn restore_tickets(&self, saved: &[u8]) -> Result<(), Error> {
        tautline_tls::Engine::restore_tickets(&self.0, saved)
    }
}
