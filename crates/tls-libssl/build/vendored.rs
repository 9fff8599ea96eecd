//! OpenSSL from the sources in `openssl-src`.
//!
//! That package's own build takes twice as long: it compiles all that OpenSSL has.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use tautline_tls_build::{self as tools, run};

/// Parts that no TLS connection over TCP needs: programs, other protocols, file formats, and ciphers that no suite has.
const WITHOUT: &str = "apps argon2 aria async bf blake2 camellia cast cmp cms comp ct docs dsa dtls ec2m engine \
                       gost idea legacy md2 md4 mdc2 module nextprotoneg ocb psk quic rc2 rc4 rc5 rfc3779 \
                       rmd160 scrypt sctp seed shared siphash siv slh-dsa sm2 sm3 sm4 srp srtp ssl3 tests ts \
                       ui-console weak-ssl-ciphers whirlpool zlib";

/// Builds OpenSSL unless that is done, and returns its prefix.
pub(crate) fn openssl() -> Result<PathBuf, String> {
    let (version, package) = tools::find_package("openssl-src")?;
    let level = format!("-O{}", tools::opt_level(2));
    let name = format!("openssl-{}{level}", version.replace('+', "-"));
    let recipe = ["build/vendored.rs"];
    let dir = tools::build_once(&name, &recipe, |dir| build(&package.join("openssl"), &level, dir))?;
    Ok(dir.join("install"))
}

fn build(sources: &Path, level: &str, dir: &Path) -> Result<(), String> {
    let objects = dir.join("build");
    fs::create_dir_all(&objects).map_err(|error| format!("{}: {error}", objects.display()))?;
    let mut configure = Command::new("perl");
    configure.arg(sources.join("Configure")).arg(system()?).current_dir(&objects);
    configure.arg(format!("--prefix={}", dir.join("install").display()));
    configure.args(["--libdir=lib", "--openssldir=/usr/local/ssl", level]);
    configure.args(WITHOUT.split(' ').map(|part| format!("no-{part}")));
    run(configure.env("CC", cc::Build::new().get_compiler().path()).env_remove("CROSS_COMPILE"))?;
    let make = |goal, jobs: &str| run(Command::new("make").args([goal, "-j", jobs]).current_dir(&objects));
    make("build_libs", &tools::jobs())?;
    make("install_dev", "1")?;
    // The objects are not needed any more.
    let _ = fs::remove_dir_all(objects);
    Ok(())
}

/// OpenSSL's name of the system to build for.
fn system() -> Result<&'static str, String> {
    let target = std::env::var("TARGET").unwrap_or_default();
    match target.split('-').next().filter(|_| target.contains("-linux-")) {
        Some("x86_64") => Ok("linux-x86_64"),
        Some("aarch64") => Ok("linux-aarch64"),
        Some("powerpc64le") => Ok("linux-ppc64le"),
        Some("riscv64gc") => Ok("linux64-riscv64"),
        Some("s390x") => Ok("linux64-s390x"),
        _ => Err(format!(
            "openssl: nothing here knows how to build it for {target}; TAUTLINE_OPENSSL can name the prefix of one that \
             is installed"
        )),
    }
}
