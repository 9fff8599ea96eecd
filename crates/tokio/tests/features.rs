//! The crate without its default features.
#![allow(clippy::unwrap_used, reason = "all of this runs inside tests")]

use std::process::Command;

/// The packages that the crate needs with these features.
fn needed(features: &[&str]) -> Vec<String> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut tree = Command::new(cargo);
    tree.args(["tree", "--offline", "--locked", "--package", "tautline-tokio", "--edges", "normal,build"]);
    tree.args(["--prefix", "none"]).args(features).current_dir(env!("CARGO_MANIFEST_DIR"));
    let output = tree.output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let packages = String::from_utf8(output.stdout).unwrap();
    packages.lines().filter_map(|line| line.split(' ').next()).map(str::to_owned).collect()
}

#[test]
fn no_tls_library_is_needed_without_the_feature_tls() {
    let libraries = ["rustls", "aws-lc-sys", "aws-lc-rs", "ring", "tautline-tls-rustls"].map(str::to_owned);
    let all = needed(&[]);
    assert!(libraries.iter().all(|name| all.contains(name)), "{all:?}");
    for features in [&["--no-default-features"][..], &["--no-default-features", "--features", "axum"]] {
        let plain = needed(features);
        assert!(plain.contains(&"tautline-engine".to_owned()), "{plain:?}");
        assert!(!libraries.iter().any(|name| plain.contains(name)), "{plain:?}");
    }
}

#[test]
fn http2_comes_with_its_feature_alone() {
    let has_h2 = |features: &str| needed(&["--no-default-features", "--features", features]).contains(&"h2".to_owned());
    assert!(!has_h2("axum") && has_h2("http2"));
}
