/// A certificate chain with its private key, PEM.
#[derive(Clone)]
pub struct Certificate {
    /// Chain, end entity first, PEM.
    pub chain: Vec<u8>,
    /// Private key: PKCS#8, PKCS#1 or SEC1, PEM.
    pub key: Vec<u8>,
}

/// What a server asks of its clients' certificates.
#[derive(Clone, Default)]
pub enum ClientAuth {
    /// No certificate is asked for.
    #[default]
    None,
    /// A certificate that chains to one of these roots (PEM) is required; a missing one is refused.
    Required(Vec<u8>),
    /// A certificate is asked for and verified against these roots (PEM) where the client has one.
    Optional(Vec<u8>),
}

/// Which certificate authorities a client trusts.
#[derive(Clone, Default)]
pub enum Roots {
    /// The platform's trust store.
    #[default]
    Platform,
    /// These and no others, PEM.
    Pem(Vec<u8>),
    /// No check at all: anyone can read and change the traffic. For experiments on loopback only.
    DangerNone,
}

/// Which versions of TLS may be negotiated.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Versions {
    /// TLS 1.2 and 1.3.
    #[default]
    All,
    /// TLS 1.3 only.
    Tls13,
    /// TLS 1.2 only.
    Tls12,
}

/// What a server needs, for every engine.
///
/// Several certificates stand side by side: the one that covers the client's SNI name is used, of several the one whose
/// key type the client can verify (ECDSA before RSA), the first of all where no name matches.
#[derive(Clone, Default)]
pub struct ServerConfig {
    /// At least one.
    pub certificates: Vec<Certificate>,
    /// Whether clients must show certificates. Tickets are off where they are asked for.
    pub client_auth: ClientAuth,
    /// Application protocols by preference; empty negotiates none. WebSocket over HTTP/1.1 is `http/1.1`.
    pub alpn: Vec<Vec<u8>>,
    /// Versions of TLS.
    pub versions: Versions,
    /// No session resumption.
    pub no_resumption: bool,
    /// Write secrets to the file that `SSLKEYLOGFILE` names, where it is set.
    pub key_log: bool,
}

/// What a client needs, for every engine.
#[derive(Clone, Default)]
pub struct ClientConfig {
    /// Trusted authorities.
    pub roots: Roots,
    /// The client's own certificate, where the server asks for one.
    pub certificate: Option<Certificate>,
    /// Application protocols by preference.
    pub alpn: Vec<Vec<u8>>,
    /// Versions of TLS.
    pub versions: Versions,
    /// No session resumption.
    pub no_resumption: bool,
    /// Write secrets to the file that `SSLKEYLOGFILE` names, where it is set.
    pub key_log: bool,
}
