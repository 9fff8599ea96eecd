//! Addresses that only this machine reaches, for pages and listeners without a login.

use std::net::{IpAddr, SocketAddr, ToSocketAddrs};
use tautline::Address;

/// Understands `IP:PORT` and `localhost:PORT`, if it is a loopback address.
pub(crate) fn loopback(text: &str) -> Result<SocketAddr, String> {
    let mut found = text.to_socket_addrs().map_err(|_| "write IP:PORT or localhost:PORT".to_owned())?;
    let advice = "is no address of this machine alone; there is no login, so use 127.0.0.1 and an SSH tunnel";
    found.find(|address| address.ip().is_loopback()).ok_or_else(|| format!("{text} {advice}"))
}

/// Understands a loopback address or `unix:PATH`.
pub(crate) fn local(text: &str) -> Result<Address, String> {
    if text.starts_with("unix:") {
        return text.parse();
    }
    loopback(text).map(Address::Tcp).map_err(|error| error.replace("write ", "write unix:PATH, "))
}

/// Whether a host of a URL is this machine.
pub(crate) fn is_loopback(host: &str) -> bool {
    host.eq_ignore_ascii_case("localhost") || host.parse::<IpAddr>().is_ok_and(|ip| ip.is_loopback())
}

#[cfg(test)]
mod tests {
    use super::{local, loopback};
    use tautline::Address;

    #[test]
    fn only_addresses_of_this_machine_are_taken() {
        assert_eq!(loopback("127.0.0.1:8444"), Ok(([127, 0, 0, 1], 8444).into()));
        assert!(loopback("localhost:0").unwrap().ip().is_loopback());
        assert!(loopback("[::1]:1").is_ok());
        assert!(loopback("0.0.0.0:8444").unwrap_err().contains("SSH tunnel"));
        assert!(loopback("8444").unwrap_err().contains("IP:PORT"));
    }

    #[test]
    fn unix_sockets_are_local() {
        assert_eq!(local("unix:/run/taut/admin.sock"), Ok(Address::Unix("/run/taut/admin.sock".into())));
        assert_eq!(local("127.0.0.1:9100"), Ok(Address::Tcp(([127, 0, 0, 1], 9100).into())));
        assert!(local("unix:").unwrap_err().contains("needs a path"));
        assert!(local("9100").unwrap_err().contains("write unix:PATH, IP:PORT"));
        assert!(local("0.0.0.0:9100").unwrap_err().contains("no login"));
    }
}
