use crate::{Sessions, Tickets};

/// A certificate chain with its private key, PEM.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Certificate {
    /// Chain, end entity first, PEM.
    pub chain: Vec<u8>,
    /// Private key: PKCS#8, PKCS#1 or SEC1, PEM.
    pub key: Vec<u8>,
    /// What the authority's OCSP responder answered about it (RFC 6960, DER), to be stapled (RFC 6066, section 8); empty is
    /// none. One that has run out is not sent.
    pub ocsp: Vec<u8>,
    /// What errors and the log call it, as the name of its file; empty counts it.
    pub name: String,
}

impl Certificate {
    /// A chain, end entity first, and its private key, both PEM.
    #[must_use]
    pub fn new(chain: impl Into<Vec<u8>>, key: impl Into<Vec<u8>>) -> Self {
        Self { chain: chain.into(), key: key.into(), ..Self::default() }
    }
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
#[derive(Clone, Default, PartialEq, Eq)]
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

/// Which key exchanges a client offers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum KeyExchange {
    /// Whatever the engine has, first the hybrid with ML-KEM (`X25519MLKEM768`): who records the session today cannot read
    /// it with a quantum computer tomorrow.
    #[default]
    All,
    /// Elliptic curves only: a shorter ClientHello, and some 50 us less CPU time on either side.
    Classical,
}

/// What a server needs, for every engine.
///
/// Several certificates stand side by side: the one that covers the client's SNI name is used, of several the one whose
/// key type the client can verify (ECDSA before RSA), the first of all where no name matches.
#[derive(Clone)]
pub struct ServerConfig {
    /// At least one.
    pub certificates: Vec<Certificate>,
    /// Whether clients must show certificates. Tickets are off where they are asked for.
    pub client_auth: ClientAuth,
    /// Application protocols by preference; empty negotiates none. WebSocket over HTTP/1.1 is `http/1.1`.
    pub alpn: Vec<Vec<u8>>,
    /// Versions of TLS.
    pub versions: Versions,
    /// Session resumption.
    pub tickets: Tickets,
    /// Tickets for each TLS 1.3 handshake, from 1 to [`MOST_TICKETS`](Self::MOST_TICKETS): as many connections can be resumed
    /// from it, since clients use each ticket once. A client may ask for less (RFC 9149).
    pub tickets_per_handshake: u8,
    /// Write secrets to the file that `SSLKEYLOGFILE` names, where it is set.
    pub key_log: bool,
}

impl ServerConfig {
    /// Most tickets for a handshake.
    pub const MOST_TICKETS: u8 = 16;
}

impl Default for ServerConfig {
    fn default() -> Self {
        Self {
            certificates: Vec::new(),
            client_auth: ClientAuth::default(),
            alpn: Vec::new(),
            versions: Versions::default(),
            tickets: Tickets::default(),
            tickets_per_handshake: 2,
            key_log: false,
        }
    }
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
    /// No session resumption. Else up to eight tickets are kept for each of the last 128 hosts; each ticket of TLS 1.3 is used
    /// once, so that connections cannot be linked by it (RFC 8446, appendix C.4).
    pub no_resumption: bool,
    /// Where sessions are kept. Clones of a configuration have this in common, so what one connection was given another can
    /// use, in whichever client or socket, as long as they trust the same roots and show the same certificate. Those are read
    /// once for all of them, the platform's trust store too.
    pub sessions: Sessions,
    /// Key exchanges to offer.
    pub key_exchange: KeyExchange,
    /// Write secrets to the file that `SSLKEYLOGFILE` names, where it is set.
    pub key_log: bool,
}
