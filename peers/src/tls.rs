use crate::common::Failure;
use rustls::crypto::{CryptoProvider, aws_lc_rs};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ServerConfig, version};
use std::path::Path;
use std::sync::Arc;
use tokio_rustls::TlsAcceptor;

/// TLS 1.3 by rustls and AWS-LC. AES-128-GCM comes first and the server's order counts, so every client that knows this
/// suite gets it.
///
/// HTTP/2 is offered by ALPN if it is asked for.
pub(crate) fn acceptor(chain: &Path, key: &Path, http2: bool) -> Result<TlsAcceptor, Failure> {
    let mut suites = aws_lc_rs::DEFAULT_CIPHER_SUITES.to_vec();
    suites.sort_by_key(|suite| *suite != aws_lc_rs::cipher_suite::TLS13_AES_128_GCM_SHA256);
    let provider = CryptoProvider { cipher_suites: suites, ..aws_lc_rs::default_provider() };
    let chain = CertificateDer::pem_file_iter(chain)?.collect::<Result<Vec<_>, _>>()?;
    let mut config = ServerConfig::builder_with_provider(Arc::new(provider))
        .with_protocol_versions(&[&version::TLS13])?
        .with_no_client_auth()
        .with_single_cert(chain, PrivateKeyDer::from_pem_file(key)?)?;
    config.ignore_client_order = true;
    if http2 {
        config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    }
    Ok(TlsAcceptor::from(Arc::new(config)))
}
