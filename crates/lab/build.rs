//! Notes what this build is made of, for the facts that stand in every result. Nothing here may fail a build: what
//! cannot be found out is "unknown".

use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, fs};

/// Libraries whose versions change results.
const LIBRARIES: [&str; 3] = ["rustls", "aws-lc-rs", "aws-lc-sys"];

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    let root = PathBuf::from(env::var("CARGO_MANIFEST_DIR").unwrap_or_default()).join("../..");
    set("TAUTLINE_COMMIT", commit(&root));
    set("TAUTLINE_RUSTC", env::var("RUSTC").ok().and_then(|rustc| run(Command::new(rustc).arg("--version"))));
    let lock = root.join("Cargo.lock");
    let text = fs::read_to_string(&lock).unwrap_or_default();
    if !text.is_empty() {
        watch(&lock);
    }
    let versions: Vec<String> =
        LIBRARIES.iter().filter_map(|name| Some(format!("{name}={}", version(&text, name)?))).collect();
    set("TAUTLINE_LIBRARIES", Some(versions.join(",")));
}

fn set(name: &str, value: Option<String>) {
    println!("cargo::rustc-env={name}={}", value.as_deref().unwrap_or("unknown"));
}

/// The commit of this checkout; none where the crate was unpacked below somebody else's repository.
fn commit(root: &Path) -> Option<String> {
    if !root.join(".git").exists() {
        return None;
    }
    let git = |arguments: &[&str]| run(Command::new("git").arg("-C").arg(root).args(arguments));
    let log = git(&["rev-parse", "--path-format=absolute", "--git-path", "logs/HEAD"]).map(PathBuf::from);
    if let Some(log) = log.filter(|log| log.exists()) {
        watch(&log);
    }
    git(&["rev-parse", "--short=12", "HEAD"])
}

fn watch(path: &Path) {
    println!("cargo::rerun-if-changed={}", path.display());
}

fn run(command: &mut Command) -> Option<String> {
    let output = command.output().ok().filter(|output| output.status.success())?;
    String::from_utf8(output.stdout).ok().map(|text| text.trim().to_owned()).filter(|text| !text.is_empty())
}

/// The version that stands below `name = "..."` in Cargo.lock; several versions are all named.
fn version(lock: &str, name: &str) -> Option<String> {
    let wanted = format!("name = \"{name}\"");
    let mut lines = lock.lines();
    let mut found = Vec::new();
    while lines.by_ref().any(|line| line == wanted) {
        let version = lines.next()?.strip_prefix("version = \"")?.strip_suffix('"')?;
        found.push(version.to_owned());
    }
    (!found.is_empty()).then(|| found.join("+"))
}
