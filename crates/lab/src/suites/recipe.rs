//! Servers of other projects in other languages: how each is built and run.
//!
//! To add one, add a folder with its sources and lock file below `peers`, a row to [`RECIPES`], and its name to the peers.

use crate::Error;
use std::fs;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

/// A server in another language. Shell commands run in a copy of its folder below `target/peers`.
pub(super) struct Recipe {
    name: &'static str,
    /// Folder of its sources below `peers`. Servers in one folder have one command that builds them.
    folder: &'static str,
    /// Tools that it needs, in words, and a shell command that succeeds if they are there.
    needs: (&'static str, &'static str),
    /// Shell command that builds it.
    build: &'static str,
    /// Program and first arguments. The mode, the certificate chain and the key follow.
    run: &'static str,
    /// Name of its TLS library.
    pub(super) tls: &'static str,
}

const PYTHON: Recipe = Recipe {
    name: "websockets",
    folder: "python",
    needs: ("Python 3 with venv", "python3 -c 'import ensurepip, venv'"),
    build: "python3 -m venv venv && venv/bin/pip install --quiet --require-hashes -r servers.txt",
    run: "venv/bin/python websockets_server.py",
    tls: "openssl",
};

const GO: Recipe = Recipe {
    name: "gorilla",
    folder: "go",
    needs: ("Go", "go version"),
    build: "mkdir -p bin && go build -o bin/ ./gorilla ./coder",
    run: "bin/gorilla",
    tls: "go",
};

/// All of them, sorted by language.
const RECIPES: [Recipe; 9] = [
    Recipe {
        name: "uwebsockets",
        folder: "uwebsockets",
        needs: (
            "cargo, make, a C++ compiler and the headers of OpenSSL (make, g++, libssl-dev)",
            "cargo --version && make --version && echo '#include <openssl/ssl.h>' | g++ -E -x c++ -",
        ),
        build: "make --silent",
        run: "./server",
        tls: "openssl",
    },
    Recipe {
        name: "beast",
        folder: "beast",
        needs: (
            "a C++ compiler and the headers of Boost and OpenSSL (g++, libboost-dev, libssl-dev)",
            "printf '#include <boost/beast/version.hpp>\n#include <openssl/ssl.h>\n' | g++ -E -x c++ -",
        ),
        build: "g++ -std=c++17 -O3 -DNDEBUG -o server server.cpp -lssl -lcrypto -lpthread",
        run: "./server",
        tls: "openssl",
    },
    GO,
    Recipe { name: "coder", run: "bin/coder", ..GO },
    Recipe {
        name: "ws",
        folder: "node",
        needs: ("Node and npm", "node --version && npm --version"),
        build: "npm ci --ignore-scripts --no-audit --no-fund --silent",
        run: "node server.mjs",
        tls: "openssl",
    },
    Recipe {
        name: "bun",
        folder: "bun",
        needs: ("npm", "npm --version"),
        build: "npm ci --no-audit --no-fund --silent && node_modules/.bin/bun --version",
        run: "node_modules/.bin/bun server.js",
        tls: "boringssl",
    },
    PYTHON,
    Recipe { name: "picows", run: "venv/bin/python picows_server.py", ..PYTHON },
    Recipe {
        name: "netty",
        folder: "netty",
        needs: ("a JDK from 17 on and Maven", "javac --version && mvn --version"),
        build: "mvn --quiet --batch-mode compile",
        run: "java -cp target/classes:target/libraries/* Server",
        tls: "boringssl",
    },
];

impl Recipe {
    /// The recipe of this name; `None` for servers in Rust.
    pub(super) fn of(name: &str) -> Option<&'static Self> {
        RECIPES.iter().find(|recipe| recipe.name == name)
    }

    /// Builds the server from `sources`, the folder `peers` of a checkout, unless it is built already. `Err` has the reason
    /// why it cannot be.
    pub(super) fn build(&self, sources: &Path, target: &Path) -> Result<(), NotBuilt> {
        let broken = |error: io::Error| NotBuilt::Broken(error.to_string());
        let (needed, probe) = self.needs;
        let sources = sources.join(self.folder);
        let (folder, stamp) = (self.place(target), self.stamp(target));
        let version = self.version(&sources).map_err(broken)?;
        if fs::read_to_string(&stamp).is_ok_and(|known| known == version) {
            return Ok(());
        }
        if !shell(probe, Path::new("/")).is_ok_and(|output| output.status.success()) {
            return Err(NotBuilt::Missing(format!("it needs {needed}")));
        }
        match fs::remove_dir_all(&folder) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(broken(error)),
            _ => copy(&sources, &folder).map_err(broken)?,
        }
        let output = shell(self.build, &folder).map_err(broken)?;
        if !output.status.success() {
            return Err(NotBuilt::Broken(tail(&output)));
        }
        fs::write(&stamp, version).map_err(broken)
    }

    /// Whether it has been built.
    pub(super) fn is_built(&self, target: &Path) -> bool {
        self.stamp(target).is_file()
    }

    /// Command that starts the server, which ends with the process that starts it.
    pub(super) fn command(&self, target: &Path) -> io::Result<Command> {
        let folder = self.place(target);
        let log = fs::File::create(folder.join(format!("{}.log", self.name)))?;
        let mut command = Command::new("setpriv");
        command.args(["--pdeathsig", "TERM", "--"]).args(self.run.split(' ')).current_dir(folder).stderr(log);
        Ok(command)
    }

    /// Last line that the server wrote to standard error.
    pub(super) fn last_words(&self, target: &Path) -> Option<String> {
        let log = fs::read_to_string(self.place(target).join(format!("{}.log", self.name))).ok()?;
        Some(log.lines().rfind(|line| !line.trim().is_empty())?.trim().to_owned())
    }

    fn place(&self, target: &Path) -> PathBuf {
        target.join(self.folder)
    }

    /// File that says what was built.
    fn stamp(&self, target: &Path) -> PathBuf {
        self.place(target).join(".built")
    }

    /// Changes with the sources and the command.
    fn version(&self, sources: &Path) -> io::Result<String> {
        let mut hasher = DefaultHasher::new();
        self.build.hash(&mut hasher);
        for file in files(sources)? {
            file.hash(&mut hasher);
            fs::read(file)?.hash(&mut hasher);
        }
        Ok(format!("{:016x}", hasher.finish()))
    }
}

