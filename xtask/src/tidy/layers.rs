//! Dependencies point one way: buf ← ws, tls, io ← conn ← engine ← tautline ← everything else.

use super::files::{Files, packages};

/// A program that only tests run. No crate depends on it.
const SIMULATOR: &str = "sim";

/// For each crate, by its folder below `crates`: the crates that it may depend on, and those that only its tests may use.
/// A name that ends in `*` stands for all names that begin so.
const LAYERS: &[(&str, &[&str], &[&str])] = &[
    ("buf", &[], &[]),
    ("dev-cert", &["tls"], &[]),
    ("testkit", &["buf", "tls", "dev-cert"], &[]),
    ("ws", &["buf"], &["testkit"]),
    ("tls", &["buf"], &["testkit"]),
    ("io", &["buf"], &["testkit"]),
    ("tls-build", &[], &[]),
    ("tls-libssl", &["tls", "tls-build", "tls-records", "tls-tickets", "buf"], &["testkit"]),
    // Each brings a library for the table of tls-libssl.
    ("tls-mbedtls", &["tls-build", "tls-libssl"], &["tls", "testkit"]),
    ("tls-wolfssl", &["tls-build", "tls-libssl"], &["tls", "testkit"]),
    ("tls-rustls", &["tls", "tls-records", "tls-tickets", "buf"], &["testkit"]),
    ("tls-*", &["tls", "buf"], &["testkit"]),
    ("xdp", &["io", "buf"], &["testkit"]),
    ("http2", &["io", "buf"], &[]),
    ("conn", &["buf", "ws", "tls", "io"], &[]),
    ("engine", &["buf", "ws", "tls", "io", "conn"], &["testkit", "tls-rustls"]),
    ("acme", &["tls"], &[]),
    ("metrics", &["engine"], &["dev-cert"]),
    (SIMULATOR, &["buf", "ws", "tls", "tls-rustls", "io", "engine", "proxy", "testkit"], &[]),
    (
        "tautline",
        &["buf", "ws", "tls", "io", "engine", "tls-*", "xdp", "http2", "acme", "metrics"],
        &["dev-cert", "testkit", "tautline"],
    ),
    ("measure", &["tautline", "dev-cert"], &[]),
    ("replicas", &["tautline", "measure"], &[]),
    ("venue", &["measure"], &[]),
    (
        "lab",
        &[
            "buf", "ws", "tls", "io", "engine", "tls-*", "xdp", "tautline", "dev-cert", "feed", "measure", "replicas",
            "venue",
        ],
        &["testkit"],
    ),
    ("tokio", &["buf", "ws", "tls", "io", "engine", "tls-records", "tls-rustls"], &["dev-cert", "tautline", "tokio"]),
    ("capi", &["tautline", "buf", "tls"], &["dev-cert", "testkit"]),
    ("feed", &["tautline"], &["dev-cert", "measure", "venue"]),
    ("hub", &["tautline"], &["dev-cert"]),
    ("nats", &["tautline", "hub"], &["dev-cert"]),
    ("redis", &["tautline", "hub"], &["dev-cert"]),
    ("probe", &["tautline"], &["dev-cert"]),
    ("proxy", &["tautline"], &["dev-cert"]),
    (
        "cli",
        &["tautline", "lab", "dev-cert", "feed", "hub", "nats", "redis", "probe", "proxy", "replicas", "venue"],
        &["testkit"],
    ),
];

/// Checks the manifest of every crate, and that every row of the table has a crate.
pub(super) fn check(files: &Files) -> Vec<String> {
    let crates = packages(files).into_iter().filter_map(|package| package.strip_prefix("crates/"));
    let mut wrong: Vec<String> =
        crates.clone().flat_map(|name| manifest(name, &files[&format!("crates/{name}/Cargo.toml")])).collect();
    let names: Vec<&str> = crates.collect();
    wrong.extend(stale(&names).map(|pattern| format!("xtask/src/tidy/layers.rs: no crate has the name `{pattern}`")));
    wrong
}

/// The names in the table that no crate has.
fn stale(names: &[&str]) -> impl Iterator<Item = &'static str> {
    let patterns = LAYERS.iter().flat_map(|(name, always, tests)| [name].into_iter().chain(*always).chain(*tests));
    patterns.copied().filter(|pattern| !names.iter().any(|name| fits(pattern, name)))
}

