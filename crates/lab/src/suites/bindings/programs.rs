//! The programs in other languages, built on demand.

use super::super::peer::checkout;
use crate::Error;
use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use tautline_measure::named;

named! {
    /// An echo server in Python. The name is also the first argument of its script.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub(in super::super) enum Python {
        Websockets = "websockets",
        Picows = "picows",
        Aiohttp = "aiohttp",
        /// Ours with coroutines, its loop in the thread of the event loop.
        Coroutines = "tautline",
        /// Ours with coroutines, its loop on a thread of its own.
        Thread = "tautline-thread",
        /// Ours with callbacks.
        Callbacks = "tautline-callbacks",
    }
}

impl Python {
    pub(in super::super) const fn is_ours(self) -> bool {
        matches!(self, Self::Coroutines | Self::Thread | Self::Callbacks)
    }

    /// Its script, for the interpreter of [`python`].
    pub(in super::super) fn script() -> Option<PathBuf> {
        Some(checkout()?.join("peers/python/echo.py"))
    }

    fn is_installed(self) -> bool {
        let (Some(python), Some(script)) = (python(), Self::script()) else { return false };
        let mut check = Command::new(python);
        check.arg(script).args([self.name(), "--check"]).stdin(Stdio::null()).stderr(Stdio::null());
        check.status().is_ok_and(|status| status.success())
    }
}

/// The programs that there are.
pub(super) struct Programs {
    /// Servers whose libraries are installed.
    pub(super) servers: Vec<Python>,
    /// Whether there is [`echo_in_c`].
    pub(super) has_c: bool,
    /// The command of a worker that measures TLS in Java, without arguments.
    pub(super) java: Option<Command>,
    /// Missing programs, with the reason.
    pub(super) missing: Vec<String>,
}

impl Programs {
    /// Builds what is missing, unless `builds` is false.
    pub(super) fn find(builds: bool, progress: &mut dyn FnMut(f64, &str)) -> Self {
        let mut missing = Vec::new();
        if !builds {
            missing.push("C, Python and Java: a smoke run builds nothing".to_owned());
            return Self { servers: Vec::new(), has_c: false, java: None, missing };
        }
        progress(0.0, "building the package for Python, which takes minutes the first time");
        if let Err(error) = make_python() {
            missing.push(format!("Python: {error}"));
        }
        let (servers, absent): (Vec<_>, Vec<_>) = Python::ALL.into_iter().partition(|server| server.is_installed());
        if python().is_some() {
            missing.extend(absent.iter().map(|server| format!("{}: it is not installed", server.name())));
        }
        progress(0.0, "building the library for C, which takes minutes the first time");
        let has_c = make_c().map_err(|error| missing.push(format!("C: {error}"))).is_ok();
        progress(0.0, "building the engine for Java");
        let java = make_java().map_err(|error| missing.push(format!("Java: {error}"))).ok();
        Self { servers, has_c, java, missing }
    }
}

/// The folder of all that is built here.
fn folder() -> Option<PathBuf> {
    let target = env::var_os("CARGO_TARGET_DIR").map(PathBuf::from);
    Some(target.unwrap_or(checkout()?.join("target")).join("bindings"))
}

/// The interpreter with the packages, if it has been made.
pub(in super::super) fn python() -> Option<PathBuf> {
    Some(folder()?.join("venv/bin/python")).filter(|python| python.exists())
}

/// The echo server in C, if it has been built.
pub(in super::super) fn echo_in_c() -> Option<PathBuf> {
    Some(folder()?.join("ws_echo")).filter(|program| program.exists())
}

/// Makes the virtual environment with the packages of others.
pub(in super::super) fn make_venv() -> Result<(), Error> {
    let (folder, checkout) = places()?;
    let venv = folder.join("venv");
    if !venv.join("bin/maturin").exists() {
        run(Command::new("python3").args(["-m", "venv"]).arg(&venv), "python3 -m venv")?;
        let requirements = checkout.join("peers/python/requirements.txt");
        // One by one: a package without a wheel for this machine is left out.
        for package in fs::read_to_string(&requirements).unwrap_or_default().lines() {
            let mut pip = Command::new(venv.join("bin/pip"));
            let installed = run(pip.args(["install", "--quiet", package]), "pip install");
            if package.starts_with("maturin") {
                installed?;
            }
        }
    }
    Ok(())
}

/// Installs the package of this checkout in the virtual environment.
fn make_python() -> Result<(), Error> {
    make_venv()?;
    let (folder, checkout) = places()?;
    let (venv, wheels) = (folder.join("venv"), folder.join("wheels"));
    let mut build = Command::new(venv.join("bin/maturin"));
    build.args(["build", "--release", "--locked", "--quiet", "--manifest-path"]);
    build.arg(checkout.join("bindings/python/Cargo.toml")).arg("--out").arg(&wheels);
    build.arg("--target-dir").arg(folder.join("rust")).env("PYO3_PYTHON", venv.join("bin/python"));
    run(&mut build, "maturin build")?;
    let mut install = Command::new(venv.join("bin/pip"));
    install.args(["install", "--quiet", "--no-index", "--no-deps", "--force-reinstall", "--find-links"]);
    run(install.arg(&wheels).arg("tautline-ws"), "pip install tautline-ws")
}

