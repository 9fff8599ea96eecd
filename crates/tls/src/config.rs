use crate::{Certificate, Challenges, ClientAuth, Sessions, Tickets, Verify};
use std::path::Path;
use std::sync::Arc;

/// The reason to report a key log with this mode, if others than its owner can read or write it.
///
/// Its readers can decrypt all sessions in it.
#[must_use]
pub fn key_log_flaw(path: &Path, mode: u32) -> Option<String> {
    (mode & 0o077 != 0).then(|| {
        let (path, mode) = (path.display(), mode & 0o777);
        format!(
            "SSLKEYLOGFILE: others than its owner have access to {path} (mode {mode:03o}), and so to all sessions whose \
             secrets are in it: chmod 600 {path}"
        )
    })
}

/// The certificate authorities that a client trusts.
///
/// ```
/// # mod tautline { pub use tautline_tls::{ClientConfig, Roots}; }
/// use tautline::{ClientConfig, Roots};
///
/// let config = ClientConfig::default().with_roots(Roots::Pem("-----BEGIN CERTIFICATE-----…".into()));
/// assert!(ClientConfig::default().roots == Roots::Platform && config.roots != Roots::Platform);
/// ```
#[derive(Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Roots {
    /// The platform's trust store.
    #[default]
    Platform,
    /// These and no others, in PEM.
    Pem(Vec<u8>),
    /// No verification: anyone can read and change the traffic. For experiments on loopback only.
    DangerNone,
}

/// The versions of TLS that may be negotiated.
///
/// ```
/// # mod tautline { pub use tautline_tls::{ClientConfig, Versions}; }
/// use tautline::{ClientConfig, Versions};
///
/// let config = ClientConfig::default().with_versions(Versions::Tls13);
/// assert_eq!((ClientConfig::default().versions, config.versions), (Versions::All, Versions::Tls13));
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Versions {
    /// TLS 1.2 and 1.3.
    #[default]
    All,
    /// TLS 1.3 only.
    Tls13,
    /// TLS 1.2 only.
    Tls12,
}

/// The key exchanges that a client offers.
///
/// ```
/// # mod tautline { pub use tautline_tls::{ClientConfig, KeyExchange}; }
/// use tautline::{ClientConfig, KeyExchange};
///
/// let config = ClientConfig::default().with_key_exchange(KeyExchange::Classical);
/// assert_eq!((ClientConfig::default().key_exchange, config.key_exchange), (KeyExchange::All, KeyExchange::Classical));
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum KeyExchange {
    /// All that the engine has, the hybrid with ML-KEM (`X25519MLKEM768`) first.
    ///
    /// With the hybrid, a session that is recorded today stays secret from a later quantum computer.
    #[default]
    All,
    /// Elliptic curves only: a shorter ClientHello, and about 50 us less CPU time at each end.
    Classical,
}

/// Methods that return a configuration with another value in one field.
macro_rules! setters {
    ($($(#[$doc:meta])* $([$const:ident])? $name:ident($field:ident: $type:ty);)+) => {$(
        $(#[$doc])*
        #[must_use]
        pub $($const)? fn $name(mut self, $field: $type) -> Self {
            self.$field = $field;
            self
        }
    )+};
}

/// A server's TLS configuration, for every engine.
///
/// Of several certificates, the server presents the one that covers the client's SNI name. If several cover it, the
/// client gets one whose key type it can verify, ECDSA before RSA. If none covers it, the first certificate is used.
///
/// ```
/// # mod tautline { pub use tautline_tls::{Certificate, ServerConfig, Tickets, Versions}; }
/// use std::time::Duration;
/// use tautline::{Certificate, ServerConfig, Tickets, Versions};
///
/// let certificates = [Certificate::new("chain of example.com", "key"), Certificate::new("chain of example.org", "key")];
/// let config = ServerConfig::new(certificates)
///     .with_versions(Versions::Tls13)
///     .with_tickets(Tickets::Own { rotate: Duration::from_secs(3600) });
/// assert_eq!((config.certificates.len(), config.tickets_per_handshake), (2, 2));
/// ```
#[derive(Clone)]
#[non_exhaustive]
pub struct ServerConfig {
    /// The certificates, at least one.
    pub certificates: Vec<Certificate>,
    /// Whether the server requests client certificates. If it does, tickets are off.
    ///
    /// A certificate can have a [rule of its own](crate::ClientRule).
    pub client_auth: ClientAuth,
    /// Application protocols by preference; empty negotiates none. WebSocket over HTTP/1.1 is `http/1.1`.
    pub alpn: Vec<Vec<u8>>,
    /// Versions of TLS.
    pub versions: Versions,
    /// Session resumption.
    pub tickets: Tickets,
    /// Tickets per TLS 1.3 handshake, 1 to [`MOST_TICKETS`](Self::MOST_TICKETS); a client may request fewer (RFC 9149).
    ///
    /// Clients use each ticket once, so this many connections can resume the session.
    pub tickets_per_handshake: u8,
    /// Writes secrets to the file that `SSLKEYLOGFILE` names, if that is set.
    pub key_log: bool,
    /// The program's own decision about clients' certificates; `None` leaves it to the engine.
    pub verify: Option<Arc<dyn Verify>>,
    /// Keeps a secret of each connection for [`Session::export_keying_material`](crate::Session).
    pub exporter: bool,
    /// Certificates for authorities that validate the server's names; `None` for a server that answers no challenges.
    ///
    /// Engines whose [`Capabilities`](crate::Capabilities) lack `challenges` reject it.
    pub challenges: Option<Arc<dyn Challenges>>,
    /// Sends certificates as they are, though clients take them compressed (RFC 8879).
    ///
    /// Otherwise the engines `fused` and `rustls` compress chains that shrink by 512 bytes or more. Others send them as they
    /// are.
    pub no_certificate_compression: bool,
}

impl ServerConfig {
    /// Upper limit of [`tickets_per_handshake`](Self::tickets_per_handshake).
    pub const MOST_TICKETS: u8 = 16;

    /// The defaults with these certificates.
    #[must_use]
    pub fn new(certificates: impl Into<Vec<Certificate>>) -> Self {
        Self::default().with_certificates(certificates)
    }

    /// With these certificates in place of others.
    #[must_use]
    pub fn with_certificates(mut self, certificates: impl Into<Vec<Certificate>>) -> Self {
        self.certificates = certificates.into();
        self
    }

    setters! {
        /// With this demand on clients.
        with_client_auth(client_auth: ClientAuth);
        /// With these application protocols.
        with_alpn(alpn: Vec<Vec<u8>>);
        /// With these versions of TLS.
        [const] with_versions(versions: Versions);
        /// With this kind of session resumption.
        with_tickets(tickets: Tickets);
        /// With this number of tickets for each TLS 1.3 handshake.
        [const] with_tickets_per_handshake(tickets_per_handshake: u8);
        /// Whether to write secrets to the file that `SSLKEYLOGFILE` names.
        [const] with_key_log(key_log: bool);
        /// Whether connections keep a secret for exporters.
        [const] with_exporter(exporter: bool);
    }

    /// The demand on the clients that get this certificate: that of its rule, or else that of the configuration.
    #[must_use]
    pub fn client_auth_of<'c>(&'c self, certificate: &'c Certificate) -> &'c ClientAuth {
        certificate.client_rule.as_ref().map_or(&self.client_auth, |rule| &rule.auth)
    }

    /// With this decision about peers' certificates.
    #[must_use]
    pub fn with_verify(mut self, verify: Arc<dyn Verify>) -> Self {
        self.verify = Some(verify);
        self
    }

    /// With these certificates for authorities that validate the server's names.
    #[must_use]
    pub fn with_challenges(mut self, challenges: Arc<dyn Challenges>) -> Self {
        self.challenges = Some(challenges);
        self
    }

    /// Without compression of certificates.
    #[must_use]
    pub const fn without_certificate_compression(mut self) -> Self {
        self.no_certificate_compression = true;
        self
    }
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
            verify: None,
            exporter: false,
            challenges: None,
            no_certificate_compression: false,
        }
    }
}

