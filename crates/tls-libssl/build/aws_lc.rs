//! AWS-LC's libssl. Its libcrypto is the one that rustls uses, whose symbols have a prefix already.

use crate::shim::shim;
use std::path::{Path, PathBuf};
use tautline_tls_build as tools;

/// Builds AWS-LC's libssl from the sources in `aws-lc-sys` and links it.
pub(crate) fn library() -> Result<(), String> {
    let (version, sources) = tools::find_package("aws-lc-sys")?;
    let include: Vec<PathBuf> = std::env::split_paths(&include(&version)?).collect();
    let level = tools::opt_level(2);
    let folder = tools::build_once(&format!("aws-lc-ssl-{version}-O{level}"), &["build/aws_lc.rs"], |dir| {
        compile(&sources.join("aws-lc/ssl"), &include, level, dir)
    })?;
    let shim = shim("aws_lc", &include)?;
    shim.link(&shim.compile()?, &[folder.join("libssl.a")])?;
    println!("cargo::rustc-link-lib=stdc++");
    Ok(())
}

fn compile(sources: &Path, include: &[PathBuf], level: u32, dir: &Path) -> Result<(), String> {
    let entries = std::fs::read_dir(sources).map_err(|error| format!("{}: {error}", sources.display()))?;
    let mut files: Vec<_> =
        entries.filter_map(|entry| Some(entry.ok()?.path())).filter(|path| is_source(path)).collect();
    files.sort();
    let mut cc = cc::Build::new();
    cc.cpp(true).std("c++14").files(files).includes(include).out_dir(dir).cargo_metadata(false).warnings(false);
    cc.opt_level(level).pic(true).debug(false).define("BORINGSSL_IMPLEMENTATION", None).define("NDEBUG", None);
    cc.flag("-fno-exceptions").flag("-fno-rtti").try_compile("ssl").map_err(|error| format!("aws-lc: {error}"))
}

/// Whether this file is part of the library; tests lie in the same folder.
fn is_source(path: &Path) -> bool {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    name.ends_with(".cc") && !name.ends_with("_test.cc")
}

/// The folders of the headers.
///
/// `aws-lc-sys` puts them into a variable whose name contains its version. They must have the version of the sources,
/// which cargo reported.
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
