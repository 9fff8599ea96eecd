//! Installation below `target/xtask`, repeated only if it was interrupted or has changed.

use std::fs::{self, File};
use std::path::Path;
use std::process::Command;

use crate::outcome::{Failure, Outcome};
use crate::paths;
use crate::process::{self, Deadline, run_logged};

/// Has `build` fill `folder`, unless it is filled already.
///
/// A stamp with the `recipe` is written last. If the stamp is missing, has another recipe, or `works` is false, the folder
/// is emptied and filled again. A lock lets one xtask install at a time.
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
    paths::empty(folder)?;
    eprintln!("installing {}", folder.display());
    build(folder)?;
    if !works(folder) {
        return Err(Failure::Failed(format!("{} was installed but does not work", folder.display())));
    }
    fs::write(&stamp, recipe)?;
    drop(lock);
    Ok(())
}

/// Makes a virtual environment of Python, and has its pip install what the arguments name. Python compiles what a test imports:
/// a hundredth of such packages as those of the venues.
pub(crate) fn python(folder: &Path, arguments: &[&str], log: &Path, deadline: Deadline) -> Outcome {
    run_logged(Command::new("python3").args(["-m", "venv"]).arg(folder), log, deadline)?;
    run_logged(
        Command::new(folder.join("bin/pip")).args(["install", "--quiet", "--no-compile"]).args(arguments),
        log,
        deadline,
    )
}

/// Has pip install packages in a virtual environment of Python, unless it has this program of theirs.
pub(crate) fn venv(folder: &Path, packages: &[&str], program: &str, log: &Path, deadline: Deadline) -> Outcome {
    let works = |folder: &Path| folder.join("bin").join(program).exists();
    once(folder, &packages.join(" "), works, |folder| python(folder, packages, log, deadline))
}

/// The version of a tool, which is part of a recipe. The stage is skipped without the tool.
pub(crate) fn version(tool: &str, argument: &str) -> Result<String, Failure> {
    let version = process::output(Command::new(tool).arg(argument));
    version.ok_or_else(|| Failure::Skipped(format!("{tool} is not installed (cargo xtask setup)")))
}

/// Has Go install packages into a folder of this name, unless they are there. Its own files are below the folder too, and are
/// removed.
pub(crate) fn go(name: &str, packages: &[String], works: impl Fn(&Path) -> bool, deadline: Deadline) -> Outcome {
    let go = version("go", "version")?;
    once(&paths::own(name), &format!("{go}{}", packages.join(" ")), works, |folder| {
        let mut install = Command::new("go");
        install.args(["install", "-modcacherw", "-trimpath"]).args(packages).current_dir(folder);
        install.env("GOBIN", folder).env("GOPATH", folder.join("path")).env("GOCACHE", folder.join("cache"));
        install.env("GOTOOLCHAIN", "local").env("CGO_ENABLED", "0").env_remove("GOMODCACHE");
        run_logged(&mut install, &paths::log(&format!("{name}-install")), deadline)?;
        ["path", "cache"].iter().try_for_each(|used| fs::remove_dir_all(folder.join(used)))?;
        Ok(())
    })
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
    fn builds_again_only_after_an_interruption_or_a_change() {
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
