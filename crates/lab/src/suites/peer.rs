//! Servers of other projects, in one program that is built from the folder `peers` of the checkout.

use super::Lab;
use crate::Error;
use crate::named::named;
use std::env;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Instructions for users without the program.
const HOW: &str = "build it from the folder peers of the checkout (cargo build --release --manifest-path \
                   peers/Cargo.toml) and pass it with --peers FILE, or run this in the checkout";

named! {
    /// Another project's server. The name is also the first argument of the program.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub(super) enum Peer {
        Fastwebsockets = "fastwebsockets",
        Yawc = "yawc",
        /// yawc as its authors configure it in their own benchmarks.
        YawcTuned = "yawc-tuned",
        Tungstenite = "tungstenite",
    }
}

impl Peer {
    /// Name of its TLS library.
    pub(super) const fn tls(self) -> &'static str {
        "rustls"
    }
}

impl Lab<'_> {
    /// Finds the program with the peers or builds it, which takes minutes the first time.
    pub(super) fn find_peers(&mut self) -> Result<(), Error> {
        let given = self.peers.take();
        let program = match given {
            Some(given) if given.is_file() => given,
            Some(given) => return Err(Error::Usage(format!("there is no program {}; {HOW}", given.display()))),
            None => {
                let manifest = manifest().ok_or_else(|| {
                    Error::Usage(format!("there is no peers/Cargo.toml here or above the program; {HOW}"))
                })?;
                (self.progress)(0.0, "building the peers, which takes minutes the first time");
                build(&manifest)?
            }
        };
        self.peers = Some(program);
        Ok(())
    }
}

/// `peers/Cargo.toml` of the checkout that this program runs in, or that it was built in.
fn manifest() -> Option<PathBuf> {
    let places = [env::current_dir(), env::current_exe()];
    places
        .into_iter()
        .flatten()
        .find_map(|place| place.ancestors().map(|folder| folder.join("peers/Cargo.toml")).find(|file| is_ours(file)))
}

/// Whether this is the manifest of our peers, which lies in our checkout.
fn is_ours(manifest: &Path) -> bool {
    manifest.is_file() && manifest.with_file_name("../crates/lab").is_dir()
}

fn build(manifest: &Path) -> Result<PathBuf, Error> {
    let checkout = manifest.parent().and_then(Path::parent).unwrap_or_else(|| Path::new("."));
    let target = env::var_os("CARGO_TARGET_DIR").map_or_else(|| checkout.join("target"), PathBuf::from).join("peers");
    let mut command = Command::new(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
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
    Ok(target.join("release/peers"))
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
}
