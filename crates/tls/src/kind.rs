use crate::{Capabilities, ClientConfig, Engine, Error, ServerConfig};
use core::fmt;

/// A kind of TLS engine: it makes engines of configurations. Each crate with an engine exports its kinds.
///
/// ```
/// # mod tautline { pub use tautline_tls::{EngineKind, ServerConfig}; pub mod layers { pub use tautline_tls as tls; } }
/// use tautline::layers::tls::{Error, plain};
/// use tautline::{EngineKind, ServerConfig};
///
/// /// Makes the engine of any kind.
/// fn engine<K: EngineKind>(kind: K) -> Result<K::Engine, Error> {
///     println!("TLS by {}", kind.name());
///     kind.server(&ServerConfig::default())
/// }
/// engine(plain::Engine)?;
/// # Ok::<(), Error>(())
/// ```
pub trait EngineKind: Copy + fmt::Debug + Send + Sync + 'static {
    /// The engines that it makes.
    type Engine: Engine;

    /// The capabilities of its engines, which hold their name too.
    fn capabilities(self) -> &'static Capabilities;

    /// The engine's name in configuration, logs and results: `fused`.
    fn name(self) -> &'static str {
        self.capabilities().engine
    }

    /// An engine that accepts connections.
    ///
    /// # Errors
    /// [`Error::Config`] if a certificate, key or root cannot be used; the text says which, and what to do.
    /// [`Error::Library`] if the library does not start.
    fn server(self, config: &ServerConfig) -> Result<Self::Engine, Error>;

    /// An engine that opens connections.
    ///
    /// # Errors
    /// As [`server`](Self::server).
    fn client(self, config: &ClientConfig) -> Result<Self::Engine, Error>;
}
