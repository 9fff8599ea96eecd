//! Builds Mbed TLS with `csrc/config.h`, and hides all of it behind the shim's table.

fn main() {
    println!("cargo::rerun-if-changed=csrc");
    #[cfg(feature = "mbedtls")]
    if let Err(why) = library::link() {
        println!("cargo::error={why}");
        std::process::exit(1);
    }
}

#[cfg(feature = "mbedtls")]
mod library {
    use std::path::{Path, PathBuf};
    use tautline_tls_build::{Shim, build_once, find_package};

    const SOURCES: [&str; 7] = [
        "csrc/connection.c",
        "csrc/context.c",
        "csrc/info.c",
        "csrc/identity.c",
        "csrc/records.c",
        "csrc/table.c",
        "csrc/tickets.c",
    ];

    const CONFIG: (&str, &str) = ("MBEDTLS_CONFIG_FILE", "\"config.h\"");

    pub(crate) fn link() -> Result<(), String> {
        let (version, package) = find_package("mbedtls-rs-sys")?;
        let sources = package.join("mbedtls");
        let table = std::env::var("DEP_TAUTLINE_LIBSSL_INCLUDE").map_err(|error| format!("tls-libssl: {error}"))?;
        let include = ["csrc".into(), table.into(), sources.join("include"), sources.join("library")];
        let built =
            build_once(&format!("mbedtls-{version}"), &["build.rs", "csrc/config.h"], |dir| build(&sources, dir))?;
        let mut shim = Shim::new("tautline_mbedtls", &SOURCES, &include)?;
        shim.define(CONFIG.0, CONFIG.1);
        shim.link(&shim.compile()?, &[built.join("libmbedtls.a")])
    }

    fn build(sources: &Path, dir: &Path) -> Result<(), String> {
        let library = sources.join("library");
        let entries = std::fs::read_dir(&library).map_err(|error| format!("{}: {error}", library.display()))?;
        let mut files: Vec<PathBuf> = entries.filter_map(|entry| Some(entry.ok()?.path())).collect();
        files.retain(|path| path.extension().is_some_and(|end| end == "c"));
        files.sort();
        let mut cc = cc::Build::new();
        cc.files(files).include("csrc").include(sources.join("include")).include(&library).define(CONFIG.0, CONFIG.1);
        cc.opt_level(2).pic(true).debug(false).warnings(false).out_dir(dir).cargo_metadata(false);
        cc.try_compile("mbedtls").map_err(|error| format!("mbedtls: {error}"))
    }
}
