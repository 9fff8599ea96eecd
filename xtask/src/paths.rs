//! Paths. All files that xtask fetches or makes are below `target/xtask` of the checkout.

use std::path::{Path, PathBuf};
use std::{env, fs, io};

/// The checkout.
pub(crate) fn root() -> PathBuf {
    let here =
        env::var_os("CARGO_MANIFEST_DIR").map_or_else(|| PathBuf::from(env!("CARGO_MANIFEST_DIR")), PathBuf::from);
    here.parent().unwrap_or(&here).to_path_buf()
}

/// A path below `target/xtask`.
pub(crate) fn own(path: &str) -> PathBuf {
    root().join("target/xtask").join(path)
}

/// Cargo's target folder.
pub(crate) fn target() -> PathBuf {
    env::var_os("CARGO_TARGET_DIR").map_or_else(|| root().join("target"), |folder| root().join(folder))
}

/// Makes a folder, without what is in it.
pub(crate) fn empty(folder: &Path) -> io::Result<()> {
    if folder.exists() {
        fs::remove_dir_all(folder)?;
    }
    fs::create_dir_all(folder)
}

/// The path of a log.
pub(crate) fn log(name: &str) -> PathBuf {
    own("logs").join(format!("{name}.log"))
}