/// Builds the library for C, and returns its path.
fn make_library(folder: &Path, checkout: &Path) -> Result<PathBuf, Error> {
    let target = folder.join("rust");
    let cargo = env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut build = Command::new(cargo);
    // No library for Rust beside it: with one, rustc does not optimise across crates.
    build.args(["rustc", "--profile", "dist", "--locked", "--quiet", "-p", "tautline-capi"]);
    build.args(["--lib", "--crate-type", "cdylib"]);
    build.arg("--manifest-path").arg(checkout.join("Cargo.toml"));
    run(build.arg("--target-dir").arg(&target), "cargo rustc")?;
    Ok(target.join("dist/libtautline_capi.so"))
}

/// Builds the example in C against the library.
fn make_c() -> Result<(), Error> {
    let (folder, checkout) = places()?;
    let library = make_library(&folder, &checkout)?;
    let mut cc = Command::new("cc");
    cc.args(["-O2", "-std=c99", "-I"]).arg(checkout.join("crates/capi/include"));
    cc.arg(checkout.join("examples/c/ws_echo.c")).arg("-o").arg(folder.join("ws_echo")).arg(&library).arg("-pthread");
    // Programs load the library by its soname, here from the folder of the program.
    cc.arg("-Wl,-rpath,$ORIGIN");
    run(&mut cc, "cc")?;
    let loaded = folder.join("libtautline.so.0");
    fs::copy(&library, &loaded).map_err(|error| Error::Failed(format!("{}: {error}", loaded.display())))?;
    Ok(())
}

/// Builds the library and the classes, and returns the command of the worker.
fn make_java() -> Result<Command, Error> {
    let (folder, checkout) = places()?;
    let home = jdk().ok_or_else(|| Error::Usage("it needs a JDK of version 22 or later".to_owned()))?;
    let library = make_library(&folder, &checkout)?;
    let project = checkout.join("bindings/java");
    let classpath = folder.join("classpath");
    let mut maven = Command::new("mvn");
    maven.args(["--quiet", "--batch-mode", "test-compile", "dependency:build-classpath", "--file"]);
    maven.arg(project.join("pom.xml")).arg(format!("-Dmdep.outputFile={}", classpath.display()));
    run(maven.env("JAVA_HOME", &home), "mvn")?;
    let jars = fs::read_to_string(&classpath).unwrap_or_default();
    let [own, tests] = ["classes", "test-classes"].map(|name| project.join("target").join(name).display().to_string());
    let mut java = Command::new(home.join("bin/java"));
    java.args(["--enable-native-access=ALL-UNNAMED", "-cp", &format!("{own}:{tests}:{}", jars.trim())]);
    java.args(["dev.tautline.tls.Bench", "--worker"]);
    java.env("TAUTLINE_LIBRARY", library);
    Ok(java)
}

fn places() -> Result<(PathBuf, PathBuf), Error> {
    let none = || Error::Usage("there is no checkout here or above the program; run this in one".to_owned());
    let (folder, checkout) = (folder().ok_or_else(none)?, checkout().ok_or_else(none)?);
    fs::create_dir_all(&folder).map_err(|error| Error::Failed(format!("{}: {error}", folder.display())))?;
    Ok((folder, checkout))
}

/// The newest JDK with the foreign-function API.
fn jdk() -> Option<PathBuf> {
    let own = env::var_os("JAVA_HOME").map(PathBuf::from);
    let installed = fs::read_dir("/usr/lib/jvm").into_iter().flatten().flatten().map(|entry| entry.path());
    let version = |home: &PathBuf| {
        let release = fs::read_to_string(home.join("release")).ok()?;
        let text = release.lines().find_map(|line| line.strip_prefix("JAVA_VERSION=\""))?;
        let major: u32 = text.split(['.', '"', '-', '+']).next()?.parse().ok()?;
        (major >= 22 && home.join("bin/javac").exists()).then_some(major)
    };
    own.filter(|home| version(home).is_some())
        .or_else(|| installed.max_by_key(version).filter(|it| version(it).is_some()))
}

fn run(command: &mut Command, name: &str) -> Result<(), Error> {
    let output = command.stdin(Stdio::null()).output();
    let output = output.map_err(|error| Error::Usage(format!("cannot run {name}: {error}")))?;
    if output.status.success() {
        return Ok(());
    }
    let text = [output.stderr, output.stdout].concat();
    let text = String::from_utf8_lossy(&text);
    let first = text.lines().find(|line| line.to_lowercase().contains("error")).unwrap_or("no reason given");
    Err(Error::Failed(format!("{name} failed: {first}")))
}

/// The script that measures TLS in Python.
pub(super) fn tls_script() -> Option<PathBuf> {
    checkout().map(|checkout: PathBuf| Path::join(&checkout, "peers/python/tls.py"))
}
