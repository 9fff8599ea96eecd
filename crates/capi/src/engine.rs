//! Engines and sessions behind one virtual call each, since C has no type parameters.

use std::sync::Arc;
use tautline::{EngineChoice as _, EngineKind, Then, TlsEngine};
use tautline_tls::{ClientConfig, Engine, Error, ServerConfig, Session};

/// An [`Engine`] of any kind.
pub(crate) trait AnyEngine: Send + Sync {
    fn accept(&self) -> Result<Box<dyn Session>, Error>;
    fn connect(&self, host: &str) -> Result<Box<dyn Session>, Error>;
    fn reload(&self, config: &ServerConfig) -> Result<(), Error>;
}

/// Makes an engine of this kind that accepts connections.
pub(crate) fn server(kind: TlsEngine, config: &ServerConfig) -> Result<Arc<dyn AnyEngine>, Error> {
    struct Server<'a>(&'a ServerConfig);

    impl Then for Server<'_> {
        type Output = Result<Arc<dyn AnyEngine>, Error>;

        fn with<K: EngineKind>(self, kind: K) -> Self::Output {
            Ok(Arc::new(kind.server(self.0)?))
        }
    }
    kind.choose(Server(config))
}

/// Makes an engine of this kind that opens connections.
pub(crate) fn client(kind: TlsEngine, config: &ClientConfig) -> Result<Arc<dyn AnyEngine>, Error> {
    struct Client<'a>(&'a ClientConfig);

    impl Then for Client<'_> {
        type Output = Result<Arc<dyn AnyEngine>, Error>;

        fn with<K: EngineKind>(self, kind: K) -> Self::Output {
            Ok(Arc::new(kind.client(self.0)?))
        }
    }
    kind.choose(Client(config))
}

impl<E: Engine> AnyEngine for E {
    fn accept(&self) -> Result<Box<dyn Session>, Error> {
        Ok(Box::new(Engine::accept(self)?))
    }

    fn connect(&self, host: &str) -> Result<Box<dyn Session>, Error> {
        Ok(Box::new(Engine::connect(self, host)?))
    }

    fn reload(&self, config: &ServerConfig) -> Result<(), Error> {
        Engine::reload(self, config)
    }
}
