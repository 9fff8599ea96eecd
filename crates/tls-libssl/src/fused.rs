//! A handshake by a library of the OpenSSL family, our own TLS 1.3 records.
//!
//! After a TLS 1.3 handshake the traffic secrets come through the log of keys that the library has, and
//! [`tautline_tls_records`] opens and seals records in place; the library's own memory of the connection is freed.
//!
//! A server gives the library up when the handshake is complete and the tickets are sealed. A client that remembers sessions
//! does so at the first application data, before which servers send their tickets; a ticket that comes later is lost. Where
//! keys change before that, and in TLS 1.2, records stay with the library.
//!
//! LibreSSL tells its secrets to nobody.

use crate::{Flavour, session};
use tautline_tls::{Capabilities, ClientConfig, Error, KeyCost, ServerConfig, Signing, registry};
use tautline_tls_records::{Agreed, Keys, Library, Records, Role, Suite};
use tautline_window::Buf;

/// One connection: the library's handshake, then our own records.
pub type Session = tautline_tls_records::Session<session::Session>;

/// One library with one configuration, records our own; clones share it, its tickets' keys, and the sessions a client
/// remembers.
#[derive(Clone)]
pub struct Engine {
    name: &'static str,
    library: crate::Engine,
}

impl Engine {
    /// An engine of this library for the roles that have a configuration.
    ///
    /// # Errors
    /// As [`Engine::new`](crate::Engine::new), and [`Error::Config`] for a library that tells no secrets.
    pub fn new(flavour: Flavour, server: Option<&ServerConfig>, client: Option<&ClientConfig>) -> Result<Self, Error> {
        let refuse =
            || Capabilities::refusal(flavour.name(), "give its keys to records of our own", |one| one.key_export);
        let name = flavour.fused_name().ok_or_else(refuse)?;
        Ok(Self { name, library: crate::Engine::with_secrets(flavour, server, client, true)? })
    }

    /// Whose handshakes these are.
    #[must_use]
    pub const fn flavour(&self) -> Flavour {
        self.library.flavour()
    }
}

impl tautline_tls::Engine for Engine {
    type Session = Session;

    fn name(&self) -> &'static str {
        self.name
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
}

impl Library for session::Session {
    fn is_ready(&self) -> bool {
        self.can_leave()
    }

    fn into_records(self: Box<Self>, out: &mut Buf) -> Result<Records, Error> {
        let leaving = self.leave(out)?;
        let suite = Suite::from_code(leaving.suite)
            .ok_or_else(|| Error::Library("the library agreed on a cipher that is unknown here".to_owned()))?;
        let (role, theirs, ours) = if leaving.is_client {
            (Role::Client, leaving.server, leaving.client)
        } else {
            (Role::Server, leaving.client, leaving.server)
        };
        let rx = Keys::derive(suite, theirs, leaving.opened)?;
        let tx = Keys::derive(suite, ours, leaving.sealed)?;
        let group = registry::group_number(&leaving.facts.group);
        Ok(Records::new(role, suite, (rx, tx), Agreed::new(suite as u16, group, leaving.facts), None))
    }
}
