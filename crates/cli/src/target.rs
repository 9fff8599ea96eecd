use crate::driver::DriverArguments;
use crate::failure::Failure;
use crate::trust::Trust;
use http::header::{HeaderName, HeaderValue};
use tautline::{Address, DeflateConfig, Proxy, Target, TlsEngine};
use tautline_lab::load::Server;

/// What a client connects to, and how.
#[derive(Debug, clap::Args)]
pub(crate) struct TargetArguments {
    /// What to connect to: ws:// or wss://, host, port, path.
    #[arg(value_name = "URL")]
    pub(crate) url: String,
    /// Connect to this address instead of the URL's host: IP:PORT or unix:PATH.
    #[arg(long, value_name = "ADDR")]
    address: Option<Address>,
    /// Add a header to the request, as `Authorization: Bearer TOKEN`. May be repeated.
    #[arg(short = 'H', long, value_name = "NAME: VALUE", value_parser = header)]
    header: Vec<(HeaderName, HeaderValue)>,
    /// Offer a subprotocol. May be repeated, the preferred first.
    #[arg(long, value_name = "NAME")]
    subprotocol: Vec<String>,
    /// Offer compression (permessage-deflate).
    #[arg(long)]
    pub(crate) deflate: bool,
    /// Go through this HTTP CONNECT or SOCKS5 proxy, with USER:PASSWORD@ before the host where it asks for them.
    #[arg(long, value_name = "http|socks5://HOST:PORT")]
    proxy: Option<Proxy>,
    /// TLS engine: fused or rustls; openssl, aws-lc, boringssl, libressl, mbedtls or wolfssl where they are built in.
    #[arg(long, value_name = "ENGINE", default_value_t)]
    tls: TlsEngine,
    #[command(flatten)]
    trust: Trust,
    #[command(flatten)]
    driver: DriverArguments,
}

impl TargetArguments {
    pub(crate) fn server(&self, pid: Option<u32>) -> Result<Server, Failure> {
        let mut target = Target::new(&self.url).map_err(|error| Failure::from(&error))?;
        if self.driver.leaves_records() && !target.is_secure() {
            return Err(Failure::usage("--ktls needs wss://: without TLS there are no records to leave to the kernel"));
        }
        target.address = self.address.clone();
        target.headers.extend(self.header.iter().cloned());
        target.subprotocols.clone_from(&self.subprotocol);
        target.deflate = self.deflate.then(DeflateConfig::default);
        target.proxy.clone_from(&self.proxy);
        let tls = self.trust.config(&target)?;
        Ok(Server { target, tls, engine: self.tls, way: self.driver.way()?, pid })
    }
}

fn header(text: &str) -> Result<(HeaderName, HeaderValue), String> {
    let (name, value) = text.split_once(':').ok_or("write it as NAME: VALUE")?;
    let name = name.trim().parse().map_err(|_| format!("{name:?} is no header name"))?;
    let value = value.trim().parse().map_err(|_| "a value may hold no control characters".to_owned())?;
    Ok((name, value))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers() {
        let (name, value) = header("authorization:  Bearer a:b ").unwrap();
        assert_eq!((name.as_str(), value.to_str().unwrap()), ("authorization", "Bearer a:b"));
        for bad in ["no colon", "na me: x", ": x", "a: b\nc: d"] {
            assert!(header(bad).is_err(), "{bad:?}");
        }
    }
}
