use crate::aead::AeadArguments;
use crate::driver::DriverArguments;
use crate::failure::Failure;
use crate::trust::Trust;
use tautline::http::header::{HeaderName, HeaderValue};
use tautline::{Address, DeflateConfig, Proxy, Target, TlsEngine};
use tautline_lab::load::Server;

/// The options of a client's connection.
#[derive(Debug, clap::Args)]
pub(crate) struct TargetArguments {
    /// URL to connect to: ws:// or wss://, host, port, path.
    #[arg(value_name = "URL")]
    pub(crate) url: String,
    /// Address to connect to instead of the URL's host: IP:PORT or unix:PATH.
    #[arg(help_heading = "Connection", long, value_name = "ADDR")]
    address: Option<Address>,
    /// Header to add to the request, for example `Authorization: Bearer TOKEN`. May be repeated.
    #[arg(short = 'H', long, value_name = "NAME: VALUE", value_parser = header)]
    header: Vec<(HeaderName, HeaderValue)>,
    /// Subprotocol to offer. May be repeated, the preferred first.
    #[arg(long, value_name = "NAME")]
    subprotocol: Vec<String>,
    /// Offer compression (permessage-deflate).
    #[arg(long)]
    pub(crate) deflate: bool,
    /// HTTP CONNECT or SOCKS5 proxy to connect through. If it requires a login, write USER:PASSWORD@ before the host.
    #[arg(help_heading = "Connection", long, value_name = "http|socks5://HOST:PORT")]
    proxy: Option<Proxy>,
    /// TLS engine: fused or rustls; also openssl, aws-lc, boringssl, libressl, mbedtls or wolfssl, if built in.
    #[arg(help_heading = "TLS", long, value_name = "ENGINE", default_value_t)]
    tls: TlsEngine,
    #[command(flatten)]
    aead: AeadArguments,
    #[command(flatten)]
    trust: Trust,
    #[command(flatten)]
    driver: DriverArguments,
}

impl TargetArguments {
    /// The server to connect to, whose process is `pid` if it is measured.
    pub(crate) fn server(&self, pid: Option<u32>) -> Result<Server, Failure> {
        let mut target = Target::new(&self.url).map_err(|error| Failure::from(&error))?;
        if self.driver.leaves_records() && !target.is_secure() {
            return Err(Failure::usage("--ktls needs wss://: without TLS there are no records to leave to the kernel"));
        }
        self.aead.apply();
        target.address = self.address.clone();
        target.headers.extend(self.header.iter().cloned());
        target.subprotocols.clone_from(&self.subprotocol);
        target.deflate = self.deflate.then(DeflateConfig::default);
        target.proxy.clone_from(&self.proxy);
        let tls = self.trust.config(target.host())?;
        Ok(Server { target, tls, engine: self.tls, driver: self.driver.config()?, pid })
    }
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
    fn parses_headers() {
        let (name, value) = header("authorization:  Bearer a:b ").unwrap();
        assert_eq!((name.as_str(), value.to_str().unwrap()), ("authorization", "Bearer a:b"));
        for bad in ["no colon", "na me: x", ": x", "a: b\nc: d"] {
            assert!(header(bad).is_err(), "{bad:?}");
        }
    }
}
