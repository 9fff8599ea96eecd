//! Addresses that only this machine reaches: without a token, the admin listener has no login.

use crate::Error;
use std::io;
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
            let what = "the admin listener has no login without a token; use a Unix socket or 127.0.0.1, and an SSH tunnel from elsewhere";
            let error = io::Error::new(io::ErrorKind::InvalidInput, what);
            Err(Error::Listen { address: address.clone(), error })
        }
    }
}

#[cfg(test)]
mod tests {
    use super::check;

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
}
