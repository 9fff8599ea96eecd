use super::carrier::ALPN;
use super::dialer::Dialer;
use super::plan::{MakeSession, Plan};
use crate::Error;
use crate::carrier_tls::CarrierTls;
use std::fmt;
use std::io;
use std::sync::Arc;
use tautline::layers::io::{Driver, External};
use tautline::layers::tls::{Engine as _, Session};
use tautline::{ClientConfig, DriverConfig, EngineChoice as _, EngineKind, Target, Then, TlsEngine};

/// Has connections to `target` be streams of HTTP/2 connections, `streams` on each.
///
/// Returns the target without TLS and the driver for the loop, whose TLS engine is [plain](TlsEngine::Plain). `driver` has the
/// sockets. The driver that is returned has the TLS of `engine`, and stores what that has negotiated.
///
/// # Errors
/// The target has no TLS or a proxy, the engine has no ALPN, or its configuration cannot be used.
pub fn over_http2(
    target: &Target,
    (engine, config, info): (TlsEngine, &ClientConfig, Option<CarrierTls>),
    driver: DriverConfig,
    streams: usize,
) -> Result<(Target, DriverConfig), Error> {
    if !target.is_secure() {
        return Err(Error::Usage("HTTP/2 needs TLS: write wss:// in the URL".to_owned()));
    }
    if target.proxy.is_some() {
        return Err(Error::Usage(
            "HTTP/2 through a proxy is not possible: leave out one of them (--no-proxy)".to_owned(),
        ));
    }
    let session = engine.choose(Sessions { config, host: &target.tls_name() })?;
    let mut plain = target.clone();
    plain.host_header.get_or_insert_with(|| host_header(target));
    plain.uri = without_tls(target)?;
    let plan = Plan { session, streams, info };
    Ok((plain, DriverConfig::External(Arc::new(Dialing { driver, plan }))))
}

fn host_header(target: &Target) -> String {
    let host = if target.host().contains(':') { format!("[{}]", target.host()) } else { target.host().to_owned() };
    if target.port() == 443 { host } else { format!("{host}:{}", target.port()) }
}

/// The URI of a target, which keeps its port.
fn without_tls(target: &Target) -> Result<tautline::http::Uri, Error> {
    let mut parts = target.uri.clone().into_parts();
    let authority = parts.authority.as_ref().map_or("", |authority| authority.as_str());
    let authority = match target.uri.port_u16() {
        Some(_) => authority.to_owned(),
        None => format!("{}:{}", authority.trim_end_matches(':'), target.port()),
    };
    let wrong = |error: tautline::http::Error| Error::Usage(error.to_string());
    parts.authority = Some(authority.parse().map_err(|error: tautline::http::uri::InvalidUri| wrong(error.into()))?);
    parts.scheme = Some("ws".parse().map_err(|error: tautline::http::uri::InvalidUri| wrong(error.into()))?);
    tautline::http::Uri::from_parts(parts).map_err(|error| wrong(error.into()))
}

/// Sessions with a host, by an engine that is chosen.
struct Sessions<'a> {
    config: &'a ClientConfig,
    host: &'a str,
}

impl Then for Sessions<'_> {
    type Output = Result<MakeSession, Error>;

    fn with<K: EngineKind>(self, kind: K) -> Self::Output {
        if !kind.capabilities().alpn {
            let engine = kind.capabilities().engine;
            return Err(Error::Usage(format!("HTTP/2 needs ALPN, which the TLS engine {engine} does not have")));
        }
        let config = self.config.clone().with_alpn(vec![ALPN.to_vec()]);
        let engine = kind.client(&config).map_err(Error::usage)?;
        let host = self.host.to_owned();
        Ok(Arc::new(move || Ok(Box::new(engine.connect(&host)?) as Box<dyn Session>)))
    }
}

/// Opens drivers for lanes.
struct Dialing {
    driver: DriverConfig,
    plan: Plan,
}

impl External for Dialing {
    fn name(&self) -> &str {
        self.driver.name()
    }

    fn max_loops(&self) -> usize {
        self.driver.max_loops()
    }

    fn open(&self) -> io::Result<Box<dyn Driver>> {
        Ok(Box::new(Dialer::new(self.driver.open()?, self.plan.clone())))
    }
}

impl fmt::Debug for Dialing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Dialing").field("driver", &self.driver).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_target_keeps_its_port_and_its_host_header_without_tls() {
        for (uri, expected, host) in [
            ("wss://example.org/feed?x", "ws://example.org:443/feed?x", "example.org"),
            ("wss://user:pw@example.org:8443/", "ws://user:pw@example.org:8443/", "example.org:8443"),
            ("wss://[::1]/", "ws://[::1]:443/", "[::1]"),
        ] {
            let target = Target::new(uri).unwrap();
            let tls = (TlsEngine::Fused, &ClientConfig::default(), None);
            let (plain, _) = over_http2(&target, tls, DriverConfig::default(), 1).unwrap();
            assert_eq!((plain.uri.to_string().as_str(), plain.host_header.as_deref()), (expected, Some(host)));
            assert_eq!((plain.port(), plain.is_secure()), (target.port(), false));
        }
        let target = Target::new("ws://example.org/").unwrap();
        let tls = (TlsEngine::Fused, &ClientConfig::default(), None);
        assert!(over_http2(&target, tls, DriverConfig::default(), 1).is_err());
    }
}
