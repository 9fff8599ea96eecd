/// Where one library does otherwise than the others, and may: `docs/engines.md` says why. Nothing of it has an engine take for data
/// what is none. What is not named here must be as the suite says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Difference {
    /// A server of TLS 1.2 alone does not read which versions a client offers: it finds no suite in common, or answers what a
    /// client of TLS 1.3 alone refuses.
    BlindToVersions,
    /// Its alert about a certificate may say no more than that something is wrong with it.
    VagueAlerts,
    /// It does not show a certificate that is not meant for servers.
    ShowsFitOnly,
    /// It ends a connection without an alert where a record is malformed or does not authenticate.
    EndsWithoutAlert,
    /// What follows a KeyUpdate in its record is ignored.
    IgnoresBehindKeyUpdate,
    /// It cannot be told which signatures to prefer, as client or server, and so which of several certificates is shown.
    TakesAnySignature,
    /// As a client of TLS 1.3 it says unprotected what is wrong with a server's certificate.
    AlertsInTheClear,
    /// As a server of TLS 1.3 it ends at such an alert as at any other record that is not protected.
    DeafInTheClear,
}

impl Difference {
    /// Whether this engine is known for it.
    pub(super) fn is_known_of(self, engine: &str) -> bool {
        match self {
            Self::BlindToVersions => matches!(engine, "mbedtls" | "wolfssl"),
            Self::VagueAlerts => matches!(engine, "mbedtls" | "libressl"),
            Self::ShowsFitOnly => engine == "mbedtls",
            Self::AlertsInTheClear => matches!(engine, "openssl" | "fused+openssl"),
            Self::DeafInTheClear => matches!(
                engine,
                "aws-lc" | "boringssl" | "libressl" | "mbedtls" | "wolfssl" | "fused+aws-lc" | "fused+boringssl"
            ),
            Self::EndsWithoutAlert | Self::IgnoresBehindKeyUpdate | Self::TakesAnySignature => engine == "libressl",
        }
    }
}
