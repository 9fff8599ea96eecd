use crate::capabilities::{FUSED, RUSTLS};
use crate::fused;
use tautline_tls::{Capabilities, ClientConfig, EngineKind, Error, ServerConfig};

/// Handshakes by rustls, TLS 1.3 records opened and sealed in place: [`fused::Engine`].
///
/// ```
/// use tautline_tls::{ClientConfig, EngineKind, Roots};
/// use tautline_tls_rustls::Fused;
///
/// let engine = Fused.client(&ClientConfig::default().with_roots(Roots::DangerNone))?;
/// assert_eq!(Fused.name(), "fused");
/// # let _ = engine;
/// # Ok::<(), tautline_tls::Error>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Fused;

/// Handshakes and records by rustls: [`Engine`](crate::Engine).
///
/// ```
/// use tautline_tls::{ClientConfig, EngineKind, Roots};
/// use tautline_tls_rustls::Rustls;
///
/// let engine = Rustls.client(&ClientConfig::default().with_roots(Roots::DangerNone))?;
/// assert_eq!(Rustls.name(), "rustls");
/// # let _ = engine;
/// # Ok::<(), tautline_tls::Error>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Rustls;

impl EngineKind for Fused {
    type Engine = fused::Engine;

    fn capabilities(self) -> &'static Capabilities {
        &FUSED
    }

    fn server(self, config: &ServerConfig) -> Result<fused::Engine, Error> {
        fused::Engine::server(config)
    }

    fn client(self, config: &ClientConfig) -> Result<fused::Engine, Error> {
        fused::Engine::client(config)
    }
}

impl EngineKind for Rustls {
    type Engine = crate::Engine;

    fn capabilities(self) -> &'static Capabilities {
        &RUSTLS
    }

    fn server(self, config: &ServerConfig) -> Result<crate::Engine, Error> {
        crate::Engine::server(config)
    }

    fn client(self, config: &ClientConfig) -> Result<crate::Engine, Error> {
        crate::Engine::client(config)
    }
}
