//! Compiles the shim (`csrc`) once for each requested library, and links both into one object.
//!
//! Only the shim's table is visible in it. So libraries that share most names of symbols can stand in one program.

#[cfg(feature = "aws-lc")]
mod aws_lc;
#[cfg(feature = "boringssl")]
mod boringssl;
#[cfg(any(feature = "openssl", feature = "libressl"))]
mod prefix;
#[cfg(any(feature = "openssl", feature = "aws-lc", feature = "boringssl", feature = "libressl"))]
mod shim;
#[cfg(feature = "openssl")]
mod vendored;

fn main() {
    println!("cargo::rerun-if-changed=build");
    println!("cargo::rerun-if-changed=csrc");
    println!("cargo::rustc-check-cfg=cfg(any_library)");
    if cfg!(any(
        feature = "openssl",
        feature = "aws-lc",
        feature = "boringssl",
        feature = "libressl",
        feature = "external"
    )) {
        println!("cargo::rustc-cfg=any_library");
    }
    // The folder of table.h, for crates that bring a library of their own.
    let root = std::env::var("CARGO_MANIFEST_DIR").unwrap_or_default();
    println!("cargo::metadata=include={root}/csrc");
    if let Err(why) = build() {
        println!("cargo::error={why}");
        std::process::exit(1);
    }
}

fn build() -> Result<(), String> {
    #[cfg(feature = "openssl")]
    {
        let prefix = match prefix::named_by("TAUTLINE_OPENSSL") {
            Some(prefix) => prefix,
            None => vendored::openssl()?,
        };
        prefix::library("openssl", &prefix)?;
    }
    #[cfg(feature = "libressl")]
    {
        let prefix = prefix::named_by("TAUTLINE_LIBRESSL").ok_or(
            "feature libressl: no registry carries LibreSSL; set TAUTLINE_LIBRESSL to the prefix where it is installed",
        )?;
        prefix::library("libressl", &prefix)?;
    }
    #[cfg(feature = "aws-lc")]
    aws_lc::library()?;
    #[cfg(feature = "boringssl")]
    boringssl::library()?;
    Ok(())
}
