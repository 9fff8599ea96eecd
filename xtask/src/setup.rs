//! Free space and tools: the conditions for the stages.

use std::process::Command;

use crate::outcome::{Failure, Outcome};
use crate::paths;
use crate::process::{self, succeeds};
use crate::stage::{self, Context};

/// A tool, a command that succeeds if it is installed, and its packages.
struct Need {
    name: &'static str,
    probe: (&'static str, &'static [&'static str]),
    packages: &'static [&'static str],
}

/// The tools that `cargo xtask test` needs.
const FEW: &[Need] = &[
    Need { name: "C compiler", probe: ("cc", &["--version"]), packages: &["gcc", "libc6-dev"] },
    Need { name: "OpenSSL", probe: ("openssl", &["version"]), packages: &["openssl"] },
    Need { name: "ip (network namespaces)", probe: ("ip", &["-V"]), packages: &["iproute2"] },
    Need { name: "git", probe: ("git", &["--version"]), packages: &["git"] },
    Need { name: "certificate authorities", probe: ("test", &["-s", CA_BUNDLE]), packages: &["ca-certificates"] },
];

/// The tools that other tasks need beside these.
const MORE: &[Need] = &[
    Need {
        name: "C++ compiler (fuzzing, TLS engines, library for C)",
        probe: ("c++", &["--version"]),
        packages: &["g++"],
    },
    Need { name: "valgrind (library for C)", probe: ("valgrind", &["--version"]), packages: &["valgrind"] },
    Need { name: "pkg-config (library for C)", probe: ("pkg-config", &["--version"]), packages: &["pkg-config"] },
    Need { name: "binutils (TLS engines)", probe: ("objcopy", &["--version"]), packages: &["binutils"] },
    Need { name: "make (OpenSSL)", probe: ("make", &["--version"]), packages: &["make"] },
    Need {
        name: "Perl (OpenSSL)",
        probe: ("perl", &["-MIPC::Cmd", "-MFindBin", "-MFile::Compare", "-e", "1"]),
        packages: &["perl"],
    },
    Need { name: "CMake (BoringSSL)", probe: ("cmake", &["--version"]), packages: &["cmake"] },
    Need {
        name: "Python 3 with venv",
        probe: ("python3", &["-c", "import ensurepip, venv"]),
        packages: &["python3", "python3-venv"],
    },
    Need { name: "Go", probe: ("go", &["version"]), packages: &["golang-go"] },
    Need { name: "Node", probe: ("node", &["--version"]), packages: &["nodejs"] },
    Need { name: "nginx (probe)", probe: ("/usr/sbin/nginx", &["-v"]), packages: &["nginx-light"] },
    Need { name: "HAProxy (probe)", probe: ("/usr/sbin/haproxy", &["-v"]), packages: &["haproxy"] },
    Need { name: "npm", probe: ("npm", &["--version"]), packages: &["npm"] },
    Need {
        name: "OpenSSL's static libraries (TLS engines)",
        probe: ("sh", &["-c", "test -n \"$(find /usr/lib /usr/lib64 -maxdepth 2 -name libssl.a 2>&-)\""]),
        packages: &["libssl-dev"],
    },
    Need { name: "pebble (acme)", probe: ("sh", &["-c", "command -v pebble-challtestsrv"]), packages: &["pebble"] },
    Need { name: "Redis (redis)", probe: ("redis-server", &["--version"]), packages: &["redis-server"] },
    Need { name: "nsenter (network namespaces)", probe: ("nsenter", &["--version"]), packages: &["util-linux"] },
    Need { name: "QEMU (kernel TLS)", probe: ("qemu-system-x86_64", &["--version"]), packages: &["qemu-system-x86"] },
];

/// Tools whose stages are skipped without them, because not every distribution has such packages.
const OPTIONAL: &[Need] =
    &[Need { name: "Chromium (pages)", probe: ("chromium", &["--version"]), packages: &["chromium"] }];

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
    let missing = || needs.iter().filter(|need| !succeeds(need.probe.0, need.probe.1));
    let names = || missing().map(|need| need.name).collect::<Vec<_>>().join(", ");
    let packages: Vec<&str> = missing().flat_map(|need| need.packages).copied().collect();
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
