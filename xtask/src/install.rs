//! Installing below `target/xtask`, once, whatever interrupted the last try.

use std::fs::{self, File};
use std::path::Path;

use crate::paths;
use crate::stage::{Failure, Outcome};

/// Makes `folder` hold what `build` puts there.
///
/// A stamp with the `recipe` is written last: without it, with another recipe in it, or where `works` says no, the folder
/// is emptied and built again. One xtask builds at a time.
pub(crate) fn once(
    folder: &Path,
    recipe: &str,
    works: impl Fn(&Path) -> bool,
    build: impl FnOnce(&Path) -> Outcome,
) -> Outcome {
    let stamp = folder.join("installed");
    let lock = lock()?;
    if fs::read_to_string(&stamp).is_ok_and(|known| known == recipe) && works(folder) {
        return Ok(());
    }
    if folder.exists() {
        fs::remove_dir_all(folder)?;
    }
    fs::create_dir_all(folder)?;
    eprintln!("installing {}", folder.display());
    build(folder)?;
    if !works(folder) {
        return Err(Failure::Failed(format!("{} was installed but does not work", folder.display())));
    }
    fs::write(&stamp, recipe)?;
    drop(lock);
    Ok(())
}

fn lock() -> Result<File, Failure> {
    fs::create_dir_all(paths::own(""))?;
    let file = File::create(paths::own("lock"))?;
    file.lock()?;
    Ok(file)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn builds_again_after_an_interruption_and_never_without_need() {
        let folder = paths::own("tests").join(format!("install-{}", std::process::id()));
        let interrupted = once(&folder, "1", |_| true, |_| Err(Failure::Failed("power".to_owned())));
        assert!(interrupted.is_err());
        let mut built = 0;
        for (recipe, works) in [("1", true), ("1", true), ("2", true), ("2", false)] {
            let done = once(
                &folder,
                recipe,
                |path| works && path.join("thing").exists(),
                |path| {
                    built += 1;
                    fs::write(path.join("thing"), "")?;
                    Ok(())
                },
            );
            assert_eq!(done.is_ok(), works);
        }
        assert_eq!(built, 3);
        fs::remove_dir_all(&folder).unwrap();
    }
}
