//! Servers of other projects over HTTP/2: their configurations.

use super::super::guest::{self, Installed};
use super::super::running::Running;
use super::super::{Certificates, Key, Lab};
use crate::Error;
use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;
use tautline_measure::named;

/// Connections at a time, and requests of a connection, that none of them may refuse.
const MOST: u32 = 5_000;
const REQUESTS: u32 = 1_000_000_000;

named! {
    /// A server of another project, that of the distribution.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub(super) enum Program {
        /// WebSockets over HTTP/2, in front of a plain server.
        Haproxy = "haproxy",
        /// Files over HTTP/2. It has no WebSockets there.
        Nginx = "nginx",
        /// Files over HTTP/2.
        H2o = "h2o",
    }
}

impl Program {
    /// The installed program. `Err` says why there is none.
    pub(super) fn find(self) -> Result<Installed<Self>, String> {
        let path = guest::packaged(self.name())?;
        let version = guest::version_of(&path, "-v")?;
        Ok(Installed::new(self, self.name(), path, version))
    }
}

/// The places that a configuration names.
struct Place<'a> {
    listen: SocketAddr,
    backend: SocketAddr,
    /// The folder with the page.
    files: &'a str,
    /// The folder for files of the program itself.
    folder: &'a Path,
    chain: PathBuf,
    key: PathBuf,
}

/// Starts a program on the server's CPU, and waits until it accepts connections.
pub(super) fn start(
    lab: &Lab<'_>,
    installed: &Installed<Program>,
    certificates: &Certificates,
    (backend, files): (SocketAddr, &str),
) -> Result<Running, Error> {
    Running::start(lab, &installed.title(), certificates, |listen| {
        let (chain, key) = certificates.paths(Key::P256);
        installed.command(&Place { listen, backend, files, folder: certificates.folder(), chain, key })
    })
}

impl Installed<Program> {
    /// The command that runs it, and its configuration: name of the file, and content.
    fn command(&self, place: &Place<'_>) -> Result<(Command, PathBuf, String), Error> {
        let file = place.folder.join(format!("{}-{}.conf", self.program.name(), place.listen.port()));
        let mut command = Command::new(&self.path);
        let text = match self.program {
            Program::Nginx => {
                command.arg("-p").arg(place.folder).arg("-c").arg(&file);
                nginx(place)
            }
            Program::Haproxy => {
                command.args(["-db", "-f"]).arg(&file);
                haproxy(place)?
            }
            Program::H2o => {
                command.args(["-m", "worker", "-c"]).arg(&file).env("OPENSSL_CONF", suites(place)?);
                h2o(place)
            }
        };
        Ok((command, file, text))
    }
}

/// One process, which keeps the file open.
fn nginx(place: &Place<'_>) -> String {
    let Place { listen, folder, files, chain, key, .. } = place;
    let (folder, chain, key, port) = (folder.display(), chain.display(), key.display(), listen.port());
    let temporary = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"]
        .map(|name| format!("  {name}_temp_path {folder}/{name}-{port};\n"))
        .concat();
    format!(
        "daemon off;\nmaster_process off;\nworker_processes 1;\n\
         pid {folder}/nginx-{port}.pid;\nerror_log stderr warn;\nevents {{ worker_connections {}; }}\n\
         http {{\n  access_log off;\n{temporary}  open_file_cache max=10;\n  \
         server {{\n    listen {listen} ssl http2;\n    keepalive_requests {REQUESTS};\n    root {files};\n    \
         ssl_certificate {chain};\n    ssl_certificate_key {key};\n    ssl_protocols TLSv1.3;\n    \
         ssl_conf_command Ciphersuites TLS_AES_128_GCM_SHA256;\n  }}\n}}\n",
        2 * MOST + 100
    )
}

fn haproxy(place: &Place<'_>) -> Result<String, Error> {
    let Place { listen, backend, folder, chain, key, .. } = place;
    let failed = |error: std::io::Error| Error::Failed(format!("cannot write a certificate: {error}"));
    // It takes both from one file.
    let both = [fs::read(chain).map_err(failed)?, fs::read(key).map_err(failed)?].concat();
    let file = folder.join("haproxy.pem");
    fs::write(&file, both).map_err(failed)?;
    Ok(format!(
        "global\n  nbthread 1\n  maxconn {MOST}\n  ssl-default-bind-ciphersuites TLS_AES_128_GCM_SHA256\n  \
         ssl-default-bind-options ssl-min-ver TLSv1.3\n\
         defaults\n  mode http\n  timeout connect 5s\n  timeout client 1h\n  timeout server 1h\n  timeout tunnel 1h\n\
         frontend clients\n  bind {listen} ssl crt {} alpn h2,http/1.1\n  default_backend servers\n\
         backend servers\n  server one {backend}\n",
        file.display()
    ))
}

/// Writes the configuration of the library OpenSSL for h2o, whose releases have no setting for the suites of TLS 1.3.
fn suites(place: &Place<'_>) -> Result<PathBuf, Error> {
    let file = place.folder.join("openssl.cnf");
    let text = "openssl_conf = all\n[all]\nssl_conf = ssl\n[ssl]\nsystem_default = tls\n\
                [tls]\nCiphersuites = TLS_AES_128_GCM_SHA256\n";
    fs::write(&file, text).map_err(|error| Error::Failed(format!("{}: {error}", file.display())))?;
    Ok(file)
}

/// One thread. Without a user it would give up root, and with it the key in the folder of root.
fn h2o(place: &Place<'_>) -> String {
    let Place { listen, files, chain, key, .. } = place;
    let user = if rustix::process::geteuid().is_root() { "user: root\n" } else { "" };
    format!(
        "{user}num-threads: 1\nmax-connections: {MOST}\nlisten:\n  host: {}\n  port: {}\n  ssl:\n    \
         certificate-file: {}\n    key-file: {}\n    minimum-version: TLSv1.3\n    \
         ocsp-update-interval: 0\n\
         hosts:\n  default:\n    paths:\n      /:\n        file.dir: {files}\n",
        listen.ip(),
        listen.port(),
        chain.display(),
        key.display(),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_configuration_names_the_ends_of_its_server_and_its_certificate() {
        let folder = std::env::temp_dir().join(format!("taut-http2-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        let (chain, key) = (folder.join("p256.pem"), folder.join("p256-key.pem"));
        fs::write(&chain, "CHAIN\n").unwrap();
        fs::write(&key, "KEY\n").unwrap();
        let (listen, backend) = ("127.0.0.1:4001".parse().unwrap(), "127.0.0.1:4002".parse().unwrap());
        let place = Place { listen, backend, files: "/the/files", folder: &folder, chain, key };
        for program in Program::ALL {
            let installed = Installed::new(program, program.name(), "/bin/true".into(), "1".to_owned());
            let (command, file, text) = installed.command(&place).unwrap();
            let to = if program == Program::Haproxy { "127.0.0.1:4002" } else { "/the/files" };
            assert!(file.starts_with(&folder) && text.contains("4001") && text.contains(to), "{text}");
            let certificate = if program == Program::Haproxy { "haproxy.pem" } else { "p256-key.pem" };
            assert!(text.contains(certificate), "{text}");
            // The suite is that of the others, by the program's own setting or by that of its library.
            let library = command.get_envs().find(|(name, _)| *name == "OPENSSL_CONF").and_then(|(_, file)| file);
            let library = library.map_or_else(String::new, |file| fs::read_to_string(file).unwrap());
            assert!((text + &library).contains("TLS_AES_128_GCM_SHA256"), "{program:?}");
        }
        fs::remove_dir_all(&folder).unwrap();
    }
}