/// Reason why there is no server.
#[derive(Debug)]
pub(super) enum NotBuilt {
    /// The machine lacks a tool.
    Missing(String),
    /// The command that builds it failed.
    Broken(String),
}

impl NotBuilt {
    /// The reason in a line.
    pub(super) fn why(self) -> String {
        match self {
            Self::Missing(why) => why,
            Self::Broken(why) => format!("it could not be built: {why}"),
        }
    }
}

impl From<NotBuilt> for Error {
    fn from(reason: NotBuilt) -> Self {
        Self::Failed(reason.why())
    }
}

fn shell(line: &str, folder: &Path) -> io::Result<Output> {
    // Toolchains are found as in the user's shell, not as in that of cargo, which may run this.
    let mut command = Command::new("sh");
    command.args(["-c", line]).current_dir(folder).stdin(Stdio::null()).env_remove("CARGO_TARGET_DIR");
    command.output()
}

/// Last lines of a failed command.
fn tail(output: &Output) -> String {
    let text = [&output.stdout[..], &output.stderr].map(String::from_utf8_lossy).concat();
    let lines: Vec<&str> = text.lines().filter(|line| !line.trim().is_empty()).collect();
    lines[lines.len().saturating_sub(4)..].join("; ")
}

/// All files below a folder, sorted.
fn files(folder: &Path) -> io::Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            found.extend(files(&entry.path())?);
        } else {
            found.push(entry.path());
        }
    }
    found.sort();
    Ok(found)
}

/// Copies a folder.
fn copy(from: &Path, to: &Path) -> io::Result<()> {
    fs::create_dir_all(to)?;
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        let to = to.join(entry.file_name());
        if entry.file_type()?.is_dir() {
            copy(&entry.path(), &to)?;
        } else {
            fs::copy(entry.path(), to)?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEST: Recipe = Recipe {
        name: "ws",
        folder: "one",
        needs: ("nothing", "true"),
        build: "cat source >> built",
        run: "sh source",
        tls: "none",
    };

    /// A folder for a test, with sources.
    fn folder(name: &str) -> PathBuf {
        let folder = std::env::temp_dir().join(format!("taut-recipe-{name}-{}", std::process::id()));
        fs::create_dir_all(folder.join("peers/one/inner")).unwrap();
        fs::write(folder.join("peers/one/source"), "a").unwrap();
        fs::write(folder.join("peers/one/inner/file"), "b").unwrap();
        folder
    }

    #[test]
    fn builds_again_only_after_a_change() {
        let folder = folder("change");
        let (sources, target) = (folder.join("peers"), folder.join("target"));
        let built = || fs::read_to_string(target.join("one/built")).unwrap();
        assert!(!TEST.is_built(&target));
        TEST.build(&sources, &target).unwrap();
        assert!(TEST.is_built(&target) && target.join("one/inner/file").is_file());
        fs::write(target.join("one/built"), "kept").unwrap();
        TEST.build(&sources, &target).unwrap();
        assert_eq!(built(), "kept");
        fs::write(sources.join("one/source"), "c").unwrap();
        TEST.build(&sources, &target).unwrap();
        assert_eq!(built(), "c");
        fs::remove_dir_all(folder).unwrap();
    }

    #[test]
    fn reasons_name_the_missing_tool_or_the_failed_command() {
        let folder = folder("reasons");
        let (sources, target) = (folder.join("peers"), folder.join("target"));
        let missing = Recipe { needs: ("a unicorn", "unicorn --version"), ..TEST };
        let why = missing.build(&sources, &target).unwrap_err();
        assert!(matches!(why, NotBuilt::Missing(_)) && why.why() == "it needs a unicorn");
        let broken = Recipe { build: "echo one; echo two >&2; exit 1", ..TEST };
        let why = broken.build(&sources, &target).unwrap_err();
        assert!(matches!(why, NotBuilt::Broken(_)) && !TEST.is_built(&target));
        assert_eq!(Error::from(why).to_string(), "it could not be built: one; two");
        fs::remove_dir_all(folder).unwrap();
    }

    #[test]
    fn every_recipe_has_sources_in_this_checkout() {
        let sources = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../peers");
        for recipe in &RECIPES {
            assert!(sources.join(recipe.folder).is_dir(), "{}", recipe.name);
            assert_eq!(Recipe::of(recipe.name).map(|known| known.run), Some(recipe.run));
        }
    }
}
