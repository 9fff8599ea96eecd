//! A `taut serve` under attack: a process of its own, whose memory and descriptors are watched.

use crate::outcome::Result;
use std::fmt;
use std::fs::{self, File};
use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use tautline::Certificate;
use tautline_dev_cert::{Authority, Leaf, Usage, Validity};

/// The composition of a server.
#[derive(Clone, Debug, Default)]
pub(crate) struct Target {
    /// The TLS engine; `None` is plain `ws`.
    pub(crate) tls: Option<String>,
    pub(crate) driver: String,
    /// Client certificates are required.
    pub(crate) client_certificates: bool,
    /// Attackers and the honest speak HTTP/2.
    pub(crate) http2: bool,
    /// Words behind the name of one that is no server alone, with a space in front.
    pub(crate) place: &'static str,
}

/// The option of `taut serve` for HTTP/2.
pub(crate) const HTTP2: &str = "--http2";

/// Whether `taut serve` has an option.
pub(crate) fn offers(taut: &Path, option: &str) -> bool {
    let help = Command::new(taut).args(["serve", "--help"]).output();
    help.is_ok_and(|help| String::from_utf8_lossy(&help.stdout).contains(option))
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let scheme = self.tls.as_deref().unwrap_or("ws");
        let client = if self.client_certificates { " client-ca" } else { "" };
        let http2 = if self.http2 { " http2" } else { "" };
        write!(f, "{scheme} {}{client}{http2}{}", self.driver, self.place)
    }
}

/// Authorities and certificates for all servers and attackers.
pub(crate) struct Material {
    pub(crate) folder: PathBuf,
    pub(crate) roots: String,
    pub(crate) certificate: Certificate,
    /// Certificates of clients: a good one, an expired one, and one of an authority that the server does not know.
    pub(crate) clients: [Certificate; 3],
    /// Certificates of hostile servers: an expired one, one of another authority, and one for another name.
    pub(crate) servers: [Certificate; 3],
}

impl Material {
    /// Makes everything anew in a folder.
    pub(crate) fn new(folder: &Path) -> Result<Self> {
        fs::create_dir_all(folder)?;
        let (authority, other) = (Authority::new("Hostile kit")?, Authority::new("Another")?);
        let client = Leaf::new(&["attacker"]).with_usage(Usage::Client);
        let clients = [
            authority.issue(&client)?,
            authority.issue(&client.with_validity(Validity::Expired))?,
            other.issue(&client)?,
        ];
        let leaf = Leaf::new(&["localhost", "127.0.0.1"]);
        let servers = [
            authority.issue(&leaf.with_validity(Validity::Expired))?,
            other.issue(&leaf)?,
            authority.issue(&Leaf::new(&["example.org"]))?,
        ];
        let certificate = authority.issue(&Leaf::new(&["localhost", "127.0.0.1"]))?;
        let roots = authority.certificate().to_owned();
        let material = Self { folder: folder.to_owned(), roots, certificate, clients, servers };
        fs::write(material.file("ca.pem"), authority.certificate())?;
        fs::write(material.file("cert.pem"), &material.certificate.chain)?;
        fs::write(material.file("key.pem"), &material.certificate.key)?;
        // For reloads: this one again, and another key of the same authority.
        fs::write(material.file("cert-1.pem"), &material.certificate.chain)?;
        fs::write(material.file("key-1.pem"), &material.certificate.key)?;
        let leaf = authority.issue(&Leaf::new(&["localhost", "127.0.0.1"]))?;
        fs::write(material.file("cert-2.pem"), &leaf.chain)?;
        fs::write(material.file("key-2.pem"), &leaf.key)?;
        Ok(material)
    }

    pub(crate) fn file(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }
}

/// A running server. Dropping it kills it.
pub(crate) struct Server {
    child: Child,
    pub(crate) target: Target,
    pub(crate) address: SocketAddr,
    pub(crate) roots: String,
    pub(crate) roots_file: PathBuf,
    pub(crate) certificate: Certificate,
    pub(crate) clients: [Certificate; 3],
    pub(crate) log: PathBuf,
}

impl Server {
    /// Starts `taut serve --app echo` with further arguments.
    pub(crate) fn start(taut: &Path, material: &Material, target: &Target, further: &[&str]) -> Result<Self> {
        let mut command = Command::new(taut);
        command.args(["serve", "--app", "echo"]).args(further);
        Self::spawn(command, material, target)
    }

