//! Programs of other projects that a suite starts.

use super::{Effort, Lab, Outcome, group};
use crate::cpu::Pinned;
use std::fs::File;
use std::io::Read;
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// Time for a program until it accepts connections, and until it ends.
const START: Duration = Duration::from_secs(20);
const END: Duration = Duration::from_secs(3);

/// A program that runs until this is dropped.
pub(super) struct Guest {
    child: Child,
    pub(super) address: SocketAddr,
}

impl Guest {
    /// Starts a program on a CPU, and waits until it accepts connections at its address. Its output goes to the file `log`. `Err`
    /// says why it does not run.
    pub(super) fn start(command: &mut Command, address: SocketAddr, cpu: usize, log: &Path) -> Result<Self, String> {
        let errors = File::create(log).map_err(|error| format!("{}: {error}", log.display()))?;
        let out = errors.try_clone().map_err(|error| error.to_string())?;
        // Ctrl-C on the terminal is for this process, which ends its guests itself.
        command.stdin(Stdio::null()).stdout(out).stderr(errors).process_group(0);
        let pinned = Pinned::to(cpu).map_err(|error| error.to_string())?;
        let child = command.spawn().map_err(|error| error.to_string())?;
        drop(pinned);
        let mut guest = Self { child, address };
        let end = Instant::now() + START;
        while TcpStream::connect(address).is_err() {
            let has_ended = !matches!(guest.child.try_wait(), Ok(None));
            if has_ended || Instant::now() > end {
                let mut words = String::new();
                let _ = File::open(log).and_then(|mut log| log.read_to_string(&mut words));
                return Err(words.lines().last().unwrap_or("it accepts no connections").to_owned());
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        Ok(guest)
    }

    pub(super) fn pid(&self) -> u32 {
        self.child.id()
    }
}

impl Drop for Guest {
    fn drop(&mut self) {
        group::end(&mut self.child, END);
    }
}

/// A program that is installed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Installed<P> {
    pub(super) program: P,
    pub(super) name: &'static str,
    pub(super) path: PathBuf,
    version: String,
}

impl<P> Installed<P> {
    pub(super) fn new(program: P, name: &'static str, path: PathBuf, version: String) -> Self {
        Self { program, name, path, version }
    }

    /// Name and version.
    pub(super) fn title(&self) -> String {
        format!("{} {}", self.name, self.version)
    }
}

/// The programs that are installed. The others are named, with the reason. A smoke run has none.
pub(super) fn find_all<P>(
    lab: &Lab<'_>,
    programs: impl IntoIterator<Item = P>,
    find: impl Fn(&P) -> (&'static str, Result<Installed<P>, String>),
    outcome: &mut Outcome,
) -> Vec<Installed<P>> {
    let wanted = programs.into_iter().filter(|_| lab.effort != Effort::Smoke);
    let found = wanted.filter_map(|program| match find(&program) {
        (_, Ok(found)) => Some(found),
        (name, Err(why)) => {
            outcome.warnings.push(format!("{name} is missing: {why}"));
            None
        }
    });
    found.collect()
}

/// The program of this name, which is a package of the distribution too.
pub(super) fn packaged(name: &str) -> Result<PathBuf, String> {
    on_path(name).ok_or_else(|| format!("install the package {name} of the distribution"))
}

/// An address that nothing listens at, for a program that cannot tell which port it took.
pub(super) fn free_address() -> Result<SocketAddr, String> {
    let free = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).and_then(|listener| listener.local_addr());
    free.map_err(|error| error.to_string())
}

/// The program of this name on the path, or among those that only administrators have there.
pub(super) fn on_path(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let folders = std::env::split_paths(&path).chain([PathBuf::from("/usr/sbin")]);
    folders.map(|folder| folder.join(name)).find(|file| file.is_file())
}

/// The version that a program prints when it gets this argument.
pub(super) fn version_of(program: &Path, argument: &str) -> Result<String, String> {
    let output = Command::new(program).arg(argument).stdin(Stdio::null()).output();
    let output = output.map_err(|error| format!("{}: {error}", program.display()))?;
    let text = [output.stdout, output.stderr].concat();
    version(&String::from_utf8_lossy(&text)).ok_or_else(|| "it does not state its version".to_owned())
}

/// The first word that begins with a number, as programs state their version.
fn version(text: &str) -> Option<String> {
    let words = text.split([' ', '\n', '/', '=']).map(|word| word.strip_prefix('v').unwrap_or(word));
    words.into_iter().find(|word| word.starts_with(|first: char| first.is_ascii_digit())).map(str::to_owned)
}

/// Runs a command to its end. `Err` has its last line.
pub(super) fn run(command: &mut Command) -> Result<(), String> {
    let name = command.get_program().to_string_lossy().into_owned();
    let output = command.stdin(Stdio::null()).output().map_err(|error| format!("{name}: {error}"))?;
    let text = String::from_utf8_lossy(&output.stderr);
    if output.status.success() { Ok(()) } else { Err(format!("{name}: {}", text.lines().last().unwrap_or_default())) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_found_in_what_programs_print() {
        for (text, expected) in [
            ("nginx version: nginx/1.22.1\n", "1.22.1"),
            ("HAProxy version 2.6.12-1+deb12u4 2026/10/17 - https://haproxy.org/\n", "2.6.12-1+deb12u4"),
            ("v2.11.7 h1:yj0Y4fYZGPkSvibBJ1sTWE33xC0fxztVyXEW5iIdUT4=\n", "2.11.7"),
            ("Redis server v=7.0.15 sha=00000000:0 malloc=jemalloc-5.3.0 bits=64\n", "7.0.15"),
            ("nats-server: v2.11.4\n", "2.11.4"),
            ("Centrifugo v6.9.1 (Go version: go1.26.8)\n", "6.9.1"),
        ] {
            assert_eq!(version(text).as_deref(), Some(expected));
        }
        assert_eq!(version("no version"), None);
    }

    #[test]
    fn a_program_that_accepts_nothing_is_named_by_its_last_words() {
        let log = std::env::temp_dir().join(format!("taut-guest-{}.log", std::process::id()));
        let mut command = Command::new("sh");
        command.args(["-c", "echo first; echo the reason; exit 1"]);
        let failed = Guest::start(&mut command, free_address().unwrap(), crate::cpu::allowed()[0], &log);
        assert_eq!(failed.err().as_deref(), Some("the reason"));
        std::fs::remove_file(log).unwrap();
        assert!(run(Command::new("sh").args(["-c", "echo no >&2; exit 1"])).is_err_and(|why| why == "sh: no"));
    }
}
