use crate::failure::Failure;
use std::fs;
use std::path::Path;
use tautline::Certificate;

/// Reads a file. `what` names its content in the error.
pub(crate) fn read(path: &Path, what: &str) -> Result<Vec<u8>, Failure> {
    fs::read(path).map_err(|error| Failure::usage(format!("cannot read the {what} {}: {error}", path.display())))
}

/// Reads a certificate chain and its key.
pub(crate) fn certificate(chain: &Path, key: &Path) -> Result<Certificate, Failure> {
    Ok(Certificate::new(read(chain, "certificate")?, read(key, "key")?))
}

/// The folder of a file.
pub(crate) fn folder_of(path: &Path) -> &Path {
    path.parent().filter(|folder| *folder != Path::new("")).unwrap_or_else(|| Path::new("."))
}
