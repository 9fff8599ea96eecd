//! An installed library: `<prefix>/include` and `<prefix>/lib`.

use crate::shim::shim;
use std::path::{Path, PathBuf};

/// The prefix in an environment variable.
pub(crate) fn named_by(variable: &str) -> Option<PathBuf> {
    println!("cargo::rerun-if-env-changed={variable}");
    std::env::var_os(variable).filter(|prefix| !prefix.is_empty()).map(PathBuf::from)
}

/// Links the library below `prefix`.
pub(crate) fn library(name: &'static str, prefix: &Path) -> Result<(), String> {
    let archive = |file: &str| {
        // Debian puts the system's libraries one level deeper.
        let multiarch = format!("lib/{}-linux-gnu", std::env::var("CARGO_CFG_TARGET_ARCH").unwrap_or_default());
        ["lib64", "lib", &multiarch]
            .iter()
            .map(|dir| prefix.join(dir).join(file))
            .find(|path| path.exists())
            .ok_or_else(|| {
                format!(
                    "{name}: no {file} below {}: it is linked statically, so that it can stand beside other libraries \
                     of its kind; install its static libraries and headers (Debian: libssl-dev)",
                    prefix.display()
                )
            })
    };
    let archives = [archive("libssl.a")?, archive("libcrypto.a")?];
    for archive in &archives {
        println!("cargo::rerun-if-changed={}", archive.display());
    }
    let shim = shim(name, &[prefix.join("include")])?;
    shim.link(&shim.compile()?, &archives)
}