/// A client's TLS configuration, for every engine.
///
/// ```
/// # mod tautline { pub use tautline_tls::{ClientConfig, Roots, Versions}; }
/// use tautline::{ClientConfig, Roots, Versions};
///
/// let roots = Roots::Pem("-----BEGIN CERTIFICATE-----…".into());
/// let config = ClientConfig::default().with_roots(roots).with_versions(Versions::Tls13).without_resumption();
/// assert!(config.no_resumption && config.certificate.is_none());
/// ```
#[derive(Clone, Default)]
#[non_exhaustive]
pub struct ClientConfig {
    /// Trusted authorities.
    pub roots: Roots,
    /// The client's own certificate, for servers that request one.
    pub certificate: Option<Certificate>,
    /// Application protocols by preference.
    pub alpn: Vec<Vec<u8>>,
    /// Versions of TLS.
    pub versions: Versions,
    /// Disables session resumption.
    ///
    /// Otherwise the client keeps up to eight tickets for each of the last 128 hosts. It uses a TLS 1.3 ticket once, so
    /// that observers cannot link connections by it (RFC 8446, appendix C.4).
    pub no_resumption: bool,
    /// The store of resumable sessions, which all clones of a configuration share.
    ///
    /// A connection can resume the session of another one, in any client or socket, if both trust the same roots and
    /// present the same certificate. Roots and certificate are parsed once for all of them, the platform's trust store
    /// included.
    pub sessions: Sessions,
    /// Key exchanges to offer.
    pub key_exchange: KeyExchange,
    /// Writes secrets to the file that `SSLKEYLOGFILE` names, if that is set.
    pub key_log: bool,
    /// The program's own decision about servers' certificates; `None` leaves it to the engine.
    pub verify: Option<Arc<dyn Verify>>,
    /// Keeps a secret of each connection for [`Session::export_keying_material`](crate::Session).
    pub exporter: bool,
    /// Takes certificates only as they are. Otherwise the engines `fused` and `rustls` take them compressed too (RFC 8879).
    pub no_certificate_compression: bool,
}

impl ClientConfig {
    setters! {
        /// With these trusted authorities.
        with_roots(roots: Roots);
        /// With these application protocols.
        with_alpn(alpn: Vec<Vec<u8>>);
        /// With these versions of TLS.
        [const] with_versions(versions: Versions);
        /// With these key exchanges.
        [const] with_key_exchange(key_exchange: KeyExchange);
        /// Whether to write secrets to the file that `SSLKEYLOGFILE` names.
        [const] with_key_log(key_log: bool);
        /// Whether connections keep a secret for exporters.
        [const] with_exporter(exporter: bool);
    }

    /// With this certificate for servers that ask for one.
    #[must_use]
    pub fn with_certificate(mut self, certificate: Certificate) -> Self {
        self.certificate = Some(certificate);
        self
    }

    /// Without session resumption.
    #[must_use]
    pub const fn without_resumption(mut self) -> Self {
        self.no_resumption = true;
        self
    }

    /// With this decision about peers' certificates.
    #[must_use]
    pub fn with_verify(mut self, verify: Arc<dyn Verify>) -> Self {
        self.verify = Some(verify);
        self
    }

    /// Without compression of certificates.
    #[must_use]
    pub const fn without_certificate_compression(mut self) -> Self {
        self.no_certificate_compression = true;
        self
    }
}
