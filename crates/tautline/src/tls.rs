use tautline_tls::{Certificate, ClientConfig, ServerConfig};
use tautline_tls_rustls::Fused;

/// A TLS engine and its configuration `C`: [`ServerConfig`] for a server, [`ClientConfig`] for a client.
///
/// ```
/// use tautline::{Certificate, ClientConfig, ServerConfig, Tls, TlsEngine};
/// # let (chain, key) = (Vec::new(), Vec::new());
/// // The default engine is known at compile time, so one loop is compiled.
/// let tls = Tls::with_certificate(Certificate::new(chain, key));
/// // An engine is chosen at run time by its name, so a loop is compiled for each engine of the build.
/// let engine: TlsEngine = "rustls".parse()?;
/// let tls = Tls { engine, config: ClientConfig::default() };
/// # Ok::<(), String>(())
/// ```
#[derive(Clone, Default)]
pub struct Tls<C, E = Fused> {
    /// The engine: an [`EngineKind`](crate::EngineKind) or a [`TlsEngine`](crate::TlsEngine).
    pub engine: E,
    /// Certificates, trust, versions and all other settings that the engines share.
    pub config: C,
}

impl Tls<ServerConfig> {
    /// The default engine, with one certificate and the defaults of [`ServerConfig`].
    #[must_use]
    pub fn with_certificate(certificate: Certificate) -> Self {
        ServerConfig::new([certificate]).into()
    }
}

impl From<ServerConfig> for Tls<ServerConfig> {
    fn from(config: ServerConfig) -> Self {
        Self { engine: Fused, config }
    }
}

impl From<ClientConfig> for Tls<ClientConfig> {
    fn from(config: ClientConfig) -> Self {
        Self { engine: Fused, config }
    }
}
