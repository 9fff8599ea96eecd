//! The authorities that this machine trusts.

use crate::anchors::{Anchors, Builder};
use tautline_tls::{Error, trust_named};

/// The authorities of the platform's store, or of the file and the folders that the environment names instead.
pub(crate) fn anchors() -> Result<Anchors, Error> {
    let mut anchors = Builder::new();
    let named = trust_named(|der| anchors.add(der).is_ok());
    let is_named = named.is_some();
    let reasons = named.unwrap_or_else(|| {
        let found = rustls_native_certs::load_native_certs();
        // Trust stores hold a few certificates that predate today's rules. They are skipped.
        let rejected = found.certs.iter().filter(|certificate| anchors.add(certificate).is_err()).count();
        if rejected > 0 {
            log::debug!("{rejected} certificates of the platform's trust store cannot be used");
        }
        found.errors.iter().map(ToString::to_string).collect()
    });
    if is_named {
        reasons.iter().for_each(|reason| log::warn!("{reason}"));
    }
    if anchors.is_empty() {
        let reason = reasons.first().map_or("it is empty", String::as_str);
        return Err(Error::Config(format!(
            "no trusted authority in the platform's trust store ({reason}): install the system's CA certificates, set \
             SSL_CERT_FILE, or give the roots to trust"
        )));
    }
    Ok(anchors.build())
}
