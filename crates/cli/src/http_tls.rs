//! TLS of requests by the blocking HTTP client.

use crate::failure::Failure;
use std::sync::Arc;
use tautline::Roots;
use tautline::layers::tls::pem;
use ureq::tls::{Certificate, RootCerts, TlsConfig, TlsProvider};

/// Trusts these authorities.
pub(crate) fn config(roots: &Roots) -> Result<TlsConfig, Failure> {
    let tls = TlsConfig::builder().provider(TlsProvider::Rustls);
    let tls = tls.unversioned_rustls_crypto_provider(Arc::new(rustls::crypto::aws_lc_rs::default_provider()));
    let tls = match roots {
        Roots::DangerNone => tls.disable_verification(true),
        Roots::Pem(pem) => tls.root_certs(certificates(pem)?),
        _ => tls.root_certs(platform()),
    };
    Ok(tls.build())
}

fn certificates(content: &[u8]) -> Result<RootCerts, Failure> {
    let sections = pem::certificates(content, "authorities").map_err(|error| Failure::usage(error.to_string()))?;
    Ok(RootCerts::Specific(Arc::new(sections.iter().map(|one| Certificate::from_der(&one.der).to_owned()).collect())))
}

fn platform() -> RootCerts {
    let found = rustls_native_certs::load_native_certs().certs;
    RootCerts::Specific(Arc::new(found.iter().map(|der| Certificate::from_der(der).to_owned()).collect()))
}
