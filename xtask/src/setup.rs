//! What the stages need before they start: room on the disk, and Debian and Ubuntu packages.

use std::process::Command;

use crate::paths;
use crate::process::{self, succeeds};
use crate::stage::{self, Context, Failure, Outcome};

/// A tool, how to see that it is there, and the packages that bring it.
struct Need {
    what: &'static str,
    probe: (&'static str, &'static [&'static str]),
    packages: &'static [&'static str],
}

const NEEDS: &[Need] = &[
    Need { what: "C compiler", probe: ("cc", &["--version"]), packages: &["gcc", "libc6-dev"] },
    Need { what: "C++ compiler (fuzzing, TLS engines)", probe: ("c++", &["--version"]), packages: &["g++"] },
    Need { what: "binutils (TLS engines)", probe: ("objcopy", &["--version"]), packages: &["binutils"] },
    Need { what: "make (OpenSSL)", probe: ("make", &["--version"]), packages: &["make"] },
    Need {
        what: "Perl (OpenSSL)",
        probe: ("perl", &["-MIPC::Cmd", "-MFindBin", "-MFile::Compare", "-e", "1"]),
        packages: &["perl"],
    },
    Need { what: "CMake (BoringSSL)", probe: ("cmake", &["--version"]), packages: &["cmake"] },
    Need {
        what: "Python 3 with venv",
        probe: ("python3", &["-c", "import ensurepip, venv"]),
        packages: &["python3", "python3-venv"],
    },
    Need { what: "Go", probe: ("go", &["version"]), packages: &["golang-go"] },
    Need { what: "Node", probe: ("node", &["--version"]), packages: &["nodejs"] },
    Need { what: "npm", probe: ("npm", &["--version"]), packages: &["npm"] },
    Need { what: "OpenSSL", probe: ("openssl", &["version"]), packages: &["openssl"] },
    Need {
        what: "OpenSSL's static libraries (TLS engines)",
        probe: ("sh", &["-c", "test -n \"$(find /usr/lib /usr/lib64 -maxdepth 2 -name libssl.a 2>&-)\""]),
        packages: &["libssl-dev"],
    },
    Need { what: "ip (network namespaces)", probe: ("ip", &["-V"]), packages: &["iproute2"] },
    Need { what: "nsenter (network namespaces)", probe: ("nsenter", &["--version"]), packages: &["util-linux"] },
    Need { what: "QEMU (kernel TLS)", probe: ("qemu-system-x86_64", &["--version"]), packages: &["qemu-system-x86"] },
    Need { what: "git", probe: ("git", &["--version"]), packages: &["git"] },
    Need { what: "certificate authorities", probe: ("test", &["-s", CA_BUNDLE]), packages: &["ca-certificates"] },
];

/// Debian's bundle of public authorities.
pub(crate) const CA_BUNDLE: &str = "/etc/ssl/certs/ca-certificates.crt";

/// Bytes that everything together puts below `target`, with some to spare.
const ROOM: u64 = 8 << 30;

/// Refuses to begin what the disk has no room for: compilers and linkers say so in a hundred ways, and late.
fn room() -> Outcome {
    let root = paths::root();
    let disk = rustix::fs::statvfs(&root).map_err(std::io::Error::from)?;
    let free = disk.f_bavail.saturating_mul(disk.f_frsize);
    let is_built = paths::target().join("release").exists();
    if is_built || free >= ROOM {
        return Ok(());
    }
    let (free, needed, root) = (free >> 20, ROOM >> 20, root.display());
    Err(Failure::Failed(format!(
        "{free} MB are free on the disk of {root}, where a build and its tests take {needed} MB"
    )))
}

/// Looks for room, then installs what is missing where it may, else prints the command that does.
pub(crate) fn run(context: &Context) -> Outcome {
    room()?;
    let missing = missing();
    if missing.is_empty() {
        return Ok(());
    }
    let names: Vec<&str> = missing.iter().map(|need| need.what).collect();
    let packages: Vec<&str> = missing.iter().flat_map(|need| need.packages).copied().collect();
    eprintln!("missing: {}", names.join(", "));
    let command = format!("apt-get install -y --no-install-recommends {}", packages.join(" "));
    if !stage::is_root() || !succeeds("apt-get", &["--version"]) {
        return Err(Failure::Failed(format!(
            "install {} first; on Debian and Ubuntu: sudo {command}",
            names.join(", ")
        )));
    }
    process::run(&mut apt(&["update"]), context.deadline)?;
    let install: Vec<&str> = command.split(' ').skip(1).collect();
    process::run(&mut apt(&install), context.deadline)?;
    match self::missing().as_slice() {
        [] => Ok(()),
        still => Err(Failure::Failed(format!(
            "installed, yet missing: {}",
            still.iter().map(|need| need.what).collect::<Vec<_>>().join(", ")
        ))),
    }
}

fn missing() -> Vec<&'static Need> {
    NEEDS.iter().filter(|need| !succeeds(need.probe.0, need.probe.1)).collect()
}

fn apt(arguments: &[&str]) -> Command {
    let mut command = Command::new("apt-get");
    command.args(["-o", "Acquire::Retries=3"]).args(arguments).env("DEBIAN_FRONTEND", "noninteractive");
    command
}
