use std::fmt;
use std::str::FromStr;
use tautline_tls::{Capabilities, EngineKind, plain};
#[cfg(feature = "libssl")]
use tautline_tls_libssl::Flavour;
use tautline_tls_rustls::{Fused, Rustls};

/// The choice of a TLS engine: at compile time an [`EngineKind`] such as [`Fused`], at run time a [`TlsEngine`].
///
/// A program contains a loop for each engine that its choices can yield.
///
/// ```
/// use tautline::{Address, Certificate, EngineChoice, Error, Handler, Server, ServerConfig, ServerHandle, Tls};
///
/// /// Starts a server with any engine: `Fused`, known at compile time, or a `TlsEngine`, chosen at run time.
/// fn serve<E: EngineChoice, H: Handler>(
///     engine: E,
///     certificate: Certificate,
///     address: Address,
///     make: fn(u32) -> H,
/// ) -> Result<ServerHandle, Error> {
///     let tls = Tls { engine, config: ServerConfig::new([certificate]) };
///     Server::new(tls).listen(address).start(make)
/// }
/// ```
pub trait EngineChoice: Copy {
    /// Calls `then` with the kind of engine.
    fn choose<T: Then>(self, then: T) -> T::Output;
}

/// A continuation of [`EngineChoice::choose`]: code that is generic over the kind of engine.
///
/// ```
/// use tautline::{ClientConfig, EngineChoice, EngineKind, Roots, Then, TlsEngine};
///
/// /// Checks whether an engine accepts a configuration.
/// struct Try(ClientConfig);
///
/// impl Then for Try {
///     type Output = bool;
///
///     fn with<K: EngineKind>(self, kind: K) -> bool {
///         kind.client(&self.0).is_ok()
///     }
/// }
/// assert!(TlsEngine::Rustls.choose(Try(ClientConfig::default().with_roots(Roots::DangerNone))));
/// ```
pub trait Then {
    /// The continuation's result.
    type Output;

    /// Continues with this kind of engine.
    fn with<K: EngineKind>(self, kind: K) -> Self::Output;
}

impl<K: EngineKind> EngineChoice for K {
    fn choose<T: Then>(self, then: T) -> T::Output {
        then.with(self)
    }
}

/// A TLS engine of this build, chosen at run time by its name.
///
/// ```
/// use tautline::TlsEngine;
///
/// let engine: TlsEngine = "rustls".parse()?;
/// assert!(TlsEngine::all().any(|one| one == engine));
/// assert!(TlsEngine::default().capabilities().in_place);
/// # Ok::<(), String>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum TlsEngine {
    /// No TLS.
    Plain,
    /// The default: handshakes by rustls, and TLS 1.3 records opened and sealed in place.
    #[default]
    Fused,
    /// Handshakes and records by rustls.
    Rustls,
    /// Handshakes and records by a library in C: of the OpenSSL family, Mbed TLS or wolfSSL.
    #[cfg(feature = "libssl")]
    Libssl(Flavour),
    /// Handshakes by a library of the OpenSSL family, and TLS 1.3 records opened and sealed in place.
    ///
    /// The library must have a [`fused_name`](Flavour::fused_name).
    #[cfg(feature = "libssl")]
    FusedLibssl(Flavour),
}

impl EngineChoice for TlsEngine {
    fn choose<T: Then>(self, then: T) -> T::Output {
        match self {
            Self::Plain => then.with(plain::Engine),
            Self::Fused => then.with(Fused),
            Self::Rustls => then.with(Rustls),
            #[cfg(feature = "libssl")]
            Self::Libssl(flavour) => then.with(flavour),
            #[cfg(feature = "libssl")]
            Self::FusedLibssl(flavour) => then.with(tautline_tls_libssl::Fused(flavour)),
        }
    }
}

impl TlsEngine {
    /// All TLS engines of this build, the default first; without [`Plain`](Self::Plain).
    pub fn all() -> impl Iterator<Item = Self> {
        let own = [Self::Fused, Self::Rustls].into_iter();
        #[cfg(feature = "libssl")]
        let own = own.chain(flavours().map(Self::Libssl));
        #[cfg(feature = "libssl")]
        let own = own.chain(flavours().filter(|flavour| flavour.fused_name().is_some()).map(Self::FusedLibssl));
        own
    }

    /// The engine's name in configuration, logs and results, for example `fused`.
    #[must_use]
    pub fn name(self) -> &'static str {
        self.capabilities().engine
    }

    /// The engine's capabilities.
    #[must_use]
    pub fn capabilities(self) -> &'static Capabilities {
        struct OfKind;

        impl Then for OfKind {
            type Output = &'static Capabilities;

            fn with<K: EngineKind>(self, kind: K) -> &'static Capabilities {
                kind.capabilities()
            }
        }
        self.choose(OfKind)
    }

    /// Engines that need a feature of the build: name and feature.
    pub const OPTIONAL: [(&str, &str); 9] = [
        ("openssl", "openssl"),
        ("aws-lc", "aws-lc"),
        ("boringssl", "boringssl"),
        ("libressl", "libressl"),
        ("mbedtls", "mbedtls"),
        ("wolfssl", "wolfssl"),
        ("fused+openssl", "openssl"),
        ("fused+aws-lc", "aws-lc"),
        ("fused+boringssl", "boringssl"),
    ];
}

impl fmt::Display for TlsEngine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// All libraries in C of this build.
#[cfg(feature = "libssl")]
fn flavours() -> impl Iterator<Item = Flavour> {
    let family = Flavour::ALL.iter().copied();
    #[cfg(feature = "mbedtls")]
    let family = family.chain([tautline_tls_mbedtls::FLAVOUR]);
    #[cfg(feature = "wolfssl")]
    let family = family.chain([tautline_tls_wolfssl::FLAVOUR]);
    family
}

impl FromStr for TlsEngine {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        Self::all().find(|engine| engine.name() == name).ok_or_else(|| {
            let names: Vec<_> = Self::all().map(Self::name).collect();
            let names = names.join(", ");
            if let Some((_, feature)) = Self::OPTIONAL.iter().find(|(engine, _)| *engine == name) {
                // The feature `engines` excludes libraries under a copyleft licence or in no registry.
                let all = if ["wolfssl", "libressl"].contains(feature) { "" } else { ", or `engines` for most" };
                format!("this build has no {name}, only {names}: build it with the feature `{feature}`{all}")
            } else {
                format!("there is no TLS engine {name:?}; this build has {names}")
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::TlsEngine;

    #[test]
    fn engines_are_parsed_by_name() {
        for engine in TlsEngine::all() {
            assert_eq!(engine.name().parse(), Ok(engine));
        }
        assert_eq!(TlsEngine::all().next(), Some(TlsEngine::default()));
        for name in ["schannel", "fused+libressl"] {
            assert!(name.parse::<TlsEngine>().unwrap_err().contains("this build has fused, rustls"));
        }
        for (engine, feature) in TlsEngine::OPTIONAL {
            if let Ok(built_in) = engine.parse::<TlsEngine>() {
                assert_eq!((built_in.name(), built_in.capabilities().feature), (engine, feature));
            }
            if let Err(why) = engine.parse::<TlsEngine>() {
                assert!(why.contains(&format!("the feature `{feature}`")), "{why}");
                let manifest = include_str!("../Cargo.toml");
                let engines = manifest.lines().find(|line| line.starts_with("engines = ")).unwrap();
                assert_eq!(why.contains("`engines`"), engines.contains(&format!("\"{feature}\"")), "{why}");
            }
        }
    }
}
