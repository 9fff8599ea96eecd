//! Finds the sources of a package.

use crate::shim::run;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Finds the version of the package `name` in the lock file, and its folder.
///
/// # Errors
/// The error of cargo, for a build script to print.
pub fn find_package(name: &str) -> Result<(String, PathBuf), String> {
    let cargo = std::env::var_os("CARGO").ok_or("cargo does not say where it is")?;
    let metadata =
        |offline: &[&str]| run(Command::new(&cargo).args(["metadata", "--format-version=1", "--locked"]).args(offline));
    // Offline is faster, but fails if packages for other platforms were never downloaded.
    let text = metadata(&["--offline"]).or_else(|_| metadata(&[]))?;
    let metadata: serde_json::Value = serde_json::from_str(&text).map_err(|error| error.to_string())?;
    let packages = metadata["packages"].as_array().map(Vec::as_slice).unwrap_or_default();
    packages
        .iter()
        .find(|package| package["name"] == name)
        .and_then(|package| {
            let folder = Path::new(package["manifest_path"].as_str()?).parent()?;
            Some((package["version"].as_str()?.to_owned(), folder.to_owned()))
        })
        .ok_or_else(|| format!("cargo does not know a package {name}"))
}
