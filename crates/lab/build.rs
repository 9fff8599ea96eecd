//! Records commit, compiler, profile and libraries of a build for its results.
//!
//! Nothing here may fail a build: facts that cannot be found are "unknown".

use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, fs};

/// Libraries whose versions affect results.
const LIBRARIES: [&str; 3] = ["rustls", "aws-lc-rs", "aws-lc-sys"];

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    let root = PathBuf::from(env::var("CARGO_MANIFEST_DIR").unwrap_or_default()).join("../..");
    set("TAUTLINE_COMMIT", commit(&root));
    set("TAUTLINE_RUSTC", env::var("RUSTC").ok().and_then(|rustc| run(Command::new(rustc).arg("--version"))));
    set("TAUTLINE_PROFILE", profile());
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

/// The profile, by the folder of the build: `target/PROFILE/build/PACKAGE/out`.
fn profile() -> Option<String> {
    let out = PathBuf::from(env::var_os("OUT_DIR")?);
    let build = out.ancestors().nth(2).filter(|folder| folder.ends_with("build"))?;
    build.parent()?.file_name()?.to_str().map(str::to_owned)
}

/// Commit of this checkout; `None` if the crate was unpacked inside another repository.
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

/// Version below `name = "..."` in Cargo.lock; several versions are joined.
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
