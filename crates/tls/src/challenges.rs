use crate::Certificate;

/// The protocol by which authorities validate names over TLS: TLS-ALPN-01 (RFC 8737, section 6.2).
pub const ACME_TLS: &[u8] = b"acme-tls/1";

/// Certificates that prove to an authority that this server answers for a name (TLS-ALPN-01, RFC 8737).
///
/// A server asks for one when a ClientHello offers [`ACME_TLS`] as its only protocol. No other client sees such a certificate.
///
/// ```
/// # mod tautline { pub use tautline_tls::{Certificate, Challenges}; }
/// use tautline::{Certificate, Challenges};
///
/// /// One challenge at a time.
/// struct One(String, Certificate);
///
/// impl Challenges for One {
///     fn certificate(&self, name: &str) -> Option<Certificate> {
///         (name == self.0).then(|| self.1.clone())
///     }
/// }
/// ```
pub trait Challenges: Send + Sync {
    /// The certificate for this name, which is in lower case; `None` if no authority validates the name now.
    ///
    /// It is called within a handshake, on the loop: it must not wait.
    fn certificate(&self, name: &str) -> Option<Certificate>;
}
