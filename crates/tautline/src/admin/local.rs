//! Addresses that only this machine reaches: the admin listener has no login.

use crate::Error;
use http::uri::Authority;
use std::io;
use std::net::IpAddr;
use tautline_io::Address;

/// Accepts an address that only this machine reaches: a Unix socket or a loopback address.
///
/// # Errors
/// [`Error::Listen`] for all others.
pub fn check(address: &Address) -> Result<(), Error> {
    match address {
        Address::Unix(_) => Ok(()),
        Address::Tcp(address) if address.ip().is_loopback() => Ok(()),
        _ => {
            let what =
                "the admin listener has no login; use a Unix socket or 127.0.0.1, and an SSH tunnel from elsewhere";
            let error = io::Error::new(io::ErrorKind::InvalidInput, what);
            Err(Error::Listen { address: address.clone(), error })
        }
    }
}

/// Whether a request's `Host` names this machine by a loopback address or `localhost`.
///
/// A web page can have its own name resolve to 127.0.0.1 (DNS rebinding), but its requests then carry that name.
pub(super) fn is_local_host(host: &str) -> bool {
    let Ok(authority) = host.parse::<Authority>() else { return false };
    let name = authority.host().trim_matches(['[', ']']);
    name.eq_ignore_ascii_case("localhost") || name.parse::<IpAddr>().is_ok_and(|ip| ip.is_loopback())
}

#[cfg(test)]
mod tests {
    use super::{check, is_local_host};

    #[test]
    fn only_addresses_of_this_machine_are_taken() {
        for good in ["127.0.0.1:0", "127.1.2.3:9", "[::1]:9", "unix:/run/taut/admin.sock"] {
            assert!(check(&good.parse().unwrap()).is_ok(), "{good}");
        }
        for bad in ["0.0.0.0:9", "[::]:9", "10.0.0.1:9"] {
            let error = format!("{:#}", check(&bad.parse().unwrap()).unwrap_err());
            assert!(error.contains(bad) && error.contains("no login"), "{error}");
        }
    }

    #[test]
    fn names_of_others_are_refused() {
        for good in ["localhost", "LOCALHOST:1", "127.0.0.1:9100", "[::1]", "[::1]:80"] {
            assert!(is_local_host(good), "{good}");
        }
        for bad in ["", "evil.example", "localhost.evil.example:80", "10.0.0.1", "127.0.0.1.evil.example", "a b"] {
            assert!(!is_local_host(bad), "{bad}");
        }
    }
}
