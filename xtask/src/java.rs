//! The tests of the engine for Java, with Maven and a JDK that has the foreign-function API.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::outcome::{Failure, Outcome};
use crate::process::{run, succeeds};
use crate::stage::Context;
use crate::{c_library, paths};

/// The first version whose foreign-function API is final.
const OLDEST: u32 = 22;

/// Installs the library, and runs all tests of `bindings/java` against it.
pub(crate) fn test(context: &Context) -> Outcome {
    let home = jdk().ok_or_else(|| {
        Failure::Skipped(format!("needs a JDK of version {OLDEST} or later: in JAVA_HOME, or below /usr/lib/jvm"))
    })?;
    if !succeeds("mvn", &["--version"]) {
        return Err(Failure::Skipped("needs Maven: install the package maven".to_owned()));
    }
    let prefix = c_library::install_for_tests(context)?;
    let mut maven = Command::new("mvn");
    maven.args(["--quiet", "--batch-mode", "test", "--file"]).arg(paths::root().join("bindings/java/pom.xml"));
    maven.env("JAVA_HOME", home).env("TAUTLINE_LIBRARY", prefix.join("lib/libtautline.so.0"));
    run(&mut maven, context.deadline)
}

/// The folder of the newest JDK that is new enough; the one in JAVA_HOME is preferred.
fn jdk() -> Option<PathBuf> {
    let usable = |home: &Path| version(home).is_some_and(|version| version >= OLDEST);
    if let Some(home) = std::env::var_os("JAVA_HOME").map(PathBuf::from)
        && usable(&home)
    {
        return Some(home);
    }
    let found = fs::read_dir("/usr/lib/jvm").ok()?.flatten().map(|entry| entry.path());
    found.filter(|home| usable(home)).max_by_key(|home| version(home))
}

/// The version of a JDK, from its file `release`.
fn version(home: &Path) -> Option<u32> {
    if !home.join("bin/javac").exists() {
        return None;
    }
    major(&fs::read_to_string(home.join("release")).ok()?)
}

fn major(release: &str) -> Option<u32> {
    let text = release.lines().find_map(|line| line.strip_prefix("JAVA_VERSION=\""))?;
    text.split(['.', '"', '-', '+']).next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::major;

    #[test]
    fn versions_are_read() {
        assert_eq!(major("IMPLEMENTOR=\"x\"\nJAVA_VERSION=\"25.0.3\"\n"), Some(25));
        assert_eq!(major("JAVA_VERSION=\"22\"\n"), Some(22));
        assert_eq!(major("IMPLEMENTOR=\"x\"\n"), None);
    }
}
