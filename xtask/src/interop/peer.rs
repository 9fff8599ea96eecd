//! Installation and commands of the peers.

use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::cargo::everything;
use crate::outcome::{Failure, Outcome};
use crate::process::{Deadline, run_logged, succeeds};
use crate::{install, paths, process};

/// Every peer.
pub(super) const PEERS: &[Peer] = &[Peer::Python, Peer::Go, Peer::Node];

/// Counts the checks in a peer's log.
pub(super) fn checks(log: &Path) -> usize {
    fs::read_to_string(log).map_or(0, |text| text.lines().filter(|line| line.starts_with("ok ")).count())
}

/// The programs in Go. The last is a peer of TLS alone.
const GO: [&str; 4] = ["client", "server", "backend", "tls"];

/// Another implementation of WebSocket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Peer {
    /// `websockets`.
    Python,
    /// `gorilla/websocket`.
    Go,
    /// `ws`.
    Node,
}

impl Peer {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Python => "python",
            Self::Go => "go",
            Self::Node => "node",
        }
    }

    /// Its client of servers behind a proxy, if this peer has one; arguments follow.
    pub(super) fn proxied(self) -> Option<Command> {
        (self != Self::Go).then(|| self.call("proxied"))
    }

    /// Whether its backend decides on frames. ASGI knows messages only.
    pub(super) fn decides_on_frames(self) -> bool {
        self != Self::Python
    }

    /// One of its programs; arguments follow. All peers have a `client`, a `server`, and a `backend` for proxies.
    pub(super) fn call(self, role: &str) -> Command {
        let folder = self.folder();
        let source = self.source();
        match self {
            Self::Python => {
                let mut command = Command::new(folder.join("bin/python"));
                command.arg(source.join(role).with_extension("py"));
                command
            }
            Self::Go => Command::new(folder.join(role)),
            Self::Node => {
                let mut command = Command::new("node");
                command.arg(source.join(role).with_extension("js")).env("NODE_PATH", folder.join("node_modules"));
                command
            }
        }
    }

    /// The tests of our TLS against a program of this peer, if it has one. The peer must be installed.
    pub(super) fn tls(self) -> Option<Command> {
        (self == Self::Go).then(|| {
            let mut test = everything(&["test", "--test", "peers", "go::"]);
            test.env("TAUTLINE_GO_TLS", self.folder().join("tls"));
            test
        })
    }

    /// The interpreter with the packages of the Python peer.
    pub(super) fn interpreter(self) -> Command {
        Command::new(self.folder().join("bin/python"))
    }

    /// The folder of the Node peer's packages.
    pub(super) fn modules(self) -> PathBuf {
        self.folder().join("node_modules")
    }

    /// A program of this peer, if it is there.
    pub(super) fn installed(self, program: &str) -> Option<PathBuf> {
        Some(self.folder().join(program)).filter(|path| path.exists())
    }

    /// The folder of its programs' sources.
    pub(super) fn source(self) -> PathBuf {
        paths::root().join("tests/interop").join(self.name())
    }

    pub(super) fn folder(self) -> PathBuf {
        paths::own("interop").join(self.name())
    }

    /// Fetches its dependencies and builds it, unless that is done already.
    pub(super) fn install(self, deadline: Deadline) -> Outcome {
        let version = match self {
            Self::Python => install::version("python3", "--version"),
            Self::Go => install::version("go", "version"),
            Self::Node => install::version("npm", "--version"),
        }?;
        let recipe = format!("{version}{}", self.recipe()?);
        install::once(
            &self.folder(),
            &recipe,
            |_| self.works(),
            |folder| match self {
                Self::Python => python(&self.source(), folder, deadline),
                Self::Go => go(&self.source(), folder, deadline),
                Self::Node => node(&self.source(), folder, deadline),
            },
        )
    }

    /// The texts that require another installation when they change.
    fn recipe(self) -> Result<String, Failure> {
        let files: &[&str] = match self {
            Self::Python => &["requirements.txt"],
            Self::Go => &["go.mod", "go.sum", "client/main.go", "server/main.go", "backend/main.go", "tls/main.go"],
            Self::Node => &["package.json", "package-lock.json"],
        };
        let texts: Result<Vec<String>, _> =
            files.iter().map(|file| fs::read_to_string(self.source().join(file))).collect();
        Ok(texts?.concat())
    }

    fn works(self) -> bool {
        let folder = self.folder();
        match self {
            Self::Python => {
                let imports = ["-c", "import fastapi, hypercorn, uvicorn, websockets, wsproto"];
                process::output(Command::new(folder.join("bin/python")).args(imports)).is_some()
            }
            Self::Go => GO.iter().all(|program| folder.join(program).exists()),
            Self::Node => ["express", "ws"].into_iter().all(|name| {
                succeeds("node", &["-e", &format!("require({:?})", folder.join("node_modules").join(name))])
            }),
        }
    }
}

fn python(source: &Path, folder: &Path, deadline: Deadline) -> Outcome {
    let requirements = source.join("requirements.txt");
    install::python(folder, &["-r", &requirements.to_string_lossy()], &paths::log("interop-python-install"), deadline)
}

/// Keeps modules and the build cache below the folder too. By default, Go makes modules read-only, and fetches another
/// version of itself.
fn go(source: &Path, folder: &Path, deadline: Deadline) -> Outcome {
    for program in GO {
        let mut build = go_build(source, folder);
        build.arg("-o").arg(folder.join(program)).arg(format!("./{program}"));
        run_logged(&mut build, &paths::log("interop-go-install"), deadline)?;
    }
    Ok(())
}

/// Builds packages of a module in Go.
pub(super) fn go_build(source: &Path, kept: &Path) -> Command {
    let mut build = Command::new("go");
    build.args(["build", "-mod=readonly", "-modcacherw", "-trimpath"]).current_dir(source);
    build.env("GOPATH", kept.join("path")).env("GOCACHE", kept.join("cache"));
    build.env("GOTOOLCHAIN", "local").env("CGO_ENABLED", "0").env_remove("GOMODCACHE");
    build
}

fn node(source: &Path, folder: &Path, deadline: Deadline) -> Outcome {
    for file in ["package.json", "package-lock.json"] {
        fs::copy(source.join(file), folder.join(file))?;
    }
    let mut npm = Command::new("npm");
    npm.args(["ci", "--no-audit", "--no-fund", "--ignore-scripts", "--cache"].map(OsStr::new));
    npm.arg(folder.join("cache")).current_dir(folder);
    run_logged(&mut npm, &paths::log("interop-node-install"), deadline)
}

/// Prints how many checks of a part held, or why it failed. Returns whether they held.
pub(super) fn hold(part: &str, held: Result<usize, Failure>) -> bool {
    match held {
        Ok(checks) => eprintln!("{part}: {checks} checks hold"),
        Err(failure) => {
            eprintln!("FAILED {part}: {}", failure.reason());
            return false;
        }
    }
    true
}
