//! Servers of other projects, built from the folder `peers` of the checkout: those in Rust in two programs, and one for each
//! [`Recipe`].

use super::recipe::{NotBuilt, Recipe};
use super::{ENGINES, Lab};
use crate::Error;
use std::env;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use tautline_measure::named;

/// Instructions for users without the program.
const HOW: &str = "build it from the folder peers of the checkout (cargo build --release --manifest-path \
                   peers/Cargo.toml) and pass it with --peers FILE, or run this in the checkout";

named! {
    /// Another project's server. The name is also the first argument of the program with those in Rust.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub(super) enum Peer {
        Fastwebsockets = "fastwebsockets",
        Yawc = "yawc",
        /// yawc as its authors configure it in their own benchmarks.
        YawcTuned = "yawc-tuned",
        Tungstenite = "tungstenite",
        Sockudo = "sockudo",
        Wtx = "wtx",
        Axum = "axum",
        Uwebsockets = "uwebsockets",
        Beast = "beast",
        Gorilla = "gorilla",
        Coder = "coder",
        Ws = "ws",
        Bun = "bun",
        Websockets = "websockets",
        Picows = "picows",
        Netty = "netty",
        /// Not of another project: ours for tokio.
        Tautline = "tautline",
    }
}

/// Program with the server on wtx, in the folder of the program with the others.
const WTX: &str = "peers-wtx";

/// Rust that wtx needs.
const WTX_RUST: (u32, u32) = (1, 96);

impl Peer {
    /// Peers of echoes without compression.
    pub(super) const ECHO: [Self; 5] =
        [Self::Fastwebsockets, Self::Yawc, Self::YawcTuned, Self::Tungstenite, Self::Wtx];
    /// Peers of [`Suite::Peers`](super::Suite::Peers): all but the last, which is ours.
    pub(super) const SIDE_BY_SIDE: &[Self] = Self::ALL.split_at(Self::ALL.len() - 1).0;
    /// Servers on tokio, ours among them.
    pub(super) const TOKIO: [Self; 6] =
        [Self::Fastwebsockets, Self::Yawc, Self::YawcTuned, Self::Tungstenite, Self::Axum, Self::Tautline];
    /// Peers with permessage-deflate.
    pub(super) const DEFLATE: [Self; 3] = [Self::Yawc, Self::Sockudo, Self::Wtx];

    /// Name of its TLS library.
    pub(super) fn tls(self) -> &'static str {
        match self {
            Self::Wtx => "wtx",
            Self::Tautline => ENGINES[0],
            _ => self.recipe().map_or("rustls", |recipe| recipe.tls),
        }
    }

    /// Instructions to build and run it; `None` if it is one of those in Rust.
    pub(super) fn recipe(self) -> Option<&'static Recipe> {
        Recipe::of(self.name())
    }

    /// Whether its program can send a message to all clients.
    ///
    /// fastwebsockets and wtx lack halves of a connection that two tasks may use and drop at any time.
    pub(super) const fn can_broadcast(self) -> bool {
        !matches!(self, Self::Fastwebsockets | Self::Wtx | Self::YawcTuned)
    }

    /// Whether it is our library.
    pub(super) const fn is_ours(self) -> bool {
        matches!(self, Self::Tautline)
    }
}

impl Lab<'_> {
    /// Builds those of these servers that are in other languages and not built yet, which takes minutes the first time. Returns
    /// the reasons why some are missing.
    pub(super) fn build_peers(&mut self, peers: &[Peer]) -> Vec<(Peer, NotBuilt)> {
        let recipes: Vec<_> = peers.iter().filter_map(|&peer| Some((peer, peer.recipe()?))).collect();
        let Some(manifest) = manifest() else {
            let away = || NotBuilt::Missing("it is built from a checkout, and this is none".to_owned());
            return recipes.into_iter().map(|(peer, _)| (peer, away())).collect();
        };
        let (sources, target) = (manifest.with_file_name(""), target());
        let mut missing = Vec::new();
        for (peer, recipe) in recipes {
            (self.progress)(0.0, &format!("building {}", peer.name()));
            missing.extend(recipe.build(&sources, &target).err().map(|why| (peer, why)));
        }
        missing
    }

    /// Finds the programs with the peers or builds them, which takes minutes the first time. Returns a warning if the one
    /// with wtx is missing.
    pub(super) fn find_peers(&mut self) -> Result<Option<String>, Error> {
        let mut wtx = Ok(());
        let given = self.peers.take();
        let program = match given {
            Some(given) if given.is_file() => given,
            Some(given) => return Err(Error::Usage(format!("there is no program {}; {HOW}", given.display()))),
            None => {
                let manifest = manifest().ok_or_else(|| {
                    Error::Usage(format!("there is no peers/Cargo.toml here or above the program; {HOW}"))
                })?;
                (self.progress)(0.0, "building the peers, which takes minutes the first time");
                let program = build(&manifest, &[], "peers")?;
                wtx = build_wtx(&manifest.with_file_name("wtx/Cargo.toml"));
                program
            }
        };
        self.peers = Some(program);
        if self.program_of(Peer::Wtx).is_some() {
            return Ok(None);
        }
        let why = wtx.err().unwrap_or_else(|| format!("there is no program {WTX} beside the other peers"));
        Ok(Some(format!("wtx is missing: {why}")))
    }

    /// The program with this peer's server, one of those in Rust.
    pub(super) fn program_of(&self, peer: Peer) -> Option<PathBuf> {
        let peers = self.peers.as_ref()?;
        match peer {
            Peer::Wtx => Some(peers.with_file_name(WTX)).filter(|program| program.is_file()),
            _ => Some(peers.clone()),
        }
    }

    /// Those of `peers` whose program there is.
    pub(super) fn available(&self, peers: &[Peer]) -> Vec<Peer> {
        let is_there = |peer: &Peer| match peer.recipe() {
            Some(recipe) => recipe.is_built(&target()),
            None => self.program_of(*peer).is_some(),
        };
        peers.iter().copied().filter(is_there).collect()
    }
}

