//! Builds wolfSSL with `csrc/user_settings.h`, and hides all of it behind the shim's table.

fn main() {
    println!("cargo::rerun-if-changed=csrc");
    #[cfg(feature = "wolfssl")]
    if let Err(why) = library::link() {
        println!("cargo::error={why}");
        std::process::exit(1);
    }
}

#[cfg(feature = "wolfssl")]
mod library {
    use std::path::{Path, PathBuf};
    use tautline_tls_build::{Shim, build_once, find_package};

    /// Words in the names of sources that other sources include, or that are for other processors.
    const LEFT_OUT: [&str; 12] =
        ["arm32", "arm64", "armthumb", "bio", "conf", "cortexm", "dsp32", "evp", "misc", "pk", "riscv64", "x509"];

    const RECORDS: &str = "src/internal.c";
    const CIPHERS: &str = "wolfcrypt/src/aes.c";

    pub(crate) fn link() -> Result<(), String> {
        let (version, package) = find_package("wolfssl-sys")?;
        let sources = package.join("wolfssl-src");
        let shared = std::env::var("DEP_TAUTLINE_LIBSSL_INCLUDE").map_err(|error| format!("tls-libssl: {error}"))?;
        let recipe = ["build.rs", "csrc/user_settings.h"];
        let built = build_once(&format!("wolfssl-{version}"), &recipe, |dir| build(&sources, dir))?;
        // The files of the OpenSSL family's shim that fit; `compat.h` maps the names in them.
        let context = format!("{shared}/context.c");
        let table = format!("{shared}/table.c");
        let files = ["csrc/connection.c", "csrc/tickets.c", &context, &table];
        let include = ["csrc".into(), shared.into(), sources.clone(), sources.join("wolfssl")];
        let mut shim = Shim::new("tautline_wolfssl", &files, &include)?;
        shim.define("WOLFSSL_USER_SETTINGS", "");
        shim.include_first("csrc/compat.h");
        shim.link(&shim.compile()?, &[built.join("libwolfssl.a")])
    }

    fn build(sources: &Path, dir: &Path) -> Result<(), String> {
        let mut files = files_of(&sources.join("src"))?;
        files.extend(files_of(&sources.join("wolfcrypt/src"))?);
        let mut cc = cc::Build::new();
        cc.include("csrc").include(sources).define("WOLFSSL_USER_SETTINGS", None);
        cc.opt_level(2).pic(true).debug(false).warnings(false).out_dir(dir).cargo_metadata(false);
        // The shim receives the handshake messages of TLS 1.3 before the library.
        let mut records = cc.clone();
        records.file(sources.join(RECORDS)).define("DoTls13HandShakeMsg", "tl_tls13_message");
        // This file has intrinsics; the shim checks at run time that the processor has the instructions.
        let mut ciphers = cc.clone();
        ciphers.file(sources.join(CIPHERS));
        if is_x86_64() {
            ciphers.flag("-maes").flag("-mpclmul").flag("-msse4.1");
        }
        files.retain(|file| !file.ends_with(RECORDS) && !file.ends_with(CIPHERS));
        for special in [records, ciphers] {
            cc.objects(special.try_compile_intermediates().map_err(|error| format!("wolfssl: {error}"))?);
        }
        cc.files(files).try_compile("wolfssl").map_err(|error| format!("wolfssl: {error}"))
    }

    fn is_x86_64() -> bool {
        std::env::var("CARGO_CFG_TARGET_ARCH").is_ok_and(|arch| arch == "x86_64")
    }

    fn files_of(folder: &Path) -> Result<Vec<PathBuf>, String> {
        let entries = std::fs::read_dir(folder).map_err(|error| format!("{}: {error}", folder.display()))?;
        let mut files: Vec<PathBuf> = entries.filter_map(|entry| Some(entry.ok()?.path())).collect();
        files.retain(|path| is_source(path));
        files.sort();
        Ok(files)
    }

    fn is_source(path: &Path) -> bool {
        let Some((name, end)) = path.file_name().and_then(|name| name.to_str()?.rsplit_once('.')) else { return false };
        // Other sources include these: ssl.c includes ssl_*.c, and so on.
        let is_included =
            ["ssl_", "pk_", "evp_", "x509_", "asn_orig", "wc_dsp"].iter().any(|start| name.starts_with(start));
        let is_32_bit = name.ends_with("_x86_asm");
        let is_left_out = name.split('_').any(|word| LEFT_OUT.contains(&word));
        (end == "c" || (end == "S" && is_x86_64())) && !(is_included || is_left_out || is_32_bit)
    }
}
