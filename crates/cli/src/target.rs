use crate::aead::AeadArguments;
use crate::driver::DriverArguments;
use crate::environment;
use crate::failure::Failure;
use crate::trust::Trust;
use tautline::http::header::{HOST, HeaderName, HeaderValue, ORIGIN};
use tautline::{Address, ClientConfig, DeflateConfig, DriverConfig, Proxy, Target, TlsEngine};
use tautline_lab::load::Server;

/// The options of a client's connection.
#[derive(Debug, clap::Args)]
pub(crate) struct TargetArguments {
    /// URL to connect to: wss:// or ws://, host, port, path. Without a scheme it is wss://.
    #[arg(value_name = "URL")]
    pub(crate) url: String,
    /// Address to connect to instead of the URL's host: IP:PORT or unix:PATH.
    #[arg(help_heading = "Connection", long, value_name = "ADDR")]
    address: Option<Address>,
    /// Header to add to the request, for example `Authorization: Bearer TOKEN`. `Host` replaces that of the URL. May be repeated.
    #[arg(short = 'H', long, value_name = "NAME: VALUE", value_parser = header)]
    header: Vec<(HeaderName, HeaderValue)>,
    /// Origin to send, as a page of a browser does: `https://app.example`.
    #[arg(long, value_name = "SCHEME://HOST")]
    origin: Option<String>,
    /// Subprotocol to offer. May be repeated, the preferred first.
    #[arg(long, value_name = "NAME")]
    subprotocol: Vec<String>,
    /// Offer compression (permessage-deflate).
    #[arg(long)]
    pub(crate) deflate: bool,
    #[command(flatten)]
    transport: TransportArguments,
}

/// The options of a client's proxy, TLS and driver.
#[derive(Debug, clap::Args)]
pub(crate) struct TransportArguments {
    /// HTTP CONNECT or SOCKS5 proxy to connect through. If it requires a login, write USER:PASSWORD@ before the host.
    #[arg(help_heading = "Connection", long, value_name = "http|socks5://HOST:PORT")]
    proxy: Option<Proxy>,
    /// Ignore the proxies in https_proxy, http_proxy, all_proxy and no_proxy of the environment.
    #[arg(help_heading = "Connection", long, conflicts_with = "proxy")]
    no_proxy: bool,
    /// TLS engine: fused or rustls; also openssl, aws-lc, boringssl, libressl, mbedtls or wolfssl, if built in.
    #[arg(help_heading = "TLS", long, value_name = "ENGINE", default_value_t)]
    pub(crate) tls: TlsEngine,
    #[command(flatten)]
    aead: AeadArguments,
    #[command(flatten)]
    trust: Trust,
    #[command(flatten)]
    pub(crate) driver: DriverArguments,
}

impl TransportArguments {
    /// The configurations of TLS and driver for this target.
    pub(crate) fn configs(&self, target: &Target) -> Result<(ClientConfig, DriverConfig), Failure> {
        if self.driver.leaves_records() && !target.is_secure() {
            return Err(Failure::usage("--ktls needs wss://: without TLS there are no records to leave to the kernel"));
        }
        self.aead.apply();
        Ok((self.trust.config(target.host())?, self.driver.config()?))
    }

    /// The proxy for this target: the one that was given, or else that of the environment.
    pub(crate) fn proxy(&self, target: &Target) -> Result<Option<Proxy>, Failure> {
        match &self.proxy {
            None if !self.no_proxy => environment::proxy(target),
            given => Ok(given.clone()),
        }
    }
}

impl TargetArguments {
    /// The server to connect to, whose process is `pid` if it is measured.
    pub(crate) fn server(&self, pid: Option<u32>) -> Result<Server, Failure> {
        let mut target = Target::new(&with_scheme(&self.url)).map_err(|error| Failure::from(&error))?;
        let (tls, driver) = self.transport.configs(&target)?;
        target.address = self.address.clone();
        target.origin.clone_from(&self.origin);
        for (name, value) in &self.header {
            let slot = match *name {
                HOST => &mut target.host_header,
                ORIGIN => &mut target.origin,
                _ => {
                    target.headers.append(name.clone(), value.clone());
                    continue;
                }
            };
            let text = value.to_str().map_err(|_| Failure::usage(format!("the header {name} is not in ASCII")))?;
            if slot.replace(text.to_owned()).is_some() {
                return Err(Failure::usage(format!("the header {name} is given twice: a request has one")));
            }
        }
        target.subprotocols.clone_from(&self.subprotocol);
        target.deflate = self.deflate.then(DeflateConfig::default);
        // An address is where the connection goes, unless a proxy was asked for beside it.
        target.proxy = match &self.address {
            Some(_) => self.transport.proxy.clone(),
            None => self.transport.proxy(&target)?,
        };
        Ok(Server { target, tls, engine: self.transport.tls, driver, pid, http2: None, carrier_tls: None })
    }
}

/// The URL with the scheme of secure WebSockets, if it has none.
fn with_scheme(url: &str) -> String {
    if url.contains("://") { url.to_owned() } else { format!("wss://{url}") }
}

/// A header of an argument.
pub(crate) fn header(text: &str) -> Result<(HeaderName, HeaderValue), String> {
    let (name, value) = text.split_once(':').ok_or("write it as NAME: VALUE")?;
    let name = name.trim().parse().map_err(|_| format!("{name:?} is no header name"))?;
    let value = value.trim().parse().map_err(|_| "a header value cannot contain control characters".to_owned())?;
    Ok((name, value))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_get_the_scheme_that_they_lack() {
        for (url, expected) in [
            ("localhost:8443/chat", "wss://localhost:8443/chat"),
            ("example.org", "wss://example.org"),
            ("ws://a.test/", "ws://a.test/"),
            ("ftp://a.test/", "ftp://a.test/"),
        ] {
            assert_eq!(with_scheme(url), expected);
        }
    }

    #[test]
    fn parses_headers() {
        let (name, value) = header("authorization:  Bearer a:b ").unwrap();
        assert_eq!((name.as_str(), value.to_str().unwrap()), ("authorization", "Bearer a:b"));
        for bad in ["no colon", "na me: x", ": x", "a: b\nc: d"] {
            assert!(header(bad).is_err(), "{bad:?}");
        }
    }
}
