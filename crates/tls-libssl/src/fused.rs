//! A handshake by a library of the OpenSSL family with our own TLS 1.3 records.
//!
//! After a TLS 1.3 handshake [`tautline_tls_records`] opens and seals records in place. The traffic secrets come through
//! the library's key log callback. The library's own state of the connection is freed.
//!
//! A server frees the library's state when the handshake is complete and the tickets are sealed. A client that remembers
//! sessions frees it at the first application data, before which servers send their tickets. A later ticket is lost.
//! Records stay with the library in TLS 1.2, and if keys change before that moment.
//!
//! LibreSSL does not export its secrets.

use crate::flavour::Flavour;
use crate::{engine, session};
use tautline_buf::Buf;
use tautline_tls::{Capabilities, ClientConfig, Error, KeyCost, ServerConfig, Signing};
use tautline_tls_records::{CompactTlsInfo, Keys, Library, Records, Role, Snapshot};

/// One connection: the library's handshake, then our own records.
pub type Session = tautline_tls_records::Session<session::Session>;

/// One library's handshake with our own records, for one configuration. Clones share it, its ticket keys, and the sessions
/// that a client remembers.
#[derive(Clone)]
pub struct Engine {
    capabilities: &'static Capabilities,
    library: engine::Engine,
}

impl Engine {
    /// Makes an engine of this library for each role that has a configuration.
    ///
    /// # Errors
    /// The errors of [`Engine::new`](crate::Engine::new), and [`Error::Config`] for a library that does not export secrets.
    pub fn new(flavour: Flavour, server: Option<&ServerConfig>, client: Option<&ClientConfig>) -> Result<Self, Error> {
        let refusal = || flavour.capabilities().refusal("export its keys to our own records");
        let capabilities = flavour.fused_capabilities().ok_or_else(refusal)?;
        tautline_tls_records::aead::settle();
        Ok(Self { capabilities, library: engine::Engine::with_secrets(flavour, server, client, true)? })
    }

    /// The library that this engine's handshakes use.
    #[must_use]
    pub const fn flavour(&self) -> Flavour {
        self.library.flavour()
    }
}

impl tautline_tls::Engine for Engine {
    type Session = Session;

    fn capabilities(&self) -> &'static Capabilities {
        self.capabilities
    }

    fn accept(&self) -> Result<Session, Error> {
        self.library.accept().map(Session::new)
    }

    fn connect(&self, host: &str) -> Result<Session, Error> {
        self.library.connect(host).map(Session::new)
    }

    fn signing(&self, hello: &[u8]) -> Option<Signing> {
        self.library.signing(hello)
    }

    fn key_costs(&self) -> Vec<KeyCost> {
        self.library.key_costs()
    }

    fn reload(&self, config: &ServerConfig) -> Result<(), Error> {
        self.library.reload(config)
    }

    fn restore(&self, saved: &[u8]) -> Result<Session, Error> {
        Session::import(&Snapshot::decode(saved)?)
    }

    fn save_tickets(&self, out: &mut Vec<u8>) {
        self.library.save_tickets(out);
    }

    fn restore_tickets(&self, saved: &[u8]) -> Result<(), Error> {
        self.library.restore_tickets(saved)
    }
}

impl Library for session::Session {
    fn is_ready(&self) -> bool {
        self.can_export_keys()
    }

    fn into_records(self: Box<Self>, out: &mut Buf) -> Result<Records, Error> {
        let keys = self.export_keys(out)?;
        let (role, theirs, ours) = if keys.is_client {
            (Role::Client, keys.server, keys.client)
        } else {
            (Role::Server, keys.client, keys.server)
        };
        let rx = Keys::derive(keys.suite, theirs, keys.opened)?;
        let tx = Keys::derive(keys.suite, ours, keys.sealed)?;
        let info = CompactTlsInfo::new(keys.suite, keys.info);
        Ok(Records::new(role, keys.suite, (rx, tx), info, None))
    }
}
