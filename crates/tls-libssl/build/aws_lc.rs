//! AWS-LC's libssl. Its libcrypto is the one that rustls uses, and has a prefix before every symbol already.

use crate::shim::shim;
use std::path::{Path, PathBuf};
use tautline_tls_build as tools;

/// Builds AWS-LC's libssl from the sources in `aws-lc-sys` and links it.
pub(crate) fn library() -> Result<(), String> {
    let (version, sources) = tools::find("aws-lc-sys")?;
    let include: Vec<PathBuf> = std::env::split_paths(&include(&version)?).collect();
    let folder = tools::folder(&format!("aws-lc-ssl-{version}"), &["build/aws_lc.rs"], |dir| {
        compile(&sources.join("aws-lc/ssl"), &include, dir)
    })?;
    let shim = shim("aws_lc", &include)?;
    shim.link(&shim.compile()?, &[folder.join("libssl.a")])?;
    println!("cargo::rustc-link-lib=stdc++");
    Ok(())
}

fn compile(sources: &Path, include: &[PathBuf], dir: &Path) -> Result<(), String> {
    let entries = std::fs::read_dir(sources).map_err(|error| format!("{}: {error}", sources.display()))?;
    let mut files: Vec<_> =
        entries.filter_map(|entry| Some(entry.ok()?.path())).filter(|path| is_source(path)).collect();
    files.sort();
    let mut cc = cc::Build::new();
    cc.cpp(true).std("c++14").files(files).includes(include).out_dir(dir).cargo_metadata(false).warnings(false);
    cc.opt_level(2).pic(true).debug(false).define("BORINGSSL_IMPLEMENTATION", None).define("NDEBUG", None);
    cc.flag("-fno-exceptions").flag("-fno-rtti").try_compile("ssl").map_err(|error| format!("aws-lc: {error}"))
}

/// Whether this is part of the library; tests lie in the same folder.
fn is_source(path: &Path) -> bool {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    name.ends_with(".cc") && !name.ends_with("_test.cc")
}

/// The headers, as `aws-lc-sys` tells its dependents in a variable whose name contains its version; they must be of the same
/// version as the sources, which cargo was asked for.
fn include(version: &str) -> Result<String, String> {
    let is_version = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit() || byte == b'_');
    let (told, folder) = std::env::vars()
        .find_map(|(name, folder)| {
            let told = name.strip_prefix("DEP_AWS_LC_")?.strip_suffix("_INCLUDE")?;
            is_version(told).then(|| (told.replace('_', "."), folder))
        })
        .ok_or_else(|| "aws-lc: aws-lc-sys does not say where its headers are".to_owned())?;
    if told == version {
        Ok(folder)
    } else {
        Err(format!(
            "aws-lc: the headers are those of aws-lc-sys {told}, the sources of {version}: have one in Cargo.lock"
        ))
    }
}
