//! Connections with TLS and without, in one loop: those of a proxy's clients and of its backends.
//!
//! A session is behind a virtual call for each record. One without TLS takes no memory.

use crate::{Capabilities, ClientConfig, EngineKind, Error, KeyCost, ServerConfig, Session, Signing, plain};

/// An engine of two others, which are usually of one kind: one accepts connections, and one opens them. Either may be
/// without TLS, and connections to addresses without TLS are possible with any.
///
/// ```
/// use tautline_tls::mixed;
/// use tautline_tls::{Engine, Session, plain};
///
/// let engine = mixed::Engine::new(plain::Engine, plain::Engine);
/// assert!(engine.accept()?.is_plain());
/// # Ok::<(), tautline_tls::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct Engine<A, B = A> {
    server: A,
    client: Result<B, Error>,
}

impl<A, B> Engine<A, B> {
    /// Accepts connections by `server`, and opens them by `client`.
    #[must_use]
    pub const fn new(server: A, client: B) -> Self {
        Self { server, client: Ok(client) }
    }
}

/// The kind of such engines: one kind for connections that it accepts, and one for those that it opens.
///
/// The latter trusts the roots of a [default configuration](crate::ClientConfig). If it cannot be made, as on a machine without
/// roots, each connection to an address with TLS fails, and all others are possible.
#[derive(Clone, Copy, Debug, Default)]
pub struct Kind<A, B = A>(pub A, pub B);

impl<A: EngineKind, B: EngineKind> EngineKind for Kind<A, B> {
    type Engine = Engine<A::Engine, B::Engine>;

    fn capabilities(self) -> &'static Capabilities {
        self.0.capabilities()
    }

    fn server(self, config: &ServerConfig) -> Result<Self::Engine, Error> {
        Ok(Engine { server: self.0.server(config)?, client: self.1.client(&ClientConfig::default()) })
    }

    fn client(self, config: &ClientConfig) -> Result<Self::Engine, Error> {
        Ok(Engine::new(self.0.client(config)?, self.1.client(config)?))
    }
}

impl<A: crate::Engine, B: crate::Engine> crate::Engine for Engine<A, B> {
    type Session = Box<dyn Session>;

    fn capabilities(&self) -> &'static Capabilities {
        self.server.capabilities()
    }

    fn accept(&self) -> Result<Self::Session, Error> {
        Ok(Box::new(self.server.accept()?))
    }

    fn connect(&self, host: &str) -> Result<Self::Session, Error> {
        let client = self.client.as_ref().map_err(Clone::clone)?;
        if client.is_plain() {
            return Err(Error::ApiMisuse("this loop has no TLS for connections that it opens"));
        }
        Ok(Box::new(client.connect(host)?))
    }

    fn connect_plain(&self) -> Option<Self::Session> {
        Some(Box::new(plain::Session))
    }

    fn restore(&self, saved: &[u8]) -> Result<Self::Session, Error> {
        // Sessions with TLS save something, and say themselves which end they are.
        if saved.is_empty() {
            return Ok(Box::new(plain::Session));
        }
        if !self.server.is_plain() {
            return Ok(Box::new(self.server.restore(saved)?));
        }
        Ok(Box::new(self.client.as_ref().map_err(Clone::clone)?.restore(saved)?))
    }

    fn signing(&self, hello: &[u8]) -> Option<Signing> {
        self.server.signing(hello)
    }

    fn key_costs(&self) -> Vec<KeyCost> {
        self.server.key_costs()
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
}

#[cfg(test)]
mod tests {
    use super::Kind;
    use crate::{Capabilities, ClientConfig, Engine as _, EngineKind, Error, ServerConfig, Session as _, plain};

    /// Makes no clients.
    #[derive(Clone, Copy, Debug)]
    struct Rootless;

    impl EngineKind for Rootless {
        type Engine = plain::Engine;

        fn capabilities(self) -> &'static Capabilities {
            EngineKind::capabilities(plain::Engine)
        }

        fn server(self, _: &ServerConfig) -> Result<Self::Engine, Error> {
            Ok(plain::Engine)
        }

        fn client(self, _: &ClientConfig) -> Result<Self::Engine, Error> {
            Err(Error::Config("no roots".to_owned()))
        }
    }

    #[test]
    fn without_roots_only_connections_with_tls_fail() {
        let engine = Kind(Rootless, Rootless).server(&ServerConfig::new([])).unwrap();
        assert!(engine.accept().unwrap().is_plain() && engine.connect_plain().is_some());
        assert_eq!(engine.connect("localhost").err(), Some(Error::Config("no roots".to_owned())));
    }
}