    /// Starts `taut proxy` with this configuration.
    pub(crate) fn start_proxy(taut: &Path, material: &Material, target: &Target, file: &Path) -> Result<Self> {
        let mut command = Command::new(taut);
        command.args(["proxy", "--config"]).arg(file);
        Self::spawn(command, material, target)
    }

    fn spawn(mut command: Command, material: &Material, target: &Target) -> Result<Self> {
        let log = material.file(&format!("{target}.log").replace(' ', "-"));
        // Core dumps allowed: otherwise only root sees what memory the process has.
        command.args(["--listen", "127.0.0.1:0", "--core-dumps", "--driver", &target.driver]);
        match &target.tls {
            None => command.arg("--plain"),
            Some(engine) => {
                command.arg("--cert").arg(material.file("cert.pem")).arg("--key").arg(material.file("key.pem"));
                command.args(["--tls", engine])
            }
        };
        if target.http2 {
            command.arg(HTTP2);
        }
        if target.client_certificates {
            command.arg("--client-ca").arg(material.file("ca.pem"));
        }
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(File::create(&log)?);
        let mut child = command.spawn().map_err(|error| format!("cannot start {target}: {error}"))?;
        let mut line = String::new();
        if let Some(out) = child.stdout.take() {
            BufReader::new(out).read_line(&mut line)?;
        }
        let address = line.trim().rsplit('/').next().and_then(|address| address.parse().ok());
        let Some(address) = address else {
            let _ = child.kill();
            let _ = child.wait();
            return Err(format!("the server for `{target}` did not start: see {}", log.display()).into());
        };
        Ok(Self {
            child,
            target: target.clone(),
            address,
            roots: material.roots.clone(),
            roots_file: material.file("ca.pem"),
            certificate: material.certificate.clone(),
            clients: material.clients.clone(),
            log,
        })
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Whether the process runs.
    pub(crate) fn is_alive(&self) -> bool {
        let stat = fs::read_to_string(format!("/proc/{}/stat", self.pid())).unwrap_or_default();
        stat.rsplit(')').next().is_some_and(|rest| !rest.trim_start().starts_with(['Z', 'X']) && !rest.is_empty())
    }

    /// Resident memory in bytes: now, and at its highest since [`forget_peak`](Self::forget_peak).
    pub(crate) fn memory(&self) -> (u64, u64) {
        memory_of(self.pid())
    }

    /// Begins to measure the highest memory anew (proc(5), `clear_refs`).
    pub(crate) fn forget_peak(&self) {
        let _ = fs::write(format!("/proc/{}/clear_refs", self.pid()), "5");
    }

    /// Open descriptors.
    pub(crate) fn descriptors(&self) -> usize {
        fs::read_dir(format!("/proc/{}/fd", self.pid())).map_or(0, Iterator::count)
    }

    /// Sends a signal.
    pub(crate) fn signal(&self, signal: rustix::process::Signal) -> Result<()> {
        let pid = rustix::process::Pid::from_child(&self.child);
        Ok(rustix::process::kill_process(pid, signal)?)
    }

    /// Waits until the server has no more descriptors than this. False if that does not happen in time.
    pub(crate) fn settles_at(&self, descriptors: usize, patience: Duration) -> bool {
        let begun = Instant::now();
        while self.descriptors() > descriptors {
            if begun.elapsed() > patience {
                return false;
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        true
    }

    /// Ends the server as an operator does. An error names a bad end, or a panic in its log.
    pub(crate) fn stop(mut self) -> Result<()> {
        self.signal(rustix::process::Signal::TERM)?;
        let begun = Instant::now();
        let status = loop {
            if let Some(status) = self.child.try_wait()? {
                break status;
            }
            if begun.elapsed() > Duration::from_secs(20) {
                return Err("the server did not end within 20 s of SIGTERM".into());
            }
            std::thread::sleep(Duration::from_millis(10));
        };
        let log = String::from_utf8_lossy(&fs::read(&self.log)?).into_owned();
        if let Some(line) = log.lines().find(|line| line.contains("panicked")) {
            return Err(format!("a panic: {line}; see {}", self.log.display()).into());
        }
        if !status.success() {
            return Err(format!("the server ended with {status}; see {}", self.log.display()).into());
        }
        Ok(())
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Resident memory of a process in bytes: now, and at its highest.
pub(crate) fn memory_of(pid: u32) -> (u64, u64) {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let value = |name: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(name));
        let kib = line.and_then(|line| line.split_whitespace().next()).and_then(|kib| kib.parse::<u64>().ok());
        kib.unwrap_or(0) * 1024
    };
    (value("VmRSS:"), value("VmHWM:"))
}
