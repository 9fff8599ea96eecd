//! TLS engines of compared work: their certificate and their cipher suite.

use crate::Error;
use tautline::layers::tls::Session;
use tautline::{CipherSuite, ClientConfig, Roots, ServerConfig};
use tautline_dev_cert::{Authority, Leaf};

/// Cipher suite of all compared work.
const SUITE: CipherSuite = CipherSuite::Aes128GcmSha256;

/// Configurations of a server for `localhost` with a new P-256 key, and of a client that trusts it.
///
/// # Errors
/// The certificate cannot be made.
pub fn localhost() -> Result<(ServerConfig, ClientConfig), Error> {
    let authority = Authority::new("Tautline bench authority").map_err(Error::failed)?;
    let certificate = authority.issue(&Leaf::new(&["localhost"])).map_err(Error::failed)?;
    let roots = Roots::Pem(authority.certificate().as_bytes().to_vec());
    let mut client = ClientConfig::default();
    client.roots = roots;
    Ok((ServerConfig::new([certificate]), client))
}

/// Refuses sessions whose cipher suite differs from that of all compared work.
///
/// # Errors
/// It differs.
pub fn check_suite(session: &impl Session) -> Result<(), Error> {
    let info = session.tls_info();
    if info.suite == Some(SUITE) {
        Ok(())
    } else {
        Err(Error::Failed(format!("the sessions agreed on {info}, not on {SUITE}")))
    }
}