fn manifest(name: &str, manifest: &str) -> Vec<String> {
    let Some((_, always, tests)) = LAYERS.iter().find(|(pattern, ..)| fits(pattern, name)) else {
        return vec![format!("crates/{name}/Cargo.toml: xtask/src/tidy/layers.rs has no row for this crate")];
    };
    let mut wrong = Vec::new();
    let mut section = "";
    for line in manifest.lines().map(str::trim) {
        if line.starts_with('[') {
            section = line.trim_matches(['[', ']']);
        }
        let (kind, package) = match section.rsplit_once("dependencies.") {
            Some((kind, package)) if line.starts_with('[') => (format!("{kind}dependencies"), package),
            _ => (section.to_owned(), line.split(['.', '=', ' ']).next().unwrap_or_default()),
        };
        let Some(used) = ours(package) else { continue };
        if !kind.ends_with("dependencies") {
            continue;
        }
        let for_tests: &[&str] = if kind.ends_with("dev-dependencies") { tests } else { &[] };
        if !always.iter().chain(for_tests).any(|pattern| fits(pattern, used)) {
            wrong.push(format!("crates/{name}/Cargo.toml: `{name}` must not depend on `{used}` ({kind})"));
        }
    }
    // Registries take no crate that needs one which they do not have.
    let is_published = !manifest.lines().any(|line| line.trim() == "publish = false");
    if is_published == is_for_tests_only(name) {
        let rule = "a crate that only tests depend on has `publish = false`, and no other crate has";
        wrong.push(format!("crates/{name}/Cargo.toml: {rule}"));
    }
    wrong
}

/// Whether this is the simulator, or no other crate depends on this one but by its tests. A crate's own tests may depend on
/// it, to have its features.
fn is_for_tests_only(name: &str) -> bool {
    let names = |patterns: &[&str]| patterns.iter().any(|pattern| fits(pattern, name));
    let mut shipped = LAYERS.iter().filter(|(user, ..)| *user != SIMULATOR);
    let tested = LAYERS.iter().any(|(owner, _, tests)| *owner != name && names(tests));
    name == SIMULATOR || tested && !shipped.any(|(_, always, _)| names(always))
}

/// The folder of one of our packages.
fn ours(package: &str) -> Option<&str> {
    let package = package.trim_matches('"');
    if package == "tautline" { Some(package) } else { package.strip_prefix("tautline-") }
}

fn fits(pattern: &str, name: &str) -> bool {
    pattern.strip_suffix('*').map_or(pattern == name, |start| name.starts_with(start))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn layers_may_only_look_down() {
        assert!(manifest("ws", "[dependencies]\ntautline-buf.workspace = true\nhttp.workspace = true\n").is_empty());
        assert_eq!(manifest("ws", "[dependencies]\ntautline-engine.workspace = true\n").len(), 1);
        assert_eq!(manifest("tls-rustls", "[dependencies]\ntautline-ws = { path = \"../ws\" }\n").len(), 1);
        assert_eq!(manifest("buf", "[target.'cfg(unix)'.dependencies]\ntautline-io.workspace = true\n").len(), 1);
        assert_eq!(manifest("engine", "[dependencies.tautline-lab]\npath = \"../lab\"\n").len(), 1);
    }

    #[test]
    fn names_without_a_crate_are_found() {
        let names: Vec<&str> = LAYERS.iter().map(|(name, ..)| *name).chain(["tls-records", "tls-tickets"]).collect();
        assert_eq!(stale(&names).count(), 0);
        let all_but_ws: Vec<&str> = names.into_iter().filter(|name| *name != "ws").collect();
        assert!(stale(&all_but_ws).count() > 0 && stale(&all_but_ws).all(|name| name == "ws"));
    }

    #[test]
    fn tests_may_use_the_test_kit() {
        assert!(manifest("tls", "[dev-dependencies]\ntautline-testkit.workspace = true\n").is_empty());
        assert_eq!(manifest("tls", "[dependencies]\ntautline-testkit.workspace = true\n").len(), 1);
        assert_eq!(manifest("tls", "[dev-dependencies]\ntautline-engine.workspace = true\n").len(), 1);
    }

    #[test]
    fn only_what_tests_use_is_kept_from_registries() {
        assert!(manifest("testkit", "[package]\npublish = false\n").is_empty());
        assert_eq!(manifest("testkit", "[package]\n").len(), 1);
        assert_eq!(manifest("lab", "[package]\npublish = false\n").len(), 1);
    }
}
