//! Dependencies point one way: window ← ws, tls, io ← engine ← tautline ← everything else.

/// A crate (its folder below `crates/`) and the crates of ours that it may depend on. A name that ends in `*` stands for all
/// that begin so; the first line that fits a crate counts. Crates of a second kind, which only tests may use, follow.
const LAYERS: &[(&str, &[&str], &[&str])] = &[
    ("window", &[], &[]),
    ("testkit", &["window", "tls"], &[]),
    ("ws", &["window"], &["testkit"]),
    ("tls", &["window"], &["testkit"]),
    ("io", &["window"], &["testkit"]),
    ("tls-build", &[], &[]),
    ("tls-libssl", &["tls", "tls-build", "tls-records", "tls-tickets", "window"], &["testkit"]),
    // A library for the table of tls-libssl.
    ("tls-mbedtls", &["tls-build", "tls-libssl"], &["tls", "testkit"]),
    ("tls-wolfssl", &["tls-build", "tls-libssl"], &["tls", "testkit"]),
    ("tls-rustls", &["tls", "tls-records", "tls-tickets", "window"], &["testkit"]),
    ("tls-*", &["tls", "window"], &["testkit"]),
    ("ktls", &["tls", "window"], &["testkit", "tls-rustls"]),
    ("xdp", &["io", "window"], &["testkit"]),
    ("engine", &["window", "ws", "tls", "io"], &["testkit", "tls-rustls"]),
    ("tautline", &["window", "ws", "tls", "io", "engine", "tls-*", "ktls", "xdp"], &["testkit"]),
    ("lab", &["window", "ws", "tls", "io", "engine", "tls-*", "ktls", "xdp", "tautline", "testkit"], &[]),
    ("cli", &["tautline", "lab", "testkit"], &[]),
    ("*", &["tautline"], &["testkit"]),
];

/// Checks one crate's `Cargo.toml`.
pub(super) fn check(name: &str, manifest: &str) -> Vec<String> {
    let Some((_, always, tests)) = LAYERS.iter().find(|(pattern, ..)| fits(pattern, name)) else {
        return vec![format!("crates/{name}/Cargo.toml: no layer in xtask/src/tidy/graph.rs fits this crate")];
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
    wrong
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
        assert!(check("ws", "[dependencies]\ntautline-window.workspace = true\nhttp.workspace = true\n").is_empty());
        assert_eq!(check("ws", "[dependencies]\ntautline-engine.workspace = true\n").len(), 1);
        assert_eq!(check("tls-rustls", "[dependencies]\ntautline-ws = { path = \"../ws\" }\n").len(), 1);
        assert_eq!(check("window", "[target.'cfg(unix)'.dependencies]\ntautline-io.workspace = true\n").len(), 1);
        assert_eq!(check("engine", "[dependencies.tautline-lab]\npath = \"../lab\"\n").len(), 1);
    }

    #[test]
    fn tests_may_use_the_test_kit() {
        assert!(check("tls", "[dev-dependencies]\ntautline-testkit.workspace = true\n").is_empty());
        assert_eq!(check("tls", "[dependencies]\ntautline-testkit.workspace = true\n").len(), 1);
        assert_eq!(check("tls", "[dev-dependencies]\ntautline-engine.workspace = true\n").len(), 1);
    }
}
