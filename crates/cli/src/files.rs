use crate::failure::Failure;
use std::fs;
use std::path::Path;
use tautline::Certificate;

/// What a file holds; `what` says what it was to be.
pub(crate) fn read(path: &Path, what: &str) -> Result<Vec<u8>, Failure> {
    fs::read(path).map_err(|error| Failure::usage(format!("cannot read the {what} {}: {error}", path.display())))
}

/// A certificate chain and its key.
pub(crate) fn certificate(chain: &Path, key: &Path) -> Result<Certificate, Failure> {
    Ok(Certificate::new(read(chain, "certificate")?, read(key, "key")?))
}
