//! Snapshots by HTTP.

use crate::failure::Failure;
use crate::http_tls;
use std::time::Duration;
use tautline::{Proxy, ProxyKind, Roots};
use tautline_feed::Fetch;
use ureq::{Agent, ProxyProtocol};

/// The time that a snapshot may take: less than that of a feed, which is 10 s.
const TIME: Duration = Duration::from_secs(8);

/// Bytes of a snapshot, at most. One of 5,000 levels has 400 KiB.
const LARGEST: u64 = 16 << 20;

/// An HTTP client, which blocks the thread that fetches.
#[derive(Clone)]
pub(super) struct Snapshots(Agent);

impl Snapshots {
    /// Trusts the authorities that the connections trust, and takes their proxy.
    pub(super) fn new(roots: &Roots, proxy: Option<&Proxy>) -> Result<Self, Failure> {
        let config = Agent::config_builder().timeout_global(Some(TIME)).tls_config(http_tls::config(roots)?);
        let config = config.proxy(proxy.map(through).transpose()?);
        Ok(Self(config.user_agent(concat!("taut/", env!("CARGO_PKG_VERSION"))).build().new_agent()))
    }
}

/// The proxy as the HTTP client names it.
fn through(proxy: &Proxy) -> Result<ureq::Proxy, Failure> {
    if proxy.kind != ProxyKind::Http {
        return Err(Failure::usage("snapshots are fetched through HTTP proxies alone; give --proxy http://HOST:PORT"));
    }
    let built = ureq::Proxy::builder(ProxyProtocol::Http).host(&proxy.host).port(proxy.port);
    let built = match &proxy.credentials {
        Some((user, password)) => built.username(user).password(password),
        None => built,
    };
    built.build().map_err(|error| Failure::usage(format!("the proxy cannot be used for snapshots: {error}")))
}

impl Fetch for Snapshots {
    fn fetch(&mut self, url: &str) -> Result<Vec<u8>, String> {
        let mut response = self.0.get(url).call().map_err(|error| format!("cannot get {url}: {error}"))?;
        let body = response.body_mut().with_config().limit(LARGEST).read_to_vec();
        body.map_err(|error| format!("cannot read the response of {url}: {error}"))
    }
}
