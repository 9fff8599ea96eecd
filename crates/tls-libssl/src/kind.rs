use crate::{Engine, Flavour, fused};
use tautline_tls::{Capabilities, ClientConfig, EngineKind, Error, ServerConfig};

/// Handshakes and records by a library: [`Engine`].
impl EngineKind for Flavour {
    type Engine = Engine;

    fn capabilities(self) -> &'static Capabilities {
        Self::capabilities(self)
    }

    fn server(self, config: &ServerConfig) -> Result<Engine, Error> {
        Engine::new(self, Some(config), None)
    }

    fn client(self, config: &ClientConfig) -> Result<Engine, Error> {
        Engine::new(self, None, Some(config))
    }
}

/// Handshakes by a library that has a [`fused_name`](Flavour::fused_name), TLS 1.3 records opened and sealed in place:
/// [`fused::Engine`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fused(pub Flavour);

impl EngineKind for Fused {
    type Engine = fused::Engine;

    fn capabilities(self) -> &'static Capabilities {
        self.0.fused_capabilities().unwrap_or_else(|| self.0.capabilities())
    }

    fn server(self, config: &ServerConfig) -> Result<fused::Engine, Error> {
        fused::Engine::new(self.0, Some(config), None)
    }

    fn client(self, config: &ClientConfig) -> Result<fused::Engine, Error> {
        fused::Engine::new(self.0, None, Some(config))
    }
}
