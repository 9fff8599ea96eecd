/// A deviation from the suite that is permitted for some libraries; `docs/engines.md` lists the limits of each.
///
/// None of them lets an engine accept anything but authentic records as data. Every other deviation fails a test.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Difference {
    /// A server of TLS 1.2 alone does not read which versions a client offers. A client of TLS 1.3 alone then has no
    /// common suite, or rejects the answer.
    IgnoresOfferedVersions,
    /// Its alert about a certificate may be `certificate_unknown` instead of the precise one.
    VagueAlerts,
    /// As a server it fails the handshake instead of showing a certificate that is not meant for servers.
    HidesUnfitCertificates,
    /// It ends a connection without an alert if a record is malformed or does not authenticate.
    EndsWithoutAlert,
    /// It ignores the data after a KeyUpdate in the same record.
    IgnoresAfterKeyUpdate,
    /// It cannot prefer signatures, as client or server, so a client may get another one of several certificates.
    NoSignaturePreference,
    /// As a TLS 1.3 client it sends its alert about a server's certificate unprotected.
    SendsUnprotectedAlerts,
    /// As a TLS 1.3 server it rejects such an alert like any other unprotected record.
    RejectsUnprotectedAlerts,
    /// It trusts no root that has expired, and refuses it as a server's certificate for that reason alone.
    ForgetsExpiredRoots,
}

impl Difference {
    /// Whether the engine with this name has the difference.
    pub(super) fn applies_to(self, engine: &str) -> bool {
        match self {
            Self::IgnoresOfferedVersions => matches!(engine, "mbedtls" | "wolfssl"),
            Self::VagueAlerts => matches!(engine, "mbedtls" | "libressl"),
            Self::HidesUnfitCertificates => engine == "mbedtls",
            Self::SendsUnprotectedAlerts => matches!(engine, "openssl" | "fused+openssl"),
            Self::RejectsUnprotectedAlerts => matches!(
                engine,
                "aws-lc" | "boringssl" | "libressl" | "mbedtls" | "wolfssl" | "fused+aws-lc" | "fused+boringssl"
            ),
            Self::ForgetsExpiredRoots => engine == "wolfssl",
            Self::EndsWithoutAlert | Self::IgnoresAfterKeyUpdate | Self::NoSignaturePreference => engine == "libressl",
        }
    }
}
