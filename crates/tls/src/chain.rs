//! A server's chain of certificates that lacks one, for all engines.
//!
//! Browsers look for a missing certificate themselves, so it is found late: other clients refuse the server.

use crate::fields::{Fields, readable};
use crate::named::trust_named;
use std::collections::HashSet;
use std::sync::OnceLock;

/// The strictness of the checks on certificates when a configuration is loaded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Strictness {
    /// A certificate that peers will reject is only a warning, because the clock may be wrong.
    Start,
    /// Such a certificate is an error, because the server can keep the ones that it has.
    Reload,
}

/// Finds that a server's chain (DER, its own certificate first) lacks the certificate of its issuer, which peers need. Returns
/// the warning, a sentence whose subject is the certificate.
///
/// No chain of these lacks it: one of a certificate that signs itself, of one that says that its issuer is a root, and of one
/// that an authority of this system has issued. `platform` reads the certificates of those authorities, unless the environment
/// names others, and at most once in this process.
///
/// ```
/// use tautline_tls::chain::{Strictness, missing_issuer};
///
/// let malformed = missing_issuer([b"no DER"], Strictness::Start, Vec::<Vec<u8>>::new);
/// assert_eq!(malformed, None);
/// ```
#[must_use]
pub fn missing_issuer<R: AsRef<[u8]>>(
    chain: impl IntoIterator<Item = impl AsRef<[u8]>>,
    strictness: Strictness,
    platform: impl FnOnce() -> Vec<R>,
) -> Option<String> {
    let mut chain = chain.into_iter();
    let own = chain.next()?;
    let own = Fields::of(own.as_ref())?;
    let is_issuer = |other: &[u8]| Fields::of(other).is_some_and(|other| other.subject() == own.issuer());
    if own.is_self_issued() || own.has_root_as_issuer() || chain.any(|other| is_issuer(other.as_ref())) {
        return None;
    }
    let roots = authorities(platform);
    // A server that serves may not be able to read the store any more.
    if roots.contains(own.issuer()) || (roots.is_empty() && strictness == Strictness::Reload) {
        return None;
    }
    let issuer = readable(own.issuer());
    Some(format!(
        "was issued by {issuer:?}, whose certificate is not in its chain and not among this system's roots: peers cannot \
         verify it unless they trust that issuer itself; append the issuer's certificate to the file (authorities call it \
         the intermediate, or give a file with the full chain)"
    ))
}

/// The names, in DER, of the authorities that this system trusts.
fn authorities<R: AsRef<[u8]>>(platform: impl FnOnce() -> Vec<R>) -> &'static HashSet<Vec<u8>> {
    static NAMES: OnceLock<HashSet<Vec<u8>>> = OnceLock::new();
    NAMES.get_or_init(|| {
        let mut names = HashSet::new();
        let mut add = |root: &[u8]| {
            names.extend(Fields::of(root).map(|fields| fields.subject().to_vec()));
            true
        };
        if trust_named(&mut add).is_none() {
            platform().iter().for_each(|root| _ = add(root.as_ref()));
        }
        names
    })
}
