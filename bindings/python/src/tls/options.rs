use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use tautline::{Certificate, ClientAuth, ClientConfig, Roots, ServerConfig, Versions};

/// TLS of one end, from a dictionary with these keys.
#[derive(FromPyObject)]
#[pyo3(from_item_all)]
pub(crate) struct TlsOptions {
    /// Chains and private keys, in PEM.
    certificates: Vec<(Vec<u8>, Vec<u8>)>,
    /// Trusted authorities in PEM; `None` for the platform's (client) or none (server).
    roots: Option<Vec<u8>>,
    /// `none`, `optional` or `required`: whether the peer's certificate is verified.
    verify: String,
    alpn: Vec<Vec<u8>>,
    /// `all`, `1.2` or `1.3`.
    versions: String,
    key_log: bool,
}

impl TlsOptions {
    pub(crate) fn server(self) -> PyResult<ServerConfig> {
        let versions = self.versions()?;
        let roots = self.roots.unwrap_or_default();
        let auth = match self.verify.as_str() {
            "none" => ClientAuth::None,
            "optional" => ClientAuth::Optional(roots),
            _ => ClientAuth::Required(roots),
        };
        let certificates: Vec<_> =
            self.certificates.into_iter().map(|(chain, key)| Certificate::new(chain, key)).collect();
        let config = ServerConfig::new(certificates).with_alpn(self.alpn).with_versions(versions);
        Ok(config.with_client_auth(auth).with_key_log(self.key_log))
    }

    pub(crate) fn client(self) -> PyResult<ClientConfig> {
        let versions = self.versions()?;
        let roots = match (self.verify.as_str(), self.roots) {
            ("none", _) => Roots::DangerNone,
            (_, Some(pem)) => Roots::Pem(pem),
            (_, None) => Roots::Platform,
        };
        let mut config = ClientConfig::default().with_roots(roots).with_alpn(self.alpn).with_versions(versions);
        config.key_log = self.key_log;
        config.certificate = self.certificates.into_iter().next().map(|(chain, key)| Certificate::new(chain, key));
        Ok(config)
    }

    fn versions(&self) -> PyResult<Versions> {
        match self.versions.as_str() {
            "all" => Ok(Versions::All),
            "1.3" => Ok(Versions::Tls13),
            "1.2" => Ok(Versions::Tls12),
            other => Err(PyValueError::new_err(format!("{other:?} are no versions of TLS: all, 1.2 or 1.3"))),
        }
    }
}
