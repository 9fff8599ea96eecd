use crate::capabilities;
#[cfg(feature = "external")]
use crate::sys::External;
use core::fmt;
use tautline_tls::Capabilities;

/// A library in this build: one of the OpenSSL family, or one from another crate.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Flavour {
    /// OpenSSL 3: feature `openssl`.
    #[cfg(feature = "openssl")]
    OpenSsl,
    /// AWS-LC's libssl: feature `aws-lc`.
    #[cfg(feature = "aws-lc")]
    AwsLc,
    /// BoringSSL: feature `boringssl`.
    #[cfg(feature = "boringssl")]
    BoringSsl,
    /// LibreSSL: feature `libressl`.
    #[cfg(feature = "libressl")]
    LibreSsl,
    /// A library from another crate: feature `external`.
    #[cfg(feature = "external")]
    External(&'static External),
}

impl Flavour {
    /// Every library of the OpenSSL family in this build.
    pub const ALL: &[Self] = &[
        #[cfg(feature = "openssl")]
        Self::OpenSsl,
        #[cfg(feature = "aws-lc")]
        Self::AwsLc,
        #[cfg(feature = "boringssl")]
        Self::BoringSsl,
        #[cfg(feature = "libressl")]
        Self::LibreSsl,
    ];

    /// The engine's name in configuration, logs and results.
    #[must_use]
    pub fn name(self) -> &'static str {
        self.capabilities().engine
    }

    /// The capabilities of the library's engine.
    #[must_use]
    pub fn capabilities(self) -> &'static Capabilities {
        match self {
            #[cfg(feature = "openssl")]
            Self::OpenSsl => &capabilities::OPENSSL,
            #[cfg(feature = "aws-lc")]
            Self::AwsLc => &capabilities::AWS_LC,
            #[cfg(feature = "boringssl")]
            Self::BoringSsl => &capabilities::BORINGSSL,
            #[cfg(feature = "libressl")]
            Self::LibreSsl => &capabilities::LIBRESSL,
            #[cfg(feature = "external")]
            Self::External(library) => library.capabilities(),
        }
    }

    /// The engine's name with our own records; `None` if the library does not export its keys.
    #[must_use]
    pub fn fused_name(self) -> Option<&'static str> {
        self.fused_capabilities().map(|can| can.engine)
    }

    /// The capabilities of the library's engine with records of our own; `None` if the library does not export its keys.
    #[must_use]
    pub fn fused_capabilities(self) -> Option<&'static Capabilities> {
        match self {
            #[cfg(feature = "openssl")]
            Self::OpenSsl => Some(&capabilities::FUSED_OPENSSL),
            #[cfg(feature = "aws-lc")]
            Self::AwsLc => Some(&capabilities::FUSED_AWS_LC),
            #[cfg(feature = "boringssl")]
            Self::BoringSsl => Some(&capabilities::FUSED_BORINGSSL),
            #[cfg(feature = "libressl")]
            Self::LibreSsl => None,
            #[cfg(feature = "external")]
            Self::External(_) => None,
        }
    }

    /// The library's name in its makers' spelling.
    #[must_use]
    pub const fn title(self) -> &'static str {
        match self {
            #[cfg(feature = "openssl")]
            Self::OpenSsl => "OpenSSL",
            #[cfg(feature = "aws-lc")]
            Self::AwsLc => "AWS-LC",
            #[cfg(feature = "boringssl")]
            Self::BoringSsl => "BoringSSL",
            #[cfg(feature = "libressl")]
            Self::LibreSsl => "LibreSSL",
            #[cfg(feature = "external")]
            Self::External(library) => library.title(),
        }
    }
}

impl fmt::Display for Flavour {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
