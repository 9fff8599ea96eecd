//! The path of this program. An upgrade starts what is there by then.

use std::env;
use std::ffi::{OsStr, OsString};
use std::fs;
use std::io;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// The path by which this process was started. To be called at its start.
///
/// The kernel's own path of the program follows it when it is renamed, and leads past links. So it would name the old program
/// after `mv taut taut.old`, or after a link to the folder of a release has changed.
///
/// # Errors
/// `/proc` cannot be read.
pub(crate) fn path() -> io::Result<PathBuf> {
    let running = fs::metadata("/proc/self/exe")?;
    let is_running =
        |path: &PathBuf| fs::metadata(path).is_ok_and(|it| (it.dev(), it.ino()) == (running.dev(), running.ino()));
    let (name, folders) = (env::args_os().next().unwrap_or_default(), env::var_os("PATH").unwrap_or_default());
    if let Some(path) = named(&name, &folders, &env::current_dir().unwrap_or_default()).find(is_running) {
        return Ok(path);
    }
    Ok(without_suffix(fs::read_link("/proc/self/exe")?.into_os_string()).into())
}

/// The places that a name in a command may mean, as shells look for it.
fn named(name: &OsStr, folders: &OsStr, here: &Path) -> impl Iterator<Item = PathBuf> {
    let is_path = name.as_bytes().contains(&b'/');
    let folders = env::split_paths(if is_path { OsStr::new(".") } else { folders });
    folders.map(move |folder| if is_path { here.join(name) } else { here.join(folder).join(name) })
}

/// The path of a program without the mark that the kernel adds once another file has its place.
fn without_suffix(path: OsString) -> OsString {
    match path.as_bytes().strip_suffix(b" (deleted)") {
        Some(path) => OsStr::from_bytes(path).to_owned(),
        None => OsString::from_vec(path.into_vec()),
    }
}

#[cfg(test)]
mod tests {
    use super::{named, without_suffix};
    use std::ffi::OsStr;
    use std::path::Path;

    #[test]
    fn names_are_looked_for_as_shells_do() {
        let of = |name: &str| -> Vec<String> {
            let found = named(OsStr::new(name), OsStr::new("/usr/bin:bin"), Path::new("/here"));
            found.map(|path| path.display().to_string()).collect()
        };
        assert_eq!(of("taut"), ["/usr/bin/taut", "/here/bin/taut"]);
        assert_eq!(of("./taut"), ["/here/./taut"]);
        assert_eq!(of("/opt/taut"), ["/opt/taut"]);
    }

    #[test]
    fn a_replaced_program_is_found_at_its_path() {
        assert_eq!(without_suffix("/usr/bin/taut (deleted)".into()), "/usr/bin/taut");
        assert_eq!(without_suffix("/usr/bin/taut".into()), "/usr/bin/taut");
    }
}
