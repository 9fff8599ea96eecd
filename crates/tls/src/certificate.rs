use crate::ClientRule;
use zeroize::Zeroizing;

/// A certificate chain with its private key, both in PEM.
///
/// ```
/// # mod tautline { pub use tautline_tls::{Certificate, ServerConfig}; }
/// use tautline::{Certificate, ServerConfig};
///
/// let (chain, key) = ("-----BEGIN CERTIFICATE-----…", "-----BEGIN PRIVATE KEY-----…");
/// let certificate = Certificate::new(chain, key).with_name("example.com");
/// let config = ServerConfig::new([certificate]);
/// assert_eq!(config.certificates[0].name, "example.com");
/// ```
#[derive(Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Certificate {
    /// Chain in PEM, end entity first.
    pub chain: Vec<u8>,
    /// Private key in PEM: PKCS#8, PKCS#1 or SEC1. Wiped when dropped, also in each clone.
    pub key: Zeroizing<Vec<u8>>,
    /// OCSP response for this certificate (RFC 6960, DER), to be stapled (RFC 6066, section 8); empty for none.
    ///
    /// An expired response is not sent.
    pub ocsp: Vec<u8>,
    /// Name in errors and logs, such as the file's name; if it is empty, they number the certificate.
    pub name: String,
    /// A server's demand on the clients that get this certificate; `None` for that of the configuration.
    ///
    /// Engines over other libraries than rustls reject it.
    pub client_rule: Option<ClientRule>,
}

impl Certificate {
    /// Makes a certificate of a chain, end entity first, and its private key, both in PEM.
    #[must_use]
    pub fn new(chain: impl Into<Vec<u8>>, key: impl Into<Vec<u8>>) -> Self {
        Self { chain: chain.into(), key: Zeroizing::new(key.into()), ..Self::default() }
    }

    /// With this OCSP response, DER.
    #[must_use]
    pub fn with_ocsp(mut self, ocsp: impl Into<Vec<u8>>) -> Self {
        self.ocsp = ocsp.into();
        self
    }

    /// With this name in errors and in the log.
    #[must_use]
    pub fn with_name(mut self, name: impl Into<String>) -> Self {
        self.name = name.into();
        self
    }

    /// With this demand on the clients that get it.
    #[must_use]
    pub fn with_client_rule(mut self, rule: ClientRule) -> Self {
        self.client_rule = Some(rule);
        self
    }
}

#[cfg(test)]
mod tests {
    use super::Certificate;
    use zeroize::ZeroizeOnDrop;

    #[test]
    fn private_keys_are_wiped_when_dropped() {
        const fn is_wiped(_: &impl ZeroizeOnDrop) {}
        let certificate = Certificate::new("chain", "key");
        is_wiped(&certificate.key);
        assert_eq!(certificate.key.as_slice(), b"key");
    }
}
