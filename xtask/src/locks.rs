//! Lock files that no longer fit their manifests.
//!
//! Some folders are workspaces of their own, whose dependencies by path are crates of the main one. A crate that gets a
//! dependency makes their lock files stale, too, which nothing else shows until they are built with `--locked`.

use std::path::Path;
use std::process::Command;

use crate::outcome::{Failure, Outcome, none_of};
use crate::process::run_quietly;
use crate::stage::Context;
use crate::{cargo, paths};

/// The answer of cargo about a lock file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Lock {
    Fits,
    Stale,
    /// Cargo cannot tell, and says this. Without network it has to know all dependencies already.
    Unclear(String),
}

/// How cargo comes to know dependencies that it has not met yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Network {
    Used,
    Unused,
}

/// Each committed lock file, by its path below the root, with what cargo says of it.
pub(crate) fn look(network: Network) -> Result<Vec<(String, Lock)>, Failure> {
    let mut list = Command::new("git");
    let listed = run_quietly(list.args(["ls-files", "Cargo.lock", "*/Cargo.lock"]).current_dir(paths::root()))?;
    let listed = listed.map_err(|said| format!("git does not list the lock files: {said}"))?;
    let judged = listed.lines().map(|path| Ok((path.to_owned(), judge(&paths::root().join(path), network)?)));
    judged.collect()
}

/// Fails if a lock file is stale or cannot be judged, with the network where it is needed.
pub(crate) fn check(_: &Context) -> Outcome {
    let wrong: Vec<String> = look(Network::Used)?.iter().filter_map(|(path, lock)| finding(path, lock)).collect();
    none_of(&wrong, "; ")
}

/// Words for a lock file that does not fit.
pub(crate) fn finding(path: &str, lock: &Lock) -> Option<String> {
    let manifest = path.replace("Cargo.lock", "Cargo.toml");
    match lock {
        Lock::Fits => None,
        Lock::Stale => Some(format!(
            "{path}: it does not fit the manifests any more; run `cargo metadata --manifest-path {manifest}` and commit it"
        )),
        Lock::Unclear(said) => Some(format!("{path}: cargo cannot tell if it is stale: {said}")),
    }
}

fn judge(lock: &Path, network: Network) -> Result<Lock, Failure> {
    let mut metadata = cargo::cargo(&["metadata", "--locked", "--format-version", "1", "--manifest-path"]);
    metadata.arg(lock.with_file_name("Cargo.toml"));
    if network == Network::Unused {
        metadata.arg("--offline");
    }
    Ok(match run_quietly(&mut metadata)? {
        Ok(_) => Lock::Fits,
        Err(said) if said.contains("--locked was passed") => Lock::Stale,
        Err(said) => Lock::Unclear(said.lines().next().unwrap_or_default().to_owned()),
    })
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    /// Writes a package, which needs no registry.
    fn package(folder: &Path, name: &str, more: &str) {
        fs::create_dir_all(folder.join("src")).unwrap();
        fs::write(folder.join("src/lib.rs"), "").unwrap();
        let manifest = format!("[package]\nname = \"{name}\"\nversion = \"0.1.0\"\nedition = \"2024\"\n{more}");
        fs::write(folder.join("Cargo.toml"), manifest).unwrap();
    }

    #[test]
    fn a_dependency_that_another_package_gets_makes_a_lock_stale() {
        let home = paths::own("locks-test");
        // An earlier run may have left it.
        let _ = fs::remove_dir_all(&home);
        let [top, middle, low] = ["top", "middle", "low"].map(|name| home.join(name));
        package(&top, "top", "[workspace]\n[dependencies]\nmiddle = { path = \"../middle\" }\n");
        package(&middle, "middle", "");
        package(&low, "low", "");
        let lock = top.join("Cargo.lock");
        assert_eq!(judge(&lock, Network::Unused).unwrap(), Lock::Stale, "there is none");
        let mut write = cargo::cargo(&["generate-lockfile", "--offline", "--manifest-path"]);
        run_quietly(write.arg(top.join("Cargo.toml"))).unwrap().unwrap();
        assert_eq!(judge(&lock, Network::Unused).unwrap(), Lock::Fits);
        package(&middle, "middle", "[dependencies]\nlow = { path = \"../low\" }\n");
        assert_eq!(judge(&lock, Network::Unused).unwrap(), Lock::Stale);
        fs::write(top.join("Cargo.toml"), "no manifest").unwrap();
        assert!(matches!(judge(&lock, Network::Unused).unwrap(), Lock::Unclear(said) if !said.is_empty()));
        fs::remove_dir_all(&home).unwrap();
    }

    #[test]
    fn findings_say_what_to_do() {
        assert_eq!(finding("a/Cargo.lock", &Lock::Fits), None);
        assert!(finding("a/Cargo.lock", &Lock::Stale).unwrap().contains("--manifest-path a/Cargo.toml"));
        assert!(finding("a/Cargo.lock", &Lock::Unclear("why".to_owned())).unwrap().ends_with("why"));
    }
}
