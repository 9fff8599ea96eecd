use crate::{ClientConfig, ClientTls, ServerConfig, Tls};
use std::fmt;
use std::str::FromStr;
use tautline_tls::Capabilities;
#[cfg(feature = "libssl")]
use tautline_tls_libssl::Flavour;

/// A TLS engine of this build, for those who choose one by its name.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum TlsEngine {
    /// The default: rustls' handshakes, and TLS 1.3 records opened and sealed in place.
    #[default]
    Fused,
    /// rustls, handshakes and records.
    Rustls,
    /// A library in C: of the OpenSSL family, or one that stands behind the same table.
    #[cfg(feature = "libssl")]
    Libssl(Flavour),
    /// The handshakes of a library of the OpenSSL family, and TLS 1.3 records opened and sealed in place. For one that has
    /// a [`fused_name`](Flavour::fused_name).
    #[cfg(feature = "libssl")]
    FusedLibssl(Flavour),
}

impl TlsEngine {
    /// Every engine of this build, the default first.
    pub fn all() -> impl Iterator<Item = Self> {
        let own = [Self::Fused, Self::Rustls].into_iter();
        #[cfg(feature = "libssl")]
        let own = own.chain(flavours().map(Self::Libssl));
        #[cfg(feature = "libssl")]
        let own = own.chain(flavours().filter(|flavour| flavour.fused_name().is_some()).map(Self::FusedLibssl));
        own
    }

    /// Its name in configuration, logs and results, as `fused`.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Fused => "fused",
            Self::Rustls => "rustls",
            #[cfg(feature = "libssl")]
            Self::Libssl(flavour) => flavour.name(),
            #[cfg(feature = "libssl")]
            Self::FusedLibssl(flavour) => match flavour.fused_name() {
                Some(name) => name,
                None => flavour.name(),
            },
        }
    }

    /// A server's TLS by this engine.
    #[must_use]
    pub fn server(self, config: ServerConfig) -> Tls {
        let config = Box::new(config);
        match self {
            Self::Fused => Tls::Fused(config),
            Self::Rustls => Tls::Rustls(config),
            #[cfg(feature = "libssl")]
            Self::Libssl(flavour) => Tls::Libssl(flavour, config),
            #[cfg(feature = "libssl")]
            Self::FusedLibssl(flavour) => Tls::FusedLibssl(flavour, config),
        }
    }

    /// A client's TLS by this engine.
    #[must_use]
    pub fn client(self, config: ClientConfig) -> ClientTls {
        let config = Box::new(config);
        match self {
            Self::Fused => ClientTls::Fused(config),
            Self::Rustls => ClientTls::Rustls(config),
            #[cfg(feature = "libssl")]
            Self::Libssl(flavour) => ClientTls::Libssl(flavour, config),
            #[cfg(feature = "libssl")]
            Self::FusedLibssl(flavour) => ClientTls::FusedLibssl(flavour, config),
        }
    }
}

impl fmt::Display for TlsEngine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Every library in C of this build.
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
            let known = Capabilities::of(name).filter(|one| !one.feature.is_empty());
            if let Some(Capabilities { feature, .. }) = known {
                // The feature `engines` leaves out what is under another licence, or in no registry.
                let all = if ["wolfssl", "libressl"].contains(feature) { "" } else { ", or `engines` for most" };
                format!("this build has no {name}, only {names}: build it with the feature `{feature}`{all}")
            } else {
                format!("there is no TLS engine {name:?}, but {names}")
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::{Capabilities, TlsEngine};

    #[test]
    fn engines_have_names() {
        for engine in TlsEngine::all() {
            assert_eq!(engine.name().parse(), Ok(engine));
        }
        assert_eq!(TlsEngine::all().next(), Some(TlsEngine::default()));
        for name in ["schannel", "fused+libressl"] {
            assert!(name.parse::<TlsEngine>().unwrap_err().contains("but fused, rustls"));
        }
        for Capabilities { engine, feature, .. } in Capabilities::ALL {
            if let Err(why) = engine.parse::<TlsEngine>() {
                assert!(why.contains(&format!("the feature `{feature}`")), "{why}");
                let manifest = include_str!("../Cargo.toml");
                let engines = manifest.lines().find(|line| line.starts_with("engines = ")).unwrap();
                assert_eq!(why.contains("`engines`"), engines.contains(&format!("\"{feature}\"")), "{why}");
            }
        }
    }
}
