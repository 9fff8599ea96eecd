//! Results of long builds, which profiles share.

use std::fs::File;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::path::{Path, PathBuf};

/// Returns the folder `name`, which `build` fills unless a previous call did.
///
/// `recipe` names the files of the calling package that determine the result. A change in them makes a new folder.
///
/// # Errors
/// The error of `build`, of making the folder, or of reading `recipe`; for a build script to print.
pub fn build_once(
    name: &str,
    recipe: &[&str],
    build: impl FnOnce(&Path) -> Result<(), String>,
) -> Result<PathBuf, String> {
    let target = std::env::var("TARGET").map_err(|error| error.to_string())?;
    let dir = cache_folder()?.join(format!("{name}-{:016x}-{target}", hash(recipe)?));
    let stamp = dir.join("complete");
    let fail = |error: std::io::Error| format!("{}: {error}", dir.display());
    std::fs::create_dir_all(&dir).map_err(fail)?;
    // Two profiles may be built at once.
    let lock = File::create(dir.join("lock")).map_err(fail)?;
    lock.lock().map_err(fail)?;
    if !stamp.exists() {
        // A build that was stopped may have left a file half written, which looks newer than what it is made of.
        empty(&dir).map_err(fail)?;
        build(&dir)?;
        File::create(&stamp).map_err(fail)?;
    }
    Ok(dir)
}

/// Removes what a folder holds, but for its lock.
fn empty(dir: &Path) -> std::io::Result<()> {
    for entry in std::fs::read_dir(dir)? {
        let path = entry?.path();
        if path.ends_with("lock") {
            continue;
        }
        if path.is_dir() { std::fs::remove_dir_all(path)? } else { std::fs::remove_file(path)? }
    }
    Ok(())
}

/// A hash of the contents of these files.
fn hash(recipe: &[&str]) -> Result<u64, String> {
    let mut hasher = DefaultHasher::new();
    for file in recipe {
        std::fs::read(file).map_err(|error| format!("{file}: {error}"))?.hash(&mut hasher);
    }
    Ok(hasher.finish())
}

/// The folder for such results in cargo's target folder, beside those of the profiles.
fn cache_folder() -> Result<PathBuf, String> {
    let out = PathBuf::from(std::env::var_os("OUT_DIR").unwrap_or_default());
    // <target>/<profile>/build/<package>/out
    let profile = out.ancestors().find(|dir| dir.ends_with("build")).and_then(Path::parent);
    // A folder below `target`, such as that of a test with a sanitizer, has no libraries of its own.
    let target = out.ancestors().find(|dir| dir.ends_with("target")).or_else(|| profile.and_then(Path::parent));
    let target = target.ok_or_else(|| format!("{} lies in no target folder", out.display()))?;
    Ok(target.join("tls-libssl"))
}

#[cfg(test)]
mod tests {
    use super::{empty, hash};

    #[test]
    fn the_hash_depends_on_all_files_of_the_recipe() {
        let hashes =
            [&["src/lib.rs"][..], &["src/cache.rs"], &["src/lib.rs", "src/cache.rs"]].map(|one| hash(one).unwrap());
        assert!(hashes[0] != hashes[1] && hashes[2] != hashes[0] && hashes[2] != hashes[1]);
        assert_eq!(hash(&["src/lib.rs"]), Ok(hashes[0]));
        assert!(hash(&["src/none.rs"]).unwrap_err().starts_with("src/none.rs: "));
    }

    #[test]
    fn what_a_stopped_build_has_left_is_removed() {
        let dir = std::env::temp_dir().join(format!("tautline-cache-{}", std::process::id()));
        std::fs::create_dir_all(dir.join("parts/deep")).unwrap();
        for file in ["lock", "libcrypto.a", "parts/one.o", "parts/deep/two.o"] {
            std::fs::write(dir.join(file), "half").unwrap();
        }
        empty(&dir).unwrap();
        let left: Vec<_> = std::fs::read_dir(&dir).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        assert_eq!(left, ["lock"]);
        std::fs::remove_dir_all(dir).unwrap();
    }
}
