//! What takes minutes to build and is the same for all profiles.

use std::fs::File;
use std::path::{Path, PathBuf};

/// The folder `name`, which `build` fills unless that is done already.
///
/// # Errors
/// What `build` says, and what keeps the folder from being made; for a build script to print.
pub fn folder(name: &str, build: impl FnOnce(&Path) -> Result<(), String>) -> Result<PathBuf, String> {
    let target = std::env::var("TARGET").map_err(|error| error.to_string())?;
    let dir = shared()?.join(format!("{name}-{target}"));
    let stamp = dir.join("complete");
    let fail = |error: std::io::Error| format!("{}: {error}", dir.display());
    std::fs::create_dir_all(&dir).map_err(fail)?;
    // Two profiles may be built at once.
    let lock = File::create(dir.join("lock")).map_err(fail)?;
    lock.lock().map_err(fail)?;
    if !stamp.exists() {
        build(&dir)?;
        File::create(&stamp).map_err(fail)?;
    }
    Ok(dir)
}

/// A folder in cargo's target folder, beside those of the profiles.
fn shared() -> Result<PathBuf, String> {
    let out = PathBuf::from(std::env::var_os("OUT_DIR").unwrap_or_default());
    // <target>/<profile>/build/<package>/out
    let profile = out.ancestors().find(|dir| dir.ends_with("build")).and_then(Path::parent);
    let target = profile.and_then(Path::parent).ok_or_else(|| format!("{} lies in no target folder", out.display()))?;
    Ok(target.join("tls-libssl"))
}
