#[cfg(feature = "outside")]
use crate::Outside;
use core::fmt;

/// A library that is built in: of the OpenSSL family, or one that another crate brings.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
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
    /// One that another crate brings: feature `outside`.
    #[cfg(feature = "outside")]
    Outside(&'static Outside),
}

impl Flavour {
    /// Every library of the OpenSSL family that is built in.
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
    pub const fn name(self) -> &'static str {
        match self {
            #[cfg(feature = "openssl")]
            Self::OpenSsl => "openssl",
            #[cfg(feature = "aws-lc")]
            Self::AwsLc => "aws-lc",
            #[cfg(feature = "boringssl")]
            Self::BoringSsl => "boringssl",
            #[cfg(feature = "libressl")]
            Self::LibreSsl => "libressl",
            #[cfg(feature = "outside")]
            Self::Outside(library) => library.name(),
        }
    }

    /// The engine's name with records of our own; `None` where the library does not give its keys away.
    #[must_use]
    pub const fn fused_name(self) -> Option<&'static str> {
        match self {
            #[cfg(feature = "openssl")]
            Self::OpenSsl => Some("fused+openssl"),
            #[cfg(feature = "aws-lc")]
            Self::AwsLc => Some("fused+aws-lc"),
            #[cfg(feature = "boringssl")]
            Self::BoringSsl => Some("fused+boringssl"),
            #[cfg(feature = "libressl")]
            Self::LibreSsl => None,
            #[cfg(feature = "outside")]
            Self::Outside(_) => None,
        }
    }

    /// The library's name as its makers write it.
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
            #[cfg(feature = "outside")]
            Self::Outside(library) => library.title(),
        }
    }

    /// The library's name and version in its own words, as `OpenSSL 3.6.3 9 Jun 2026`; empty where it does not start.
    #[must_use]
    pub fn version(self) -> String {
        crate::sys::Library::get(self).map(crate::sys::Library::version).unwrap_or_default()
    }
}

impl fmt::Display for Flavour {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