/// Folder of everything that is built of the peers.
pub(super) fn target() -> PathBuf {
    let checkout = manifest().map(|manifest| manifest.with_file_name("..").join("target"));
    env::var_os("CARGO_TARGET_DIR").map(PathBuf::from).or(checkout).unwrap_or_default().join("peers")
}

/// `peers/Cargo.toml` of the checkout that this program runs in, or that it was built in.
fn manifest() -> Option<PathBuf> {
    let places = [env::current_dir(), env::current_exe()];
    places
        .into_iter()
        .flatten()
        .find_map(|place| place.ancestors().map(|folder| folder.join("peers/Cargo.toml")).find(|file| is_ours(file)))
}

/// The checkout that this program runs in, or that it was built in.
pub(super) fn checkout() -> Option<PathBuf> {
    Some(manifest()?.parent()?.parent()?.to_owned())
}

/// Whether this is the manifest of our peers, which lies in our checkout.
fn is_ours(manifest: &Path) -> bool {
    manifest.is_file() && manifest.with_file_name("../crates/lab").is_dir()
}

/// Builds the server on wtx with the first toolchain that is new enough.
fn build_wtx(manifest: &Path) -> Result<(), String> {
    const TOOLCHAINS: [&[&str]; 3] = [&[], &["rustup", "run", "beta"], &["rustup", "run", "nightly"]];
    let Some(toolchain) = TOOLCHAINS.into_iter().find(|toolchain| version(toolchain) >= Some(WTX_RUST)) else {
        let (major, minor) = WTX_RUST;
        return Err(format!(
            "it needs Rust {major}.{minor}, or a nightly toolchain (rustup toolchain install nightly)"
        ));
    };
    build(manifest, toolchain, WTX).map(drop).map_err(|error| error.to_string())
}

/// Version of the compiler of a toolchain, if there is one.
fn version(toolchain: &[&str]) -> Option<(u32, u32)> {
    let mut words = toolchain.iter().copied().chain(["rustc", "--version"]);
    let output = Command::new(words.next()?).args(words).stdin(Stdio::null()).output().ok()?;
    parse_version(std::str::from_utf8(&output.stdout).ok()?)
}

/// The numbers of `rustc 1.95.0 (…)`.
fn parse_version(text: &str) -> Option<(u32, u32)> {
    let mut numbers = text.strip_prefix("rustc ")?.split('.');
    Some((numbers.next()?.parse().ok()?, numbers.next()?.parse().ok()?))
}

/// Builds a program by a toolchain: `cargo`, behind the words of a command that chooses another one.
fn build(manifest: &Path, toolchain: &[&str], name: &str) -> Result<PathBuf, Error> {
    let target = target();
    let mut command = match toolchain {
        [first, rest @ ..] => {
            let mut command = Command::new(first);
            // Settings of the toolchain that runs this program would be passed on.
            command.args(rest).arg("cargo").env_remove("RUSTUP_TOOLCHAIN").env_remove("RUSTC").env_remove("CARGO");
            command
        }
        [] => Command::new(env::var_os("CARGO").unwrap_or_else(|| "cargo".into())),
    };
    command.args(["build", "--release", "--locked", "--manifest-path"]).arg(manifest).arg("--target-dir").arg(&target);
    let output = command.stdin(Stdio::null()).output();
    let output =
        output.map_err(|error| Error::Usage(format!("cannot run cargo to build the peers: {error}; {HOW}")))?;
    if !output.status.success() {
        let errors = String::from_utf8_lossy(&output.stderr);
        let tail: Vec<&str> = errors.lines().rev().take(12).collect();
        let tail: Vec<&str> = tail.into_iter().rev().collect();
        return Err(Error::Failed(format!("the peers could not be built:\n{}", tail.join("\n"))));
    }
    Ok(target.join("release").join(name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_the_manifest_of_this_checkout() {
        let manifest = manifest().unwrap();
        assert!(std::fs::read_to_string(manifest).unwrap().contains("name = \"peers\""));
        assert!(!is_ours(Path::new("/peers/Cargo.toml")));
    }

    #[test]
    fn reads_versions_of_compilers() {
        assert_eq!(parse_version("rustc 1.95.0 (0a1b2c3d4 2026-04-14)\n"), Some((1, 95)));
        assert_eq!(parse_version("rustc 1.97.0-nightly (e50aa6fba 2026-05-19)"), Some((1, 97)));
        assert_eq!((parse_version(""), parse_version("error: toolchain 'beta' is not installed")), (None, None));
        assert!(version(&["/does/not/exist"]).is_none());
    }
}
