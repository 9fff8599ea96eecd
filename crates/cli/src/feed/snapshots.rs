//! Snapshots by HTTP.

use crate::failure::Failure;
use std::sync::Arc;
use std::time::Duration;
use tautline::Roots;
use tautline::layers::tls::pem;
use tautline_feed::Fetch;
use ureq::Agent;
use ureq::tls::{Certificate, RootCerts, TlsConfig, TlsProvider};

/// The time that a snapshot may take: less than that of a feed, which is 10 s.
const TIME: Duration = Duration::from_secs(8);

/// Bytes of a snapshot, at most. One of 5,000 levels has 400 KiB.
const LARGEST: u64 = 16 << 20;

/// An HTTP client, which blocks the thread that fetches.
#[derive(Clone)]
pub(super) struct Snapshots(Agent);

impl Snapshots {
    /// Trusts the authorities that the connections trust.
    pub(super) fn new(roots: &Roots) -> Result<Self, Failure> {
        let tls = TlsConfig::builder().provider(TlsProvider::Rustls);
        let tls = tls.unversioned_rustls_crypto_provider(Arc::new(rustls::crypto::aws_lc_rs::default_provider()));
        let tls = match roots {
            Roots::DangerNone => tls.disable_verification(true),
            Roots::Pem(pem) => tls.root_certs(certificates(pem)?),
            _ => tls.root_certs(platform()),
        };
        let config = Agent::config_builder().timeout_global(Some(TIME)).tls_config(tls.build()).proxy(None);
        Ok(Self(config.user_agent(concat!("taut/", env!("CARGO_PKG_VERSION"))).build().new_agent()))
    }
}

fn certificates(content: &[u8]) -> Result<RootCerts, Failure> {
    let sections = pem::certificates(content, "authorities").map_err(|error| Failure::usage(error.to_string()))?;
    Ok(RootCerts::Specific(Arc::new(sections.iter().map(|one| Certificate::from_der(&one.der).to_owned()).collect())))
}

fn platform() -> RootCerts {
    let found = rustls_native_certs::load_native_certs().certs;
    RootCerts::Specific(Arc::new(found.iter().map(|der| Certificate::from_der(der).to_owned()).collect()))
}

impl Fetch for Snapshots {
    fn fetch(&mut self, url: &str) -> Result<Vec<u8>, String> {
        let mut response = self.0.get(url).call().map_err(|error| format!("cannot get {url}: {error}"))?;
        let body = response.body_mut().with_config().limit(LARGEST).read_to_vec();
        body.map_err(|error| format!("cannot read the response of {url}: {error}"))
    }
}
