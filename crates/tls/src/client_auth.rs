//! A server's demands on the certificates of its clients.

/// Whether a server requests certificates of its clients.
///
/// ```
/// # mod tautline { pub use tautline_tls::{Certificate, ClientAuth, ServerConfig}; }
/// use tautline::{Certificate, ClientAuth, ServerConfig};
///
/// let roots = ClientAuth::Required("-----BEGIN CERTIFICATE-----…".into());
/// let config = ServerConfig::new([Certificate::new("chain", "key")]).with_client_auth(roots);
/// assert!(matches!(config.client_auth, ClientAuth::Required(_)));
/// ```
///
/// Empty roots leave the decision to [`ServerConfig::verify`](crate::ServerConfig) alone, with the engines over rustls. Others,
/// and servers without a decision of their own, reject empty roots.
#[derive(Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum ClientAuth {
    /// The server requests none.
    #[default]
    None,
    /// The server requires a certificate that chains to one of these roots (PEM).
    Required(Vec<u8>),
    /// The server requests a certificate; if the client presents one, it must chain to one of these roots (PEM).
    Optional(Vec<u8>),
}

/// A server's demand on the clients of one certificate, in place of [`ServerConfig::client_auth`](crate::ServerConfig).
///
/// ```
/// # mod tautline { pub use tautline_tls::{Certificate, ClientAuth, ClientRule, ServerConfig}; }
/// use tautline::{Certificate, ClientAuth, ClientRule, ServerConfig};
///
/// let staff = ClientRule::new("staff", ClientAuth::Required("-----BEGIN CERTIFICATE-----…".into()));
/// let inside = Certificate::new("chain of in.example.com", "key").with_client_rule(staff);
/// let config = ServerConfig::new([Certificate::new("chain of example.com", "key"), inside]);
/// assert!(config.client_auth_of(&config.certificates[0]) == &ClientAuth::None);
/// ```
///
/// The name in the ClientHello (SNI) selects the rule together with the certificate. Certificates for one name have one rule.
/// Sessions under a rule that requests certificates are never resumed.
///
/// A connection tells its rule by [`TlsInfo::client_rule`](crate::TlsInfo). A server of several hosts compares it with the
/// rule of the host in each request, and answers others with 421.
#[derive(Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct ClientRule {
    /// Name of the rule, in errors and in [`TlsInfo`](crate::TlsInfo). Rules with one name are one rule.
    pub name: String,
    /// The demand.
    pub auth: ClientAuth,
}

impl ClientRule {
    /// The rule of this name.
    #[must_use]
    pub fn new(name: impl Into<String>, auth: ClientAuth) -> Self {
        Self { name: name.into(), auth }
    }
}
