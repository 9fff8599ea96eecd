//! Free space and tools: the conditions for the stages.

use std::process::Command;

use crate::outcome::{Failure, Outcome};
use crate::paths;
use crate::process::{self, succeeds};
use crate::stage::{self, Context};

/// A tool, a shell command that succeeds if it is installed, and its packages.
type Need = (&'static str, &'static str, &'static str);

/// The tools that `cargo xtask test` needs.
const FEW: &[Need] = &[
    ("C compiler", "cc --version", "gcc libc6-dev"),
    ("OpenSSL", "openssl version", "openssl"),
    ("ip (network namespaces)", "ip -V", "iproute2"),
    ("git", "git --version", "git"),
    ("certificate authorities", "test -s /etc/ssl/certs/ca-certificates.crt", "ca-certificates"),
];

/// The tools that other tasks need beside these.
const MORE: &[Need] = &[
    ("C++ compiler (fuzzing, TLS engines, library for C)", "c++ --version", "g++"),
    ("valgrind (library for C)", "valgrind --version", "valgrind"),
    ("pkg-config (library for C)", "pkg-config --version", "pkg-config"),
    ("binutils (TLS engines)", "objcopy --version", "binutils"),
    ("make (OpenSSL)", "make --version", "make"),
    ("Perl (OpenSSL)", "perl -MIPC::Cmd -MFindBin -MFile::Compare -e 1", "perl"),
    ("CMake (BoringSSL)", "cmake --version", "cmake"),
    ("Python 3 with venv", "python3 -c 'import ensurepip, venv'", "python3 python3-venv"),
    ("Go", "go version", "golang-go"),
    ("Node", "node --version", "nodejs"),
    ("nginx (probe)", "/usr/sbin/nginx -v", "nginx-light"),
    ("HAProxy (probe)", "/usr/sbin/haproxy -v", "haproxy"),
    ("npm", "npm --version", "npm"),
    (
        "OpenSSL's static libraries (TLS engines)",
        "test -n \"$(find /usr/lib /usr/lib64 -maxdepth 2 -name libssl.a 2>&-)\"",
        "libssl-dev",
    ),
    ("pebble (acme)", "command -v pebble-challtestsrv", "pebble"),
    ("Redis (redis)", "redis-server --version", "redis-server"),
    ("nsenter (network namespaces)", "nsenter --version", "util-linux"),
    ("QEMU (kernel TLS)", "qemu-system-x86_64 --version", "qemu-system-x86"),
];

/// Tools whose stages are skipped without them, because not every distribution has such packages.
const OPTIONAL: &[Need] = &[("Chromium (pages)", "chromium --version", "chromium")];

/// Debian's bundle of public authorities.
pub(crate) const CA_BUNDLE: &str = "/etc/ssl/certs/ca-certificates.crt";

/// Installs the tools for `cargo xtask test`, and fails if the disk is too full for it.
pub(crate) fn small(context: &Context) -> Outcome {
    // The last stage makes this folder, so the space is taken already if it is there.
    room(4 << 30, "doc")?;
    install(FEW, context)
}

/// Installs the tools for all tasks, and fails if the disk is too full for them.
pub(crate) fn all(context: &Context) -> Outcome {
    room(8 << 30, "sanitize")?;
    install(FEW, context)?;
    install(MORE, context)?;
    if let Err(failure) = install(OPTIONAL, context) {
        eprintln!("going on without: {}", failure.reason());
    }
    Ok(())
}

/// Checks for free space, unless a folder below `target` shows that a run has taken it. Without this check, compilers and
/// linkers fail late, and in many ways.
fn room(needed: u64, folder: &str) -> Outcome {
    let root = paths::root();
    let disk = rustix::fs::statvfs(&root).map_err(std::io::Error::from)?;
    let free = disk.f_bavail.saturating_mul(disk.f_frsize);
    if paths::target().join(folder).exists() || free >= needed {
        return Ok(());
    }
    let (free, needed, root) = (free >> 20, needed >> 20, root.display());
    Err(Failure::Failed(format!("{free} MB are free on the disk of {root}, but builds and tests take {needed} MB")))
}

/// Installs the missing tools as root on Debian and Ubuntu. Elsewhere it fails with the command that installs them.
fn install(needs: &[Need], context: &Context) -> Outcome {
    let missing = || needs.iter().filter(|(_, probe, _)| !succeeds("sh", &["-c", probe]));
    let names = || missing().map(|(name, ..)| *name).collect::<Vec<_>>().join(", ");
    let packages: Vec<&str> = missing().flat_map(|(.., packages)| packages.split(' ')).collect();
    if packages.is_empty() {
        return Ok(());
    }
    eprintln!("missing: {}", names());
    let command = [&["install", "-y", "--no-install-recommends"], &packages[..]].concat();
    if !stage::is_root() || !succeeds("apt-get", &["--version"]) {
        let command = command.join(" ");
        return Err(Failure::Failed(format!("install {}; on Debian and Ubuntu: sudo apt-get {command}", names())));
    }
    process::run(&mut apt(&["update"]), context.deadline)?;
    process::run(&mut apt(&command), context.deadline)?;
    match names() {
        still if still.is_empty() => Ok(()),
        still => Err(Failure::Failed(format!("installed, but not found: {still}"))),
    }
}

fn apt(arguments: &[&str]) -> Command {
    let mut command = Command::new("apt-get");
    command.args(["-o", "Acquire::Retries=3"]).args(arguments).env("DEBIAN_FRONTEND", "noninteractive");
    // Packages of servers start none at this run level: a port that they take belongs to the machine's user.
    command.env("RUNLEVEL", "1");
    command
}
