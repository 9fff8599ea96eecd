//! What takes minutes to build and is the same for all profiles.

use std::fs::File;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::path::{Path, PathBuf};

/// The folder `name`, which `build` fills unless that is done already. How that goes stands in the files `recipe` of the
/// package whose build script asks: what was built as they were before is of no use once they change.
///
/// # Errors
/// What `build` says, what keeps the folder from being made, and files that are not there; for a build script to print.
pub fn folder(name: &str, recipe: &[&str], build: impl FnOnce(&Path) -> Result<(), String>) -> Result<PathBuf, String> {
    let target = std::env::var("TARGET").map_err(|error| error.to_string())?;
    let dir = shared()?.join(format!("{name}-{:016x}-{target}", hash(recipe)?));
    let stamp = dir.join("complete");
    let fail = |error: std::io::Error| format!("{}: {error}", dir.display());
    std::fs::create_dir_all(&dir).map_err(fail)?;
    // Two profiles may be built at once.
    let lock = File::create(dir.join("lock")).map_err(fail)?;
    lock.lock().map_err(fail)?;
    if !stamp.exists() {
        build(&dir)?;
        File::create(&stamp).map_err(fail)?;
    }
    Ok(dir)
}

/// Of what stands in these files.
fn hash(recipe: &[&str]) -> Result<u64, String> {
    let mut hasher = DefaultHasher::new();
    for file in recipe {
        std::fs::read(file).map_err(|error| format!("{file}: {error}"))?.hash(&mut hasher);
    }
    Ok(hasher.finish())
}

/// A folder in cargo's target folder, beside those of the profiles.
fn shared() -> Result<PathBuf, String> {
    let out = PathBuf::from(std::env::var_os("OUT_DIR").unwrap_or_default());
    // <target>/<profile>/build/<package>/out
    let profile = out.ancestors().find(|dir| dir.ends_with("build")).and_then(Path::parent);
    let target = profile.and_then(Path::parent).ok_or_else(|| format!("{} lies in no target folder", out.display()))?;
    Ok(target.join("tls-libssl"))
}

#[cfg(test)]
mod tests {
    use super::hash;

    #[test]
    fn what_is_built_depends_on_the_whole_recipe() {
        let hashes =
            [&["src/lib.rs"][..], &["src/cache.rs"], &["src/lib.rs", "src/cache.rs"]].map(|one| hash(one).unwrap());
        assert!(hashes[0] != hashes[1] && hashes[2] != hashes[0] && hashes[2] != hashes[1]);
        assert_eq!(hash(&["src/lib.rs"]), Ok(hashes[0]));
        assert!(hash(&["src/none.rs"]).unwrap_err().starts_with("src/none.rs: "));
    }
}
